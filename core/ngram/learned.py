"""The folder beside a personal store with the results of learning its text: an adapter and the state of its training.

Its files contain traces of the text, so they are removed together with any part of it. `core.models.adapter` and
`training.personal` read and write them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from core.files import check_regular, write_whole
from core.ngram.errors import StoreError

ENDING = ".adapter"
ASIDE = ".removed"  # appended to the folder's name while the transaction runs that removes it
LEAST = 4000  # tokens of a store; the held-out text of a smaller one would be too short for an evaluation


def folder_of(store: Path) -> Path:
    """The folder that belongs to a store's file."""
    return store.with_name(store.stem + ENDING)


def aside_of(store: Path) -> Path:
    """Where the folder waits until the removal of its store's text is committed. No reader looks there."""
    return store.with_name(folder_of(store).name + ASIDE)


def put_aside(store: Path) -> bool:
    """Moves the folder aside, so that nobody uses it any more, and it can return if the removal of text fails. Returns
    whether there is one. Raises StoreError when the system refuses."""
    folder, aside = folder_of(store), aside_of(store)
    try:
        if not folder.exists():
            return False
        remove(aside)  # of a process that was killed
        folder.rename(aside)
    except OSError as error:
        raise StoreError(f"{folder} cannot be removed: {error.strerror or error}; remove it yourself.") from error
    return True


def put_back(store: Path) -> None:
    """Undoes `put_aside`, after the removal of text has failed."""
    with suppress(OSError):  # otherwise the adapter is lost, and is learned again on request
        aside_of(store).rename(folder_of(store))


def remove(folder: Path) -> bool:
    """Overwrites the files with zeros and removes the folder; returns whether it existed. Raises StoreError when the
    system refuses."""
    try:
        for path in folder.iterdir():
            _remove_file(path)
        folder.rmdir()
    except FileNotFoundError:
        return False  # or another process has removed it meanwhile
    except OSError as error:
        raise StoreError(f"{folder} cannot be removed: {error.strerror or error}; remove it yourself.") from error
    return True


def contents(folder: Path, most: int) -> dict[str, bytes]:
    """The files in the folder by name; {} if there is none, or they have more than `most` bytes. Raises StoreError."""
    try:
        files = [path for path in folder.iterdir() if path.suffix != ".tmp"]
        if sum(path.stat().st_size for path in files) > most:
            return {}
        return {path.name: path.read_bytes() for path in files}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror or error}.") from error


def restore(store: Path, files: Mapping[str, bytes]) -> None:
    """Puts files in the place of those in the folder: all or none. Raises StoreError when the system refuses."""
    aside = aside_of(store)
    remove(aside)
    try:
        aside.mkdir(mode=0o700)
        for name, data in files.items():
            write_whole(aside / name, data)
        remove(folder_of(store))
        aside.rename(folder_of(store))
    except OSError as error:
        remove(aside)
        raise StoreError(f"{folder_of(store)} cannot be written: {error.strerror or error}.") from error


def unfinished(folder: Path) -> list[Path]:
    """The temporary files in it: of a process that writes now, or was killed while it wrote."""
    return list(folder.glob("*.tmp"))


def remove_unfinished(folder: Path) -> None:
    """Removes the temporary files of a process that was killed while it wrote, in the same way. The caller prevents
    others from writing meanwhile. Raises StoreError."""
    try:
        for path in unfinished(folder):
            _remove_file(path)
    except OSError as error:
        raise StoreError(f"{folder} cannot be cleaned: {error.strerror or error}; remove its .tmp files.") from error


def _remove_file(path: Path) -> None:
    check_regular(path)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
