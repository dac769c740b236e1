"""Streamed responses: when the response ends for any reason, its source is closed too."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from fastapi.responses import StreamingResponse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


def as_line(event: dict[str, Any]) -> bytes:
    """One line of JSON."""
    return json.dumps(event).encode() + b"\n"


class Streamed(StreamingResponse):
    """Each of the source's events, encoded."""

    def __init__(self, source: AsyncGenerator[Any], encode: Callable[[Any], bytes], media_type: str) -> None:
        self._source = source
        super().__init__(
            (encode(event) async for event in source),
            media_type=media_type,
            headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._source.aclose()  # immediately, not at the next garbage collection
