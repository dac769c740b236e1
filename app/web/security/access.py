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
import struct
import sys
import time
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

from app.machine.token import TOKEN

COOKIE_DAYS = 400  # the longest time that browsers keep one
TICKET_SECONDS = 120

Address = tuple[str, int]
Ends = tuple[Address, Address]  # of a connection: the client's, the server's


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
    return owners_of({(client, server)}).get((client, server))


def owners_of(connections: Set[Ends]) -> dict[Ends, int]:
    """The ids of the users who own the clients' ends of these IPv4 connections, as far as they are found."""
    if not _kernel_answers():
        return _listed_owners(connections)
    with _diagnosis() as kernel:
        owners = {ends: _asked_owner(kernel, ends) for ends in connections}
    return {ends: owner for ends, owner in owners.items() if owner is not None}


# The kernel's interface for single sockets: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h. A look-up takes some
# 10 microseconds. /proc/net/tcp takes 10 ms even if it is empty, as the kernel visits all places of its table.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _ESTABLISHED = 4, 20, 1
_REQUEST = struct.Struct("=IHHII BBBxI")  # length, type, flags, sequence, port; family, protocol, extensions, states
_SOCKET = struct.Struct("!HH16s16s 12s")  # ports and addresses of a socket and its peer; interface and cookie
_FOUND = struct.Struct("=4xH10x xB2x 48x 12x I")  # type; state; user


def _diagnosis() -> socket.socket:
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    kernel.settimeout(1)
    return kernel


def _asked_owner(kernel: socket.socket, ends: Ends) -> int | None:
    (host, port), (to, at) = ends
    wanted = _SOCKET.pack(port, at, socket.inet_aton(host), socket.inet_aton(to), bytes(4) + b"\xff" * 8)
    size = _REQUEST.size + _SOCKET.size
    states = 1 << _ESTABLISHED
    kernel.send(
        _REQUEST.pack(size, _SOCK_DIAG_BY_FAMILY, 1, 0, 0, socket.AF_INET, socket.IPPROTO_TCP, 0, states) + wanted
    )
    answer = kernel.recv(4096)
    if len(answer) < _FOUND.size:  # an error: there is no such socket
        return None
    kind, state, user = _FOUND.unpack_from(answer)
    return user if kind == _SOCK_DIAG_BY_FAMILY and state == _ESTABLISHED else None


@cache
def _kernel_answers() -> bool:
    """Whether the kernel finds a connection of this process. It may be built without the interface, or a container may
    forbid it; the error is the same as for a socket that does not exist."""
    if not hasattr(socket, "AF_NETLINK"):
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as own,
            _diagnosis() as kernel,
        ):
            return _asked_owner(kernel, (own.getsockname(), own.getpeername())) is not None
    except OSError:
        return False


def _listed_owners(connections: Set[Ends]) -> dict[Ends, int]:
    """The same off the list of all connections of the machine."""
    wanted = {(_in_hex(client), _in_hex(server)): (client, server) for client, server in connections}
    established = {f"{server} 01 " for _, server in wanted}
    owners: dict[Ends, int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # the second lists IPv4 addresses with a prefix
        if len(owners) == len(connections):
            break
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            if any(end in line for end in established):  # there may be many thousand others
                _, here, there, _, _, _, _, uid, *_ = line.split()
                ends = wanted.get((here[-_IN_HEX:], there[-_IN_HEX:]))
                if ends is not None:
                    owners.setdefault(ends, int(uid))
    return owners


_IN_HEX = len("0100007F:1ED5")


def _in_hex(address: Address) -> str:
    """An IPv4 address and a port as the kernel prints them."""
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
