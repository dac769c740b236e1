"""`polydraft models get` against a server on this machine that answers as the Hub does."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants
from tiny_gguf import tiny
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError, PolydraftError
from core.models import hub
from core.models.hub import Remote, type_of

FILE = tiny().written() + bytes(24_000_000)  # pieces of 10 MB are written at once
SHA256 = hashlib.sha256(FILE).hexdigest()
FILES = {"tiny.Q8_0.gguf": FILE, "tiny.Q4_K_M.gguf": FILE[:-1], "mmproj-tiny.Q8_0.gguf": b"x", "README.md": b"x"}
PARTS = {"large-Q8_0-00001-of-00002.gguf": b"x", "large-Q8_0-00002-of-00002.gguf": b"x"}
REPOS = {"owner/tiny-GGUF": FILES, "owner/parts": PARTS, "owner/none": {"README.md": b"x"}}


class Hub(ThreadingHTTPServer):
    """Attributes: stated: a digest in place of the files' own. cut: bytes after which the next file's answer ends."""

    stated: str | None = None
    cut: int | None = None
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[tuple[str, str, str | None]] = []


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        self.server.asked.append((self.command, path, self.headers.get("Range")))
        repo = next((name for name in REPOS if f"/{name}" in path), None)
        if repo is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path.startswith("/api/models/"):
            self._send(json.dumps(self._about(repo)).encode(), {})
            return
        data = REPOS[repo][path.rsplit("/", 1)[1]]
        digest = hashlib.sha256(data).hexdigest()
        self._send(data, {"ETag": f'"{digest}"', "X-Repo-Commit": "1" * 40, "Accept-Ranges": "bytes"})

    def _about(self, repo: str) -> dict[str, Any]:
        siblings = [
            {
                "rfilename": name,
                "size": len(data),
                "lfs": {
                    "sha256": self.server.stated or hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "pointerSize": 100,
                },
            }
            for name, data in REPOS[repo].items()
        ]
        return {
            "id": repo,
            "sha": "1" * 40,
            "siblings": siblings,
            "private": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
        }

    def _send(self, data: bytes, headers: dict[str, str]) -> None:
        asked = self.headers.get("Range")
        first = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        self.send_response(206 if first else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut, self.server.cut = (self.server.cut, None) if headers else (None, self.server.cut)
        self.wfile.write(data[first:cut])
        self.close_connection = cut is not None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The Hub of this process; the models folder is in `tmp_path`."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("core.models.on_machine.models_folder", lambda: tmp_path / "models")
    yield server
    server.shutdown()
    server.server_close()


def got(name: str) -> Any:
    return CliRunner().invoke(app, ["models", "get", name])


def test_a_file_comes_by_its_type_into_the_models_folder(server: Hub, tmp_path: Path) -> None:
    done = got("owner/tiny-GGUF:q8_0")
    assert done.exit_code == 0, done.output
    path = tmp_path / "models" / "tiny.Q8_0.gguf"
    assert path.read_bytes() == FILE
    assert [*path.parent.iterdir()] == [path]
    assert f"polydraft --model {path}" in done.stdout
    assert "tiny.Q8_0.gguf of owner/tiny-GGUF: 24 MB" in done.stderr
    asked = len(server.asked)
    assert got("owner/tiny-GGUF:Q8_0").exit_code == 0  # it is there, and not sent again
    assert [path.split("/")[1] for _, path, _ in server.asked[asked:]] == ["api"]


def test_a_connection_that_ends_too_early_is_taken_up_where_it_stopped(server: Hub, tmp_path: Path) -> None:
    server.cut = 15_000_000
    assert got("owner/tiny-GGUF:Q8_0").exit_code == 0
    assert (tmp_path / "models" / "tiny.Q8_0.gguf").read_bytes() == FILE
    *_, last = [asked for how, _, asked in server.asked if how == "GET"]
    assert last and int(last.removeprefix("bytes=").split("-")[0]) >= 10_000_000  # pieces of 10 MB are written


def test_what_an_interrupted_command_has_got_is_not_asked_again(server: Hub, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / f"tiny.Q8_0.gguf.{SHA256[:16]}.part").write_bytes(FILE[:5_000_000])
    assert got("owner/tiny-GGUF:Q8_0").exit_code == 0
    assert (tmp_path / "models" / "tiny.Q8_0.gguf").read_bytes() == FILE
    assert [asked for how, path, asked in server.asked if "/resolve/" in path] == ["bytes=5000000-"]


def test_a_file_with_another_digest_is_removed(server: Hub, tmp_path: Path) -> None:
    server.stated = "0" * 64
    done = got("owner/tiny-GGUF:Q8_0")
    assert done.exit_code == 1 and "SHA-256" in done.stderr
    assert not list((tmp_path / "models").iterdir())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("owner/unknown", "no public model"),
        ("owner/tiny-GGUF:Q5_K_M", "it has Q4_K_M, Q8_0"),
        ("owner/parts", "only files in parts"),
        ("owner/none", "no GGUF file"),
        ("tiny", "OWNER/REPO"),
    ],
)
@pytest.mark.usefixtures("server")
def test_what_cannot_be_had_is_said_in_a_sentence(name: str, said: str) -> None:
    with pytest.raises(PolydraftError, match=said):
        hub.find(name)


def test_a_full_disk_is_said_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000_000))
    hub.check_room(Remote("a/b", "x.gguf", 700_000_000, None), tmp_path / "models")
    with pytest.raises(InputError, match=r"0\.9 GB.*1\.0 GB free"):
        hub.check_room(Remote("a/b", "x.gguf", 900_000_000, None), tmp_path / "models")


def test_types_are_read_from_names() -> None:
    names = ["a.Q8_0.gguf", "a-q4_k_m.gguf", "b/c-IQ4_XS.gguf", "a-BF16.gguf", "a.gguf", "Q4.5.gguf"]
    assert [type_of(name) for name in names] == ["Q8_0", "Q4_K_M", "IQ4_XS", "BF16", "", ""]
