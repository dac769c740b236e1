"""Starts the app as a user does: in a separate process on a free port of this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from app.machine.token import token
from core.errors import PolydraftError
from research.options import BackendOptions

PATIENCE = 120  # seconds
# The module of the command line; in a wheel both are inside `polydraft`.
COMMAND = __name__.removesuffix("research.bench.child") + "app.cli.main"
_DIRECT = build_opener(ProxyHandler({}))  # a proxy in the environment must not be used for this machine


@dataclass
class Child:
    """A running server.

    Attributes:
        started: `time.perf_counter()` just before the process was created.
        token: the token that it requires; None if it requires none.
    """

    url: str
    started: float
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    token: str | None = None

    @property
    def page(self) -> str:
        """The address with the token, for a browser."""
        return f"{self.url}/?token={self.token}" if self.token else self.url

    @property
    def headers(self) -> dict[str, str]:
        """The headers with the token, for other programs."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def get(self, path: str) -> bytes | None:
        """Returns the body of a response with status 200; None if there is none yet."""
        try:
            with _DIRECT.open(Request(self.url + path, headers=self.headers), timeout=10) as answer:
                return answer.read() if answer.status == 200 else None
        except (URLError, OSError):
            return None

    def wait(self, condition: Callable[[], bool], patience: float = PATIENCE) -> float:
        """Returns the seconds from the start of the process until `condition` holds. Raises PolydraftError if the
        process ends before, or after so many seconds."""
        while not condition():
            if self.process.poll() is not None:
                raise PolydraftError(f"The server ended before it responded. Its last output: {self._words()}")
            if time.perf_counter() - self.started > patience:
                raise PolydraftError(f"The server does not respond. Its last output: {self._words()}")
            time.sleep(0.02)
        return time.perf_counter() - self.started

    def answers(self) -> bool:
        return self.get("/") is not None

    def ready(self) -> bool:
        """Whether the model is loaded, too."""
        return bool(json.loads(self.get("/api/status") or b"{}").get("ready"))

    def _words(self) -> str:
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace").strip()[-600:] or "none."


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(
    command: list[str], port: int, token: str | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Context manager: a server process, ended afterwards.

    Args:
        environment: variables for a program of another environment, which does not import our modules; None: ours.
    """
    with tempfile.TemporaryFile() as log:
        started = time.perf_counter()
        variables = os.environ | {"PYTHONUNBUFFERED": "1"} | dict(environment or {})
        if environment is not None:
            variables.pop("PYTHONPATH", None)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=variables
        )
        try:
            yield Child(f"http://127.0.0.1:{port}", started, process, log, token)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def running_app(options: BackendOptions, argument: str = "--no-browser") -> Iterator[Child]:
    """Context manager: the app with its page, or another of its commands."""
    port = free_port()
    command = [sys.executable, "-m", COMMAND, argument, "--port", str(port)]
    with running([*command, "--model", options.model, "--backend", options.backend], port, token()) as child:
        yield child
