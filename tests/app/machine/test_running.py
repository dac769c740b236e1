"""The files by which this user's servers are found: who registers, who is found, and what a killed server leaves."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.machine import running
from app.machine.private import data_folder

SERVER = """
import time
from app.machine import running

with running.marked({port}, {{}}):
    print("at", flush=True)
    time.sleep(60)
"""


def files() -> set[str]:
    return {path.name for path in data_folder().glob("running-*")}


def file_of(port: int, content: object) -> Path:
    path = data_folder() / f"running-{platform.node()}-{port}"
    path.write_text(json.dumps(content), "utf-8")
    return path


def test_a_program_that_looks_for_a_server_cannot_prevent_its_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both lock the same file: the server for its life, the other for a moment."""
    lock, looks = fcntl.flock, list[Any]()

    def after_a_look(file: Any, kind: int) -> None:
        if kind & fcntl.LOCK_EX:
            looks.extend(path.open() for path in data_folder().glob("running-*-7894"))
            for look in looks:
                lock(look, fcntl.LOCK_SH)
        lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", after_a_look)
    with running.marked(7894, {"page": False}):
        for look in looks:
            look.close()
        assert running.at(7894) == {"page": False}
    assert running.at(7894) is None
    assert not [*data_folder().glob("running-*")]


def test_a_server_is_found_after_the_machine_got_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with running.marked(7894, {"page": False}):
        monkeypatch.setattr(platform, "node", lambda: "another-name")
        assert running.at(7894) == {"page": False}
        assert running.at(789) is None
        assert running.at(94) is None
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: 1.0)  # of another machine with this home
        assert running.at(7894) is None
    monkeypatch.undo()
    assert running.at(7894) is None


def test_the_file_of_a_killed_server_is_removed_at_the_next_start() -> None:
    command = [sys.executable, "-c", SERVER.format(port=7895)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "at\n"
        with running.marked(7896, {}):
            assert running.at(7895) == {}, "a living server keeps its file"
        server.kill()
    half_written = data_folder() / f"running-{platform.node()}-7897.{server.pid}.tmp"
    half_written.touch()
    assert running.at(7895) is None
    assert files() == {f"running-{platform.node()}-7895", half_written.name}
    with running.marked(7896, {}):
        assert files() == {f"running-{platform.node()}-7896"}
    assert not files()


def test_a_process_with_the_number_of_a_killed_server_does_not_keep_its_file() -> None:
    me = {"process": os.getpid(), "started": psutil.Process().create_time()}
    without_locks = file_of(7895, me)
    reused, damaged = file_of(7897, me | {"started": me["started"] - 60}), file_of(7898, [])
    elsewhere = data_folder() / "running-another-machine-7895"
    elsewhere.touch()
    with running.marked(7896, {}):
        assert without_locks.exists()
        assert not reused.exists()
        assert not damaged.exists()
        assert elsewhere.exists(), "only a machine itself can tell which of its servers live"
    for path in (without_locks, elsewhere):
        path.unlink()
