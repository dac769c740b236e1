"""The connections of the server: bounds on the memory and the time that each takes, whoever opened it.

Every user of the machine can connect. uvicorn's parser accepts headers of any length and number, and waits for them
without end. Here

    a request's line and headers have at most HEAD bytes, HEADERS lines and HEAD_S seconds;
    at most PIPELINED requests of a connection wait until the one before is answered;
    at most CONNECTIONS are open, and at most half as many as the process may open files; a new one then replaces the
    one that has waited longest for a request.

The guard closes a connection with its answer to a request without the token, so only those with the token stay.
"""

from __future__ import annotations

import asyncio
import math
import sys
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECTIONS = 1024
HEAD = 64 * 1024  # bytes of a request line and its headers
HEADERS = 200  # a browser sends some 20; each takes more memory than its bytes
HEAD_S = 10.0  # seconds from the beginning of a connection, or the last response, until headers are complete
PIPELINED = 8  # requests
PIECE = 16 * 1024  # bytes that the parser gets at a time: by so much headers may exceed their bound


def configured(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """Returns the configuration of a server with these limits."""
    # The app has no WebSocket; a library for them that happens to be installed would read heads without these limits.
    # No proxy is believed: its headers would let any client name another's address, by which its user is found.
    # uvicorn warns of each bad request; a stranger could fill the log's disk.
    plain = {"ws": "none", "proxy_headers": False, "log_level": "error", "access_log": False}
    return uvicorn.Config(app, http=LimitedConnection, **plain, **options)


def most_connections() -> int:
    """The number of connections that the server keeps open."""
    if sys.platform == "win32":  # no limit of files
        return CONNECTIONS
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if files == resource.RLIM_INFINITY else min(CONNECTIONS, files // 2)


class _TooMany(Exception):
    """A request has too many headers, or too many requests wait. uvicorn refuses it as it refuses invalid ones."""


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection with the limits of this module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = 0  # bytes since the parser has last completed headers, a part of a body or a request
        self._clock: asyncio.TimerHandle | None = None  # closes the connection while it waits for a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock()
        if len(self.connections) > most_connections():
            open_ones = [each for each in self.connections if isinstance(each, LimitedConnection)]
            longest = min(open_ones, key=lambda each: each.deadline)
            longest._stop_clock()
            longest.transport.abort()

    @property
    def deadline(self) -> float:
        """When the connection is closed if no request comes, in the loop's seconds; infinite while one is answered."""
        return self._clock.when() if self._clock else math.inf

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            if self.transport.is_closing():
                return
            piece = data[start : start + PIECE]
            self._unfinished += len(piece)
            super().data_received(piece)
            if self._unfinished > HEAD and not self.transport.is_closing():
                self.send_400_response(f"The headers of a request have more than {HEAD:,} bytes.")

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            raise _TooMany
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEADERS:
            raise _TooMany
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unfinished = 0
        self._stop_clock()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # else the next request has come
            self._start_clock()

    def _start_clock(self) -> None:
        self._clock = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
