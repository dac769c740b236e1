"""Registers the ports of this user's servers: one file per port, locked while the server's process lives. Also runs a
command beside a server.

The files are in the user's data folder, so another user cannot lock one. A program that only responds at a port could
belong to any user, and must not receive the token. A killed server leaves its file, unfinished files beside the user's
documents, stores and settings, and uploads; the next start removes them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import platformdirs
import psutil
from pydantic import BaseModel, ConfigDict, Field

from app.machine.private import data_folder
from core.files import open_regular, parsed_json, sweep

PORT = 7893  # by default; not Gradio's own 7860: browsers store the user's texts per port
PROCESS = ("process", "started")  # fields of a file beside the options: the process's number and start time
MOST_BYTES = 1 << 16  # of a file
SAME = 1.0  # seconds; start times of one process that are further apart belong to two processes with the same number

try:
    import fcntl
except ImportError:  # Windows: running servers are not found, and their port is reported as taken
    fcntl = None


class _Writer(BaseModel):
    """The fields `PROCESS` of a file."""

    model_config = ConfigDict(extra="ignore", strict=True)

    process: int = Field(ge=1, le=(1 << 31) - 1)
    started: float = Field(allow_inf_nan=False)


@contextmanager
def marked(port: int, options: dict[str, Any]) -> Iterator[None]:
    """Context manager: while active, `at(port)` returns the options in any process of this user on this machine."""
    for folder in (data_folder(), platformdirs.user_cache_path("polydraft")):
        sweep(folder)
    if fcntl is None:
        yield
        return
    _remove_stale()
    path = _file(port)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        with suppress(OSError):  # a file system without locks: as on Windows
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        json.dump(options | dict(zip(PROCESS, (os.getpid(), psutil.Process().create_time()), strict=True)), file)
        file.flush()
        # The lock comes first, because the lock of a process that checks the file would prevent it.
        temporary.replace(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def at(port: int) -> dict[str, Any] | None:
    """The options of this user's server at the port; None if there is none. The machine may have had another name when
    that server started."""
    for path in sorted(data_folder().glob(f"running-*-{port}"), key=lambda path: path != _file(port)):
        try:
            with open_regular(path) as file:
                content = parsed_json(file.read(MOST_BYTES)) if _locked(file) else None
            if isinstance(content, dict) and (path == _file(port) or _runs(_Writer.model_validate(content))):
                return {name: value for name, value in content.items() if name not in PROCESS}
        except (OSError, ValueError):
            continue
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


def _remove_stale() -> None:
    """Removes the files of this machine's servers that were killed."""
    name = re.compile(rf"running-{re.escape(platform.node())}-\d+(?:\.(?P<writer>\d+)\.tmp)?")
    for path in data_folder().glob("running-*"):
        if match := name.fullmatch(path.name):
            with suppress(FileNotFoundError):
                if not (psutil.pid_exists(int(match["writer"])) if match["writer"] else _lives(path)):
                    path.unlink()


def _lives(path: Path) -> bool:
    """Whether the process that registered this file still runs. On a file system without locks, its number and its
    start time decide."""
    try:
        with open_regular(path) as file:
            if _locked(file):
                return True
            return _runs(_Writer.model_validate_json(file.read(MOST_BYTES)))
    except (OSError, ValueError):
        return False


def _runs(writer: _Writer) -> bool:
    try:
        return abs(psutil.Process(writer.process).create_time() - writer.started) <= SAME
    except psutil.Error:
        return False


def _locked(file: IO[bytes]) -> bool:
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
