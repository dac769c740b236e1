"""Registers the ports of this user's servers: one locked file per port, held while the server's process lives. Also
runs a command beside a server.

The files are in the user's data folder, so another user cannot hold a lock on one. A program that only answers at
a port could belong to any user, and must not receive the token.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from app.private import data_folder

PORT = 7893  # by default; not Gradio's own 7860: browsers store the user's texts per port

try:
    import fcntl
except ImportError:  # Windows: running servers are not found, and their port is reported as taken
    fcntl = None


@contextmanager
def marked(port: int, options: dict[str, Any]) -> Iterator[None]:
    """Context manager: while active, `at(port)` returns the options in any process of this user on this machine."""
    if fcntl is None:
        yield
        return
    path = _file(port)
    made = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with made.open("w", encoding="utf-8") as file:
        with suppress(OSError):  # a file system without locks: as on Windows
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        json.dump(options, file)
        file.flush()
        made.replace(path)  # locked before another process can look, whose own lock would prevent ours
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def at(port: int) -> dict[str, Any] | None:
    """The options of this user's server at the port; None if there is none."""
    try:
        with _file(port).open(encoding="utf-8") as file:
            return json.load(file) if _locked(file) else None
    except (FileNotFoundError, ValueError):
        return None


@contextmanager
def beside(command: str | None) -> Iterator[Callable[[], None]]:
    """Context manager: the yielded function starts the command, once, as a separate process, which ends with the
    context."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        if command and not started:
            started.append(subprocess.Popen(shlex.split(command), stdin=subprocess.DEVNULL, start_new_session=True))

    try:
        yield start
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # including its child processes
            process.wait()


def _locked(file: Any) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _file(port: int) -> Path:
    """One file per machine, too, because several machines may share a home folder."""
    return data_folder() / f"running-{platform.node()}-{port}"
