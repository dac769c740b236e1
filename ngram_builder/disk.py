"""Intermediate files that are on the disk when their block ends, and what to say when the disk is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ngram_builder.work import NoRoom

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of the system in this block names the file, as those of writing do not."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def synced(path: Path) -> Iterator[IO[bytes]]:
    """Yields a file whose data is on the disk when the block ends."""
    with naming(path), path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def full_disk_explained(out: Path, advice: str) -> Iterator[None]:
    """Raises NoRoom, which names disk and file, where this block finds a disk full while it writes `out`."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        file = Path(error.filename or out)
        raise NoRoom(f"The disk at {_mount(file)} is full: {file} could not be written. {advice}") from error


def _mount(path: Path) -> Path:
    """Where the disk of a file is mounted."""
    return next(place for place in (path, *path.absolute().parents) if place.is_mount())
