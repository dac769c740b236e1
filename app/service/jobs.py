"""The work that the service passes to the engine thread: requests for drafts, and queries of a tab's position.

An asyncio loop creates both and receives their results, which the engine thread sends.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from app.service.requests import DraftRequest
    from core.autocomplete import Autocomplete
    from core.completion import Completion
    from core.drafting.driver import Driven
    from core.models import Row

Event = dict[str, Any]
Result = TypeVar("Result")


class Job:
    """One request in the service. Any thread may set `dropped`; only the engine thread uses the other attributes."""

    def __init__(self, request: DraftRequest) -> None:
        self.request = request
        self.arrived = time.perf_counter()
        self.dropped = False
        self.inputs = 0  # number of inputs fed for it so far
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.begin_again()

    def begin_again(self) -> None:
        """Drops the progress: another model, or the same one after a change, makes the drafts anew. The generator of
        drafts is closed."""
        self.drafting: Driven[Completion] | None = None
        self.rows: list[Row] | None = None  # its next rows, until they are fed
        self.seen = False  # whether the page has shown rows or requested all of them; then no row is withdrawn
        self.step = 0
        self.settled = False  # whether the drafts sent last only grow from now on
        self.sent: list[Event] = []
        self.sent_at = 0.0
        self.first: tuple[float, int] | None = None  # time and step of the first drafts
        self.figures: Event | None = None  # figures of speculation to send while the drafts have none

    async def next_event(self) -> Event | None:
        return await self._events.get()

    def post(self, event: Event | None) -> None:
        """Sends an event to the request's loop; None ends the stream."""
        with suppress(RuntimeError):  # that loop is closed
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def fail(self, message: str, fix: str = "", setting: str = "") -> None:
        """Ends the request with an error. `setting`: the one that was refused, if the error is about a setting."""
        refused = {"setting": setting} if setting else {}
        self.post({"type": "error", "n": self.request.n, "message": message, "fix": fix, **refused})
        self.post(None)


@dataclass(frozen=True)
class Position:
    """The position at which a tab's newest drafts begin.

    Attributes:
        n: number of their request.
        logits: (V,) of the next token; see `Completion.next_logits`.
        whole: the same of all tokens, also of those that do not continue a half-typed word.
        autocomplete: which computed them.
    """

    n: int
    logits: Tensor
    whole: Tensor
    autocomplete: Autocomplete


class Pending(Future[Result]):
    """The result of work in another thread, which goes on even if its caller no longer waits."""

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()

    def fail(self, error: Exception) -> None:
        """Raises the error in the caller, unless the work has ended."""
        if not self.done():
            self.set_exception(error)


class Query(Pending[Result]):
    """A call of `compute` on a tab's position, which the engine thread runs."""

    def __init__(self, tab: str, compute: Callable[[Position], Result]) -> None:
        super().__init__()
        self.tab, self.compute = tab, compute


@dataclass(frozen=True)
class Loaded:
    """A loaded model, the name by which it was loaded, and `done`, which ends once the model drafts."""

    autocomplete: Autocomplete
    name: str
    done: Pending[None]


@dataclass
class Inbox:
    """Everything that arrived since the engine thread last emptied it."""

    jobs: OrderedDict[str, Job] = field(default_factory=OrderedDict)  # by tab: its newest request
    left: set[str] = field(default_factory=set)  # tabs that were closed
    queries: list[Query[Any]] = field(default_factory=list)
    timing: bool = False  # whether the speed of this machine is wanted
    model: Loaded | None = None  # replaces the present model

    def refuse(self, reason: tuple[str, str]) -> None:
        """Ends everything in it with an error."""
        for job in self.jobs.values():
            job.fail(*reason)
        error = InputError(" ".join(reason).strip())
        for query in self.queries:
            query.fail(error)
        if self.model:
            self.model.done.fail(error)
