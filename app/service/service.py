"""The draft service: passes requests from asyncio loops to the engine thread, the only thread that uses the model.

Requests come from an asyncio loop (`DraftService.stream`; the last function has the page's routes), and their events
return to it. A separate thread loads a model, while another one may still draft. The engine thread runs a loop: stop
cancelled requests, begin new ones, run one pass for all.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from app.learning.base_stores import BaseStores
from app.learning.personal import PersonalStores
from app.options.settings import Strict
from app.service.engine import Engine
from app.service.jobs import Event, Inbox, Job, Loaded, Pending, Position, Query, Result
from app.service.recovery import load_failure, request_failure
from app.service.requests import DraftRequest
from app.service.threads import leave_cores_to
from app.wire.bounds import Id
from app.wire.refusals import taking
from app.wire.streaming import Streamed, as_line
from core.errors import InputError, PolydraftError, traced

if TYPE_CHECKING:
    from core.autocomplete import Autocomplete
    from core.options import Precision

PACE = 0.1  # seconds between two events of growing drafts, because drawing in the page takes a core from the model
REMEMBERED = 1024  # tabs whose newest request number is stored, to detect older requests that arrive late

CLOSING = ("Polydraft is closing.", "")

log = logging.getLogger(__name__)


class DraftService:
    """Serves requests for drafts with one model.

    Requests wait until the model is loaded. If it cannot be loaded they end with the reason, and `change` can load
    another one.
    """

    def __init__(self, load: Callable[..., Autocomplete], name: str = "", pace: float = PACE) -> None:
        """Args:
        load: loads a model by its name, and by a precision if one is chosen; called in a separate thread.
        name: of the first model.
        """
        self._load_model, self._pace = load, pace
        self._open = 0  # requests whose events are being read; only the loop that serves them counts
        self._wake = threading.Condition()
        # Guarded by _wake:
        self._inbox = Inbox()
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._stopping = self._closing = False
        self._name = name
        self._loading: threading.Thread | None = None
        self._loading_name = ""  # of the model that is being loaded
        self._failure: tuple[str, str] | None = None  # the reason why there is no model
        # Only the engine thread sets it and calls its methods; `status` and `loaded` only read.
        self._engine: Engine | None = None
        self._thread = threading.Thread(target=self._run, name="polydraft-engine", daemon=True)
        # Called at every request, and when a model is there; they must not block.
        self.typed: Callable[[], None] = lambda: None
        self.adopted: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begins to load the model."""
        self._thread.start()
        with self._wake:
            self._load(self._name)

    def stop(self) -> None:
        """Ends every request and refuses new ones; the model stays open for threads that still use its tokenizer."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def close(self, timeout: float = 10) -> None:
        """Ends every request, closes the model and waits until that is done."""
        with self._wake:
            self._stopping = self._closing = True
            self._wake.notify()
            loading = self._loading
        for thread in (loading, self._thread):
            if thread is not None and thread.is_alive():
                thread.join(timeout)

    @property
    def running(self) -> bool:
        """Whether a thread of the service runs."""
        return any(thread is not None and thread.is_alive() for thread in (self._loading, self._thread))

    @property
    def stopping(self) -> bool:
        """Whether Polydraft is closing; long work in other threads must end too."""
        return self._stopping

    def status(self) -> dict[str, Any]:
        """The data of the page's status line, with or without a loaded model."""
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
            "prose": engine.autocomplete.has_prose,
        }

    def names(self) -> tuple[str, str]:
        """The names by which the model that drafts, and the one being loaded, were requested; "" for none."""
        with self._wake:
            serving = self._name if self._engine is not None else ""
            return serving, self._loading_name if self._loading is not None else ""

    @property
    def busy(self) -> bool:
        """Whether a request is open."""
        return self._open > 0

    def work(self) -> dict[str, int]:
        """Inputs that the model computed since it was loaded, and those of requests that ended before their drafts were
        done."""
        engine = self._engine
        return {"computed": engine.computed if engine else 0, "dropped": engine.dropped if engine else 0}

    async def stream(self, request: DraftRequest) -> AsyncGenerator[Event]:
        """Yields the events of one request: "drafts", the first immediately and later ones at most every `pace`
        seconds, then "stats"; or "error".

        Ends without further events when a newer request of the same tab arrives. Closing the generator cancels the
        request before the next step of the model.
        """
        job = self._admit(request)
        if job is None:
            return
        self._open += 1
        try:
            while (event := await job.next_event()) is not None:
                yield event
        finally:
            self._open -= 1
            job.dropped = True

    async def query(self, tab: str, compute: Callable[[Position], Result]) -> Result:
        """Runs `compute` on the position at which the tab's newest drafts begin, and returns its result. Runs no pass.

        `compute` runs in the engine thread between two passes, so it should take only a few milliseconds.
        Raises: InputError if the tab has no drafts yet, or no longer; and the exceptions of `compute`.
        """
        query = Query(tab, compute)
        with self._wake:
            refusal = self._refusal()
            if refusal:
                raise InputError(" ".join(refusal).strip())
            self._inbox.queries.append(query)
            self._wake.notify()
        return await asyncio.wrap_future(query)

    def time_rows(self) -> bool:
        """Lets the engine measure how fast this machine is, between the passes of requests, if that is unknown and can
        be measured. Returns whether it is unknown so far."""
        loaded = self.loaded
        if loaded is None or loaded.row_costs is not None or not loaded.model.compiled_as:
            return False
        with self._wake:
            self._inbox.timing = True
            self._wake.notify()
        return True

    async def change(self, name: str, precision: Precision | None = None) -> dict[str, Any]:
        """Loads another model, which then replaces the present one. The present one, if any, drafts meanwhile.

        Args:
            precision: see `load_model`; None is that of the start.
        Returns: the new status.
        Raises: InputError while another model is being loaded, or if loading fails.
        """
        with self._wake:
            if self._stopping:
                raise InputError(CLOSING[0])
            if self._loading is not None:
                raise InputError(f"A model is being loaded; wait until it is loaded, then load {name}.")
            done = self._load(name, precision)
        await asyncio.wrap_future(done)
        return self.status()

    def stores(self) -> PersonalStores:
        """The user's personal stores, for any thread but the engine's. Raises InputError until the model is loaded,
        because they need its tokenizer."""
        loaded = self.loaded
        if loaded is None:
            raise InputError("The model is not loaded yet; its tokenizer is needed for personal stores.")
        return PersonalStores(loaded.model.tokenizer)

    def base_stores(self) -> BaseStores:
        """The user's choice of base stores, for any thread but the engine's. Raises InputError until the model is
        loaded."""
        loaded = self.loaded
        if loaded is None:
            raise InputError("The model is not loaded yet; its tokenizer is needed for the stores of common phrases.")
        return BaseStores(loaded.model.tokenizer.fingerprint, loaded.bases)

    @property
    def loaded(self) -> Autocomplete | None:
        """The loaded model and its stores, which the engine thread owns; None until they are loaded."""
        engine = self._engine
        return None if engine is None else engine.autocomplete

    @property
    def model_name(self) -> str:
        """The name by which the loaded model was loaded, or the one that is being loaded."""
        return self._name

    def leave(self, tab: str) -> None:
        """The tab was closed: stops its request and frees its place in the cache."""
        with self._wake:
            job = self._inbox.jobs.pop(tab, None)
            if job:
                job.post(None)
            self._inbox.left.add(tab)
            self._wake.notify()

    def _admit(self, request: DraftRequest) -> Job | None:
        """Queues a request in place of its tab's older one. Returns None if the request itself is older."""
        job = Job(request)
        self.typed()
        with self._wake:
            refusal = self._refusal()
            if refusal:
                job.fail(*refusal)
                return job
            if request.n < self._newest.get(request.tab, 0):
                return None
            if not request.by_text:  # a tab with `by_text` sends only one request
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
        """The message and the remedy for requests that cannot be served now; None if they can."""
        return CLOSING if self._stopping else self._failure

    # ---------------------------------------------------------------- loading, in a separate thread

    def _load(self, name: str, precision: Precision | None = None) -> Pending[None]:
        """Begins to load. The caller has locked `_wake`. The result ends once the model drafts, or with the reason why
        it does not."""
        done = Pending[None]()
        if self._engine is None:
            self._name, self._failure = name, None  # requests wait again
        self._loading_name = name
        self._loading = threading.Thread(
            target=self._run_load, args=(name, precision, done), name="polydraft-loading", daemon=True
        )
        self._loading.start()
        return done

    def _run_load(self, name: str, precision: Precision | None, done: Pending[None]) -> None:
        try:
            loaded = self._load_model(name) if precision is None else self._load_model(name, precision)
        except Exception as error:  # noqa: BLE001 - logged below, without control characters
            if not isinstance(error, PolydraftError):
                log.warning("The model %r could not be loaded: %r\n%s", name, error, traced(error))
            self._load_failed(name, load_failure(error), done)
            return
        with self._wake:
            self._loading = None
            late = self._closing
            if not late:
                self._inbox.model = Loaded(loaded, name, done)
                self._wake.notify()
        if late:
            done.fail(InputError(CLOSING[0]))
            loaded.close()

    def _load_failed(self, name: str, reason: tuple[str, str], done: Pending[None]) -> None:
        """Reports the reason; if there is no other model, every waiting request ends with it too."""
        with self._wake:
            self._loading = None
            waiting = Inbox()
            if self._engine is None:
                self._name, self._failure = name, reason
                waiting, self._inbox = self._inbox, Inbox()
        waiting.refuse(reason)
        done.fail(InputError(" ".join(reason).strip()))

    # ---------------------------------------------------------------- the engine thread

    def _run(self) -> None:
        """The engine thread: handles the inbox and runs a pass, repeatedly; at the end closes all requests and the
        model."""
        while (inbox := self._take()) is not None:
            try:
                self._work(inbox)
            except Exception as error:  # noqa: BLE001 later requests can still be served
                log.error("An error ended all running requests:\n%s", traced(error))
                inbox.refuse(request_failure(error))
                if self._engine is not None:
                    self._engine.fail_all(error)
        if self._engine is not None:
            for job in self._engine.close_sessions():
                job.fail(*CLOSING)
        with self._wake:
            self._inbox.refuse(CLOSING)
            self._wake.wait_for(lambda: self._closing)  # until then other threads may use the model's tokenizer
            engine, late = self._engine, self._inbox.model
        if engine is not None:
            engine.close()
        if late is not None:
            late.done.fail(InputError(CLOSING[0]))
            late.autocomplete.close()

    def _take(self) -> Inbox | None:
        """Waits for work, and returns it; None when Polydraft closes."""
        with self._wake:
            self._wake.wait_for(self._has_work)
            if self._stopping:
                return None
            inbox, self._inbox = self._inbox, Inbox()
            return inbox

    def _has_work(self) -> bool:
        arrived, engine = self._inbox, self._engine
        if self._stopping or arrived.model:
            return True
        return engine is not None and bool(
            arrived.jobs or arrived.left or arrived.queries or arrived.timing or engine.busy
        )

    def _work(self, inbox: Inbox) -> None:
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
        for query in inbox.queries:
            engine.answer(query)
        if inbox.timing:
            engine.time_rows()
        engine.step()

    def _adopt(self, loaded: Loaded) -> None:
        """Replaces the model; running requests begin again with the new one."""
        jobs = self._engine.close() if self._engine is not None else []
        leave_cores_to(loaded.autocomplete.model)
        engine = Engine(loaded.autocomplete, self._pace)
        with self._wake:
            self._engine, self._failure, self._name = engine, None, loaded.name
        loaded.done.set_result(None)
        self.adopted()
        for job in jobs:
            engine.begin(job.request.tab, job)


class LeaveRequest(Strict):
    tab: Id


def add_draft_routes(app: FastAPI, service: DraftService, left: Callable[[str], None] = lambda _: None) -> None:
    """The routes of the editor.

    Args:
        left: called with the tab when one is closed.
    """

    # A route of Starlette: every key of every tab sends a request, and FastAPI's handling of a route would be a large
    # part of its cost.
    @taking(DraftRequest)
    async def drafts(_: Request, body: DraftRequest) -> Response:
        return Streamed(service.stream(body), as_line, "application/x-ndjson")

    app.add_route("/api/drafts", drafts, ["POST"])

    @app.post("/api/leave")
    @taking(LeaveRequest)
    async def leave(_: Request, body: LeaveRequest) -> dict[str, bool]:
        service.leave(body.tab)
        left(body.tab)
        return {"ok": True}

    @app.get("/api/status")
    async def status() -> dict[str, object]:
        return service.status()
