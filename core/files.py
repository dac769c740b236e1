"""Files that are written whole or not at all, and small caches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import IO, Any


@contextmanager
def replacing(path: Path, private: bool = True, new: bool = False) -> Iterator[IO[bytes]]:
    """Yields a file that takes the place of `path` at the end of the block. After an error, a crash or a power cut the
    path has its old contents or the new ones.

    Args:
        private: only its owner can read the file; otherwise the process's umask decides.
        new: raise FileExistsError if the path exists by then.
    Raises: OSError when the system refuses.
    """
    made = path.with_name(f"{_beginning(path)}{token_hex(4)}.tmp")
    made.touch(0o600 if private else 0o666, exist_ok=False)
    try:
        with made.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if new:
            path.hardlink_to(made)
            made.unlink()
        else:
            made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def unfinished(path: Path) -> list[Path]:
    """The files that killed processes left while they wrote `path`."""
    return list(path.parent.glob(f"{escape(_beginning(path))}*.tmp"))


def _beginning(path: Path) -> str:
    """How the temporary name begins: a name may have 255 bytes, and a character of it up to four."""
    return f".{path.name[:40]}."


def write_whole(path: Path, data: bytes, private: bool = True, new: bool = False) -> None:
    """Writes a file as `replacing` does."""
    with replacing(path, private, new) as file:
        file.write(data)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable. Windows has no such operation and needs none."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def recall(cache: Path) -> dict[str, Any]:
    """The entries of a cache file; {} if it is missing or damaged."""
    try:
        known = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def remember(cache: Path, entries: Mapping[str, Any], most: int) -> None:
    """Adds entries to a cache file, which keeps the `most` newest ones, and none of another type. Raises OSError when
    the system refuses."""
    types = {type(value) for value in entries.values()}
    old = {key: value for key, value in recall(cache).items() if key not in entries and type(value) in types}
    known = old | dict(entries)
    cache.parent.mkdir(parents=True, exist_ok=True)
    write_whole(cache, json.dumps(dict(list(known.items())[-most:])).encode())
