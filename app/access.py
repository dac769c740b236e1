"""The token: who shows it may use the server. Its file, and the three ways to show it.

A browser gets the token in the address that `polydraft` prints and keeps it as a cookie. Other programs send it as
`Authorization: Bearer`. The address that `polydraft` hands to the browser it opens carries a ticket instead: the
command lines of running programs can be read by every user of the machine, and a ticket is of no use to them.
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

from app.private import data_folder, only_mine, write_privately
from core.errors import InputError

COOKIE_DAYS = 400  # the longest that browsers keep one
TICKET_SECONDS = 120

Address = tuple[str, int]

_TOKEN = re.compile(r"[\w-]{43}", re.ASCII)  # 32 random bytes in base64


def token_file() -> Path:
    """Where the token lies. Raises InputError where the user's data folder cannot be used."""
    return data_folder() / "token"


def token() -> str:
    """This user's token; made at the first call.

    Raises: InputError where its file cannot be used, or belongs to another user.
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
        typer.echo(f"Others could read or change {path}: there is a new token now.", err=True)
    elif not _TOKEN.fullmatch(found):
        typer.echo(f"{path} held no token: there is a new one now.", err=True)
    else:
        return found
    return new_token()


def new_token(replace: bool = True) -> str:
    """Another token in place of the old one, which servers that run already keep until they are started again.

    Args:
        replace: False leaves a token that another program has written by now, and returns that one.
    Raises: InputError where its file cannot be written.
    """
    path, made = token_file(), secrets.token_urlsafe(32)
    try:
        write_privately(path, made + "\n", replace)
    except FileExistsError:
        return token()
    except OSError as error:
        raise InputError(f"The token could not be written to {path}: {error.strerror or error}.") from error
    return made


class Access:
    """What a request must show where a token is demanded."""

    def __init__(self, token: str) -> None:
        self.token = token

    def shown_by(self, headers: Mapping[bytes, list[str]], port: int) -> bool:
        """Whether these headers of a request show the token: as a bearer, or as the cookie of this port."""
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
        """The value of Set-Cookie. Cookies are shared by all ports of a host, so the name has the port."""
        return f"{cookie_name(port)}={self.token}; Path=/; Max-Age={COOKIE_DAYS * 86400}; HttpOnly; SameSite=Strict"

    def ticket(self) -> str:
        """What opens the page for a short time, for a program of this user."""
        expires = str(int(time.time()) + TICKET_SECONDS)
        return f"{expires}.{self._seal(expires)}"

    def is_ticket(self, given: str, client: Address | None, server: Address) -> bool:
        """Whether this ticket is ours and still good, and the program that shows it runs as this user."""
        expires, _, seal = given.partition(".")
        if not secrets.compare_digest(seal.encode(), self._seal(expires).encode()):
            return False
        return int(expires) >= time.time() and _is_own(client, server)

    def _seal(self, expires: str) -> str:
        return hmac.new(self.token.encode(), b"ticket " + expires.encode(), hashlib.sha256).hexdigest()


def cookie_name(port: int) -> str:
    return f"polydraft-{port}"


def _is_own(client: Address | None, server: Address) -> bool:
    """Whether the program at the other end of a connection runs as this user, or as root, who can read all anyway.

    Linux tells. Elsewhere the answer is yes: on a Mac the address goes to the browser as a message, which no other
    user can read.
    """
    if not sys.platform.startswith("linux"):
        return True
    return client is not None and owner_of(client, server) in (0, os.geteuid())


def owner_of(client: Address, server: Address) -> int | None:
    """The number of the user whose socket is the client's end of this IPv4 connection; None where none is found."""
    wanted = [
        f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in (client, server)
    ]
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # in the second, IPv4 addresses stand with a prefix
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, here, there, state, _, _, _, uid, *_ = line.split()
            if state == "01" and here.endswith(wanted[0]) and there.endswith(wanted[1]):
                return int(uid)
    return None
