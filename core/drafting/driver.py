"""Runs generators of drafts: step by step, for a caller that joins many people's rows in one pass, or to the end.

A way of making drafts is a generator: it yields the rows of the next pass and the drafts so far, and is sent the rows'
logits. No rows: it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from torch import Tensor

from core.drafting.drafts import Drafts
from core.errors import InputError
from core.models.base import LanguageModel, Row, Sequence

Drafting = Generator[tuple[list[Row], Drafts], list[Tensor], None]


class Driven:
    """One generator of drafts, step by step.

    Attributes:
        done: nothing follows.
    """

    def __init__(self, start: Callable[[list[Tensor]], Drafting]) -> None:
        """`start` makes the generator from the first logits, those that `advance` is called with first."""
        self._start = start
        self._drafting: Drafting | None = None
        self._rows: list[Row] = []
        self.done = False

    def rows(self) -> list[Row]:
        """What the next pass needs; [] when done."""
        return self._rows

    def advance(self, logits: list[Tensor]) -> Drafts:
        """Take the logits of `rows()`, in their order."""
        if self._drafting is None:
            self._drafting = self._start(logits)
            self._rows, drafts = next(self._drafting)
        else:
            self._rows, drafts = self._drafting.send(logits)
        if not self._rows:
            self.close()
        return drafts

    def close(self) -> None:
        """Stop between any two passes; the cache keeps the prefix. Closing twice is harmless."""
        self.done, self._rows = True, []
        if self._drafting is not None:
            self._drafting.close()


def grown(
    model: LanguageModel,
    prefixes: list[list[int]],
    start: Callable[[Sequence, list[int]], Callable[[list[Tensor]], Drafting]],
    sequences: list[Sequence] | None = None,
    step: Callable[[list[Row]], list[Tensor]] | None = None,
) -> Iterator[list[Drafts]]:
    """The drafts of each prefix, all of them in one pass per step.

    Args:
        start: makes the generator of a prefix that its sequence holds.
        step: what rows are answered with after the first step; None is the model's pass.
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
        latest = [one.advance([x]) for one, x in zip(running, first, strict=True)]
        yield latest
        while any(not one.done for one in running):
            rows = [one.rows() for one in running]
            found = iter((step or model.forward)([row for part in rows for row in part]))
            latest = [
                one.advance([next(found) for _ in part]) if part else before
                for one, part, before in zip(running, rows, latest, strict=True)
            ]
            yield latest
    finally:
        for one in running:
            one.close()
        if sequences is None:
            for s in held:
                s.close()
