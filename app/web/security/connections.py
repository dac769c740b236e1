"""The connections of the server: how much memory, time and descriptors one gets before it has shown the token.

Every user of the machine can connect. uvicorn's parser accepts a request line and headers of any length, waits for them
without end, and reads a body before a route has refused its request. Here a connection

    sends at most HEAD bytes of request line and headers, in HEAD_S seconds;
    is not read further while its request waits for the guard's decision, so a refused request's body is never parsed;
    counts as a stranger until a request has shown the token, and a user of the machine has a limited number of those.

A connection costs little until its first head is complete: `Arriving` only collects it, and uvicorn's protocol with its
parser takes over then (`LimitedConnection`). A connection that has shown the token is trusted from then on. The limits
of a request's head still apply to it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Hashable
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_local_addr, get_remote_addr

from app.web.security.access import owners_of

HEAD = 64 * 1024  # bytes of a request line and its headers
ESCAPES = 2000  # in an address; each costs a hundred times more than another character
HEADERS = 200  # a browser sends some 20; each costs more time than its bytes
HEAD_S = 10.0  # seconds from the beginning of a connection or a request until its headers are complete
PIECE = 4096  # bytes that the parser gets at a time, so that what follows a request's head can be kept from it

OWN = 1024  # strangers of the server's own user; a crowd of clients may connect before the first is read
OTHERS = 64  # strangers of each other user
BATCH = 32  # strangers whose owners are looked up at a time

_CONNECTION = "polydraft.connection"  # the key of a request's connection in the state of its scope
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, and leave nothing in the kernel
FEW = 256  # files that a process may open, below which several programs at a time fail
_MAC_DESCRIPTORS = 10_240  # the most that macOS allows a process, whatever its hard limit says


class _TooLarge(Exception):
    """A request's head exceeds a limit."""


class _TooEarly(Exception):
    """A stranger sent a request before the previous one was answered."""


def configured(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """Returns the configuration of a server with these limits. `app` must report requests with the token to `trust`."""
    strangers = Strangers()
    parsed = type("_Parsed", (LimitedConnection,), {"strangers": strangers})
    protocol = type("_OfOneServer", (Arriving,), {"strangers": strangers, "parsed": parsed})
    # The app has no WebSocket; a library for them that happens to be installed would read heads without these limits.
    # No proxy is believed: its headers would let any client name another's address, by which its user is found.
    plain = {"ws": "none", "proxy_headers": False, "log_level": "warning", "access_log": False}
    return uvicorn.Config(app, http=protocol, **plain, **options)


def trust(scope: Scope) -> None:
    """Records that a request may pass, so its connection is no stranger any more. Other servers' scopes are ignored."""
    connection = scope.get("state", {}).get(_CONNECTION)
    if isinstance(connection, LimitedConnection):
        connection.trust()


def raise_descriptor_limit() -> None:
    """Raises this process's limit of open files to its hard limit, as each connection takes a descriptor."""
    if sys.platform == "win32":  # no such limit
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, max(soft, _MAC_DESCRIPTORS)) if sys.platform == "darwin" else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptors() -> int:
    """The number of files that this process may open."""
    if sys.platform == "win32":
        return 8192
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Strangers:
    """The connections of one server that have not shown the token, by the user at their other end.

    Users are known on Linux, for connections within the machine. Elsewhere all connections from one address count
    together. When there are too many, the oldest go: a request of the server's own user shows the token within
    milliseconds, so a connection that waits is hardly ever theirs.
    """

    def __init__(self) -> None:
        room = descriptors()
        self._limits = {True: min(OWN, room // 4), False: min(OTHERS, room // 8)}
        self._new: dict[Stranger, None] = {}  # their owners have not been looked up
        self._known: dict[Hashable, dict[Stranger, None]] = {}  # by owner, the oldest first

    def add(self, connection: Stranger) -> None:
        self._new[connection] = None
        if len(self._new) > BATCH:
            self._look_up()

    def remove(self, connection: Stranger) -> None:
        self._new.pop(connection, None)
        group = self._known.get(connection.owner)
        if group is not None and group.pop(connection, False) is None and not group:
            del self._known[connection.owner]

    def _look_up(self) -> None:
        ends = {connection: connection.ends for connection in self._new}
        owners = owners_of({both for both in ends.values() if both})
        for connection, both in ends.items():
            connection.owner = owners.get(both, both[0][0]) if both else None
            self._known.setdefault(connection.owner, {})[connection] = None
        self._new.clear()
        for owner, group in list(self._known.items()):
            excess = len(group) - self._limits[_is_own(owner)]
            for connection in list(group)[: max(excess, 0)]:
                self.remove(connection)
                connection.reset()


def _is_own(owner: Hashable) -> bool:
    """Whether these are connections of the server's user. Where users are unknown, they may be."""
    if not sys.platform.startswith("linux"):
        return True
    return owner == os.geteuid()


class Stranger:
    """A connection that `Strangers` counts.

    Attributes:
        owner: the user at the other end, or an address where the user is unknown; see `Strangers`.
    """

    strangers: ClassVar[Strangers]
    transport: asyncio.Transport
    owner: Hashable = None

    @property
    def ends(self) -> tuple[tuple[str, int], tuple[str, int]] | None:
        """The addresses of the client and of the server."""
        client, server = get_remote_addr(self.transport), get_local_addr(self.transport)
        if client is None or server is None or server[1] is None:
            return None
        return client, (server[0], server[1])

    def reset(self) -> None:
        """Ends the connection at once."""
        if end := self.transport.get_extra_info("socket"):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()


class Arriving(Stranger, asyncio.Protocol):
    """A connection until the head of its first request is complete. It has the arguments of uvicorn's protocols."""

    parsed: ClassVar[type[LimitedConnection]]

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._connections: set[Any] = arguments["server_state"].connections
        self._head = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._connections.add(self)
        self.strangers.add(self)
        self._clock = asyncio.get_running_loop().call_later(HEAD_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def data_received(self, data: bytes) -> None:
        looked = max(len(self._head) - 3, 0)
        self._head += data
        # Bytes that begin no request, as those of TLS, are for the parser, which refuses them.
        if any(self._head.find(end, looked, HEAD) >= 0 for end in _ENDS) or not self._head[:1].isupper():
            self._leave()
            connection = self.parsed(**self._arguments)
            self.transport.set_protocol(connection)
            connection.connection_made(self.transport)
            connection.data_received(bytes(self._head))
        elif len(self._head) > HEAD:
            self._head.clear()
            self.transport.write(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            self.transport.close()

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops."""
        self.transport.close()

    def _leave(self) -> None:
        self._clock.cancel()
        self._connections.discard(self)
        self.strangers.remove(self)


_ENDS = (b"\r\n\r\n", b"\n\n")  # of a head


def _refusal(status: HTTPStatus) -> bytes:
    """The response to a request that has no complete head."""
    return f"HTTP/1.1 {status} {status.phrase}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


class LimitedConnection(Stranger, HttpToolsProtocol):
    """uvicorn's connection with the limits of this module, from its first complete head on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._trusted = False
        self._judged = False  # a stranger's request waits for the guard's decision
        self._deaf = False  # nothing more is read: the connection closes after the running response
        self._unread = memoryview(b"")
        self._in_head, self._head = True, 0  # whether the headers of a request are incomplete; their bytes so far
        self._clock: asyncio.TimerHandle | None = None  # ends the connection if the headers do not come

    def trust(self) -> None:
        """Records that a request of this connection has shown the token."""
        if self._trusted:
            return
        self._trusted = True
        self.strangers.remove(self)
        self._go_on()

    # ---------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock()
        self.strangers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self.strangers.remove(self)
        self._unread = memoryview(b"")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._parse()

    def _parse(self) -> None:
        """Gives the parser what has been received, until a stranger's request waits for its decision."""
        while self.parser and self._unread and not (self._judged or self._deaf or self.transport.is_closing()):
            if self._in_head and self._clock is None:
                self._start_clock()
            size = PIECE if self._in_head else len(self._unread)
            piece, self._unread = self._unread[:size], self._unread[size:]
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                self._end()  # its request is answered as any other; what follows is another protocol
            except httptools.HttpParserError as error:
                if isinstance(error.__context__, _TooEarly):
                    self._end()
                elif isinstance(error.__context__, _TooLarge):
                    self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                else:
                    self._refuse(HTTPStatus.BAD_REQUEST)
            if self._in_head:
                self._head += len(piece)
                if self._head > HEAD:
                    self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if self._deaf:
            self._unread = memoryview(b"")
        elif self._judged:
            self.flow.pause_reading()

    def _go_on(self) -> None:
        """Reads on after a decision."""
        self._judged = False
        self.flow.resume_reading()
        if not self.transport.is_closing():
            self._parse()

    def _start_clock(self) -> None:
        self._clock = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _refuse(self, status: HTTPStatus) -> None:
        """Answers a request that has no complete head, and closes the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._end()  # another response is being sent
            return
        self._deaf = True
        self._stop_clock()
        # uvicorn logs a warning for each. A stranger could fill the log's disk.
        self.transport.write(_refusal(status))
        self.transport.close()

    def _end(self) -> None:
        """Reads nothing more, and closes the connection after the running response."""
        self._deaf = True
        self._stop_clock()
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    # ---------------------------------------------------------------- called by the parser

    def on_message_begin(self) -> None:
        if self._judged:
            raise _TooEarly
        super().on_message_begin()
        self.scope.setdefault("state", {})[_CONNECTION] = self

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEADERS:
            raise _TooLarge
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.url.count(b"%") > ESCAPES:
            raise _TooLarge
        super().on_headers_complete()
        self._in_head, self._head = False, 0
        self._judged = not self._trusted
        self._stop_clock()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    # ---------------------------------------------------------------- called by the response

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._judged:
            self.loop.call_soon(self._go_on)
