"""Streamed responses: when the response ends for any reason, its source is closed too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fastapi.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


def as_line(event: dict[str, object]) -> bytes:
    """One line of JSON."""
    return json.dumps(event).encode() + b"\n"


class Streamed(Response):
    """Each of the source's events, encoded. Ends when the client closes the connection.

    Starlette's own class starts two tasks in a task group for each response, which is a large part of the cost of a
    request that a newer one replaces at the next key.
    """

    def __init__(
        self,
        source: AsyncGenerator[Any],
        encode: Callable[[Any], bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._source, self._encode = source, encode
        self.status_code, self.background = 200, None
        self.raw_headers = [
            (b"content-type", media_type.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *((name.lower().encode(), value.encode()) for name, value in (headers or {}).items()),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending, left = asyncio.current_task(), False
        assert sending is not None

        async def watch() -> None:
            nonlocal left
            while (await receive())["type"] != "http.disconnect":
                pass
            left = True
            sending.cancel()

        watching = asyncio.create_task(watch())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for event in self._source:
                await send({"type": "http.response.body", "body": self._encode(event), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not left or sending.uncancel():  # the server ends the request
                raise
        finally:
            watching.cancel()
            await self._source.aclose()  # immediately, not at the next garbage collection
