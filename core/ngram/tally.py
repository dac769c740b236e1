"""The counts of a personal store's file, updated by the changes to the file.

A tally records which passages it has counted, with their token ids. New passages are counted and merged in; passages
that are no longer in the file are subtracted. A tally is immutable: one thread may build the next one while another
thread looks up in the current one. 33 bytes per token, and about as much again during an update.

This module reads a store's tables and writes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.errors import InputError
from core.ngram.windows import NOWHERE, Windows

BREAK = 0xFFFFFFFF  # between the parts of a passage's ids, which no n-gram crosses
CHUNK = 1 << 20  # tokens sorted at a time

# Passages after a number, with their multiplicity and ids
NEW = (
    "SELECT passages.id, times, ids FROM passages JOIN documents ON document = documents.id "
    "WHERE passages.id > ? ORDER BY passages.id"
)
MOST_TIMES = 1 << 31
_BETWEEN = BREAK.to_bytes(4, "little")


@dataclass(frozen=True)
class Tally:
    """Counted passages.

    Attributes:
        windows: the counts.
        last: the largest number of a passage that was ever counted.
        removals: the number of removals from the file so far.
        numbers: (p,) int64 of the passages, ascending; times: (p,) the multiplicity of each.
        starts: (p + 1,) the beginning of each one's ids in `ids`: (n,) uint32, BREAK after each part.
    """

    windows: Windows
    last: int
    removals: int
    numbers: np.ndarray
    times: np.ndarray
    starts: np.ndarray
    ids: np.ndarray

    @classmethod
    def empty(cls) -> Tally:
        none = np.zeros(0, dtype=np.int64)
        return cls(Windows.of(none, none), 0, -1, none, none, np.zeros(1, dtype=np.int64), none.astype("<u4"))

    def brought_up_to_date(
        self, file: sqlite3.Connection, vocab_size: int, alive: Callable[[], None] = lambda: None
    ) -> Tally:
        """The tally of the current state of the file.

        Args:
            file: not in a transaction.
            vocab_size: V. Raises InputError when the file contains ids of V and above.
            alive: called between chunks; if it raises, counting ends.
        """
        file.execute("BEGIN")  # one state for all reads; sorting comes after it
        try:
            removals = int(file.execute("SELECT value FROM about WHERE key = 'removals'").fetchone()[0])
            present = None
            if removals != self.removals and len(self.numbers):
                present = np.array(file.execute("SELECT id FROM passages").fetchall(), dtype=np.int64).ravel()
            rows = list(new_passages(file, self.last))
        finally:
            file.execute("COMMIT")
        alive()
        kept = self if present is None else self._without(~np.isin(self.numbers, present), alive)
        numbers = np.array([row[0] for row in rows], dtype=np.int64)
        times = np.array([row[1] for row in rows], dtype=np.int64)
        blobs = [row[2] for row in rows]
        starts = np.cumsum([0, *(len(blob) // 4 + 1 for blob in blobs)])
        ids = np.frombuffer(_BETWEEN.join([*blobs, b""]), dtype="<u4")
        if len(ids) and (largest := int(ids[ids != BREAK].max(initial=0))) >= vocab_size:
            raise InputError(f"Token {largest} found; ids below {vocab_size} expected.")
        windows = kept.windows
        for chunk in _chunks(starts):
            alive()
            windows = windows.merged(_counted(ids, starts, times, chunk))
        return Tally(
            windows,
            max(self.last, int(numbers[-1]) if len(numbers) else 0),
            removals,
            np.concatenate([kept.numbers, numbers]),
            np.concatenate([kept.times, times]),
            np.concatenate([kept.starts, kept.starts[-1] + starts[1:]]),
            np.concatenate([kept.ids, ids]),
        )

    def _without(self, gone: np.ndarray, alive: Callable[[], None]) -> Tally:
        """This tally minus the passages marked in `gone` (p,)."""
        lengths = np.diff(self.starts)
        removed, left = self._some(gone), self._some(~gone)
        # Choose the smaller work: subtract the removed passages, or count the remaining ones.
        anew = int(lengths[gone].sum()) > int(lengths[~gone].sum())
        ids, starts, times = left if anew else removed
        windows = Tally.empty().windows if anew else self.windows
        for chunk in _chunks(starts):
            alive()
            windows = windows.merged(_counted(ids, starts, times, chunk), 1 if anew else -1)
        ids, starts, times = left
        return Tally(windows, self.last, self.removals, self.numbers[~gone], times, starts, ids)

    def _some(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids, starts and times of the passages marked in `chosen` (p,)."""
        lengths = np.diff(self.starts)
        ids = self.ids[np.repeat(chosen, lengths)]
        return ids, np.concatenate([[0], np.cumsum(lengths[chosen])]), self.times[chosen]


def new_passages(file: sqlite3.Connection, last: int) -> Iterator[tuple[int, int, bytes]]:
    """The passages after the one with the number `last`: number, multiplicity and ids. Raises InputError for values
    that this program does not write; SQLite accepts any."""
    for number, times, ids in file.execute(NEW, [last]):
        if not (isinstance(times, int) and 0 < times < MOST_TIMES and isinstance(ids, bytes) and len(ids) % 4 == 0):
            raise InputError(f"Passage {number} contains no token ids.")
        yield number, times, ids


def _chunks(starts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of passages of at least CHUNK ids together, or all that is left: from one to before another."""
    first = 0
    while first < len(starts) - 1:
        end = int(np.searchsorted(starts, starts[first] + CHUNK))
        end = min(max(end, first + 1), len(starts) - 1)
        yield first, end
        first = end


def _counted(ids: np.ndarray, starts: np.ndarray, times: np.ndarray, chunk: Sequence[int]) -> Windows:
    first, end = chunk
    part = ids[starts[first] : starts[end]].astype(np.int64)
    part[part == BREAK] = NOWHERE
    return Windows.of(part, np.repeat(times[first:end], np.diff(starts[first : end + 1])))
