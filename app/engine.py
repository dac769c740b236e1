"""Computes drafts for many tabs with one model: the rows of several requests share one pass.

An `Engine` is used by one thread only; `app.service` calls it.

Scheduling. A pass has a limited number of inputs, which limits its time. The tab that has waited longest for its first
drafts is always part of it; while others wait, the pass reads at most a part of that tab's text. Besides, half of the
inputs are for other tabs that wait and have only a few new characters, the longest wait first; the other half for
growing drafts, the oldest first. Each half may use inputs that the other does not need. So one long text delays many
short ones only a little, and each text is read in the end. The wait of a tab begins with its first unanswered request:
a newer request of the same tab does not lose its place. A request that its tab's next key will probably replace before
the pass ends comes last: otherwise many fast typists would get no drafts, because each pass would end after the next
key.

Texts stay in the model's cache while there is room. Then the least recently used text without a running request is
removed. If all have one, a new request waits until another one ends.

An error in a request ends only that request, with a message and a log line, and closes its tab's session, so that the
tab's next request begins with an empty one.
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
from app.jobs import Event, Job, Position, Result, Visit
from core.errors import ContextFull, InputError, PolydraftError
from core.options import LONGEST

if TYPE_CHECKING:
    from torch import Tensor

    from app.requests import DraftRequest
    from core.autocomplete import Autocomplete, Completion, Session
    from core.models import Row

MEASURING = "The time of a pass on this machine is being measured, once; speculation begins with the next drafts."

INPUTS = {"cpu": 32}  # inputs of one pass, by device: about 30 ms with the default model
MORE_INPUTS = 256  # on a GPU, where they cost little more than one
FEW = 16  # unread characters of a request that counts as short
ROOM = 64  # positions that drafts need after a text
PAUSE = 1.0  # seconds without a request after which a tab loses its place in the queue
PATIENCE = 10.0  # seconds that a request waits for room in the cache
HELD = 0.15  # the longest delay of drafts in seconds, while they are not yet compared with the text after the caret
PLACES = 1024  # tabs whose place in the queue is stored
RESTED = 64  # sessions used since a session's last use after which its logits are freed: about 5 MB each

log = logging.getLogger(__name__)


class Engine:
    """Runs requests on one model, with sessions that keep texts in its cache.

    Attributes:
        autocomplete: the model with its stores and options.
        computed, dropped: inputs of all passes, and of those for requests that ended before their drafts were done.
    """

    def __init__(self, autocomplete: Autocomplete, pace: float) -> None:
        self.autocomplete = autocomplete
        self.computed = self.dropped = 0
        self._pace = pace
        self._inputs = INPUTS.get(autocomplete.model.device, MORE_INPUTS)
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # least recently used first
        self._texts: dict[str, str] = {}  # the texts of sessions from which new tabs with `by_text` may start
        self._waiting: dict[str, Job] = {}  # not begun
        self._running: dict[str, Job] = {}
        self._full = False  # whether a request found no room in the cache, and no other has ended since
        self._since: dict[str, float] = {}  # when a tab began to wait
        # By tab: the time of its latest request, and the time since the one before.
        self._keys: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._pass = 0.0  # seconds of the latest pass
        self._read: dict[str, str] = {}  # by tab: the text that its session has read
        self._latest: dict[str, tuple[int, Completion]] = {}  # by tab: the drafts for `look`
        self._chore: Iterator[None] | None = None  # measurements, one pass per step

    @property
    def busy(self) -> bool:
        """Whether `step` has work."""
        return bool(self._waiting or self._running) or self._chore is not None

    def begin(self, tab: str, job: Job) -> None:
        """Queues a request in place of the tab's older one. If the adapters in use have changed, all sessions are
        closed, and their requests are queued again."""
        if self.autocomplete.adapt():
            self._waiting = {job.request.tab: job for job in self.close_sessions()}
        self.stop(tab)
        between = job.arrived - self._keys.pop(tab, (0.0, 0.0))[0]
        self._since[tab] = self._since.get(tab, job.arrived) if between <= PAUSE else job.arrived
        self._keys[tab] = job.arrived, between
        if len(self._keys) > PLACES:
            self._since.pop(self._keys.popitem(last=False)[0], None)
        self._waiting[tab] = job

    def stop(self, tab: str) -> None:
        """Stops the tab's request, if there is one. Its session stays in the cache."""
        job = self._waiting.pop(tab, None) or self._running.pop(tab, None)
        if job is None:
            return
        self._full = False
        self.dropped += job.inputs
        job.post(None)
        if not _close_completion(job):
            self._close_session(tab)  # its cache may be in an undefined state

    def forget(self, tab: str) -> None:
        """The tab was closed: stops its request and frees its place in the cache."""
        self.stop(tab)
        self._since.pop(tab, None)
        self._keys.pop(tab, None)
        self._close_session(tab)

    def drop_unwanted(self) -> None:
        """Stops the requests whose streams were closed."""
        for tab, job in [*self._waiting.items(), *self._running.items()]:
            if job.dropped:
                self.stop(tab)

    def look(self, visit: Visit[Any]) -> None:
        """Runs a visit. An exception is passed to its caller only."""
        n, completion = self._latest.get(visit.tab, (0, None))
        try:
            logits = None if completion is None else completion.next_logits
            if logits is None:
                raise InputError("There are no drafts yet. Write something first.")
            visit.set_result(visit.look(Position(n, logits, self.autocomplete)))
        except Exception as error:  # noqa: BLE001 an error in one visit must not end the engine
            visit.fail(error)

    def step(self) -> None:
        """Runs one pass for the requests, and one of the measurements if they are due."""
        self._draft()
        if self._chore is None:
            return
        try:
            next(self._chore)
        except StopIteration:
            self._chore = None
        except Exception as error:
            self._chore = None  # the next request that needs them starts them again
            log.warning("Passes could not be measured: %s", error, exc_info=error)

    def fail_all(self, error: Exception) -> None:
        """After an error that concerns no single request: ends every request with a message, and empties the cache."""
        for job in self.close_sessions():
            job.fail(*request_failure(error))

    def close_sessions(self) -> list[Job]:
        """Stops all requests and closes all sessions. Returns the requests, whose streams are still open."""
        jobs = [*self._running.values(), *self._waiting.values()]
        self._running, self._waiting, self._chore = {}, {}, None
        for job in jobs:
            _close_completion(job)
        for tab in list(self._sessions):
            self._close_session(tab)
        return jobs

    def close(self) -> list[Job]:
        """Stops all requests and closes the model. Returns the requests, whose streams are still open."""
        jobs = self.close_sessions()
        _close_logged(self.autocomplete.close)
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
            # One of the rows caused it. Every sequence is unchanged, so each request runs in a separate pass.
            for tab, rows in due:
                self._attempt(tab, lambda job, rows=rows: self._advance(job, rows, self._forward(rows)))
            return
        at = 0
        for tab, rows in due:
            part = logits[at : at + len(rows)]
            at += len(rows)
            self._attempt(tab, lambda job, rows=rows, part=part: self._advance(job, rows, part))

    def _chosen(self) -> list[tuple[str, list[Row]]]:
        """The tabs of the next pass, with their rows; see the beginning of this file."""
        jobs = self._waiting | self._running
        ordered = sorted(jobs, key=lambda tab: (self._too_late(tab), self._since.get(tab, jobs[tab].arrived)))
        first = [tab for tab in ordered if jobs[tab].first is None]
        growing = sorted((tab for tab in ordered if jobs[tab].first), key=lambda tab: jobs[tab].first or (0.0, 0))
        longest, others = first[:1], first[1:]
        short = [tab for tab in others if self._unread(jobs[tab].request) <= FEW]
        others = [tab for tab in others if tab not in short]
        due: list[tuple[str, list[Row]]] = []
        spent = 0  # inputs; a part of a long text counts as one
        alone, every = len(jobs) == 1, self._inputs
        half = every // 2 if growing else every
        for queue, limit, least in (
            (longest, 0, True),
            (short, half, False),
            (growing, every, True),
            (short, every, False),
            (others, every, False),
        ):
            while queue and (least or spent < limit):
                if self._full and self._running and queue[0] in self._waiting:
                    del queue[0]  # it waits for room in the cache
                    continue
                rows = self._attempt(queue[0], lambda job: self._rows(job, alone))
                if queue[0] in self._waiting:
                    continue
                inputs = sum(len(row.inputs) for row in rows or ())
                if spent + inputs > limit and not least:
                    break
                if rows:
                    due.append((queue[0], rows))
                    spent, least = spent + (1 if queue is longest else inputs), False
                del queue[0]
        return due

    def _unread(self, request: DraftRequest) -> int:
        """The characters of a request's text that its session has not read; all of them if the text differs."""
        read = self._read.get(request.tab, "")
        return len(request.before) - (len(read) if request.before.startswith(read) else 0)

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
        """The rows of the request for a pass; begins the request if necessary. [] if it has ended."""
        if job.completion is None:
            self._begin(job)
        if job.completion is None:  # it ended at once, because all its logits were cached
            return []
        if job.rows is None:
            job.rows = job.completion.rows()
        row, part = job.rows[0], self._inputs
        whole = alone or len(job.rows) > 1 or row.every or row.parents is not None
        if whole or not isinstance(row.inputs, list) or len(row.inputs) <= part:
            return job.rows
        return [replace(row, inputs=row.inputs[:part], silent=True)]

    def _advance(self, job: Job, rows: list[Row], logits: list[Tensor]) -> None:
        assert job.completion is not None
        assert job.rows is not None
        inputs = sum(len(row.inputs) for row in rows)
        self.computed, job.inputs = self.computed + inputs, job.inputs + inputs
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
        for later, resting in enumerate(reversed(self._sessions.values())):
            if later == RESTED:
                resting.rest()
                break
        if request.by_text:
            self._texts[tab] = request.before
        drafting = settings.drafting() | sampling.options(self.autocomplete, settings)
        from core.present import KeptRow  # torch comes with it

        kept = [KeptRow(row.id, row.text) for row in request.kept]
        job.completion = session.complete(
            request.before,
            heal=request.heal,
            stores=request.stores,
            kept=kept,
            grow=request.grow,
            after=request.after,
            likeliest=request.likeliest,
            repeats=request.detailed,
            **drafting,
        )
        job.completion.seen = request.all
        if settings.speculates and (mode := drafting.get("mode")) and mode.speculation is None:
            job.figures = {"accept_length": 0.0, "speedup": 1.0, "notice": MEASURING}
            self._chore = self._chore or speculation.chore(self.autocomplete)
        self._show(job)

    def _opened(self, request: DraftRequest) -> Session:
        """An empty session. Closes idle sessions to make room for it."""
        model = self.autocomplete.model
        more = max(ROOM, ROOM - LONGEST + request.settings.length)
        size = min(len(request.before), self.autocomplete.window) + more  # a token has at least one character
        while not model.has_room(size) and self._evict():
            pass
        if len(self._running) > 1 and not model.has_room(size):
            raise ContextFull("The model's cache has no room for one more text; close a tab.")
        return self.autocomplete.open()

    def _inherited(self, request: DraftRequest) -> Session | None:
        """For a tab with `by_text`, the session of another such tab whose text has the longest common prefix; a fork of
        it if that tab is busy or most of its text differs. None if too little is common."""
        if not request.by_text:
            return None
        found = closest(request.before, self._texts, busy=self._running)
        if found is None:
            return None
        other, common = found
        if other not in self._running and 2 * common >= len(self._texts[other]):
            del self._texts[other]
            self._latest.pop(other, None)
            self._read.pop(other, None)
            return self._sessions.pop(other)
        try:
            return self._sessions[other].fork() if self.autocomplete.model.has_room(common + ROOM) else None
        except ContextFull:
            return None  # there may be room for an empty one

    def _show(self, job: Job) -> None:
        """Sends the drafts if they have changed, and the statistics at the end."""
        completion, request = job.completion, job.request
        assert completion is not None
        now = time.perf_counter()
        if not (completion.judged or completion.seen or request.detailed or now - job.arrived >= HELD):
            return  # they may still be withdrawn, and a row that the page shows must not disappear
        if completion.step and job.first is None:
            job.first = now, completion.step
            self._since.pop(request.tab, None)
            self._read[request.tab] = request.before
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
                | ({} if draft.gain is None else {"gain": round(draft.gain, 3)})
                | ({"how": [list(came) for came in draft.how]} if draft.how else {})
                | ({"tokens": [list(token) for token in draft.path]} if request.detailed else {})
                | ({"chances": [asdict(chance) for chance in draft.chances]} if draft.chances else {})
                for draft in completion.drafts
                if draft.probability >= request.settings.min_confidence
            ]
            if completion.done or settled or drafts != job.sent:
                job.sent, job.sent_at = drafts, now
                completion.seen |= bool(drafts) and not request.detailed
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
            job.inputs = 0  # none of them was wasted
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

    def _attempt(self, tab: str, action: Callable[[Job], Result]) -> Result | None:
        """Runs one part of a request. After an error returns None: it ends only that request."""
        try:
            return action(self._running.get(tab) or self._waiting[tab])
        except Exception as error:  # noqa: BLE001 an error in one request must not end the engine
            self._recover(tab, error)
            return None

    def _recover(self, tab: str, error: Exception) -> None:
        """After an error: if the cache had no room, queues the request again; otherwise ends it with a message."""
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
            _close_completion(job)
            self.forget(tab)  # its cache may be in an undefined state; the tab's next request opens a new session

    def _may_try_again(self, tab: str, job: Job) -> bool:
        """After the cache had no room for a request: whether there is some now, or may be when another request ends."""
        if not _close_completion(job):
            return False
        if self._evict(tab):
            return True
        self._full = bool(self._running) and time.perf_counter() - job.arrived < PATIENCE
        return self._full

    def _evict(self, but: str = "") -> bool:
        """Closes the least recently used idle session, preferably one without a waiting request. Returns whether there
        was one."""
        idle = [tab for tab in self._sessions if tab not in self._running and tab != but]
        if not idle:
            return False
        self._close_session(next((tab for tab in idle if tab not in self._waiting), idle[0]))
        return True

    def _close_session(self, tab: str) -> None:
        session = self._sessions.pop(tab, None)
        self._latest.pop(tab, None)
        self._texts.pop(tab, None)
        self._read.pop(tab, None)
        if session:
            _close_logged(session.close)


def _close_completion(job: Job) -> bool:
    """Closes the request's completion, if it has begun; returns whether that succeeded."""
    completion, job.completion, job.rows = job.completion, None, None
    return completion is None or _close_logged(completion.close)


def _close_logged(close: Callable[[], None]) -> bool:
    """Calls a close method and logs its error; returns whether it succeeded."""
    try:
        close()
    except Exception as error:
        log.warning("A session could not be closed: %r", error, exc_info=error)
        return False
    return True


def request_failure(error: Exception) -> tuple[str, str]:
    """The message and the remedy for a request that failed."""
    if isinstance(error, PolydraftError):
        return str(error), ""
    return (
        f"An error ended these drafts: {named_line(error)}",
        "Type on to try again; if that fails too, restart Polydraft.",
    )


def named_line(error: Exception) -> str:
    """The error in one line, with its type unless the text suffices."""
    text = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, RuntimeError | OSError | ValueError | MemoryError | ImportError) and text:
        return text
    return f"{type(error).__name__}{': ' if text else ''}{text}"
