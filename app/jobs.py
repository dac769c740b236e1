"""What tabs hand to the engine thread: a request on its way, and a look at a tab's position.

Both are made on an asyncio loop and answered there; the engine thread fills them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from app.requests import DraftRequest
    from core.autocomplete import Autocomplete, Completion
    from core.models import Row

Event = dict[str, Any]


class Job:
    """One request on its way. `dropped` may be set by any thread; the rest belongs to the engine thread."""

    def __init__(self, request: DraftRequest) -> None:
        self.request = request
        self.arrived = time.perf_counter()
        self.dropped = False
        self.completion: Completion | None = None
        self.rows: list[Row] | None = None  # what the completion needs next and was not fed yet
        self.step = 0
        self.settled = False  # what was sent last only grows
        self.sent: list[Event] = []
        self.sent_at = 0.0
        self.first: tuple[float, int] | None = None  # when the first drafts were there, and their step
        self.figures: Event | None = None  # of speculation, while the drafts have none of their own
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    async def next_event(self) -> Event | None:
        return await self._events.get()

    def post(self, event: Event | None) -> None:
        """Hand an event to the request's own loop; None ends the stream."""
        with suppress(RuntimeError):  # that loop is closed, so there is no listener left
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def fail(self, message: str, fix: str = "") -> None:
        self.post({"type": "error", "n": self.request.n, "message": message, "fix": fix})
        self.post(None)


@dataclass(frozen=True)
class Position:
    """Where a tab's newest drafts begin.

    Attributes:
        n: of the request that they answer.
        logits: (V,) of the next token, as `Completion.next_logits` has them.
        autocomplete: whose they are.
    """

    n: int
    logits: Tensor
    autocomplete: Autocomplete


class Visit:
    """A wish to look at a tab's position, in the engine thread."""

    def __init__(self, tab: str, look: Callable[[Position], Any]) -> None:
        self.tab, self.look = tab, look
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self._loop.create_future()

    def end(self, result: Any, error: Exception | None = None) -> None:
        with suppress(RuntimeError):  # that loop is closed
            self._loop.call_soon_threadsafe(self._end, result, error)

    def _end(self, result: Any, error: Exception | None) -> None:
        if self.answer.done():  # the caller no longer waits
            return
        if error is None:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(error)
