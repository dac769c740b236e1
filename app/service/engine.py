"""Computes drafts for many tabs with one model: the rows of several requests share one pass.

An `Engine` is used by one thread only; `app.service.service` calls it.

`schedule.py` chooses the rows of each pass, `tabs.py` which texts stay in the model's cache, and `recovery.py` what an
error ends. If all texts in the cache have a running request, a new request waits until another one ends.

Before each pass the engine looks whether text was removed from a personal store, by any process. Then all requests
begin again, without the rows that their pages kept, and all sessions are closed: no draft contains the text, also none
that was being made. The events carry a mark, by which other tabs of the page drop the rows that they show.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.machine.output import visible
from app.options import speculation
from app.service.events import drafts_event, drafts_of, stats_event
from app.service.jobs import Job, Position, Query
from app.service.recovery import Recovery, close_drafting, request_failure
from app.service.schedule import next_pass
from app.service.tabs import Tab, Tabs, close_logged
from core.errors import InputError, traced

if TYPE_CHECKING:
    from torch import Tensor

    from core.autocomplete import Autocomplete
    from core.completion import Completion
    from core.models import Row

MEASURING = "The time of a pass on this machine is being measured, once; speculation begins with the next drafts."

INPUTS = {"cpu": 32}  # inputs of one pass, by device: about 30 ms with the default model
MORE_INPUTS = 256  # on a GPU, where they cost little more than one
HELD = 0.15  # the longest delay of drafts in seconds, while they are not yet compared with the text after the caret

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
        self._tabs = Tabs(autocomplete)
        self._recovery = Recovery(self._tabs)
        self._seconds = 0.0  # of the latest pass
        self._chore: Iterator[None] | None = None  # measurements, one pass per step
        self._removed, self._notice = autocomplete.removed, autocomplete.notice
        self._adapters: dict[bool, tuple[Any, ...]] = {}  # with prose or not: those that the sessions were read with

    @property
    def busy(self) -> bool:
        """Whether `step` has work."""
        return self._chore is not None or any(tab.job for tab in self._tabs)

    def begin(self, tab: str, job: Job) -> None:
        """Queues a request in place of the tab's older one."""
        self._follow_stores()
        self.stop(tab)
        self._tab_of(job).queue(job)

    def _tab_of(self, job: Job) -> Tab:
        request = job.request
        return self._tabs.used(request.tab, request.settings.prose and self.autocomplete.has_prose)

    def time_rows(self) -> None:
        """Begins to measure how long passes take, unless that is known."""
        if self.autocomplete.row_costs is None:
            self._chore = self._chore or self.autocomplete.time_rows()

    def stop(self, name: str) -> None:
        """Stops the tab's request, if there is one. Its session stays in the cache."""
        for tab in self._tabs.named(name):
            if (job := tab.take()) is None:
                continue
            self._recovery.full = False
            self.dropped += job.inputs
            job.post(None)
            if not close_drafting(job):
                tab.close()  # its cache may be in an undefined state

    def forget(self, name: str) -> None:
        """The tab was closed: stops its request and frees its place in the cache."""
        self.stop(name)
        for tab in self._tabs.named(name):
            self._tabs.remove(tab)

    def drop_unwanted(self) -> None:
        """Stops the requests whose streams were closed."""
        for tab in self._tabs:
            if tab.job is not None and tab.job.dropped:
                self.stop(tab.name)

    def answer(self, query: Query[Any]) -> None:
        """Answers a query. An exception is passed to its caller only."""
        self._follow_stores()
        answered = [tab.latest for tab in self._tabs.named(query.tab) if tab.latest]
        n, completion = max(answered, key=lambda latest: latest[0], default=(0, None))
        try:
            logits, whole = (None, None) if completion is None else (completion.next_logits, completion.whole_logits)
            if logits is None or whole is None:
                raise InputError("There are no drafts yet. Write something first.")
            query.set_result(query.compute(Position(n, logits, whole, self.autocomplete)))
        except Exception as error:  # noqa: BLE001 an error in one query must not end the engine
            query.fail(error)

    def step(self) -> None:
        """Runs one pass for the requests, and one of the measurements if they are due."""
        if any(tab.job for tab in self._tabs):
            self._follow_stores()
        self._draft()
        if self._chore is None:
            return
        try:
            next(self._chore)
        except StopIteration:
            self._chore = None
        except Exception as error:  # noqa: BLE001 a failed measurement must not end the engine
            self._chore = None  # the next request that needs them starts them again
            log.warning("Passes could not be measured:\n%s", traced(error))

    def _follow_stores(self) -> None:
        """If the adapters of stores have changed, or text was removed from a store, closes all sessions and queues
        their requests again. Takes some microseconds otherwise. Sessions that were read with prose, and those without,
        are valid as long as the adapters are those that they were read with."""
        a, kind = self.autocomplete, self.autocomplete.with_prose
        changed = a.adapt()
        if a.notice != self._notice:
            self._notice = a.notice
            if a.notice:  # a server for programs has no page that shows it
                log.warning("%s", visible(a.notice))
        if a.with_prose != kind:
            from core.models.base import same_adapters  # torch comes with it

            before = self._adapters.get(a.with_prose, a.model.adapters)
            changed = not same_adapters(before, a.model.adapters)
        if changed or a.removed != self._removed:
            self._removed = a.removed
            self._adapters.clear()
            for job in self.close_sessions():
                self._tab_of(job).job = job
        self._adapters[a.with_prose] = a.model.adapters

    def fail_all(self, error: Exception) -> None:
        """After an error that concerns no single request: ends every request with a message, and empties the cache."""
        for job in self.close_sessions():
            job.fail(*request_failure(error))

    def close_sessions(self) -> list[Job]:
        """Stops all requests and closes all sessions. Returns the requests, which may begin again: their streams are
        still open."""
        self._chore = None
        jobs = []
        for tab in self._tabs:
            if (job := tab.take()) is not None:
                close_drafting(job)
                job.begin_again()
                jobs.append(job)
            tab.close()
        return jobs

    def close(self) -> list[Job]:
        """Stops all requests and closes the model. Returns the requests, whose streams are still open."""
        jobs = self.close_sessions()
        close_logged(self.autocomplete.close)
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
                self._recovery.recover(due[0][0], error)
                return
            # One of the rows caused it. Every sequence is unchanged, so each request runs in a separate pass.
            for tab, rows in due:
                self._recovery.attempt(tab, lambda tab, rows=rows: self._advance(tab, rows, self._forward(rows)))
            return
        at = 0
        for tab, rows in due:
            part = logits[at : at + len(rows)]
            at += len(rows)
            self._recovery.attempt(tab, lambda tab, rows=rows, part=part: self._advance(tab, rows, part))

    def _chosen(self) -> list[tuple[Tab, list[Row]]]:
        """The tabs of the next pass, with their rows. Begins their requests."""
        busy = {tab.name: tab for tab in self._agreeing([tab for tab in self._tabs if tab.job])}
        rows: dict[str, list[Row]] = {}

        def inputs_of(name: str) -> int | None:
            tab = busy[name]
            while not (self._recovery.full and tab.waiting and any(other.running for other in self._tabs)):
                due = self._recovery.attempt(tab, lambda tab: self._rows(tab, alone=len(busy) == 1))
                if not tab.waiting:
                    rows[name] = due or []
                    return sum(len(row.inputs) for row in rows[name])
            return None  # it waits for room in the cache

        now = time.perf_counter()
        queued = [tab.queued(now, self._seconds) for tab in busy.values()]
        return [(busy[name], rows[name]) for name in next_pass(queued, self._inputs, inputs_of)]

    def _agreeing(self, busy: list[Tab]) -> list[Tab]:
        """The tabs whose requests may be computed now: those that run, and those that wait for drafts with the adapters
        in use, unless one that wants others waits longer. If there are none, the adapters change."""
        a = self.autocomplete
        others = [tab for tab in busy if a.has_prose and tab.prose != a.with_prose]
        if not others:
            return busy
        first = min(others, key=Tab.waits_since)
        agreeing = [
            tab for tab in busy if tab not in others and (tab.running or tab.waits_since() < first.waits_since())
        ]
        if agreeing:
            return agreeing
        a.wants_prose = not a.with_prose
        self._follow_stores()
        return [tab for tab in self._tabs if tab.job and tab.prose == a.with_prose]

    def _forward(self, rows: list[Row]) -> list[Tensor]:
        began = time.perf_counter()
        logits = self.autocomplete.model.forward(rows)
        self._seconds = time.perf_counter() - began
        return logits

    def _rows(self, tab: Tab, alone: bool) -> list[Row]:
        """The rows of the tab's request for a pass; begins the request if necessary. [] if it has ended."""
        job = tab.job
        assert job is not None
        if job.drafting is None:
            self._begin(tab, job)
        if job.drafting is None:  # it ended at once, because all its logits were cached
            return []
        if job.rows is None:
            job.rows = job.drafting.rows()
        row, part = job.rows[0], self._inputs
        whole = alone or len(job.rows) > 1 or row.every or row.parents is not None
        if whole or not isinstance(row.inputs, list) or len(row.inputs) <= part:
            return job.rows
        return [replace(row, inputs=row.inputs[:part], silent=True)]

    def _advance(self, tab: Tab, rows: list[Row], logits: list[Tensor]) -> None:
        job = tab.job
        assert job is not None
        assert job.drafting is not None
        assert job.rows is not None
        inputs = sum(len(row.inputs) for row in rows)
        self.computed, job.inputs = self.computed + inputs, job.inputs + inputs
        if rows is not job.rows:  # a part of a long text
            job.rows = [replace(job.rows[0], inputs=job.rows[0].inputs[len(rows[0].inputs) :])]
            return
        job.rows = None
        self._show(tab, job, job.drafting.advance(logits))

    def _begin(self, tab: Tab, job: Job) -> None:
        request, settings = job.request, job.request.settings
        tab.running = True
        session = self._tabs.open(tab, request)
        current = request.removed in (None, self._removed)  # otherwise the kept rows may contain removed text
        ask = request.ask(self.autocomplete, request.kept if current else [])
        job.seen = request.all
        job.drafting = session.complete(ask)
        if settings.speculates and ask.mode.speculation is None:
            job.figures = {"accept_length": 0.0, "speedup": 1.0, "notice": MEASURING}
            self._chore = self._chore or speculation.chore(self.autocomplete)
        if ask.tails:
            self.time_rows()
        self._show(tab, job, job.drafting.latest)

    def _show(self, tab: Tab, job: Job, completion: Completion) -> None:
        """Sends the drafts if they have changed, and the statistics at the end."""
        request, now = job.request, time.perf_counter()
        waits = request.unasked or now - job.arrived < HELD
        if waits and not (completion.compared or job.seen or request.detailed):
            return  # they may still be withdrawn, and a row that the page shows must not disappear
        if job.seen and completion.withdrawn:
            every = sorted([*completion.drafts, *completion.withdrawn], key=lambda draft: draft.id)
            completion = replace(completion, drafts=every)
        if completion.step and job.first is None:
            job.first = now, completion.step
            tab.since, tab.read, tab.latest = None, request.read, (request.n, completion)
        settled = completion.settled and not job.settled
        due = not job.sent or settled or request.detailed or now - job.sent_at >= self._pace
        if completion.done or (due and completion.step != job.step):
            job.step, job.settled = completion.step, completion.settled
            drafts = drafts_of(completion, request)
            if completion.done or settled or drafts != job.sent:
                job.sent, job.sent_at = drafts, now
                job.seen |= bool(drafts) and not request.detailed
                job.post(drafts_event(job, completion, drafts) | {"removed": self._removed})
        if completion.done:
            job.post(stats_event(job, completion, self.autocomplete.model, self.autocomplete.window, now))
            job.inputs = 0  # none of them was wasted
            self.stop(tab.name)
