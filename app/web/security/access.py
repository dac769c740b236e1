"""The three ways in which a request may present the token (`app.machine.token`).

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
from functools import cache
from pathlib import Path

from app.machine.token import TOKEN

COOKIE_DAYS = 400  # the longest time that browsers keep one
TICKET_SECONDS = 120

Address = tuple[str, int]


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
        cookies = "; ".join(["", *headers.get(b"cookie", [])])
        return any(self.is_token(given) for given in _cookies(port).findall(cookies))

    def is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())

    def cookie(self, port: int) -> str:
        """The value of Set-Cookie. All ports of a host share cookies, so the name contains the port."""
        return f"{cookie_name(port)}={self.token}; Path=/; Max-Age={COOKIE_DAYS * 86400}; HttpOnly; SameSite=Strict"

    def key_of(self, origin: str) -> str:
        """The key of an extension of a browser with this origin: see `pairing`."""
        return hmac.new(self.token.encode(), b"extension " + origin.encode(), hashlib.sha256).hexdigest()

    def is_key(self, headers: Mapping[bytes, list[str]], origin: str) -> bool:
        """Whether these headers of a request contain, as a bearer, the key of this origin."""
        given = headers.get(b"authorization", [])
        expected = f"bearer {self.key_of(origin)}"
        return len(given) == 1 and secrets.compare_digest(given[0].lower().encode(), expected.encode())

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
        # A ticket from before the clock was set back would be valid for longer.
        return 0 <= int(expires) - time.time() <= TICKET_SECONDS and is_own(client, server)

    def _seal(self, expires: str) -> str:
        return hmac.new(self.token.encode(), b"ticket " + expires.encode(), hashlib.sha256).hexdigest()


def cookie_name(port: int) -> str:
    return f"polydraft-{port}"


@cache
def _cookies(port: int) -> re.Pattern[str]:
    """Finds what could be a token in the cookie of this port. It begins with plain characters, which are found in 64 kB
    of other cookies in microseconds."""
    name = cookie_name(port)
    return re.compile(rf"{name}=(?<=[; \t]{name}=)({TOKEN.pattern})[ \t]*(?=;|$)", re.ASCII)


def is_own(client: Address | None, server: Address) -> bool:
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
    ends = _in_hex(client), _in_hex(server)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # the second lists IPv4 addresses with a prefix
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, here, there, state, _, _, _, uid, *_ = line.split()
            if state == _ESTABLISHED and (here[-_IN_HEX:], there[-_IN_HEX:]) == ends:
                return int(uid)
    return None


_ESTABLISHED = "01"  # the kernel lists a closed connection for a while, as root's
_IN_HEX = len("0100007F:1ED5")


def _in_hex(address: Address) -> str:
    """An IPv4 address and a port as the kernel prints them."""
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
