"""The work of a build on disk, so that one that was killed goes on where it stood.

    .STORE.work/             beside the store, or where --work says
        lock                 held by the process that builds
        identity.json        what is counted, of what: work of another build is no use
        part-00000/          some of the input files, each part counted by itself
            journal.json     what is in the runs so far, and where in the input they end
            run-….rows       sorted windows, see `runs`
        ranges/
            plan.json        orders, pruning, and where the ranges of first tokens are cut
            range-00000.npz  the n-grams of one range, counted and pruned

A file is named in a journal only when it lies on the disk to its last byte, and a journal is replaced in one step. So
at every moment the journal describes work that is done, whatever else lies around it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from core.errors import InputError, PolydraftError

VERSION = 1


class NoRoom(PolydraftError):
    """The disk has too little room for the work."""


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file in one step: it is the old one or the new one, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_durably(path, json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass"))


def read_json(path: Path) -> Any:
    """What `write_json` wrote; None where there is nothing."""
    try:
        return json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except FileNotFoundError:
        return None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Windows cannot, and need not."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def work_folder(folder: Path, identity: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The folder, locked, with nothing in it but work of this identity; and "new", "resumed" or "discarded".

    It stays when the block is left: `discard` removes it. Raises InputError when another process works there, or
    when the folder holds something that is no work of ours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if strangers := [p.name for p in folder.iterdir() if not _ours(p)]:
        raise InputError(
            f"{folder} holds other files ({sorted(strangers)[0]}); name an empty or a new folder for the work."
        )
    lock = filelock.FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise InputError(
            f"Another process is building in {folder}; wait for it, or name another folder for the work."
        ) from error
    try:
        identity = json.loads(json.dumps({**identity, "version": VERSION}))
        found = _identity(folder)
        state = "new" if found is None else "resumed" if found == identity else "discarded"
        if state != "resumed":
            discard(folder, keep_lock=True)
            folder.mkdir(exist_ok=True)
            write_json(folder / "identity.json", identity)
        yield folder, state
    finally:
        lock.release()


def discard(folder: Path, keep_lock: bool = False) -> None:
    """Remove the work; the identity goes last, so that what is half removed is still known as ours."""
    for path in sorted(folder.iterdir(), key=lambda p: p.name == "identity.json"):
        if path.is_dir():
            shutil.rmtree(path)
        elif not (keep_lock and path.name == "lock"):
            path.unlink()
    if not keep_lock:
        folder.rmdir()


def check_room(folder: Path, needed: int) -> None:
    """Raise NoRoom when the disk has less than `needed` bytes beside the work that is already done."""
    done = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free
    if free < needed - done:
        raise NoRoom(
            f"Counting needs about {human(needed - done)} in {folder.parent}, and {human(free)} are free: make room, "
            "or name a folder on another disk with --work."
        )


def human(size: float) -> str:
    """Bytes for a person: 3.1 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _ours(path: Path) -> bool:
    name = path.name
    return name in ("lock", "identity.json", "ranges") or name.startswith(("part-", ".identity.json."))


def _identity(folder: Path) -> Any:
    try:
        return read_json(folder / "identity.json")
    except ValueError:
        return {}
