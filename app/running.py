"""Which ports this user's own servers have: a locked file for each, for as long as its process lives. And a command
that runs beside a server.

The files lie in the user's data folder, so a lock on one cannot be another user's; a program that merely answers at
a port could be anybody's, and must not be handed the token.
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

try:
    import fcntl
except ImportError:  # Windows: a running server is not found there, and its port is said to be taken
    fcntl = None


@contextmanager
def marked(port: int, options: dict[str, Any]) -> Iterator[None]:
    """Within this, `at(port)` gives the options in any process of this user on this machine."""
    path = _file(port)
    with path.open("w", encoding="utf-8") as file:
        if fcntl:
            with suppress(OSError):  # no locks on this file system: as on Windows
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        json.dump(options, file)
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def at(port: int) -> dict[str, Any] | None:
    """The options of this user's server that has the port; None where there is none."""
    try:
        with _file(port).open(encoding="utf-8") as file:
            return json.load(file) if _locked(file) else None
    except (FileNotFoundError, ValueError):
        return None


@contextmanager
def beside(command: str | None) -> Iterator[Callable[[], None]]:
    """Within this, the function that is yielded starts the command, once, as a process of its own; it ends with us."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        if command and not started:
            started.append(subprocess.Popen(shlex.split(command), stdin=subprocess.DEVNULL, start_new_session=True))

    try:
        yield start
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # with all that it has started
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
    """One per machine, too: several may share a home folder."""
    return data_folder() / f"running-{platform.node()}-{port}"
