"""Drafts for several tabs at once: one thread owns the model and joins everybody's next row into one pass.

Requests come from an asyncio loop (`DraftService.stream`) and events go back to it. In between, the engine thread
does the same few things over and over: drop what nobody wants any more, begin what is new, run one pass for all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from app import sampling, speculation
from app.personal import PersonalStores
from app.settings import DraftSettings
from core.errors import ContextFull, InputError, PolydraftError

if TYPE_CHECKING:
    from torch import Tensor

    from core.autocomplete import Autocomplete, Completion, Session
    from core.models import Row

MAX_TABS = 12  # tabs whose text stays in the model's cache
PACE = 0.1  # seconds between two states of growing drafts: what a page draws costs the model a core
REMEMBERED = 1024  # tabs whose newest request is known, so that a late older one can be told

# What a model, or loading one, may raise besides our own errors: native code, files, missing packages, memory.
FAILURES = (PolydraftError, RuntimeError, OSError, ImportError, MemoryError, ValueError)

MEASURING = "What a pass costs on this machine is being measured, once; speculation begins with the next drafts."

Event = dict[str, Any]
Seen = TypeVar("Seen")
log = logging.getLogger(__name__)


class DraftRequest(BaseModel):
    """What a tab asks: drafts after the text before its caret. `n` grows with every request of the tab."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tab: str = Field(min_length=1, max_length=64)
    n: int = Field(ge=0)
    before: str
    settings: DraftSettings = DraftSettings()


class _Job:
    """One request on its way. `dropped` may be set by any thread; the rest belongs to the engine."""

    def __init__(self, request: DraftRequest) -> None:
        self.request = request
        self.arrived = time.perf_counter()
        self.dropped = False
        self.completion: Completion | None = None
        self.step = 0
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
        with suppress(RuntimeError):  # that loop is closed: nobody listens any more
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


class _Visit:
    """Somebody who wants to look at a tab's position, in the engine thread."""

    def __init__(self, tab: str, look: Callable[[Position], Any]) -> None:
        self.tab, self.look = tab, look
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self._loop.create_future()

    def end(self, result: Any, error: Exception | None = None) -> None:
        with suppress(RuntimeError):  # that loop is closed
            self._loop.call_soon_threadsafe(self._end, result, error)

    def _end(self, result: Any, error: Exception | None) -> None:
        if self.answer.done():  # nobody waits any more
            return
        if error is None:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(error)


class DraftService:
    """Answers `stream` and `leave` from one model, which `load` returns; it is called in the engine thread.

    Until the model is there requests wait; when it can't be loaded they are answered with the reason.
    """

    def __init__(
        self, load: Callable[[], Autocomplete], name: str = "", max_tabs: int = MAX_TABS, pace: float = PACE
    ) -> None:
        self._load, self._name, self._max_tabs, self._pace = load, name, max_tabs, pace
        self._wake = threading.Condition()
        # Guarded by _wake:
        self._arrived: OrderedDict[str, _Job] = OrderedDict()  # by tab: only its newest request counts
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._left: set[str] = set()
        self._visits: list[_Visit] = []
        self._closing = False
        self._failure: tuple[str, str] | None = None
        # Touched by the engine thread alone, but for `status`, which only reads:
        self._autocomplete: Autocomplete | None = None
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # least recently used first
        self._running: dict[str, _Job] = {}
        self._latest: dict[str, tuple[int, Completion]] = {}  # by tab: what has drafts, for whoever looks at them
        self._chore: Iterator[None] | None = None  # done a pass of the model at a time
        self._thread = threading.Thread(target=self._engine, name="polydraft-engine", daemon=True)

    def start(self) -> None:
        """Begin to load the model."""
        self._thread.start()

    def close(self, timeout: float = 10) -> None:
        """End every request, give the model back and wait for that."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def status(self) -> dict[str, Any]:
        """What the page's status line shows; also while the model is loading and when it could not be."""
        loaded, failure = self._autocomplete, self._failure
        if failure or loaded is None:
            notice = " ".join(filter(None, failure)) if failure else "The model is being loaded."
            backend = "unavailable" if failure else "loading"
            return {"model": self._name, "backend": backend, "device": "", "ready": False, "notice": notice}
        model = loaded.model
        return {
            "model": model.name,
            "backend": model.backend,
            "device": model.device,
            "ready": True,
            "notice": loaded.notice,
        }

    async def stream(self, request: DraftRequest) -> AsyncGenerator[Event]:
        """Events for one request: "drafts", the first at once and then what grew within `pace`, "stats"; or "error".

        Ends early, without a word, when a newer request of the same tab arrives. Closing the generator cancels
        the request before the next model step.
        """
        job = self._admit(request)
        if job is None:
            return
        try:
            while (event := await job.next_event()) is not None:
                yield event
        finally:
            job.dropped = True

    async def visit(self, tab: str, look: Callable[[Position], Seen]) -> Seen:
        """What `look` makes of the position after which the tab's newest drafts begin. No pass of the model is made.

        `look` runs in the engine thread between two passes, so it should take a few milliseconds only.
        Raises: InputError where the tab has no drafts yet, or no longer; what `look` raises.
        """
        visit = _Visit(tab, look)
        with self._wake:
            if self._failure or self._closing:
                raise InputError(" ".join(self._failure or ("Polydraft is closing.",)).strip())
            self._visits.append(visit)
            self._wake.notify()
        return await visit.answer

    def stores(self) -> PersonalStores:
        """The user's personal stores, for any thread but the engine's. Raises InputError until the model is there,
        whose tokenizer they need."""
        if self._autocomplete is None:
            raise InputError("The model is not loaded yet; its tokenizer is needed for personal stores.")
        return PersonalStores(self._autocomplete.model.tokenizer)

    @property
    def loaded(self) -> Autocomplete | None:
        """What drafts, once it is there; the engine thread owns it."""
        return self._autocomplete

    def leave(self, tab: str) -> None:
        """The tab is gone: stop its request and free its place in the cache."""
        with self._wake:
            job = self._arrived.pop(tab, None)
            if job:
                job.post(None)
            self._left.add(tab)
            self._wake.notify()

    def _admit(self, request: DraftRequest) -> _Job | None:
        """Queue a request in place of its tab's older one; None for one that is itself older."""
        job = _Job(request)
        with self._wake:
            if self._failure or self._closing:
                job.fail(*(self._failure or ("Polydraft is closing.", "")))
                return job
            if request.n < self._newest.get(request.tab, 0):
                return None
            self._newest[request.tab] = request.n
            self._newest.move_to_end(request.tab)
            if len(self._newest) > REMEMBERED:
                self._newest.popitem(last=False)
            older = self._arrived.pop(request.tab, None)
            if older:
                older.post(None)
            self._left.discard(request.tab)
            self._arrived[request.tab] = job
            self._wake.notify()
        return job

    # ---------------------------------------------------------------- the engine thread

    def _engine(self) -> None:
        reason = ("The drafts have stopped because of an error inside Polydraft.", "Start Polydraft again.")
        try:
            self._autocomplete = self._load()
            while self._take():
                self._step()
            reason = ("Polydraft is closing.", "")
        except FAILURES as error:
            if self._autocomplete is not None:
                raise  # not loading: a mistake of ours, to be seen where Polydraft runs
            reason = _load_failure(error)
        finally:
            # However this thread ends, nobody must wait for it.
            with self._wake:
                self._failure = reason
                waiting = [*self._arrived.values(), *self._running.values()]
                self._arrived.clear()
                visits, self._visits = self._visits, []
            for visit in visits:
                visit.end(None, InputError(" ".join(reason).strip()))
            for job in waiting:
                job.fail(*reason)
            self._give_back()

    def _take(self) -> bool:
        """Wait for work, drop what is no longer wanted, begin what is new. False when closing."""
        with self._wake:
            while not (
                self._closing or self._arrived or self._left or self._running or self._visits or self._chore is not None
            ):
                self._wake.wait()
            if self._closing:
                return False
            arrived, self._arrived = self._arrived, OrderedDict()
            left, self._left = self._left, set()
            visits, self._visits = self._visits, []
        for tab, job in list(self._running.items()):
            if job.dropped or tab in arrived or tab in left:
                self._end(tab)
        for tab in left:
            self._close_session(tab)
        for tab, job in arrived.items():
            if not job.dropped:
                self._running[tab] = job
                self._attempt(tab, self._begin)
        for visit in visits:
            self._look(visit)
        return True

    def _look(self, visit: _Visit) -> None:
        """One look at a position; what goes wrong there concerns nobody else."""
        n, completion = self._latest.get(visit.tab, (0, None))
        logits = None if completion is None else completion.next_logits
        if logits is None or self._autocomplete is None:
            visit.end(None, InputError("There are no drafts here to look at yet; write something."))
            return
        try:
            visit.end(visit.look(Position(n, logits, self._autocomplete)))
        except FAILURES as error:
            visit.end(None, error)

    def _step(self) -> None:
        """One pass of the model for everything that runs, and one of what is done between."""
        self._draft()
        if self._chore is None:
            return
        try:
            next(self._chore)
        except StopIteration:
            self._chore = None
        except FAILURES as error:
            self._chore = None  # whoever needs it begins it again
            log.warning("Passes could not be measured: %s", error, exc_info=error)

    def _draft(self) -> None:
        due: list[tuple[str, list[Row]]] = []
        for tab in list(self._running):
            rows = self._attempt(tab, self._rows)
            if rows:
                due.append((tab, rows))
        if not due:
            return
        try:
            logits = self._forward([row for _, rows in due for row in rows])
        except FAILURES as error:
            if len(due) == 1:
                self._recover(due[0][0], error)
                return
            # Somebody's row is at fault; every sequence is as it was, so each may try alone.
            for tab, rows in due:
                self._attempt(tab, lambda job, rows=rows: self._advance(job, self._forward(rows)))
            return
        at = 0
        for tab, rows in due:
            mine = logits[at : at + len(rows)]
            at += len(rows)
            self._attempt(tab, lambda job, mine=mine: self._advance(job, mine))

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        assert self._autocomplete is not None
        return self._autocomplete.model.forward(rows)

    def _attempt(self, tab: str, action: Callable[[_Job], Any]) -> Any:
        """Run one part of a request; what goes wrong there concerns that request alone."""
        try:
            return action(self._running[tab])
        except FAILURES as error:
            self._recover(tab, error)
            return None

    def _recover(self, tab: str, error: Exception) -> None:
        """After an error: without room, make some and begin again; otherwise say what is wrong."""
        job = self._running[tab]
        if isinstance(error, ContextFull) and self._evict():
            if job.completion:
                job.completion.close()
            self._attempt(tab, self._begin)
            return
        if not isinstance(error, PolydraftError):
            log.warning("A request failed: %s", error, exc_info=error)
        job.fail(*_request_failure(error))
        self._end(tab)
        self._close_session(tab)  # its cache may be half-way; the tab's next request starts afresh

    def _begin(self, job: _Job) -> None:
        request, settings = job.request, job.request.settings
        session = self._sessions.get(request.tab)
        if session is None:
            if len(self._sessions) >= self._max_tabs and not self._evict():
                raise ContextFull(
                    f"{self._max_tabs} tabs are drafting at this moment, as many as there is room for; "
                    "type on when one of them rests."
                )
            assert self._autocomplete is not None
            session = self._sessions[request.tab] = self._autocomplete.open()
        self._sessions.move_to_end(request.tab)
        assert self._autocomplete is not None
        drafting = settings.drafting() | sampling.options(self._autocomplete, settings)
        job.completion = session.complete(request.before, **drafting)
        if settings.speculates and drafting["mode"].speculation is None:
            job.figures = {"accept_length": 0.0, "speedup": 1.0, "notice": MEASURING}
            self._chore = self._chore or speculation.chore(self._autocomplete)
        self._show(job)

    def _rows(self, job: _Job) -> list[Row]:
        assert job.completion is not None
        return job.completion.rows()

    def _advance(self, job: _Job, logits: list[Tensor]) -> None:
        assert job.completion is not None
        job.completion.advance(logits)
        self._show(job)

    def _show(self, job: _Job) -> None:
        """Send the drafts where they are new, and the figures at the end."""
        completion, request = job.completion, job.request
        assert completion is not None
        now = time.perf_counter()
        if completion.step and job.first is None:
            job.first = now, completion.step
            self._latest[request.tab] = request.n, completion
        due = not job.sent or now - job.sent_at >= self._pace
        if completion.done or (due and completion.step != job.step):
            job.step = completion.step
            drafts = [
                {
                    "id": draft.id,
                    "text": draft.text,
                    "probability": round(draft.probability, 4),
                    "whole": float(f"{draft.whole:.3g}"),
                    "finished": draft.finished,
                    "personal": [list(span) for span in draft.personal],
                }
                | ({"how": [list(came) for came in draft.how]} if draft.how else {})
                for draft in completion.drafts
                if draft.probability >= request.settings.min_confidence
            ]
            if completion.done or drafts != job.sent:
                job.sent, job.sent_at = drafts, now
                event: Event = {
                    "type": "drafts",
                    "n": request.n,
                    "step": completion.step,
                    "done": completion.done,
                    "drafts": drafts,
                }
                figures = job.figures if completion.figures is None else asdict(completion.figures)
                if figures is not None:
                    event["speculation"] = figures
                job.post(event)
        if completion.done:
            job.post(self._stats(job, completion, now))
            self._end(request.tab)

    def _stats(self, job: _Job, completion: Completion, now: float) -> Event:
        assert self._autocomplete is not None
        model = self._autocomplete.model
        first_at, first_step = job.first or (now, completion.step)
        first_ms = 1000 * (first_at - job.arrived)
        later = completion.step - first_step
        return {
            "type": "stats",
            "n": job.request.n,
            "model": model.name,
            "backend": model.backend,
            "first_ms": round(first_ms, 2),
            "per_token_ms": round(1000 * (now - first_at) / later if later else first_ms, 2),
            "reused": completion.reused,
            "fed": completion.fed,
        }

    def _end(self, tab: str) -> None:
        """Stop the tab's running request; its session, and what it has in the cache, stays."""
        job = self._running[tab]
        if job.completion:
            job.completion.close()
        del self._running[tab]
        job.post(None)

    def _evict(self) -> bool:
        """Close the session that was used longest ago, of those at rest. False when there is none."""
        idle = next((tab for tab in self._sessions if tab not in self._running), None)
        if idle is None:
            return False
        self._close_session(idle)
        return True

    def _close_session(self, tab: str) -> None:
        session = self._sessions.pop(tab, None)
        self._latest.pop(tab, None)
        if session:
            session.close()

    def _give_back(self) -> None:
        for job in self._running.values():
            if job.completion:
                job.completion.close()
        self._running.clear()
        while self._sessions:
            self._sessions.popitem()[1].close()
        if self._autocomplete is not None:
            self._autocomplete.model.close()


def _load_failure(error: Exception) -> tuple[str, str]:
    if isinstance(error, PolydraftError):
        return str(error), ""
    return f"The model could not be loaded: {_first_line(error)}", "Run `polydraft doctor` to see what works."


def _request_failure(error: Exception) -> tuple[str, str]:
    if isinstance(error, PolydraftError):
        return str(error), ""
    return (
        f"The model failed on this text: {_first_line(error)}",
        "Type on to try again; if it stays so, start Polydraft again.",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
