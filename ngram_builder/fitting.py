"""Chooses the pruning with which a store fits into a given size, by the counts of counts of its n-grams.

Of the prunings that were compared (assets/README.md), those cost least that drop rare n-grams of high orders first. So
the next pruning raises the minimum count of the highest order among those that have the least one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from core.errors import InputError
from ngram_builder.levels import MOST
from ngram_builder.work import human

BYTES = {False: 3.25, True: 3.5}  # per n-gram, by whether counts are exact, until a store of this text is written
CLOSE = 0.98  # of the size: a store as large is good enough, since each further one is merged and written anew
_PER_TOKEN = 200  # bytes of memory for each distinct token in a store that is open
_SHOWN = 12  # rows of the table

MinCounts = dict[int, int]  # per order


class Fitting:
    """The search for the pruning.

    Attributes:
        sizes: the bytes of the stores that were written, by the place of their pruning among all.
    """

    def __init__(self, least: Mapping[int, int], tally: np.ndarray, exact: bool, fit: int) -> None:
        """
        Args:
            least: the smallest minimum counts that are allowed, per order.
            tally: how many n-grams of each order have each count; see `CountsOfCounts`.
            exact: whether counts are stored exactly.
            fit: bytes that the store may have.
        """
        self.sizes: dict[int, int] = {}
        self._fit, self._each = fit, BYTES[exact]
        self._at_least = np.cumsum(tally[:, ::-1], axis=1)[:, ::-1]  # n-grams with this count or a larger one
        self._prunings = list(_prunings(least, most=int(np.flatnonzero(tally[2:].any(axis=0)).max(initial=0)) + 1))
        self._numbers = [self._remaining(pruning) for pruning in self._prunings]

    def __getitem__(self, place: int) -> MinCounts:
        return self._prunings[place]

    @property
    def best(self) -> int | None:
        """The place of the least pruning that is known to fit; None if none is yet."""
        return min((place for place, size in self.sizes.items() if size <= self._fit), default=None)

    def next(self) -> int | None:
        """The place of the pruning to try; None if the best one is found. Raises InputError if none fits."""
        best, below = self.best, max((place for place, size in self.sizes.items() if size > self._fit), default=-1)
        if best is not None and (best - below == 1 or self.sizes[best] >= CLOSE * self._fit):
            return None
        places = range(below + 1, len(self._prunings) if best is None else best)
        for place in places:
            if self._estimate(place) <= self._fit:
                return place
        if best is None:
            last = len(self._prunings) - 1
            raise InputError(
                f"--fit {human(self._fit)} given; with n-grams that occur {max(self[last].values()):,} times or more "
                f"alone, the store still takes {human(self._estimate(last))}."
            )
        return None if below in self.sizes else places[-1]

    def table(self, chosen: int) -> list[str]:
        """Lines that say what each minimum count gives, up to beyond the chosen one, which is marked."""
        least, largest = min(self[0].values()), max(self[chosen].values())
        steps = {round(least * (2 * largest / least) ** (i / _SHOWN)) for i in range(_SHOWN + 1)}
        same = [place for place, pruning in enumerate(self._prunings) if len(set(pruning.values())) == 1]
        shown = sorted({chosen, 0, *(place for place in same if min(self[place].values()) in steps)})
        lines = [f"{'min-count':<16}{'n-grams':>15}{'file':>11}{'in memory':>11}"]
        for place in shown:
            counts = list(self[place].values())
            name = ",".join(map(str, counts)) if len(set(counts)) > 1 else str(counts[0])
            size = self._estimate(place)
            memory = size + _PER_TOKEN * int(self._at_least[1, 0])
            mark = "  <- fits" if place == chosen else ""
            lines.append(f"{name:<16}{self._numbers[place]:>15,}{human(size):>11}{human(memory):>11}{mark}")
        return lines

    def _remaining(self, pruning: MinCounts) -> int:
        """The number of n-grams with these counts, without contexts that have no count themselves."""
        single = int(self._at_least[1, 0])
        return single + sum(int(self._at_least[n, min(least, MOST)]) for n, least in pruning.items() if n > 1)

    def _estimate(self, place: int) -> int:
        """Bytes of a store: measured, or between those that were, or in proportion to one."""
        number = self._numbers[place]
        if place in self.sizes:
            return self.sizes[place]
        known = sorted(self.sizes)
        before = [at for at in known if at < place][-1:]
        after = [at for at in known if at > place][:1]
        if before and after:
            ends = after + before
            return int(np.interp(number, [self._numbers[at] for at in ends], [self.sizes[at] for at in ends]))
        for at in before or after:
            return self.sizes[at] * number // max(self._numbers[at], 1)
        return int(number * self._each)


def _prunings(least: Mapping[int, int], most: int) -> Iterator[MinCounts]:
    """All prunings, from the least one on, up to `most` for every order."""
    pruning = dict(least)
    orders = [n for n in pruning if n > 1]
    while True:
        yield dict(pruning)
        lowest = min((pruning[n] for n in orders), default=most)
        if lowest >= min(most, MOST):
            return
        pruning[max(n for n in orders if pruning[n] == lowest)] += 1
