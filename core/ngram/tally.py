"""The counts of a personal store's file, updated by the changes to the file.

A tally records which passages it has counted, with their token ids. New passages are counted and merged in; passages
that are no longer in the file are subtracted. A tally is immutable: one thread may build the next one while another
thread looks up in the current one. 33 bytes per token, and about as much again during an update; of a large store only
for the newest text (`counts_file.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.ngram import counts_file
from core.ngram.counts_file import Older, runs_of
from core.ngram.passage_ids import PassageIds
from core.ngram.windows import Windows

CHUNK = 1 << 20  # tokens sorted at a time


@dataclass(frozen=True)
class Tally:
    """Counted passages.

    Attributes:
        windows: the counts, `beside` those of the older passages.
        ids: of the passages.
        last: the largest number of a passage that was ever counted.
        removals: the number of removals from the file so far.
        older: passages that a file has counted; None in a small store.
    """

    windows: Windows
    ids: PassageIds
    last: int
    removals: int
    older: Older | None = None

    @classmethod
    def empty(cls, older: Older | None = None, removals: int = -1) -> Tally:
        return cls(Older.none().windows, PassageIds.none(), older.last if older else 0, removals, older)

    def brought_up_to_date(
        self, file: sqlite3.Connection, store: Path, vocab_size: int, alive: Callable[[], None] = lambda: None
    ) -> Tally:
        """The tally of the current state of the file.

        Args:
            file: not in a transaction.
            store: its path.
            vocab_size: V. Raises InputError when the file contains ids of V and above.
            alive: called between chunks; if it raises, counting ends.
        """
        # Before all other reads: a removal while they are made is then still to be noticed.
        removals = int(file.execute("SELECT value FROM about WHERE key = 'removals'").fetchone()[0])
        older = counts_file.brought_up_to_date(self.older, file, store, vocab_size, alive)
        kept = self if older is self.older else Tally.empty(older)
        file.execute("BEGIN")  # one state for all reads; sorting comes after it
        try:
            present = None
            if removals != kept.removals and len(kept.ids.numbers):
                first = int(kept.ids.numbers[0])
                present = np.array(
                    file.execute("SELECT id FROM passages WHERE id >= ?", [first]).fetchall(), dtype=np.int64
                )
            new = PassageIds.read(file, kept.last, vocab_size)
        finally:
            file.execute("COMMIT")
        alive()
        if present is not None:
            kept = kept._without(~np.isin(kept.ids.numbers, present.ravel()), alive)
        windows = _added(kept.windows, new, 1, alive)
        if older is not None and windows is not self.windows:
            windows = windows.beside(older.windows)
        last = max(kept.last, int(new.numbers.max(initial=0)))
        return Tally(windows, kept.ids.joined(new), last, removals, older)

    def _without(self, gone: np.ndarray, alive: Callable[[], None]) -> Tally:
        """This tally minus the passages marked in `gone` (p,)."""
        windows = _added(self.windows, self.ids.some(gone), -1, alive)
        return Tally(windows, self.ids.some(~gone), self.last, self.removals, self.older)


def _added(windows: Windows, ids: PassageIds, sign: int, alive: Callable[[], None]) -> Windows:
    """Windows with those of passages added (sign 1) or subtracted (-1)."""
    for first, end in runs_of(np.diff(ids.starts), CHUNK):
        alive()
        begin, upto = ids.starts[first], ids.starts[end]
        symbols = ids.symbols[begin:upto]
        begins = np.flatnonzero(symbols)
        times = np.repeat(ids.times[first:end], np.diff(ids.starts[first : end + 1]))
        windows = windows.merged(Windows.beginning(symbols, begins, times[begins]), sign)
    return windows
