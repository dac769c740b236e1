"""Drafts for many tabs from one model: the next rows of several requests share one pass.

An `Engine` belongs to one thread and knows no other; `app.service` calls it.

Who is in a pass. A pass has a bounded number of inputs, so that its time is bounded too. Half of them are for tabs that
still wait for their first drafts, the longest wait first; the other half for drafts that grow, the oldest first. Each
half takes what the other leaves. A tab waits since its first request that was not answered: a newer request of the same
tab does not lose its place. A request that its tab's next key will probably overtake before the pass ends comes last.
Without that rule a crowd of typists would get no drafts, because each pass would end after the next key. Of a long text
a pass reads a part, while others wait too.

Texts stay in the model's cache for as long as it has room; then the text that was used longest ago makes room, of those
at rest. Where none rests, a request waits until another one ends.

An error in one request ends that request with a sentence and a log line, and closes its tab's session, so that the
tab's next request starts afresh. Every other request goes on.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from app import sampling, speculation
from app.closest import closest
from app.jobs import Event, Job, Position, Visit
from core.errors import ContextFull, InputError, PolydraftError

if TYPE_CHECKING:
    from torch import Tensor

    from app.requests import DraftRequest
    from core.autocomplete import Autocomplete, Completion, Session
    from core.models import Row

MEASURING = "What a pass costs on this machine is being measured, once; speculation begins with the next drafts."

INPUTS = {"cpu": 32}  # of one pass, by device: some 30 ms with the default model; a wait that a typist bears
MORE_INPUTS = 256  # on a GPU, where they cost little more than one
ROOM = 64  # positions that drafts take behind a text
PAUSE = 1.0  # seconds without a request, after which a tab has given up its place among those who wait
PATIENCE = 10.0  # seconds that a request waits for room in the cache
PLACES = 1024  # tabs whose place is remembered

log = logging.getLogger(__name__)


class Engine:
    """The requests that run on one model, and the sessions that keep texts in its cache.

    Attributes:
        autocomplete: what drafts.
    """

    def __init__(self, autocomplete: Autocomplete, pace: float) -> None:
        self.autocomplete = autocomplete
        self._pace = pace
        self._inputs = INPUTS.get(autocomplete.model.device, MORE_INPUTS)
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # least recently used first
        self._texts: dict[str, str] = {}  # of the sessions that other tabs may begin with: what each holds
        self._waiting: dict[str, Job] = {}  # not begun
        self._running: dict[str, Job] = {}
        self._full = False  # a request found no room in the cache, and none has ended since then
        self._since: dict[str, float] = {}  # when a tab began to wait
        self._keys: OrderedDict[str, tuple[float, float]] = (
            OrderedDict()
        )  # a tab's latest request, and the time between
        self._pass = 0.0  # seconds of the latest pass
        self._latest: dict[str, tuple[int, Completion]] = {}  # by tab: the drafts that `look` is shown
        self._chore: Iterator[None] | None = None  # done a pass of the model at a time

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._waiting or self._running) or self._chore is not None

    def begin(self, tab: str, job: Job) -> None:
        """Take a request in place of the tab's older one; it begins when its turn comes."""
        self.stop(tab)
        between = job.arrived - self._keys.pop(tab, (0.0, 0.0))[0]
        self._since[tab] = self._since.get(tab, job.arrived) if between <= PAUSE else job.arrived
        self._keys[tab] = job.arrived, between
        if len(self._keys) > PLACES:
            self._since.pop(self._keys.popitem(last=False)[0], None)
        self._waiting[tab] = job

    def stop(self, tab: str) -> None:
        """Stop the tab's request, if there is one; its session, and what it has in the cache, stays."""
        job = self._waiting.pop(tab, None) or self._running.pop(tab, None)
        if job is None:
            return
        self._full = False
        job.post(None)
        if not _closed(job):
            self._close_session(tab)  # what it has in the cache may be half-way

    def forget(self, tab: str) -> None:
        """The tab is gone: stop its request and free its place in the cache."""
        self.stop(tab)
        self._since.pop(tab, None)
        self._keys.pop(tab, None)
        self._close_session(tab)

    def drop_unwanted(self) -> None:
        """Stop the requests whose streams were closed."""
        for tab, job in [*self._waiting.items(), *self._running.items()]:
            if job.dropped:
                self.stop(tab)

    def look(self, visit: Visit) -> None:
        """One look at a position; an error in it goes to its caller alone."""
        n, completion = self._latest.get(visit.tab, (0, None))
        try:
            logits = None if completion is None else completion.next_logits
            if logits is None:
                raise InputError("There are no drafts yet. Write something first.")
            visit.end(visit.look(Position(n, logits, self.autocomplete)))
        except Exception as error:  # noqa: BLE001 an error in one look must not end the engine
            visit.end(None, error)

    def step(self) -> None:
        """One pass of the model for everything that runs, and one of what is done between."""
        self._draft()
        if self._chore is None:
            return
        try:
            next(self._chore)
        except StopIteration:
            self._chore = None
        except Exception as error:
            self._chore = None  # the next request that needs it begins it again
            log.warning("Passes could not be measured: %s", error, exc_info=error)

    def fail_all(self, error: Exception) -> None:
        """After an error that belongs to no single request: end every request with a sentence and empty the cache."""
        for job in self.close_sessions():
            job.fail(*request_failure(error))

    def close_sessions(self) -> list[Job]:
        """Stop everything and give every place in the cache back. Returns: the requests that ran, not yet told."""
        jobs = [*self._running.values(), *self._waiting.values()]
        self._running, self._waiting, self._chore = {}, {}, None
        for job in jobs:
            _closed(job)
        for tab in list(self._sessions):
            self._close_session(tab)
        return jobs

    def close(self) -> list[Job]:
        """Stop everything and give the model back. Returns: the requests that ran, not yet told."""
        jobs = self.close_sessions()
        _done(self.autocomplete.model.close)
        return jobs

    # ---------------------------------------------------------------- passes

    def _draft(self) -> None:
        due = self._chosen()
        if not due:
            return
        try:
            logits = self._forward([row for _, rows in due for row in rows])
        except Exception as error:  # noqa: BLE001 an error in one row must not end the engine
            if len(due) == 1:
                self._recover(due[0][0], error)
                return
            # One of the rows is at fault; every sequence is as it was, so each request tries alone.
            for tab, rows in due:
                self._attempt(tab, lambda job, rows=rows: self._advance(job, rows, self._forward(rows)))
            return
        at = 0
        for tab, rows in due:
            mine = logits[at : at + len(rows)]
            at += len(rows)
            self._attempt(tab, lambda job, rows=rows, mine=mine: self._advance(job, rows, mine))

    def _chosen(self) -> list[tuple[str, list[Row]]]:
        """The tabs that take part in the next pass, with their rows; see the head of this file."""
        jobs = self._waiting | self._running
        ordered = sorted(jobs, key=lambda tab: (self._too_late(tab), self._since.get(tab, jobs[tab].arrived)))
        first = [tab for tab in ordered if jobs[tab].first is None]
        growing = sorted((tab for tab in ordered if jobs[tab].first), key=lambda tab: jobs[tab].first or (0.0, 0))
        due: list[tuple[str, list[Row]]] = []
        spent = 0
        alone = len(jobs) == 1
        half = self._inputs // 2 if growing else self._inputs
        for queue, limit, least in ((first, half, True), (growing, self._inputs, True), (first, self._inputs, False)):
            while queue and (least or spent < limit):
                if self._full and self._running and queue[0] in self._waiting:
                    del queue[0]  # it waits for room; those that have some go on
                    continue
                rows = self._attempt(queue[0], lambda job: self._rows(job, alone))
                if queue[0] in self._waiting:
                    continue
                inputs = sum(len(row.inputs) for row in rows or ())
                if spent + inputs > limit and not least:
                    break
                if rows:
                    due.append((queue[0], rows))
                    spent, least = spent + inputs, False
                del queue[0]
        return due

    def _too_late(self, tab: str) -> bool:
        """Whether the tab's next key will probably come before a pass would end."""
        latest, between = self._keys.get(tab, (0.0, PAUSE))
        age = time.perf_counter() - latest
        return between - self._pass < age < 1.5 * between and between < PAUSE

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        began = time.perf_counter()
        logits = self.autocomplete.model.forward(rows)
        self._pass = time.perf_counter() - began
        return logits

    def _rows(self, job: Job, alone: bool) -> list[Row]:
        """What the request feeds in a pass; it begins where it has not. [] when it ended with that."""
        if job.completion is None:
            self._begin(job)
        if job.completion is None:  # it ended at once: the cache knew the answer
            return []
        if job.rows is None:
            job.rows = job.completion.rows()
        row, part = job.rows[0], 2 * self._inputs
        whole = alone or len(job.rows) > 1 or row.every or row.parents is not None
        if whole or not isinstance(row.inputs, list) or len(row.inputs) <= part:
            return job.rows
        return [replace(row, inputs=row.inputs[:part], silent=True)]

    def _advance(self, job: Job, rows: list[Row], logits: list[Tensor]) -> None:
        assert job.completion is not None
        assert job.rows is not None
        if rows is not job.rows:  # a part of a long text
            job.rows = [replace(job.rows[0], inputs=job.rows[0].inputs[len(rows[0].inputs) :])]
            return
        job.rows = None
        job.completion.advance(logits)
        self._show(job)

    def _begin(self, job: Job) -> None:
        request, settings = job.request, job.request.settings
        tab = request.tab
        self._running[tab] = self._waiting.pop(tab, job)
        session = self._sessions.get(tab)
        if session is None:
            session = self._sessions[tab] = self._inherited(request) or self._opened(request)
        self._sessions.move_to_end(tab)
        if request.by_text:
            self._texts[tab] = request.before
        drafting = settings.drafting() | sampling.options(self.autocomplete, settings)
        drafting |= {"heal": request.heal, "stores": request.stores, "likeliest": request.likeliest}
        drafting |= {"repeats": request.detailed}
        from core.present import KeptRow  # torch comes with it

        kept = [KeptRow(row.id, row.text) for row in request.kept]
        job.completion = session.complete(request.before, kept=kept, grow=request.grow, **drafting)
        if settings.speculates and drafting["mode"].speculation is None:
            job.figures = {"accept_length": 0.0, "speedup": 1.0, "notice": MEASURING}
            self._chore = self._chore or speculation.chore(self.autocomplete)
        self._show(job)

    def _opened(self, request: DraftRequest) -> Session:
        """An empty session; sessions at rest make room for it."""
        model = self.autocomplete.model
        size = min(len(request.before), self.autocomplete.window) + ROOM  # a token has a character at least
        while not model.has_room(size) and self._evict():
            pass
        if len(self._running) > 1 and not model.has_room(size):
            raise ContextFull("The model's cache has no room for one more text; close a tab.")
        return self.autocomplete.open()

    def _inherited(self, request: DraftRequest) -> Session | None:
        """For a tab that says so, the session of the other such tab whose text agrees furthest; a fork of it where that
        tab is busy, or its text mostly another. None where little agrees."""
        if not request.by_text:
            return None
        found = closest(request.before, self._texts, busy=self._running)
        if found is None:
            return None
        other, common = found
        if other not in self._running and 2 * common >= len(self._texts[other]):
            del self._texts[other]
            self._latest.pop(other, None)
            return self._sessions.pop(other)
        try:
            return self._sessions[other].fork() if self.autocomplete.model.has_room(common + ROOM) else None
        except ContextFull:
            return None  # an empty one may still find room

    def _show(self, job: Job) -> None:
        """Send the drafts where they are new, and the figures at the end."""
        completion, request = job.completion, job.request
        assert completion is not None
        now = time.perf_counter()
        if completion.step and job.first is None:
            job.first = now, completion.step
            self._since.pop(request.tab, None)
            self._latest[request.tab] = request.n, completion
        settled = completion.settled and not job.settled
        due = not job.sent or settled or request.detailed or now - job.sent_at >= self._pace
        if completion.done or (due and completion.step != job.step):
            job.step, job.settled = completion.step, completion.settled
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
                | ({"tokens": [list(token) for token in draft.path]} if request.detailed else {})
                | ({"chances": [asdict(chance) for chance in draft.chances]} if draft.chances else {})
                for draft in completion.drafts
                if draft.probability >= request.settings.min_confidence
            ]
            if completion.done or settled or drafts != job.sent:
                job.sent, job.sent_at = drafts, now
                event: Event = {
                    "type": "drafts",
                    "n": request.n,
                    "step": completion.step,
                    "settled": completion.settled,
                    "done": completion.done,
                    "best": completion.best,
                    "hidden": len(completion.drafts) - len(drafts),
                    "drafts": drafts,
                }
                figures = job.figures if completion.figures is None else asdict(completion.figures)
                if figures is not None:
                    event["speculation"] = figures
                job.post(event)
        if completion.done:
            job.post(self._stats(job, completion, now))
            self.stop(request.tab)

    def _stats(self, job: Job, completion: Completion, now: float) -> Event:
        model = self.autocomplete.model
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

    # ---------------------------------------------------------------- errors, and room in the cache

    def _attempt(self, tab: str, action: Callable[[Job], Any]) -> Any:
        """Run one part of a request; an error in it ends that request alone."""
        try:
            return action(self._running.get(tab) or self._waiting[tab])
        except Exception as error:  # noqa: BLE001 an error in one request must not end the engine
            self._recover(tab, error)
            return None

    def _recover(self, tab: str, error: Exception) -> None:
        """After an error: without room, make some or wait for it, and begin again; otherwise say what is wrong."""
        if not isinstance(error, PolydraftError):
            log.warning("A request failed: %r", error, exc_info=error)
        job = self._running.pop(tab, None)
        if job is None:  # it had ended already
            self._close_session(tab)
        elif isinstance(error, ContextFull) and self._may_try_again(tab, job):
            self._waiting[tab] = job
        else:
            self._full = False
            job.fail(*request_failure(error))
            _closed(job)
            self.forget(tab)  # what it has in the cache may be half-way; the tab's next request starts afresh

    def _may_try_again(self, tab: str, job: Job) -> bool:
        """After the cache had no room for a request: whether there may be some, now or when another request ends."""
        if not _closed(job):
            return False
        if self._evict(tab):
            return True
        self._full = bool(self._running) and time.perf_counter() - job.arrived < PATIENCE
        return self._full

    def _evict(self, but: str = "") -> bool:
        """Close the session that was used longest ago, of those at rest; last of all those with a request that waits.
        False when there is none."""
        idle = [tab for tab in self._sessions if tab not in self._running and tab != but]
        if not idle:
            return False
        self._close_session(next((tab for tab in idle if tab not in self._waiting), idle[0]))
        return True

    def _close_session(self, tab: str) -> None:
        session = self._sessions.pop(tab, None)
        self._latest.pop(tab, None)
        self._texts.pop(tab, None)
        if session:
            _done(session.close)


def _closed(job: Job) -> bool:
    """Close what the request has begun; whether that went well."""
    completion, job.completion, job.rows = job.completion, None, None
    return completion is None or _done(completion.close)


def _done(close: Callable[[], None]) -> bool:
    """Call what gives something back; whether it went well. An error there is logged and concerns no request."""
    try:
        close()
    except Exception as error:
        log.warning("Something could not be given back: %r", error, exc_info=error)
        return False
    return True


def request_failure(error: Exception) -> tuple[str, str]:
    """What the page is told about a request that failed: the message, and what to do."""
    if isinstance(error, PolydraftError):
        return str(error), ""
    return (
        f"An error ended these drafts: {named_line(error)}",
        "Type on to try again; if it stays so, start Polydraft again.",
    )


def named_line(error: Exception) -> str:
    """The error in one line, with its kind where its text alone says little."""
    text = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, RuntimeError | OSError | ValueError | MemoryError | ImportError) and text:
        return text
    return f"{type(error).__name__}{': ' if text else ''}{text}"
