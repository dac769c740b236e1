"""The intermediate files of a build, from which a build that was killed resumes, and a later one with other input.

    .STORE.work/             beside the store, or at the path of --work
        lock                 held by the building process
        identity.json        tokenizer, highest order and selection; files of another build are unusable
        part-00000/          some of the input files, each part counted separately; see `inputs`
            journal.json     the contents of the runs so far, and their end position in the input
            run-….rows       sorted windows, see `runs`
        fit.json             counts of counts, and the sizes of the stores that were tried, for --fit
        ranges/
            plan.json        orders, pruning, runs, and the cuts between ranges of first tokens
            range-….rows     the n-grams of one range and order, counted and pruned, see `ranges`
            range-00000.json the names of these files
            segments/
                tokens       all token ids by rank
                segment-00000.ngram

A journal names a file only after its last byte is on the disk, and a journal is replaced in one step. So the journal
always describes completed work; files that it does not name are ignored.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from core.errors import InputError, PolydraftError
from core.files import write_whole

VERSION = 2


class NoRoom(PolydraftError):
    """The disk has too little space for the intermediate files."""


def write_json(path: Path, value: Any) -> None:
    write_whole(
        path, json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass"), private=False
    )


def read_json(path: Path) -> Any:
    """Reads the value that `write_json` wrote; None if there is no file."""
    try:
        return json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
    except FileNotFoundError:
        return None


@contextmanager
def work_folder(folder: Path, identity: dict[str, Any]) -> Iterator[bool]:
    """Locks the folder, and discards work of another identity in it. Yields whether there was some.

    The folder is kept when the block ends; `discard` removes it. Raises InputError when another process works there, or
    when the folder contains other files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if strangers := [p.name for p in folder.iterdir() if not _ours(p)]:
        raise InputError(
            f"{folder} holds other files ({sorted(strangers)[0]}); give an empty or a new folder with --work."
        )
    lock = filelock.FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise InputError(
            f"Another process is building in {folder}; wait for it, or give another folder with --work."
        ) from error
    try:
        identity = json.loads(json.dumps({**identity, "version": VERSION}))
        earlier = _identity(folder)
        if earlier != identity:
            discard(folder, keep_lock=True)
            folder.mkdir(exist_ok=True)
            write_json(folder / "identity.json", identity)
        yield earlier not in (None, identity)
    finally:
        lock.release()


def discard(folder: Path, keep_lock: bool = False) -> None:
    """Removes the work. The identity goes last, so that a partly removed folder is still recognised."""
    for path in sorted(folder.iterdir(), key=lambda p: p.name == "identity.json"):
        if path.is_dir():
            shutil.rmtree(path)
        elif not (keep_lock and path.name == "lock"):
            path.unlink()
    if not keep_lock:
        folder.rmdir()


def parts_in(folder: Path) -> list[int]:
    """The numbers of the parts in a work folder, ascending. Removes what has no journal."""
    numbers = []
    for path in folder.glob("part-*"):
        if (path / "journal.json").exists():
            numbers.append(int(path.name.removeprefix("part-")))
        elif path.is_dir():
            shutil.rmtree(path)
        else:  # a cluster's mark
            path.unlink()
    return sorted(numbers)


def keep_parts(folder: Path, numbers: Collection[int]) -> None:
    """Removes all but the parts of these numbers, from which a later build can continue."""
    unused = _unused(folder, numbers)
    for path in folder.iterdir():
        if path in unused or (path.is_dir() and not path.name.startswith("part-")):
            shutil.rmtree(path)
        elif path.is_file() and path.name not in ("lock", "identity.json"):
            path.unlink()


def _unused(folder: Path, numbers: Collection[int]) -> list[Path]:
    return [path for path in folder.glob("part-*") if int(path.name.removeprefix("part-")) not in numbers]


def check_room(folder: Path, needed: int, numbers: Collection[int]) -> None:
    """Raises NoRoom when the disk has less than `needed` bytes. What is there already is a part of them, without the
    parts of other numbers than these."""
    unused = _unused(folder, numbers)
    done = sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not any(map(path.is_relative_to, unused))
    )
    free = shutil.disk_usage(folder).free
    if free < needed - done:
        raise NoRoom(
            f"Counting needs about {human(needed - done)} in {folder.parent}, and {human(free)} are free: free some "
            "space, or choose a folder on another disk with --work."
        )


def human(size: float) -> str:
    """Formats a number of bytes for people: 3.1 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _ours(path: Path) -> bool:
    name = path.name
    own = ("lock", "identity.json", "fit.json", "ranges")
    return name in own or name.startswith(("part-", ".identity.json.", ".fit.json."))


def _identity(folder: Path) -> Any:
    try:
        return read_json(folder / "identity.json")
    except ValueError:
        return {}
