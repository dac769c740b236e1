"""Folders and files that no other user of the machine can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import platformdirs

from core.errors import InputError

OTHERS = 0o077  # permissions of the group and all other users


def data_folder() -> Path:
    """The user's data folder of Polydraft, created if missing.

    Raises: InputError if it belongs to another user or cannot be created.
    """
    return private_folder(platformdirs.user_data_path("polydraft", appauthor=False))


def gradio_folder() -> Path:
    """The folder for Gradio's files: in the user's cache folder, not in one that all users of the machine share.

    Raises: InputError if it belongs to another user or cannot be created.
    """
    return private_folder(platformdirs.user_cache_path("polydraft") / "gradio")


def private_folder(path: Path) -> Path:
    """Creates the folder if missing, and removes the access of other users.

    Raises: InputError if the folder belongs to another user, who could read its files, or cannot be created.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
        if not_mine(status):
            raise InputError(
                f"The folder {path} belongs to another user (number {status.st_uid}), who could read the "
                f"files that Polydraft puts there; change its owner with chown, or remove it."
            )
        if os.name == "posix" and status.st_mode & OTHERS:
            path.chmod(0o700)
    except OSError as error:
        raise InputError(f"The folder {path} cannot be used: {error.strerror or error}.") from error
    return path


def not_mine(status: os.stat_result) -> bool:
    """Whether a file belongs to another user. Windows has no numeric user ids; its profile folders are private."""
    return os.name == "posix" and status.st_uid != os.geteuid()


def only_mine(status: os.stat_result) -> bool:
    """Whether this is a plain file that only its owner, this user, can read and write."""
    if not stat.S_ISREG(status.st_mode) or not_mine(status):
        return False
    return os.name != "posix" or not status.st_mode & OTHERS
