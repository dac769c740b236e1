"""The HTTP routes: responses, refusals and their messages; that no data leaves the machine; and the end by Ctrl+C."""

from __future__ import annotations

import http.client
import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from PIL import Image

from app.web import serving
from app.web.serving import serve
from app.wire.refusals import MAX_BODY
from core.errors import InputError, ModelFileError, ModelNotFound
from tests.app.site import Site
from tests.fake_drafts import Server
from tests.paths import ROOT


def refused(site: Site, body: Any) -> tuple[int, str]:
    response, content = site.ask("POST", "/api/drafts", body)
    answer = json.loads(content)
    assert set(answer) == {"message", "fix"}
    assert answer["fix"]
    return response.status, answer["message"]


def asked(tab: str, n: int = 1, before: str = "Once", **settings: Any) -> dict[str, Any]:
    return {"tab": tab, "n": n, "before": before, "settings": settings}


def test_an_idle_server_lets_the_processor_sleep(site: Site) -> None:
    status = Path(f"/proc/self/task/{site.server.thread.native_id}/status")

    def wakings() -> int:
        return int(re.findall(r"voluntary_ctxt_switches:\s*(\d+)", status.read_text())[0])

    site.ask("GET", "/")
    before = wakings()
    time.sleep(0.5)
    assert wakings() - before < 50  # uvicorn looks at its clock ten times a second


def test_the_first_line_is_there_before_the_last_is_made(site: Site) -> None:
    site.fake.model.step_s = 0.02
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    connection.request("POST", "/api/drafts", json.dumps(asked("early", length=30)), site.bearer)
    response = connection.getresponse()
    before = len(site.fake.model.passes)
    assert json.loads(response.readline())["step"] == 1
    assert len(site.fake.model.passes) - before < 10
    connection.close()


def test_a_dead_browser_leaves_nothing_running(site: Site) -> None:
    site.fake.model.step_s = 0.01
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        body = json.dumps(asked("dead", length=32)).encode()
        head = f"POST /api/drafts HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nContent-Length: {len(body)}\r\n"
        head += f"Authorization: Bearer {site.access.token}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert connection.recv(10)
    passes = len(site.fake.model.passes)
    time.sleep(0.2)
    assert len(site.fake.model.passes) - passes <= 6  # of the 30 that were left
    done = len(site.fake.model.passes)
    time.sleep(0.1)
    assert len(site.fake.model.passes) == done


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"settings": {"k": 12}}, "k is 12; at most 9 is accepted."),
        ({"settings": {"tau": float("nan")}}, "tau"),
        ({"settings": {"k": "3"}}, "k is a str; a whole number is expected."),
        ({"settings": {"colour": 1}}, "colour is no field that the server knows."),
        ({"tab": ""}, "tab is empty."),
        ({"tab": "x" * 100}, "tab is longer than 64 characters."),
        ({"before": None}, "before is null; text is expected."),
    ],
)
def test_wrong_fields_are_named(site: Site, changed: dict[str, Any], words: str) -> None:
    status, message = refused(site, {**asked("wrong"), **changed})
    assert status == 422
    assert words in message


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"3", b"{}"])
def test_broken_bodies(site: Site, body: bytes) -> None:
    assert refused(site, body)[0] == 422


def test_a_body_beyond_the_limit_is_refused_in_words(site: Site) -> None:
    status, message = refused(site, asked("large", before="x" * (MAX_BODY + 1)))
    assert status == 413
    assert "256 kB" in message
    assert site.ask("POST", "/api/drafts", asked("large", before="x" * (MAX_BODY - 200)))[0].status == 200


@pytest.mark.parametrize("text", ["\0", "\ud83d", "a\udc00b", "👩‍👩‍👧", "שלום", "\n" * 10_000, ""])
def test_hostile_text_is_answered(site: Site, text: str) -> None:
    response, content = site.ask("POST", "/api/drafts", asked("hostile", before=text, length=1))
    assert response.status == 200
    assert json.loads(content.splitlines()[-1])["type"] == "stats"


def test_the_log_of_a_failed_route_repeats_no_text(caplog: pytest.LogCaptureFixture) -> None:
    app, log, text = FastAPI(), logging.getLogger("uvicorn.error"), "Nobody else may know."

    @app.get("/")
    def fail() -> None:
        raise ValueError(text)

    server = Server(app)
    log.addFilter(serving.without_text)
    log.addHandler(caplog.handler)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/")
        assert connection.getresponse().status == 500
        connection.close()
    finally:
        server.stop()
        log.removeFilter(serving.without_text)
        log.removeHandler(caplog.handler)
    assert "Exception in ASGI application" in caplog.text
    assert "ValueError" in caplog.text and "in fail" in caplog.text
    assert text not in caplog.text


def test_the_page_and_its_files(site: Site) -> None:
    response, content = site.ask("GET", "/")
    assert response.status == 200
    assert b"Polydraft" in content
    response, _ = site.ask("GET", "/page/editor/main.js")
    assert response.headers["cache-control"] == "no-cache"
    again, _ = site.ask("GET", "/page/editor/main.js", If_None_Match=response.headers["etag"])
    assert (again.status, again.headers["cache-control"]) == (304, "no-cache")
    manifest = json.loads(site.ask("GET", "/manifest.json")[1])
    assert (manifest["name"], manifest["start_url"], manifest["display"]) == ("Polydraft", "/", "standalone")
    pictures = [icon for icon in manifest["icons"] if icon["type"] == "image/png"]
    assert {icon["sizes"] for icon in pictures} >= {"192x192", "512x512"}, "what a browser installs has these"
    for icon in pictures:
        width, height = Image.open(io.BytesIO(site.ask("GET", icon["src"])[1])).size
        assert icon["sizes"] == f"{width}x{height}"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "localhost", ""])
def test_other_hosts_are_refused(site: Site, host: str) -> None:
    for path in ("/", "/api/status", "/page/editor/main.js", "/manifest.json"):
        response, content = site.ask("GET", path, Host=host.format(port=site.port))
        assert response.status == 403, path
        assert json.loads(content)["message"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_names_of_this_machine_are_accepted(site: Site, host: str) -> None:
    own = f"{host}:{site.port}"
    assert site.ask("GET", "/api/status", Host=own, Origin=f"http://{own}")[0].status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "127.0.0.1:{port}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_pages_are_refused(site: Site, headers: dict[str, str]) -> None:
    filled = {name: value.format(port=site.port) for name, value in headers.items()}
    response, content = site.ask("POST", "/api/drafts", asked("other"), **filled)
    assert response.status == 403
    assert "may not talk to Polydraft" in json.loads(content)["message"]


def test_a_link_from_another_site_opens_the_page(site: Site) -> None:
    assert site.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0].status == 200


def test_a_taken_port_is_an_error_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"Port {port} is already in use by another program"):
            serve(port=port, open_browser=False)


def test_without_a_port_the_one_that_belongs_to_the_users_texts_is_taken_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert serving.PORT == 7893
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(serving, "PORT", port)
        with pytest.raises(InputError, match=f"Port {port} is already in use.*--port.*belong to that address"):
            serve(open_browser=False)
    listener = serving._listen(0)
    assert listener
    with listener:
        assert listener.proto == socket.IPPROTO_TCP  # or else each answer begins 40 ms late


def child(code: str, home: Path, **environment: str) -> subprocess.Popen[str]:
    """A Python process whose user has nothing but `home`."""
    folders = {name: str(home / name) for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"} | folders | environment,
    )


def address_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Port and token of the app that a child serves, off its first line."""
    assert process.stdout
    line = process.stdout.readline()
    found = re.fullmatch(r"Polydraft is at http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})\n", line)
    if not found:
        process.kill()
        pytest.fail(line + "".join(process.communicate()))
    return int(found[1]), found[2]


# The app in a process of its own, watched from its first import until Ctrl+C.
WATCHED = """
    import json, sys
    from tests import outside
    import time
    import app.learning.personal
    import core.autocomplete
    from tests.fake_autocomplete import FakeAutocomplete

    fake = FakeAutocomplete()
    fake.model.step_s, fake.model.tokenizer = 0.05, object()
    WORK = {"short": (2000, 1), "long": (20, 150)}  # steps of an adding, and looks at the model in each

    def add_file(self, store, path, name, progress):
        steps, looks = WORK[name]
        try:
            for _ in range(steps):
                progress(0.5)
                for _ in range(looks):  # one long call of compiled code, as a tokenizer's
                    time.sleep(0.01)
                    if fake.model.closed:
                        print("used after it was closed", file=sys.stderr)
        finally:
            print(f"the {name} adding ended", "after" if fake.model.closed else "before", "the model")

    app.learning.personal.PersonalStores.add_file = add_file
    core.autocomplete.load_autocomplete = lambda *_, prose, **__: fake.real() if prose else None  # as the app drafts
    from app.web.serving import serve

    serve(port=0, open_browser=False)
    print(json.dumps(outside.found))
"""


@dataclass
class Watched:
    home: Path
    shared: Path  # its folder for temporary files
    answer: list[str]  # the types of the lines of one that was whole
    out: list[str]
    err: str
    status: int
    seconds: float  # from Ctrl+C to its end


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """An app that has run until Ctrl+C, while it answered and took two files in. Its folder for temporary files has a
    useless `gradio`."""
    home = tmp_path_factory.mktemp("watched")
    shared = home / "tmp"
    shared.mkdir()
    (shared / "gradio").write_text("")  # as useless as a folder of another user, to root too
    process = child(WATCHED, home, TMPDIR=str(shared))
    port, token = address_of(process)

    def answered(method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        data = body if body is None else json.dumps(body)
        connection.request(method, path, data, {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        assert response.status == 200, path
        return response

    lines = answered("POST", "/api/drafts", asked("a", length=1)).read().splitlines()
    for path in ("/", "/page/editor/main.js", "/manifest.json", "/theme.css", "/api/status"):
        answered("GET", path).read()
    time.sleep(0.5)  # whatever calls home does so from a thread
    under_way = [answered("POST", "/api/drafts", asked("a", 2, length=32))]
    assert under_way[0].readline()
    for name in ("short", "long"):
        under_way.append(answered("POST", f"/api/stores/add?store={name}&name={name}", "Some text."))
        assert json.loads(under_way[-1].readline()) == {"type": "progress", "share": 0.5}
    began = time.perf_counter()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    answer = [json.loads(line)["type"] for line in lines]
    return Watched(home, shared, answer, out.splitlines(), err, process.returncode, time.perf_counter() - began)


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_nothing_leaves_this_machine(watched: Watched) -> None:
    assert (watched.answer, watched.out[-1]) == (["drafts", "stats"], "[]")


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_serving_until_ctrl_c(watched: Watched) -> None:
    assert (watched.err, watched.status) == ("", 0)


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_ends_an_adding_before_the_model_is_closed(watched: Watched) -> None:
    assert sorted(watched.out[:-1]) == [f"the {name} adding ended before the model" for name in ("long", "short")]
    assert watched.seconds < 15  # and not after all the steps


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_gradio_puts_nothing_into_the_folder_that_all_users_share(watched: Watched) -> None:
    assert [path.name for path in watched.shared.iterdir()] == ["gradio"]
    (ours,) = watched.home.rglob("polydraft/gradio")
    assert ours.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "name", ["no/such/file.gguf", "nobody/has-this-model", "text.gguf", "cut.gguf", "folder", "loop.gguf"]
)
def test_a_model_that_is_not_there_or_cannot_be_read_ends_the_start(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("text.gguf").write_text("not a model")
    Path("folder").mkdir()
    Path("cut.gguf").write_bytes(b"GGUF and then nothing")
    Path("loop.gguf").symlink_to("loop.gguf")  # cannot be opened, by root either
    with pytest.raises((ModelNotFound, ModelFileError), match=re.escape(name)) as raised:
        serve(name, port=0, open_browser=False)
    assert "\n" not in str(raised.value)
