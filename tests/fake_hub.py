"""A server on this machine that answers as the Hugging Face Hub does, and fails in the ways in which networks fail."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import unquote

import pytest
from huggingface_hub import constants

from app.machine import offline
from core.models import on_machine, recommended
from core.models.recommended import Recommended
from tests.tiny_gguf import tiny

FILE = tiny().written() + bytes(24_000_000)
FILES = {
    "tiny.Q8_0.gguf": FILE,
    "tiny.Q4_K_M.gguf": FILE[:-1],
    "tiny-UD-Q4_K_XL.gguf": FILE[:-2],
    "mmproj-tiny.Q8_0.gguf": b"x",
    "README.md": b"x",
}
PARTS = {"large-Q8_0-00001-of-00002.gguf": b"x", "large-Q8_0-00002-of-00002.gguf": b"x"}
REPOS: dict[str, dict[str, bytes]] = {
    "owner/tiny-GGUF": FILES,
    "another/tiny-GGUF": {"tiny.Q8_0.gguf": FILE + b"another"},
    "owner/parts": PARTS,
    "owner/text": {"a.txt": b"1 2 3 4 " * 50},
    "owner/none": {"README.md": b"x"},
    "owner/odd": {"odd.Q8_0.gguf": b"<html>a page</html>" + bytes(100)},
    "owner/broken": {"broken.Q8_0.gguf": b"GGUF" + bytes(100)},
    "owner/names": {"a\x1b[31m.Q8_0.gguf": FILE, "plain.Q4_0.gguf": FILE},
}
PIECE = 1 << 16  # bytes


class FakeHub(ThreadingHTTPServer):
    """What it does is changed while it runs.

    Attributes:
        asked: (method, path, range) of each request.
        fails: "page": a login page for everything; "circle": redirects to itself; "silent": no answer; or a status.
        spoils: the same, for files alone.
        stated: a digest in place of the files' own.
        cut: bytes after which the next file's answer ends.
        more: bytes that are sent after the end of a file, without its length.
        pause: seconds after each piece of a file.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: list[tuple[str, str, str | None]] = []
        self.fails: Literal["", "page", "circle", "silent"] | int = ""
        self.spoils: Literal["", "page", "circle", "silent"] | int = ""
        self.stated: str | None = None
        self.cut: int | None = None
        self.more = 0
        self.pause = 0.0
        self.closing = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is stopped closes its connection at any moment."""

    @property
    def ranges(self) -> list[str | None]:
        """Those of the requests for files."""
        return [asked for _, path, asked in self.asked if "/resolve/" in path]


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield hub
    hub.closing.set()
    hub.shutdown()
    hub.server_close()


@contextmanager
def hub_of_the_page(patch: pytest.MonkeyPatch, *models: Recommended) -> Iterator[FakeHub]:
    """The Hub of a server whose page recommends these models, on a machine without other programs' models and without
    anything that keeps its processes offline."""
    patch.setattr(offline, "_switched", {})
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        patch.delenv(name, raising=False)
    patch.setattr(recommended, "RECOMMENDED", models)
    patch.setattr(on_machine, "_others", list)
    with fake_hub() as hub:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setattr(constants, "ENDPOINT", hub.url)
        yield hub


class _Answer(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(self.path.split("?")[0])
        self.server.asked.append((self.command, path, self.headers.get("Range")))
        if failure := self.server.fails or (self.server.spoils if "/resolve/" in path else ""):
            self._fail(failure)
            return
        repo = next((name for name in REPOS if f"/{name}/" in f"{path}/"), None)
        if repo is None:
            self._send(b"", {"X-Error-Code": "RepoNotFound"}, 404)
        elif "/tree/" in path:
            files = [{"type": "file", "path": name, "size": len(data)} for name, data in REPOS[repo].items()]
            self._send(json.dumps([each | {"oid": "1" * 40} for each in files]).encode(), {})
        elif path.startswith(("/api/models/", "/api/datasets/")):
            self._send(json.dumps(self._about(repo)).encode(), {})
        else:
            self._send_file(REPOS[repo][path.rsplit("/", 1)[1]])

    def _fail(self, failure: str | int) -> None:
        if isinstance(failure, int):
            self._send(b"", {}, failure)
        elif failure == "page":
            self._send(b"<!doctype html><title>Log in</title>", {"Content-Type": "text/html"})
        elif failure == "circle":
            self._send(b"", {"Location": self.path}, 302)
        else:
            self.server.closing.wait(60)
            self.close_connection = True

    def _about(self, repo: str) -> dict[str, Any]:
        siblings = [
            {
                "rfilename": name,
                "size": len(data),
                "lfs": {
                    "sha256": self.server.stated or hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "pointerSize": 1,
                },
            }
            for name, data in REPOS[repo].items()
        ]
        return {"id": repo, "sha": "1" * 40, "siblings": siblings, "private": False}

    def _send(self, data: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_file(self, data: bytes) -> None:
        hub, asked = self.server, self.headers.get("Range")
        first = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        if first >= len(data):
            self._send(b"", {"Content-Range": f"bytes */{len(data)}"}, 416)
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        if not hub.more:
            self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        cut, hub.cut = hub.cut, None
        sent = data[first:cut] + bytes(hub.more)
        try:
            for at in range(0, len(sent), PIECE):
                self.wfile.write(sent[at : at + PIECE])
                time.sleep(hub.pause)
        except OSError:  # the client has ended
            pass
        self.close_connection = cut is not None or hub.more > 0
