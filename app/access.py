"""The access token of the server: its file, and the three ways in which a request may present it.

A browser receives the token in the address that `polydraft` prints and keeps it as a cookie. Other programs send it as
`Authorization: Bearer`. The address that `polydraft` passes to the browser it opens contains a ticket instead: every
user of the machine can read the command lines of running programs, and a ticket is useless to them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import typer

from app.private import data_folder, only_mine
from core.errors import InputError
from core.files import write_whole

COOKIE_DAYS = 400  # the longest time that browsers keep one
TICKET_SECONDS = 120

Address = tuple[str, int]

_TOKEN = re.compile(r"[\w-]{43}", re.ASCII)  # 32 random bytes in base64


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
        found = path.read_text(encoding="utf-8", errors="replace").strip() if only_mine(status) else None
    except FileNotFoundError:
        return new_token(replace=False)
    except OSError as error:
        raise InputError(f"The token in {path} cannot be read: {error.strerror or error}.") from error
    if found is None:
        typer.echo(f"Other users could read or change {path}; the token was replaced.", err=True)
    elif not _TOKEN.fullmatch(found):
        typer.echo(f"{path} contained no token; a new one was created.", err=True)
    else:
        return found
    return new_token()


def new_token(replace: bool = True) -> str:
    """Replaces the token. Running servers keep the old one until they are restarted.

    Args:
        replace: False keeps and returns a token that another program has written meanwhile.
    Raises: InputError when its file cannot be written.
    """
    path, made = token_file(), secrets.token_urlsafe(32)
    try:
        write_whole(path, f"{made}\n".encode(), new=not replace)
    except FileExistsError:
        return token()
    except OSError as error:
        raise InputError(f"The token could not be written to {path}: {error.strerror or error}.") from error
    return made


class Access:
    """The credentials that a request must present to a server with a token."""

    def __init__(self, token: str) -> None:
        self.token = token

    def shown_by(self, headers: Mapping[bytes, list[str]], port: int) -> bool:
        """Whether these headers of a request contain the token: as a bearer, or as the cookie of this port."""
        for value in headers.get(b"authorization", []):
            scheme, _, given = value.partition(" ")
            if scheme.lower() == "bearer" and self.is_token(given.strip()):
                return True
        name = cookie_name(port)
        for cookie in "; ".join(headers.get(b"cookie", [])).split(";"):
            key, _, given = cookie.strip().partition("=")
            if key == name and self.is_token(given):
                return True
        return False

    def is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())

    def cookie(self, port: int) -> str:
        """The value of Set-Cookie. All ports of a host share cookies, so the name contains the port."""
        return f"{cookie_name(port)}={self.token}; Path=/; Max-Age={COOKIE_DAYS * 86400}; HttpOnly; SameSite=Strict"

    def ticket(self) -> str:
        """A ticket: it opens the page for a short time, for a program of this user."""
        expires = str(int(time.time()) + TICKET_SECONDS)
        return f"{expires}.{self._seal(expires)}"

    def is_ticket(self, given: str, client: Address | None, server: Address) -> bool:
        """Whether this server issued the ticket, it has not expired, and the program that presents it runs as this
        user."""
        expires, _, seal = given.partition(".")
        if not secrets.compare_digest(seal.encode(), self._seal(expires).encode()):
            return False
        return int(expires) >= time.time() and _is_own(client, server)

    def _seal(self, expires: str) -> str:
        return hmac.new(self.token.encode(), b"ticket " + expires.encode(), hashlib.sha256).hexdigest()


def cookie_name(port: int) -> str:
    return f"polydraft-{port}"


def _is_own(client: Address | None, server: Address) -> bool:
    """Whether the program at the other end of a connection runs as this user, or as root, who can read everything
    anyway.

    Only Linux provides this. Elsewhere the result is True: on a Mac the browser receives the address as a message,
    which no other user can read.
    """
    if not sys.platform.startswith("linux"):
        return True
    return client is not None and owner_of(client, server) in (0, os.geteuid())


def owner_of(client: Address, server: Address) -> int | None:
    """The id of the user who owns the client's end of this IPv4 connection; None if it is not found."""
    wanted = [
        f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in (client, server)
    ]
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # the second lists IPv4 addresses with a prefix
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, here, there, state, _, _, _, uid, *_ = line.split()
            if state == "01" and here.endswith(wanted[0]) and there.endswith(wanted[1]):
                return int(uid)
    return None
