"""Runs generators of drafts: step by step, for a caller that joins the rows of many requests in one pass, or to the
end.

Every mode is a generator: `logits = yield rows, drafts`. It yields the rows of the next pass with the drafts so far,
and receives the logits of these rows. When it yields no rows it is done. It may be closed at any step; the cache then
contains only the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Generic, TypeVar

from torch import Tensor

from core.drafting.drafts import Drafts
from core.errors import InputError
from core.models.base import LanguageModel, Row, Sequence

State = TypeVar("State")
Steps = Generator[tuple[list[Row], State], list[Tensor], None]
Drafting = Steps[Drafts]
Start = Callable[[list[Tensor]], Drafting]  # creates the generator from the logits after the prefix


class Driven(Generic[State]):
    """One such generator, step by step. It begins at once, so an error of its beginning is raised here.

    Attributes:
        latest: the newest drafts.
        done: whether the generator has ended.
    """

    def __init__(self, steps: Steps[State]) -> None:
        self._steps = steps
        self._rows, self.latest = next(steps)
        self.done = not self._rows
        if self.done:
            self.close()

    def rows(self) -> list[Row]:
        """The rows of the next pass; [] when done."""
        return self._rows

    def advance(self, logits: list[Tensor]) -> State:
        """Sends the logits of `rows()`, in their order."""
        self._rows, self.latest = self._steps.send(logits)
        if not self._rows:
            self.close()
        return self.latest

    def finish(self, model: LanguageModel) -> State:
        """Computes all passes that are left, for a caller who shares none with other texts."""
        while not self.done:
            self.advance(model.forward(self._rows))
        return self.latest

    def close(self) -> None:
        """Ends the generator, between any two passes. Calling it twice is allowed."""
        self.done, self._rows = True, []
        self._steps.close()


def finish(
    steps: Steps[State], shown: Callable[[State], State] = lambda state: state
) -> Generator[tuple[list[Row], State], list[Tensor], State]:
    """Runs a generator to its end, and yields its states as `shown` makes them. Returns the last state, which it does
    not yield."""
    try:
        rows, state = next(steps)
        while rows:
            logits = yield rows, shown(state)
            rows, state = steps.send(logits)
        return state
    finally:
        steps.close()


def advance_all(running: Iterable[Driven[State]], logits: Iterable[Tensor]) -> None:
    """Sends each generator the logits of its rows, out of one pass over the rows of all."""
    rest = iter(logits)
    for drafting in running:
        if not drafting.done:
            drafting.advance([next(rest) for _ in drafting.rows()])


def draft_all(
    model: LanguageModel,
    prefixes: list[list[int]],
    start: Callable[[Sequence, list[int]], Start],
    sequences: list[Sequence] | None = None,
) -> Iterator[list[Drafts]]:
    """Yields the drafts of all prefixes after every step, with one pass per step.

    Args:
        start: creates the `Start` of a prefix, for a sequence that contains it.
    Raises: InputError for an empty prefix.
    """
    prefixes = [list(prefix) for prefix in prefixes]
    if not all(prefixes):
        raise InputError("An empty prefix given; at least one token id expected.")
    opened: list[Sequence] = [model.open() for _ in prefixes] if sequences is None else sequences
    running: list[Driven[Drafts]] = []
    try:
        known = [s.resume(ids) for s, ids in zip(opened, prefixes, strict=True)]
        feeding = [Row(s, p[s.length :]) for s, p, x in zip(opened, prefixes, known, strict=True) if x is None]
        fed = iter(model.forward(feeding) if feeding else [])
        first = [next(fed) if x is None else x for x in known]
        for s, ids, x in zip(opened, prefixes, first, strict=True):
            running.append(Driven(start(s, ids)([x])))
        yield [drafting.latest for drafting in running]
        while rows := [row for drafting in running for row in drafting.rows()]:
            advance_all(running, model.forward(rows))
            yield [drafting.latest for drafting in running]
    finally:
        for drafting in running:
            drafting.close()
        if sequences is None:
            for s in opened:
                s.close()
