"""The folder beside a personal store with what was learned from its text: an adapter and the state of its training.

Its files contain traces of the text, so they are removed together with any part of it. `core.models.adapter` and
`training.personal` read and write them.
"""

from __future__ import annotations

import os
from pathlib import Path

from core.ngram.errors import StoreError

ENDING = ".adapter"


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
            with path.open("r+b") as file:
                file.write(bytes(path.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
        folder.rmdir()
    except OSError as error:
        raise StoreError(f"{folder} cannot be removed: {error.strerror or error}; remove it yourself.") from error
    return True
