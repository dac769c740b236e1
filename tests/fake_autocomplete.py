"""An `Autocomplete` without a model: scripted words, counted passes, failures on demand."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from core.ask import Ask
from core.autocomplete import Autocomplete
from core.errors import ContextFull
from core.models.costs import CostCurve
from core.present import TextDraft
from core.time_saved import RowPath

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class FakeRow:
    text: str
    inputs: Any = (0,)
    silent: bool = False
    every: bool = False
    parents: None = None


@dataclass
class FakeModel:
    name: str = "Scripted"
    backend: str = "none"
    device: str = "cpu"
    arithmetic: str = ""
    compiled_as: str = ""
    vocab_size: int = 100
    dim: int = 8
    tokens_fed: int = 0
    step_s: float = 0.0
    passes: list[int] = field(default_factory=list)  # rows of each pass
    gate: threading.Semaphore | None = None  # a pass waits for it
    broken: dict[str, Exception] = field(default_factory=dict)  # text -> what a pass with it raises
    closed: bool = False
    adapters: tuple[Any, ...] = ()

    def has_room(self, positions: int) -> bool:
        return True

    def forward(self, rows: list[FakeRow]) -> list[str]:
        if self.gate:
            self.gate.acquire()
        time.sleep(self.step_s)
        for row in rows:
            if row.text in self.broken:
                raise self.broken[row.text]
        self.passes.append(len(rows))
        return [row.text for row in rows]

    def close(self) -> None:
        self.closed = True


class FakeAutocomplete:
    """Sessions and completions of the same shape as the real ones; each row has one input."""

    def __init__(self, room: int = 100, known: str | None = None) -> None:
        self.model = FakeModel()
        self.notice: str | None = None
        self.draft_model = None
        self.row_costs: CostCurve | None = None
        self.base_stores: list[Any] = []
        self.bases = None
        self.room = room
        self.withdraws = False  # complete drafts, because of the text after the caret
        self.window = 1024
        self.known = known  # a text whose first drafts are there without a pass
        self.sessions: list[FakeSession] = []
        self.opened = 0
        self.forked = 0  # of the opened
        self.latest: FakeCompletion | None = None
        self.adapted = False  # other adapters are on than at the latest request
        self.adapted_to: list[str] | None = None
        self.removed = "a"  # the mark of what was removed from the stores
        self.has_prose = self.with_prose = self.wants_prose = False

    def adapt(self, stores: list[str] | None = None) -> bool:
        changed, self.adapted, self.adapted_to = self.adapted, False, stores
        before, self.with_prose = self.with_prose, self.has_prose and self.wants_prose
        return changed or before != self.with_prose

    def time_rows(self) -> Iterator[None]:
        return iter(())

    def close(self) -> None:
        self.model.close()

    def sampler(self, rule: str, values: Any = None, temperature: float = 1.0, *more: Any) -> None:
        """The words are the same under every rule."""

    def open(self) -> FakeSession:
        if len(self.sessions) >= self.room:
            raise ContextFull("There is no room for one more text; close a tab.")
        self.opened += 1
        self.sessions.append(FakeSession(self))
        return self.sessions[-1]

    def real(self, name: str = "") -> Autocomplete:
        return cast(Autocomplete, self)


class FakeSession:
    def __init__(self, autocomplete: FakeAutocomplete) -> None:
        self.autocomplete = autocomplete
        self.completions: list[FakeCompletion] = []
        self.rested = False

    def rest(self) -> None:
        self.rested = True

    def complete(self, ask: Ask) -> FakeCompletion:
        assert all(completion.closed for completion in self.completions)
        self.completions.append(FakeCompletion(ask, self.autocomplete.known == ask.before, self.autocomplete.withdraws))
        self.autocomplete.latest = self.completions[-1]
        return self.autocomplete.latest

    def fork(self) -> FakeSession:
        self.autocomplete.forked += 1
        return self.autocomplete.open()

    def close(self) -> None:
        self.autocomplete.sessions.remove(self)


class FakeCompletion:
    """The driver of a request's drafts, and its newest state."""

    def __init__(self, ask: Ask, known: bool, withdraws: bool = False) -> None:
        self.withdraws = withdraws
        self.ask, self.before, self.k, self.length = ask, ask.before, ask.k, ask.length
        self.done = self.closed = self.foreign = False
        self.compared = not ask.after
        self.drafts: list[TextDraft] = []
        self.withdrawn: list[TextDraft] = []
        self.figures: Any = None
        self.step, self.settled, self.best = 0, False, 0
        self.reused, self.fed = len(ask.before), 1
        self.skipped = self.background_skipped = 0
        if known:
            self.advance([])

    @property
    def latest(self) -> FakeCompletion:
        return self

    @property
    def next_logits(self) -> object:
        return object() if self.step else None

    whole_logits = next_logits

    @property
    def paths(self) -> list[RowPath]:
        return [RowPath.of(draft) for draft in self.drafts]

    def rows(self) -> list[FakeRow]:
        return [] if self.done else [FakeRow(self.before)]

    def advance(self, logits: list[str]) -> FakeCompletion:
        assert not self.closed
        self.step += 1
        self.settled = self.step > 1 or self.length == 1  # a first state, then one in which the rows are chosen
        self.done = self.step == self.length
        self.compared |= self.done
        self.drafts = [
            TextDraft(
                i,
                f" {word}" * self.step,
                0.4 / (i + 1),
                0.4 / (i + 1) / self.step,
                self.done,
                path=tuple((len(f" {word}") * (n + 1), -1.0 - n) for n in range(self.step)),
            )
            for i, word in enumerate(WORDS[: self.k])
        ]
        if self.done and self.withdraws:
            self.drafts, self.withdrawn = [], self.drafts
        return self

    def finish(self, model: FakeModel) -> FakeCompletion:
        while not self.done:
            self.advance([])
        return self

    def close(self) -> None:
        self.done = self.closed = True
