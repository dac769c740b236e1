"""The folder beside a personal store with the results of learning its text: an adapter and the state of its training.

Its files contain traces of the text, so they are removed together with any part of it. `core.models.adapter` and
`training.personal` read and write them.
"""

from __future__ import annotations

import os
from pathlib import Path

from core.ngram.errors import StoreError

ENDING = ".adapter"
LEAST = 4000  # tokens of a store; the held-out text of a smaller one would be too short for an evaluation


def folder_of(store: Path) -> Path:
    """The folder that belongs to a store's file."""
    return store.with_name(store.stem + ENDING)


def remove(folder: Path) -> bool:
    """Overwrites the files with zeros and removes the folder; returns whether it existed. Raises StoreError when the
    system refuses."""
    try:
        if not folder.exists():
            return False
        for path in folder.iterdir():
            _remove_file(path)
        folder.rmdir()
    except OSError as error:
        raise StoreError(f"{folder} cannot be removed: {error.strerror or error}; remove it yourself.") from error
    return True


def remove_unfinished(folder: Path) -> None:
    """Removes the temporary files of a process that was killed while it wrote, in the same way. The caller prevents
    others from writing meanwhile. Raises StoreError."""
    try:
        for path in folder.glob("*.tmp"):
            _remove_file(path)
    except OSError as error:
        raise StoreError(f"{folder} cannot be cleaned: {error.strerror or error}; remove its .tmp files.") from error


def _remove_file(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
