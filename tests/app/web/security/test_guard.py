"""Access: the token and its three forms, the routes that other users of the machine reach, the closed routes."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import re
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.testclient import TestClient
from typer.testing import CliRunner

from app.cli.main import app as command_line
from app.machine import running
from app.machine import token as tokens
from app.machine.private import data_folder, private_folder
from app.web.page import NEEDED, OnlyNeeded
from app.web.security import access
from app.web.security.access import Access, owner_of
from app.web.security.guard import HEADERS, Guard
from app.web.serving import serve
from core.errors import InputError
from core.files import write_whole
from tests.app.site import Site
from tests.app.web.test_server import address_of, asked, child
from tests.paths import ROOT, TESTS
from tests.waiting import until

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux reports the owner of a connection")
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no file modes")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can become another user; file modes and tickets are tested without",
)
ANOTHER = 65534  # the number of the user nobody


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user who has nothing yet."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def routes(found: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Method and path of every route, those of mounted apps included; parameters are filled in."""
    for route in found:
        if isinstance(route, Route):
            path = re.sub(r"\{.*?\}", "x", route.path)
            yield from ((method, path) for method in route.methods or ())
        elif isinstance(route, Mount):
            inner = route.app.gradio if isinstance(route.app, OnlyNeeded) else route.app
            yield from ((method, route.path + path) for method, path in routes(getattr(inner, "routes", [])))
            yield "GET", f"{route.path}/x"
        elif included := getattr(route, "original_router", None):  # FastAPI's router within a router
            yield from routes(included.routes)


# ---------------------------------------------------------------- the token in requests


HEALTH = {("GET", "/health"), ("GET", "/v1/health")}  # without the token: only that the server runs


def test_every_route_demands_the_token(site: Site) -> None:
    found = set(routes(site.server.app.routes))
    assert {("POST", "/api/drafts"), ("GET", "/api/stores"), ("GET", "/manifest.json"), ("GET", "/")} <= found
    assert ("POST", "/gradio_api/upload") in found
    for method, path in sorted(found):
        response, content = site.ask_as(method, path, None, {})
        told = {} if method == "HEAD" else json.loads(content)
        if (method, path) in HEALTH:
            assert (response.status, told) == (200, {"status": "ok"})
            continue
        assert response.status == 401, (method, path)
        told = told.get("error", told)
        assert method == "HEAD" or "token" in (told if isinstance(told, str) else told["message"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer {token}"}, 200),
        ({"Authorization": "bearer {token}"}, 200),
        ({"Cookie": "polydraft-1=x; a=b;polydraft-{port}={token}"}, 200),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer {other}"}, 401),
        ({"Authorization": "Basic {token}"}, 401),
        ({"Authorization": "{token}"}, 401),
        ({"Cookie": "polydraft-{port}={other}"}, 401),
        ({"Cookie": "polydraft-{port}="}, 401),
        ({"Cookie": "polydraft-1={token}"}, 401),
        ({"Cookie": "polydraft={token}"}, 401),
        ({"Cookie": "\u00e9; polydraft-{port}=\u00e9"}, 401),
    ],
)
def test_the_token_alone_lets_in(site: Site, headers: dict[str, str], status: int) -> None:
    values = {"token": site.access.token, "other": secrets.token_urlsafe(32), "port": site.port}
    given = {name: value.format(**values) for name, value in headers.items()}
    assert site.ask_as("GET", "/api/status", None, given)[0].status == status


def test_the_printed_address_leaves_a_cookie_and_no_token_behind(site: Site) -> None:
    response, _ = site.ask_as("GET", f"/?token={site.access.token}&__theme=dark", None, {"Accept": "text/html"})
    assert (response.status, response.headers["location"]) == (303, "/?__theme=dark")
    assert response.headers["cache-control"] == "no-store"
    cookie, *attributes = response.headers["set-cookie"].split("; ")
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} <= set(attributes)
    assert any(attribute.startswith("Max-Age=") for attribute in attributes)  # the browser keeps it when it is closed
    assert cookie.startswith(f"polydraft-{site.port}=")  # all ports of a host share their cookies
    assert site.ask_as("GET", "/", None, {"Cookie": cookie})[0].status == 200
    response, _ = site.ask_as("GET", f"/?token={site.access.token}", None, {"Cookie": cookie})
    assert (response.status, response.headers["location"]) == (303, "/")


def test_without_the_token_a_browser_gets_a_page_with_instructions(site: Site) -> None:
    for path in ("/", "/?token=wrong", "/?ticket=1.wrong", "/?token=%ff", "/config"):
        response, content = site.ask_as("GET", path, None, {"Accept": "text/html,*/*"})
        assert response.status == 401
        assert "Set-Cookie" not in response.headers
        page = content.decode()
        assert "polydraft token" in page
        assert ("not the one of this server" in page) == ("?" in path)
        assert "default-src 'none'" in response.headers["content-security-policy"]
    fix = json.loads(site.ask_as("GET", "/api/status", None, {})[1])["fix"]
    assert "Authorization: Bearer" in fix


def test_another_name_of_this_machine_leads_to_the_address_that_texts_belong_to(site: Site) -> None:
    response, _ = site.ask_as("GET", "/?token=x", None, {"Host": f"localhost:{site.port}"})
    assert (response.status, response.headers["location"]) == (307, f"http://127.0.0.1:{site.port}/?token=x")


def test_a_websocket_is_closed(site: Site) -> None:
    for headers in ({}, site.bearer):
        given = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        given |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **headers}
        assert site.ask_as("GET", "/gradio_api/queue", None, given)[0].status in (401, 403, 404)


# ---------------------------------------------------------------- tickets


def opened(site: Site, ticket: str) -> bool:
    response, _ = site.ask_as("GET", f"/?ticket={ticket}", None, {})
    assert response.status in (303, 401)
    return response.status == 303


def test_a_ticket_opens_the_page_for_a_while(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = site.access.ticket()
    assert site.access.token not in ticket
    assert opened(site, ticket)
    for wrong in ("", ".", "9999999999.", "9" + ticket, ticket[:-1], Access(secrets.token_urlsafe(32)).ticket()):
        assert not opened(site, wrong)
    now, day = time.time(), 86_400
    for changed in (now + access.TICKET_SECONDS + 1, now + day, now - day):  # the clock may be set forward, or back
        monkeypatch.setattr(access.time, "time", lambda changed=changed: changed)
        assert not opened(site, ticket)
        assert opened(site, site.access.ticket())


@linux
def test_a_ticket_is_of_no_use_to_another_user(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = site.access.ticket()
    for owner, serves in ((ANOTHER, False), (None, False), (0, True), (os.geteuid(), True)):
        monkeypatch.setattr(access, "owner_of", lambda *_, owner=owner: owner)
        assert opened(site, ticket) == serves


@linux
def test_the_owner_of_a_connection_is_known(site: Site) -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
        with socket.socket(family) as connection:
            connection.connect((host, site.port))
            client, server = ("127.0.0.1", connection.getsockname()[1]), ("127.0.0.1", site.port)
            assert owner_of(client, server) == os.geteuid()
            assert owner_of(("127.0.0.2", client[1]), server) is None
            assert owner_of(client, ("127.0.0.1", 1)) is None
        assert owner_of(client, server) is None  # the kernel keeps a closed one for a while, as root's


# ---------------------------------------------------------------- its file


@posix
def test_only_its_user_can_read_the_token(home: Path) -> None:
    os.umask(before := os.umask(0))
    try:
        token = tokens.token()
    finally:
        os.umask(before)
    assert tokens.token() == token
    path = tokens.token_file()
    assert path.read_text().strip() == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["token"]


@posix
def test_a_folder_that_others_could_read_is_closed(home: Path) -> None:
    folder = platformdirs.user_data_path("polydraft", appauthor=False)
    folder.mkdir(parents=True, mode=0o755)
    folder.chmod(0o777)
    assert data_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700


@posix
@pytest.mark.parametrize("damage", ["open", "short", "link"])
def test_a_token_that_others_could_know_is_replaced(
    home: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old, path = tokens.token(), tokens.token_file()
    match damage:
        case "open":
            path.chmod(0o644)
        case "short":
            path.write_text(old[:-1])
        case "link":
            path.rename(home / "elsewhere")
            path.symlink_to(home / "elsewhere")
    new = tokens.token()
    assert new != old
    assert capsys.readouterr().err.count("\n") == 1
    assert tokens.token() == new
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


@as_root
def test_a_folder_of_another_user_is_refused(home: Path) -> None:
    folder = home / "shared"
    folder.mkdir()
    os.chown(folder, ANOTHER, ANOTHER)
    with pytest.raises(InputError, match=f"{folder} belongs to another user"):
        private_folder(folder)


def test_a_folder_that_cannot_be_made_is_an_error_in_words(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        private_folder(home / "file" / "below")


def test_starts_at_the_same_moment_agree_on_one_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, found = threading.Barrier(4), []

    def at_once(path: Path, data: bytes, new: bool) -> None:
        made.wait(20)  # all have seen that there is no file
        write_whole(path, data, new=new)

    monkeypatch.setattr(tokens, "write_whole", at_once)
    threads = [threading.Thread(target=lambda: found.append(tokens.token())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert len(set(found)) == 1


def test_the_command_prints_the_token_and_makes_another(home: Path) -> None:
    runner = CliRunner()
    first = runner.invoke(command_line, ["token"])
    assert first.exit_code == 0
    assert first.stdout == tokens.token() + "\n"
    second = runner.invoke(command_line, ["token", "--new"])
    assert second.stdout == tokens.token() + "\n" != first.stdout
    assert "until you restart it" in second.stderr


# ---------------------------------------------------------------- as another user of the machine


def as_another_user(work: Callable[[], Any]) -> Any:
    """Runs `work` in a process of another user. The process is forked, because that user may have no access to
    Python."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(ANOTHER)
            os.setuid(ANOTHER)
            sender.send(work())
        except BaseException as error:  # noqa: BLE001  # whatever it is, the parent has to see it
            sender.send(repr(error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert receiver.poll(5)
    return receiver.recv()


def readable(folder: Path) -> list[str]:
    """The files that this process can list or read below a folder."""
    seen = []
    try:
        inside = list(folder.iterdir())
    except OSError:
        inside = []
    for path in [folder, *inside]:
        try:
            list(path.iterdir()) if path.is_dir() else path.read_bytes()
            seen.append(str(path))
        except OSError:
            continue
    return seen


@pytest.fixture
def open_home() -> Iterator[Path]:
    """A folder that every user can read, unlike pytest's: private files in it must be protected by themselves."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@as_root
@linux
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork of a process with threads
def test_another_user_gets_in_neither_by_the_port_nor_by_the_files(
    site: Site, open_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(open_home))
    tokens.token()
    folder = data_folder()
    stores, letter = folder / "stores", folder / "stores" / "me.sqlite"
    stores.mkdir(mode=0o755)
    letter.write_text("a personal store")
    letter.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)  # the server's user: root would be let in
    ticket = site.access.ticket()

    def tries() -> dict[str, Any]:
        statuses = {}
        for path in ("/", "/api/stores", "/api/status", f"/?ticket={ticket}", "/gradio_api/file=/etc/passwd"):
            connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
            connection.request("GET", path)
            statuses[path.split("=")[0]] = connection.getresponse().status
            connection.close()
        open_files = [path for path in (folder, stores, letter, tokens_file) if readable(path)]
        return {"uid": os.getuid(), "statuses": set(statuses.values()), "files": open_files}

    tokens_file = folder / "token"
    assert as_another_user(tries) == {"uid": ANOTHER, "statuses": {401}, "files": []}
    folder.chmod(0o755)
    assert as_another_user(lambda: readable(letter)) == [str(letter)]  # it is the folder that keeps others out


# ---------------------------------------------------------------- routes and headers


def test_gradios_routes_are_closed_but_those_the_page_needs(site: Site) -> None:
    (gradio,) = (
        route.app.gradio
        for route in site.server.app.routes
        if isinstance(route, Mount) and isinstance(route.app, OnlyNeeded)
    )
    assert isinstance(gradio, FastAPI)
    found = set(routes(gradio.routes))
    assert len(found) > 50
    closed = {(method, path) for method, path in found if method not in ("GET", "HEAD") or not NEEDED.fullmatch(path)}
    ours = {("GET", "/manifest.json"), ("HEAD", "/manifest.json")}  # answered before Gradio's routes
    for method, path in sorted(closed - ours):
        assert site.ask(method, path)[0].status == 404, (method, path)
    assert {path for method, path in found - closed} == {"/", "/theme.css", "/favicon.ico", "/assets/x"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/upload"),
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("GET", "/assets/../../../../../../etc/passwd"),
        ("GET", "/assets/%2e%2e/%2e%2e/routes.py"),
        ("GET", "/static/img/logo.svg"),
        ("GET", "//assets/x"),
    ],
)
def test_a_route_that_the_page_does_not_need_is_not_there(site: Site, method: str, path: str) -> None:
    response, content = site.ask(method, path, b"x" if method == "POST" else None)
    assert response.status == 404
    assert json.loads(content)["message"].startswith("There is nothing at /")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/page/editor/main.js", 200),
        ("POST", "/api/drafts", 200),
        ("GET", "/nothing", 404),
    ],
)
def test_every_response_has_the_security_headers(site: Site, method: str, path: str, status: int) -> None:
    body = asked("headers", length=1) if path == "/api/drafts" else None
    allowed, _ = site.ask(method, path, body)
    assert allowed.status == status
    missing, _ = site.ask_as(method, path, body, {})
    foreign, _ = site.ask(method, path, body, Host="evil.example")
    for response in (allowed, missing, foreign):
        for name, value in HEADERS.items():
            assert response.headers[name] == value
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


def test_a_server_at_another_loopback_address_answers_to_that_address() -> None:
    """`polydraft serve --host 127.0.0.2` prints this address."""

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("served")(scope, receive, send)

    for own, status in (("127.0.0.2", 200), ("127.0.0.1", 403)):
        guard = Guard(nothing, None, page=False)

        async def reached(scope: Any, receive: Any, send: Any, own: str = own, guard: Guard = guard) -> None:
            await guard({**scope, "server": (own, 7893)}, receive, send)

        assert TestClient(reached, "http://127.0.0.2:7893").get("/v1/models").status_code == status


def test_scripts_of_the_page_run_by_their_digests_alone(site: Site) -> None:
    response, content = site.ask("GET", "/", Accept_Encoding="br, gzip")
    policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
    inline = re.findall(rb"<script(?![^>]* src=)", content)
    assert len(re.findall("'sha256-", policy["script-src"])) == len(inline) >= 3
    assert "'unsafe-inline'" not in policy["script-src"]
    assert policy["default-src"] == "'none'"
    for name in ("script-src", "style-src", "img-src", "connect-src", "font-src", "worker-src", "manifest-src"):
        assert not re.search(r"https?:|\*", policy[name])


# ---------------------------------------------------------------- starting


# The app, whose model is never loaded: the imports alone take seconds.
SERVES = """
    from app.web import serving

    serving.DraftService.start = lambda self: None
    serving.serve(port=0, open_browser={opens}, with_token={token})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a browser is started as a command there")
def test_a_second_start_opens_the_app_that_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = home / "opened"
    browser = home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >> {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("BROWSER", str(browser))
    process = child(SERVES.format(opens=True, token=True), home)
    try:
        port, token = address_of(process)
        assert tokens.token() == token
        serve(port=port)
        assert capsys.readouterr().out == f"Polydraft is already running at http://127.0.0.1:{port}/?token={token}\n"
        until(lambda: opened.exists() and opened.read_text().count("\n") == 2)  # the browser is opened
        for address in opened.read_text().split():  # command lines, which every user can read
            assert token not in address
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", address.removeprefix(f"http://127.0.0.1:{port}"))
            assert connection.getresponse().headers["set-cookie"].startswith(f"polydraft-{port}={token}; ")
            connection.close()
        with pytest.raises(InputError, match=f"Port {port} is already in use by Polydraft, started with .*default"):
            serve("another.gguf", port=port)
        assert running.at(port)
    finally:
        process.kill()
        process.wait()
    assert running.at(port) is None  # also when it was killed


def test_what_the_docs_say_of_security_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)?(?:::(test_\w+))?`", text)
    file = ""
    assert sum(bool(name) for _, name in named) > 20
    for given, name in named:
        file = given or file
        if file and (given or name):
            (path, *_) = [*TESTS.rglob(file), *ROOT.glob(f"editors/*/{file}")]
            assert not name or f"def {name}(" in path.read_text(encoding="utf-8"), (file, name)
