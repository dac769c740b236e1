"""Counts the n-grams of every order in sorted rows, block by block: memory depends on the size of a block alone.

The rows are windows (see `count`), or n-grams of several stores with their counts. The last row of a block may begin
n-grams that continue in the next block, so of each order the n-gram with which that row begins stays open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np

from ngram_builder.count import Entries, KeptGrams, Packing, starts_of_groups, sum_rows

MOST = 10_000  # counts from here on are tallied together


class CountsOfCounts:
    """The counts of counts: how many n-grams of each order occurred how often, before pruning.

    Attributes:
        of: by order, (MOST + 1,) int64; the last one has all larger counts too.
    """

    def __init__(self, order: int) -> None:
        self.of = np.zeros((order + 1, MOST + 1), dtype=np.int64)

    def add(self, n: int, counts: np.ndarray) -> None:
        self.of[n] += np.bincount(np.minimum(counts, MOST).astype(np.int64), minlength=MOST + 1)

    def packed(self) -> list[list[list[int]]]:
        """By order, the counts that occurred, and how many n-grams have each."""
        return [[[int(c), int(level[c])] for c in np.flatnonzero(level)] for level in self.of]

    def add_packed(self, packed: list[list[list[int]]]) -> None:
        """Adds what `packed` returned elsewhere."""
        for level, pairs in zip(self.of, packed, strict=True):
            for count, number in pairs:
                level[count] += number


class _Sums:
    """Sums up the counts of equal rows in sorted blocks, across their ends."""

    def __init__(self, packing: Packing) -> None:
        self._open: KeptGrams = np.zeros((packing.words, 0), dtype=np.uint64), np.zeros(0, dtype=np.uint64)

    def feed(self, words: np.ndarray, counts: np.ndarray, edge: np.ndarray | None) -> KeptGrams:
        """The rows that are complete. `edge` (W, 1) is the row to which the next block may add; None at the end."""
        words = np.concatenate([self._open[0], words], axis=1)
        counts = np.concatenate([self._open[1], counts])
        starts = starts_of_groups(words)
        rows, sums = words[:, starts], np.add.reduceat(counts, starts) if len(starts) else counts
        complete = len(sums)
        if edge is not None and complete and (rows[:, -1:] == edge).all():
            complete -= 1
        self._open = rows[:, complete:].copy(), sums[complete:].copy()
        return rows[:, :complete], sums[:complete]


def levels_of(
    blocks: Iterator[KeptGrams],
    packing: Packing,
    orders: range,
    min_counts: Mapping[int, int],
    tally: CountsOfCounts | None = None,
    whole: bool = False,
) -> Iterator[list[Entries]]:
    """Counts the n-grams of order 0 (the empty one), 1, …, prunes them, and adds to each the sum of its stored
    continuations. Yields for each block the entries of every order that are complete; each order ascends, also from
    one block to the next.

    A context that is missing is added with count 0. Orders between single tokens and the lowest of `orders` have only
    contexts. Orders that `min_counts` does not name keep every n-gram; order 1 always does.

    Args:
        blocks: sorted rows, each row in one block only.
        tally: gets the counts of all single tokens and n-grams of `orders`.
        whole: each row is an n-gram and counts for no shorter one.
    """
    counted = [_Sums(packing) for _ in range(packing.order + 1)]
    contexts = [_Sums(packing) for _ in range(packing.order + 1)]
    nothing: KeptGrams = np.zeros((packing.words, 0), dtype=np.uint64), np.zeros(0, dtype=np.uint64)
    for words, counts in chain(blocks, [nothing]):
        last = words[:, -1:]
        entries: list[Entries] = []
        totals = nothing  # of the contexts of order n, which come from order n + 1
        for n in range(packing.order, -1, -1):
            edge = packing.prefix(last, n) if len(counts) else None
            rows, sums = counted[n].feed(*_of_order(words, counts, n, packing, whole), edge)
            if tally and (n in orders or n == 1):
                tally.add(n, sums)
            if n > 1:
                kept = sums >= min_counts.get(n, 1)
                rows, sums = rows[:, kept], sums[kept]
            entries.append(_joined((rows, sums), totals, only_contexts=n > 1 and n not in orders))
            if n:
                parents = (packing.prefix(rows, n - 1), sums) if n in orders else nothing
                edge = packing.prefix(last, n - 1) if len(counts) else None
                totals = contexts[n - 1].feed(*parents, edge)
        yield entries[::-1]


def _of_order(words: np.ndarray, counts: np.ndarray, n: int, packing: Packing, whole: bool) -> KeptGrams:
    """The n-grams of order n with which rows begin; if rows are `whole`, only the rows that have n tokens."""
    has = np.ones(len(counts), dtype=bool)
    if n:
        has &= packing.column(words, n - 1) != 0
    if whole and n < packing.order:
        has &= packing.column(words, n) == 0
    return packing.prefix(words[:, has], n), counts[has]


def _joined(grams: KeptGrams, totals: KeptGrams, only_contexts: bool) -> Entries:
    """The n-grams of one order with the totals of its contexts."""
    values = np.zeros((2, len(grams[1]) + len(totals[1])), dtype=np.uint64)
    values[0, : len(grams[1])], values[1, len(grams[1]) :] = grams[1], totals[1]
    words, (counts, sums) = sum_rows(np.concatenate([grams[0], totals[0]], axis=1), values)
    if only_contexts:
        used = sums > 0
        words, counts, sums = words[:, used], counts[used], sums[used]
    return Entries(words, counts, sums)
