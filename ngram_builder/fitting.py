"""Chooses the pruning with which a store fits into a given size, by the counts of counts of its n-grams.

Of the prunings that were compared (assets/README.md), those cost least that drop rare n-grams of high orders first. So
the next pruning raises the minimum count of the highest order among those that have the least one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from core.errors import InputError
from ngram_builder.levels import MOST
from ngram_builder.work import human

BYTES = {False: 3.25, True: 3.5}  # per n-gram, with and without exact counts, until a store of this text is written
_PER_TOKEN = 200  # bytes of memory for each distinct token in a store that is open
_SHOWN = 12  # rows of the table

MinCounts = dict[int, int]  # per order


@dataclass
class Fitting:
    """The search for the pruning.

    Attributes:
        least: the smallest minimum counts that are allowed, per order.
        tally: how many n-grams of each order have each count; see `Tally`.
        sizes: the bytes of the stores that were written, by their minimum counts.
    """

    least: Mapping[int, int]
    tally: np.ndarray
    exact: bool
    sizes: dict[tuple[int, ...], int]

    def __post_init__(self) -> None:
        self._at_least = np.cumsum(self.tally[:, ::-1], axis=1)[:, ::-1]  # n-grams with this count or a larger one

    def ngrams(self, pruning: Mapping[int, int]) -> int:
        """The number of n-grams that remain, without contexts that have no count themselves."""
        others = int(self._at_least[1, 0])
        return others + sum(int(self._at_least[n, min(least, MOST)]) for n, least in pruning.items() if n > 1)

    def bytes_of(self, pruning: Mapping[int, int]) -> int:
        """The size of the store: measured, or by the bytes per n-gram of the one written last."""
        if (size := self.sizes.get(tuple(pruning.values()))) is not None:
            return size
        each = BYTES[self.exact]
        if self.sizes:
            counts, size = next(reversed(self.sizes.items()))
            each = size / max(self.ngrams(dict(zip(self.least, counts, strict=True))), 1)
        return int(self.ngrams(pruning) * each)

    def prunings(self) -> Iterator[MinCounts]:
        """All prunings, from the least one on."""
        pruning = dict(self.least)
        orders = [n for n in pruning if n > 1]
        while True:
            yield dict(pruning)
            lowest = min((pruning[n] for n in orders), default=MOST)
            if lowest >= MOST:
                return
            pruning[max(n for n in orders if pruning[n] == lowest)] += 1

    def best(self, fit: int) -> MinCounts:
        """The first pruning whose store fits into so many bytes. Raises InputError if none does."""
        for pruning in self.prunings():
            if self.bytes_of(pruning) <= fit:
                return pruning
        raise InputError(
            f"--fit {human(fit)} given; without all n-grams that occur less than {MOST:,} times, the store still takes "
            f"{human(self.bytes_of(pruning))}."
        )

    def table(self, chosen: Mapping[int, int]) -> list[str]:
        """Lines that say what each minimum count gives, up to beyond the chosen one, which is marked."""
        lines = [f"{'min-count':<16}{'n-grams':>15}{'file':>11}{'in memory':>11}"]
        least, largest = min(self.least.values()), max(chosen.values())
        steps = sorted({round(least * (2 * largest / least) ** (i / _SHOWN)) for i in range(_SHOWN + 1)})
        rows = [{n: max(step, given) for n, given in self.least.items()} for step in steps]
        rows = sorted([*(row for row in rows if row != chosen), dict(chosen)], key=lambda row: -self.ngrams(row))
        for row in rows:
            size = self.bytes_of(row)
            name = ",".join(map(str, row.values())) if len(set(row.values())) > 1 else str(next(iter(row.values())))
            memory = size + _PER_TOKEN * int(self._at_least[1, 0])
            mark = "  <- fits" if row == chosen else ""
            lines.append(f"{name:<16}{self.ngrams(row):>15,}{human(size):>11}{human(memory):>11}{mark}")
        return lines
