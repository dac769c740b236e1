"""All n-grams of a text as one sorted list of windows: 29 bytes for each distinct window, in memory or a mapped file.

A window is a token and the five after it (fewer before the end of a passage). The windows that begin with an n-gram
are neighbours in the sorted list. The count of the n-gram is the weight of their range, and its continuations are the
places in that range at which the next token changes. Two lists are merged, one added to or subtracted from the
other, in one pass, so an update counts only the changes.

Each token is a symbol of 21 bits, its id + 1; symbol 0 follows the end of a passage. Three symbols make an int64:
`hi` holds a window's first three, `lo` the others. Windows are immutable, so threads may share them.

This module handles token ids, no text and no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

ORDER = 6  # tokens of a window
BITS = 21
SYMBOL = (1 << BITS) - 1
# The shift of the symbol at each place of a window in its word: places 0, 1, 2 in `hi`, 3, 4, 5 in `lo`.
SHIFTS = np.array([2 * BITS, BITS, 0, 2 * BITS, BITS, 0])


class Range(NamedTuple):
    """The windows from `first` to before `end`."""

    first: int
    end: int


class Windows:
    """Sorted windows with the number of occurrences of each.

    Attributes:
        hi, lo: (n,) int64, ascending by (hi, lo); every pair once.
        before: (n + 1,) the weights of all windows before each.
        shared: (n,) uint8, how many symbols a window shares with the one before it.
        known: (n,) uint8, the same, or how many of its symbols begin a window of others, if that is more (`beside`).
        changes: (2, n) uint32, how many windows up to each have 1, and 2, known symbols: where the second and the third
            symbol change.
    """

    def __init__(self, hi: np.ndarray, lo: np.ndarray, weights: np.ndarray, shared: np.ndarray | None = None) -> None:
        """From sorted arrays; weights (n,) are larger than 0. Use `beginning`."""
        self.hi, self.lo = hi, lo
        total = int(weights.sum(dtype=np.int64))
        self.before = np.zeros(len(hi) + 1, dtype=np.uint32 if total < 1 << 32 else np.int64)
        np.cumsum(weights, out=self.before[1:], dtype=self.before.dtype)
        self.shared = self.known = _shared(hi, lo, np.arange(len(hi))) if shared is None else shared
        self.changes = _changes(self.known)

    @classmethod
    def mapped(
        cls, hi: np.ndarray, lo: np.ndarray, before: np.ndarray, shared: np.ndarray, changes: np.ndarray
    ) -> Windows:
        """From the attributes of others, which were stored."""
        windows = cls.__new__(cls)
        windows.hi, windows.lo, windows.before, windows.shared, windows.changes = hi, lo, before, shared, changes
        windows.known = shared
        return windows

    @classmethod
    def beginning(cls, symbols: np.ndarray, begins: np.ndarray, times: np.ndarray) -> Windows:
        """Counts the windows of a text that begin at some of its tokens.

        Args:
            symbols: (n,) of the text, 0 after each passage.
            begins: (b,) places of tokens.
            times: (b,) the multiplicity of each.
        """
        words, inside = [], np.ones(len(begins), dtype=bool)
        for places in ((0, 1, 2), (3, 4, 5)):
            word = np.zeros(len(begins), dtype=np.int64)
            for place in places:
                symbol = symbols[np.minimum(begins + place, len(symbols) - 1)].astype(np.int64)
                inside &= symbol != 0
                word |= np.where(inside, symbol, 0) << SHIFTS[place]
            words.append(word)
        hi, lo = words
        by_lo = np.argsort(lo)
        at = by_lo[np.argsort(hi[by_lo], kind="stable")]
        return cls(*_summed(hi[at], lo[at], times[at]))

    def __len__(self) -> int:
        return len(self.hi)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.hi, self.lo, self.before, self.shared, self.changes))

    @property
    def weights(self) -> np.ndarray:
        """(n,) int64, the number of occurrences of each window."""
        return np.diff(self.before.astype(np.int64))

    @property
    def weight(self) -> int:
        """The number of tokens, with multiplicity."""
        return int(self.before[-1])

    def merged(self, other: Windows, sign: int = 1) -> Windows:
        """These windows with those of `other` added (sign 1) or subtracted (-1), in one pass over both."""
        if not len(other):
            return self
        if not len(self):
            return other if sign > 0 else self
        at, known = self._places(other)
        weights, change = self.weights, sign * other.weights
        weights[at[known]] += change[known]
        touched: list[np.ndarray] = []
        if sign > 0:
            new = ~known
            into = at[new] + np.arange(int(new.sum()))
            old = np.ones(len(self) + len(into), dtype=bool)
            old[into] = False
            joined = []
            for own, others in ((self.hi, other.hi), (self.lo, other.lo), (weights, change), (self.shared, None)):
                array = np.empty(len(old), dtype=own.dtype)
                array[old] = own
                if others is not None:
                    array[into] = others[new]
                joined.append(array)
            hi, lo, weights, shared = joined
            touched = [into, into + 1]
        else:
            kept = weights > 0
            gone = np.flatnonzero(~kept)
            hi, lo, shared, weights = self.hi[kept], self.lo[kept], self.shared[kept], weights[kept]
            touched = [gone - np.arange(len(gone))]
        again = np.concatenate(touched)
        again = again[again < len(hi)]
        shared[again] = _shared(hi, lo, again)
        return Windows(hi, lo, weights, shared)

    def part(self, within: Range) -> Windows:
        """The windows of a range, copied."""
        first, end = within
        weights = np.diff(self.before[first : end + 1].astype(np.int64))
        shared = self.shared[first:end].copy()
        shared[:1] = 0
        return Windows(self.hi[first:end], self.lo[first:end], weights, shared)

    def beside(self, others: Windows) -> Windows:
        """These windows, to be looked up together with others: their `known` symbols take account of those, so that
        the different n-grams of both together can be counted."""
        at, _ = others._places(self)
        known = self.shared.copy()
        for beside in (at - 1, at):  # between these two a window would be inserted, so one of them shares the most
            inside = np.clip(beside, 0, max(len(others) - 1, 0))
            here = beside == inside
            same = np.zeros(len(self), dtype=np.uint8)
            for place, shift in enumerate(SHIFTS.tolist()):
                own, other = (self.hi, others.hi) if place < 3 else (self.lo, others.lo)
                here = here & ((own ^ other[inside]) >> shift == 0)
                same += here
            np.maximum(known, same, out=known)
        both = Windows.mapped(self.hi, self.lo, self.before, self.shared, _changes(known))
        both.known = known
        return both

    def _places(self, other: Windows) -> tuple[np.ndarray, np.ndarray]:
        """The positions (or insertion points) of the windows of `other` here, and whether they are present."""
        low = np.searchsorted(self.hi, other.hi)
        high = np.searchsorted(self.hi, other.hi, "right")
        open_ = np.flatnonzero(low < high)
        while len(open_):  # within one `hi`, halve every range at once
            middle = (low[open_] + high[open_]) >> 1
            less = self.lo[middle] < other.lo[open_]
            low[open_[less]] = middle[less] + 1
            high[open_[~less]] = middle[~less]
            open_ = open_[low[open_] < high[open_]]
        inside = np.minimum(low, len(self) - 1)
        return low, (low < len(self)) & (self.hi[inside] == other.hi) & (self.lo[inside] == other.lo)

    # ---------------------------------------------------------------- looking things up

    def range(self, gram: Sequence[int]) -> Range:
        """The windows that begin with these symbols; empty if there are none."""
        low, high = _bounds(gram[:3])
        first, end = np.searchsorted(self.hi, np.array([low, high])).tolist()
        if len(gram) > 3 and first < end:
            low, high = _bounds(gram[3:])
            inside = np.searchsorted(self.lo[first:end], np.array([low, high]))
            first, end = first + int(inside[0]), first + int(inside[1])
        return Range(first, end)

    def count(self, gram: Sequence[int]) -> int:
        """The number of occurrences of these symbols, one after the other."""
        first, end = self.range(gram)
        return int(self.before[end]) - int(self.before[first])

    def symbols(self, at: np.ndarray, place: np.ndarray | int) -> np.ndarray:
        """The symbols at a place of these windows."""
        place = np.asarray(place)
        return (np.where(place < 3, self.hi[at], self.lo[at]) >> SHIFTS[place]) & SYMBOL

    def next(self, within: Range, place: int) -> tuple[np.ndarray, np.ndarray]:
        """The symbols at `place` in a range whose windows share all symbols before it, ascending, and their counts."""
        first, end = within
        starts = np.concatenate([[first], first + 1 + np.flatnonzero(self.shared[first + 1 : end] == place)])
        if first == end:
            starts = starts[:0]
        return self.symbols(starts, place), np.diff(self.before[np.append(starts, end)].astype(np.int64))

    def ngrams(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """Every n-gram of token ids, with its count and the number of tokens that followed it."""
        # Of each prefix of the previous window: the weight at which it began, and its finished continuations.
        opened: list[tuple[int, int]] = []
        gram: list[int] = []
        for start in range(0, len(self), 1 << 16):
            at = np.arange(start, min(start + (1 << 16), len(self)))
            rows = np.stack([self.symbols(at, place) for place in range(ORDER)], axis=1)
            for symbols, shared, before, after in zip(
                rows.tolist(),
                self.shared[at].tolist(),
                self.before[at].tolist(),
                self.before[at + 1].tolist(),
                strict=True,
            ):
                yield from _closed(gram, opened, shared, before)
                gram = [symbol - 1 for symbol in symbols if symbol]
                lengths = range(shared + 1, len(gram) + 1)
                opened += [(before, after - before if length == len(gram) else 0) for length in lengths]
        yield from _closed(gram, opened, 0, self.weight)


def _closed(
    gram: list[int], opened: list[tuple[int, int]], length: int, before: int
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """The n-grams longer than `length` that end here, with count and total."""
    while len(opened) > length:
        n = len(opened)
        begun, ended = opened.pop()
        yield tuple(gram[:n]), before - begun, before - begun - ended


def _bounds(symbols: Sequence[int]) -> tuple[int, int]:
    """The smallest word that begins with these one to three symbols, and the smallest above all that do."""
    word = 0
    for symbol in symbols:
        word = word << BITS | symbol
    shift = BITS * (3 - len(symbols))
    return word << shift, (word + 1) << shift


def _summed(hi: np.ndarray, lo: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorted windows with equal ones merged."""
    first = np.ones(len(hi), dtype=bool)
    first[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    starts = np.flatnonzero(first)
    return hi[starts], lo[starts], np.add.reduceat(weights, starts) if len(starts) else weights[:0]


def _changes(known: np.ndarray) -> np.ndarray:
    """`Windows.changes`."""
    return np.cumsum([known == 1, known == 2], axis=1, dtype=np.uint32)


def _shared(hi: np.ndarray, lo: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The number of symbols that the windows at these places share with the previous ones."""
    shared = np.zeros(len(at), dtype=np.uint8)
    before = np.maximum(at - 1, 0)
    same = at > 0
    for place, shift in enumerate(SHIFTS.tolist()):
        word = hi if place < 3 else lo
        same = same & ((word[at] ^ word[before]) >> shift == 0)
        shared += same
    return shared
