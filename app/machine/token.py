"""The token that gives this user's programs and browsers access, and its file."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from app.machine.output import say
from app.machine.private import data_folder, only_mine
from core.errors import InputError
from core.files import write_whole

TOKEN = re.compile(r"[\w-]{43}", re.ASCII)  # 32 random bytes in base64


def token_file() -> Path:
    """The path of the token's file. Raises InputError when the user's data folder is unusable."""
    return data_folder() / "token"


def token() -> str:
    """This user's token; the first call creates it.

    Raises: InputError when its file is unusable or belongs to another user.
    """
    path = token_file()
    try:
        status = path.lstat()
        stored = path.read_text(encoding="utf-8", errors="replace").strip() if only_mine(status) else None
    except FileNotFoundError:
        return new_token(replace=False)
    except OSError as error:
        raise InputError(f"The token in {path} cannot be read: {error.strerror or error}.") from error
    if stored is None:
        say(f"Other users could read or change {path}; the token was replaced.", err=True)
    elif not TOKEN.fullmatch(stored):
        say(f"{path} contained no token; a new one was created.", err=True)
    else:
        return stored
    return new_token()


def new_token(replace: bool = True) -> str:
    """Replaces the token. Running servers keep the old one until they are restarted.

    Args:
        replace: False keeps and returns a token that another program has written meanwhile.
    Raises: InputError when its file cannot be written.
    """
    path, secret = token_file(), secrets.token_urlsafe(32)
    try:
        write_whole(path, f"{secret}\n".encode(), new=not replace)
    except FileExistsError:
        return token()
    except OSError as error:
        raise InputError(f"The token could not be written to {path}: {error.strerror or error}.") from error
    return secret
