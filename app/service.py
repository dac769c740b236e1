"""The draft service: what asyncio loops ask of it reaches the engine thread, which alone touches the model.

Requests come from an asyncio loop (`DraftService.stream`) and events go back to it. A thread of its own loads a model
while another one may still draft. In between, the engine thread does the same few things over and over: stop the
requests that are no longer wanted, begin what is new, run one pass for all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from app.engine import Engine, named_line, request_failure
from app.jobs import Event, Job, Position, Visit
from app.personal import PersonalStores
from app.requests import DraftRequest
from app.threads import leave_cores_to
from core.errors import InputError, PolydraftError

if TYPE_CHECKING:
    from core.autocomplete import Autocomplete

PACE = 0.1  # seconds between two states of growing drafts: what a page draws costs the model a core
REMEMBERED = 1024  # tabs whose newest request is known, so that a late older one can be told

CLOSING = ("Polydraft is closing.", "")

Seen = TypeVar("Seen")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Loaded:
    """A model that was loaded, and who is told once it drafts: with None, or with the error that prevented it."""

    autocomplete: Autocomplete
    answer: Callable[[Exception | None], None]


@dataclass
class _Inbox:
    """What came since the engine thread last looked."""

    jobs: OrderedDict[str, Job] = field(default_factory=OrderedDict)  # by tab: only its newest request counts
    left: set[str] = field(default_factory=set)
    visits: list[Visit] = field(default_factory=list)
    model: _Loaded | None = None  # takes the place of the one that drafts

    def refuse(self, reason: tuple[str, str]) -> None:
        """Tell everyone in it that nothing will come, and why."""
        for job in self.jobs.values():
            job.fail(*reason)
        error = InputError(" ".join(reason).strip())
        for visit in self.visits:
            visit.end(None, error)
        if self.model:
            self.model.answer(error)


class DraftService:
    """Answers `stream` and `leave` from one model, which `load` returns.

    Until the model is there requests wait. When it can't be loaded they are answered with the reason, and `change`
    can load another one.
    """

    def __init__(
        self,
        load: Callable[[], Autocomplete],
        name: str = "",
        pace: float = PACE,
        by_name: Callable[[str], Autocomplete] | None = None,
    ) -> None:
        """Args:
        load: called in a thread of its own.
        name: of what `load` loads, for the status line.
        by_name: loads any other model for `change`; None where there is no choice.
        """
        self._first, self._by_name = load, by_name
        self._pace = pace
        self._wake = threading.Condition()
        # Guarded by _wake:
        self._inbox = _Inbox()
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._stopping = self._closing = False
        self._name = name
        self._loading: threading.Thread | None = None
        self._failure: tuple[str, str] | None = None  # why there is no model
        # The engine thread alone writes it, and uses all of it; `status` and `loaded` only read.
        self._engine: Engine | None = None
        self._thread = threading.Thread(target=self._run, name="polydraft-engine", daemon=True)

    def start(self) -> None:
        """Begin to load the model."""
        self._thread.start()
        with self._wake:
            self._load(self._name, self._first, lambda error: None)

    def stop(self) -> None:
        """End every request and refuse what comes; the model stays for threads that still need its tokenizer."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def close(self, timeout: float = 10) -> None:
        """End every request, give the model back and wait for that."""
        with self._wake:
            self._stopping = self._closing = True
            self._wake.notify()
            loading = self._loading
        for thread in (loading, self._thread):
            if thread is not None and thread.is_alive():
                thread.join(timeout)

    @property
    def stopping(self) -> bool:
        """Whether Polydraft ends; long work beside the engine ends too."""
        return self._stopping

    def status(self) -> dict[str, Any]:
        """What the page's status line shows; also while the model is loading and when it could not be."""
        with self._wake:
            engine, failure, name = self._engine, self._failure, self._name
        if engine is None:
            notice = " ".join(filter(None, failure)) if failure else "The model is being loaded."
            backend = "unavailable" if failure else "loading"
            return {"model": name, "backend": backend, "device": "", "ready": False, "notice": notice}
        model = engine.autocomplete.model
        return {
            "model": model.name,
            "backend": model.backend,
            "device": model.device,
            "ready": True,
            "notice": engine.autocomplete.notice,
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
        visit = Visit(tab, look)
        with self._wake:
            refusal = self._refusal()
            if refusal:
                raise InputError(" ".join(refusal).strip())
            self._inbox.visits.append(visit)
            self._wake.notify()
        return await visit.answer

    async def change(self, name: str) -> dict[str, Any]:
        """Load another model, while the present one, if there is one, goes on drafting; then it takes its place.

        Returns: the new status.
        Raises: InputError while another model is being loaded, or where there is no choice; what loading raises, as a
            PolydraftError in words.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._wake:
            if self._stopping:
                raise InputError(CLOSING[0])
            if self._by_name is None:
                raise InputError("This server has one model, and cannot load another.")
            if self._loading is not None:
                raise InputError(f"A model is being loaded; wait until it is loaded, then load {name}.")
            load = self._by_name
            self._load(name, lambda: load(name), _telling(done))
        await done
        return self.status()

    def stores(self) -> PersonalStores:
        """The user's personal stores, for any thread but the engine's. Raises InputError until the model is there,
        whose tokenizer they need."""
        loaded = self.loaded
        if loaded is None:
            raise InputError("The model is not loaded yet; its tokenizer is needed for personal stores.")
        return PersonalStores(loaded.model.tokenizer)

    @property
    def loaded(self) -> Autocomplete | None:
        """What drafts, once it is there; the engine thread owns it."""
        engine = self._engine
        return None if engine is None else engine.autocomplete

    def leave(self, tab: str) -> None:
        """The tab is gone: stop its request and free its place in the cache."""
        with self._wake:
            job = self._inbox.jobs.pop(tab, None)
            if job:
                job.post(None)
            self._inbox.left.add(tab)
            self._wake.notify()

    def _admit(self, request: DraftRequest) -> Job | None:
        """Queue a request in place of its tab's older one; None for one that is itself older."""
        job = Job(request)
        with self._wake:
            refusal = self._refusal()
            if refusal:
                job.fail(*refusal)
                return job
            if request.n < self._newest.get(request.tab, 0):
                return None
            if not request.by_text:  # such a tab has one request
                self._newest[request.tab] = request.n
                self._newest.move_to_end(request.tab)
                if len(self._newest) > REMEMBERED:
                    self._newest.popitem(last=False)
            older = self._inbox.jobs.pop(request.tab, None)
            if older:
                older.post(None)
            self._inbox.left.discard(request.tab)
            self._inbox.jobs[request.tab] = job
            self._wake.notify()
        return job

    def _refusal(self) -> tuple[str, str] | None:
        """Why no request can be taken, if so: the message, and what to do."""
        return CLOSING if self._stopping else self._failure

    # ---------------------------------------------------------------- loading, in a thread of its own

    def _load(self, name: str, load: Callable[[], Autocomplete], answer: Callable[[Exception | None], None]) -> None:
        """Begin to load; `_wake` is held."""
        if self._engine is None:
            self._name, self._failure = name, None  # requests wait again
        self._loading = threading.Thread(
            target=self._load_here, args=(name, load, answer), name="polydraft-loading", daemon=True
        )
        self._loading.start()

    def _load_here(
        self, name: str, load: Callable[[], Autocomplete], answer: Callable[[Exception | None], None]
    ) -> None:
        try:
            loaded = load()
        except Exception as error:
            if not isinstance(error, PolydraftError):
                log.warning("The model %s could not be loaded: %r", name, error, exc_info=error)
            self._without(name, load_failure(error), answer)
            return
        with self._wake:
            self._loading = None
            late = self._closing
            if not late:
                self._inbox.model = _Loaded(loaded, answer)
                self._wake.notify()
        if late:
            loaded.model.close()

    def _without(self, name: str, reason: tuple[str, str], answer: Callable[[Exception | None], None]) -> None:
        """Loading failed: where no other model drafts, every request is told why."""
        with self._wake:
            self._loading = None
            waiting = _Inbox()
            if self._engine is None:
                self._name, self._failure = name, reason
                waiting, self._inbox = self._inbox, _Inbox()
        waiting.refuse(reason)
        answer(InputError(" ".join(reason).strip()))

    # ---------------------------------------------------------------- the engine thread

    def _run(self) -> None:
        """Take what arrived and make a pass, over and over; at the end tell every request and give the model back."""
        while (inbox := self._take()) is not None:
            try:
                self._work(inbox)
            except Exception as error:
                log.error("An error ended all drafts that were being made: %r", error, exc_info=error)
                inbox.refuse(request_failure(error))
                if self._engine is not None:
                    self._engine.fail_all(error)
        if self._engine is not None:
            for job in self._engine.close_sessions():
                job.fail(*CLOSING)
        with self._wake:
            self._inbox.refuse(CLOSING)
            self._wake.wait_for(lambda: self._closing)  # until then other threads may need the model's tokenizer
            engine, late = self._engine, self._inbox.model
        if engine is not None:
            engine.close()
        if late is not None:
            late.answer(InputError(CLOSING[0]))
            late.autocomplete.model.close()

    def _take(self) -> _Inbox | None:
        """Wait for work that a model can do. None when Polydraft ends."""
        with self._wake:
            self._wake.wait_for(self._something_to_do)
            if self._stopping:
                return None
            inbox, self._inbox = self._inbox, _Inbox()
            return inbox

    def _something_to_do(self) -> bool:
        arrived, engine = self._inbox, self._engine
        if self._stopping or arrived.model:
            return True
        return engine is not None and bool(arrived.jobs or arrived.left or arrived.visits or engine.busy)

    def _work(self, inbox: _Inbox) -> None:
        if inbox.model is not None:
            self._adopt(inbox.model)
        engine = self._engine
        assert engine is not None
        engine.drop_unwanted()
        for tab in inbox.left:
            engine.forget(tab)
        for tab, job in inbox.jobs.items():
            engine.stop(tab)
            if not job.dropped:
                engine.begin(tab, job)
        for visit in inbox.visits:
            engine.look(visit)
        engine.step()

    def _adopt(self, loaded: _Loaded) -> None:
        """Draft with another model from now on; requests that run begin again with it."""
        jobs = self._engine.close() if self._engine is not None else []
        leave_cores_to(loaded.autocomplete.model)
        engine = Engine(loaded.autocomplete, self._pace)
        with self._wake:
            self._engine, self._failure = engine, None
        loaded.answer(None)
        for job in jobs:
            engine.begin(job.request.tab, job)


def _telling(done: asyncio.Future[None]) -> Callable[[Exception | None], None]:
    """What ends the wait of `done`, for any thread."""
    loop = done.get_loop()

    def end(error: Exception | None) -> None:
        if done.done():  # the caller no longer waits
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def tell(error: Exception | None) -> None:
        with suppress(RuntimeError):  # that loop is closed
            loop.call_soon_threadsafe(end, error)

    return tell


def load_failure(error: Exception) -> tuple[str, str]:
    """What the user is told about a model that could not be loaded: the message, and what to do."""
    if isinstance(error, PolydraftError):
        return str(error), ""
    return f"The model could not be loaded: {named_line(error)}", "Run `polydraft doctor` to see what works."
