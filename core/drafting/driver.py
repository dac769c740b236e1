"""Runs generators of drafts: step by step, for a caller that joins the rows of many requests in one pass, or to the
end.

Every mode is a generator: `logits = yield rows, drafts`. It yields the rows of the next pass with the drafts so far,
and receives the logits of these rows. When it yields no rows it is done. It may be closed at any step; the cache then
contains only the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator

from torch import Tensor

from core.drafting.drafts import Drafts
from core.errors import InputError
from core.models.base import LanguageModel, Row, Sequence

Drafting = Generator[tuple[list[Row], Drafts], list[Tensor], None]
Start = Callable[[list[Tensor]], Drafting]  # creates the generator from the logits after the prefix


class Driven:
    """One generator of drafts, step by step.

    Attributes:
        latest: the newest drafts; set by the first `advance`.
        done: whether the generator has ended.
    """

    latest: Drafts

    def __init__(self, start: Start) -> None:
        self._start = start
        self._drafting: Drafting | None = None
        self._rows: list[Row] = []
        self.done = False

    def rows(self) -> list[Row]:
        """The rows of the next pass; [] when done."""
        return self._rows

    def advance(self, logits: list[Tensor]) -> Drafts:
        """Sends the logits of `rows()`, in their order; in the first call, the logits that `start` needs."""
        if self._drafting is None:
            self._drafting = self._start(logits)
            self._rows, self.latest = next(self._drafting)
        else:
            self._rows, self.latest = self._drafting.send(logits)
        if not self._rows:
            self.close()
        return self.latest

    def close(self) -> None:
        """Ends the generator, between any two passes. Calling it twice is allowed."""
        self.done, self._rows = True, []
        if self._drafting is not None:
            self._drafting.close()


def advance_all(running: Iterable[Driven], logits: Iterable[Tensor]) -> None:
    """Sends each generator the logits of its rows, out of one pass over the rows of all."""
    rest = iter(logits)
    for drafting in running:
        if not drafting.done:
            drafting.advance([next(rest) for _ in drafting.rows()])


def grown(
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
    held: list[Sequence] = [model.open() for _ in prefixes] if sequences is None else sequences
    running: list[Driven] = []
    try:
        known = [s.resume(ids) for s, ids in zip(held, prefixes, strict=True)]
        feeding = [Row(s, p[s.length :]) for s, p, x in zip(held, prefixes, known, strict=True) if x is None]
        fed = iter(model.forward(feeding) if feeding else [])
        first = [next(fed) if x is None else x for x in known]
        running = [Driven(start(s, ids)) for s, ids in zip(held, prefixes, strict=True)]
        yield [drafting.advance([x]) for drafting, x in zip(running, first, strict=True)]
        while rows := [row for drafting in running for row in drafting.rows()]:
            advance_all(running, model.forward(rows))
            yield [drafting.latest for drafting in running]
    finally:
        for drafting in running:
            drafting.close()
        if sequences is None:
            for s in held:
                s.close()
