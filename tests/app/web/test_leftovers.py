"""What killed processes leave: the next start removes it, and nothing that a living process writes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.machine import running
from core.files import replacing, scratch, sweep, write_whole

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks.")

SAVES = """
import os, time
from app.documents.folder import DocumentFolder, Entry, documents_folder
folder = DocumentFolder(documents_folder())
folder.keep(True)
os.fsync = lambda _: (print("here", flush=True), time.sleep(60))
folder.write(Entry("3fa9c2d1-0000"), "Nobody else may know.", None)
"""
UPLOADS = """
import time
from core.files import scratch
with scratch() as folder:
    (folder / "file.txt").write_text("Nobody else may know.")
    print("here", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder and cache folder."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


@pytest.fixture
def begin() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts Python code and waits until it stands in the middle of its work."""
    started: list[subprocess.Popen[str]] = []

    def begin(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "here\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def texts(folder: Path) -> list[Path]:
    """The files with the private text."""
    return [path for path in folder.rglob("*") if path.is_file() and b"Nobody else" in path.read_bytes()]


@pytest.mark.parametrize("code", [SAVES, UPLOADS], ids=["a save", "an upload"])
def test_the_next_start_removes_what_a_killed_server_left(
    homes: Path, begin: Callable[[str], subprocess.Popen[str]], code: str
) -> None:
    killed, lives = begin(code), begin(code) if code == UPLOADS else None
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(texts(homes)) == (2 if lives else 1)
    with running.marked(1, {}):
        assert len(texts(homes)) == (1 if lives else 0)
    if lives:
        lives.kill()
        lives.wait()
    with running.marked(1, {}):
        assert texts(homes) == []


def test_nothing_that_is_being_written_or_belongs_to_the_user_is_swept(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside").mkdir()
    users = [
        inside / "notes.tmp",
        inside / ".notes.tmp",
        inside / "a.12345678.tmp",
        tmp_path / "outside/.a.12345678.tmp",
    ]
    for path in users:
        path.write_text("The user's.")
    (inside / ".link.12345678.tmp").symlink_to(users[0])
    (inside / "elsewhere").symlink_to(tmp_path / "outside")
    left = inside / ".left.12345678.tmp"
    left.write_text("Left.")
    with replacing(inside / "new") as file:
        file.write(b"New.")
        assert sweep(inside) == [left]
    assert (inside / "new").read_bytes() == b"New."
    assert [path for path in users if not path.exists()] == []
    assert sweep(inside) == []


def test_a_scratch_folder_is_the_users_alone_and_ends_with_its_block(homes: Path) -> None:
    with scratch() as folder:
        assert folder.is_relative_to(homes)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "inner").mkdir()
        assert sweep(homes) == []
    assert not folder.exists()


def test_a_file_that_is_swept_before_it_is_locked_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another start may sweep between the two calls with which a file is made and locked."""
    real, swept = os.open, []

    def late(path: Path, flags: int, *rest: int) -> int:
        if not swept and not flags & os.O_CREAT:
            swept.append(path)
            monkeypatch.setattr(os, "open", real)
            assert sweep(tmp_path) == [path]
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", late)
    write_whole(tmp_path / "new", b"New.")
    assert swept
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
