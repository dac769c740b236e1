"""The token ids of a personal store's passages, as arrays, for counting.

This module reads a store's tables and writes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from core.errors import InputError

BREAK = 0xFFFFFFFF  # between the parts of a passage's ids, which no n-gram crosses

# Passages after a number, with their multiplicity and ids
NEW = (
    "SELECT passages.id, times, ids FROM passages JOIN documents ON document = documents.id "
    "WHERE passages.id > ? ORDER BY passages.id"
)
MOST_TIMES = 1 << 31
_BETWEEN = BREAK.to_bytes(4, "little")
_AT_ONCE = 1 << 22  # symbols


@dataclass(frozen=True)
class PassageIds:
    """The ids of p passages.

    Attributes:
        numbers: (p,) int64 of the passages, ascending; times: (p,) int64, the multiplicity of each.
        starts: (p + 1,) int64, where each one begins in `symbols`.
        symbols: (n,) uint32, the ids + 1, as windows contain them; 0 after each part of a passage.
    """

    numbers: np.ndarray
    times: np.ndarray
    starts: np.ndarray
    symbols: np.ndarray

    @classmethod
    def none(cls) -> PassageIds:
        numbers = np.zeros(0, dtype=np.int64)
        return cls(numbers, numbers, np.zeros(1, dtype=np.int64), numbers.astype("<u4"))

    @classmethod
    def read(cls, file: sqlite3.Connection, last: int, vocab_size: int) -> PassageIds:
        """The passages after the one with the number `last`. Raises InputError when they contain ids of V and above."""
        numbers, times, lengths, held = list[int](), list[int](), [0], bytearray()
        for number, multiplicity, ids in new_passages(file, last):
            numbers.append(number)
            times.append(multiplicity)
            lengths.append(len(ids) // 4 + 1)
            held += ids
            held += _BETWEEN
        symbols = np.frombuffer(held, dtype="<u4")
        symbols += np.uint32(1)  # BREAK becomes 0
        if (largest := int(symbols.max(initial=0))) > vocab_size:
            raise InputError(f"Token {largest - 1} found; ids below {vocab_size} expected.")
        return cls(np.array(numbers, dtype=np.int64), np.array(times, dtype=np.int64), np.cumsum(lengths), symbols)

    def some(self, chosen: np.ndarray) -> PassageIds:
        """The passages marked in `chosen` (p,)."""
        lengths = np.diff(self.starts)
        starts = np.concatenate([[0], np.cumsum(lengths[chosen])])
        return PassageIds(self.numbers[chosen], self.times[chosen], starts, self.symbols[np.repeat(chosen, lengths)])

    def joined(self, others: PassageIds) -> PassageIds:
        """These passages, and others after them."""
        return PassageIds(
            np.concatenate([self.numbers, others.numbers]),
            np.concatenate([self.times, others.times]),
            np.concatenate([self.starts, self.starts[-1] + others.starts[1:]]),
            np.concatenate([self.symbols, others.symbols]),
        )

    def firsts(self, vocab_size: int) -> np.ndarray:
        """(V + 1,) int64, how many windows begin with each symbol."""
        counts = np.zeros(vocab_size + 1, dtype=np.int64)
        for start in range(0, len(self.symbols), _AT_ONCE):
            counts += np.bincount(self.symbols[start : start + _AT_ONCE], minlength=vocab_size + 1)
        counts[0] = 0
        return counts

    def begins(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """The places of the symbols from `low` to before `high`, at least 1, and the multiplicity of each."""
        found = [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(self.symbols), _AT_ONCE):
            # Below `low` the difference wraps around to a large number.
            some = self.symbols[start : start + _AT_ONCE] - np.uint32(low) < high - low
            found.append(start + np.flatnonzero(some))
        begins = np.concatenate(found)
        return begins, self.times[np.searchsorted(self.starts, begins, "right") - 1]


def new_passages(file: sqlite3.Connection, last: int) -> Iterator[tuple[int, int, bytes]]:
    """The passages after the one with the number `last`: number, multiplicity and ids. Raises InputError for values
    that this program does not write; SQLite accepts any."""
    for number, times, ids in file.execute(NEW, [last]):
        if not (isinstance(times, int) and 0 < times < MOST_TIMES and isinstance(ids, bytes) and len(ids) % 4 == 0):
            raise InputError(f"Passage {number} contains no token ids.")
        yield number, times, ids
