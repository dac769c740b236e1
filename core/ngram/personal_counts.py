"""The counts of a personal store's passages, updated after every commit of any process.

A few new passages are counted at once. More of them are merged into the sorted counts of `tally.py`, and those of a
large store into a file (`counts_file.py`); if the store is opened `in_background`, a thread does that, and look-ups use
the previous counts meanwhile (`following.py`); but after text was removed they find nothing until the thread is done,
because the previous counts contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress

from core.errors import InputError
from core.ngram import counts_file
from core.ngram.counts import Counts
from core.ngram.errors import StoreError
from core.ngram.following import Following
from core.ngram.passage_ids import new_passages
from core.ngram.passages import runs
from core.ngram.personal_file import PersonalFile, reported
from core.ngram.tally import Tally

FRESH = 8192  # tokens counted individually before they are merged into the sorted counts
_MOMENT = 0.02  # seconds that a look-up waits for counts that a thread is updating


class PersonalCounts:
    """The counts of one open file. Nothing is counted before the first look-up; commands that only list documents need
    no counts."""

    def __init__(self, file: PersonalFile, in_background: bool) -> None:
        """`in_background`: a look-up never waits for the counting of more than FRESH tokens."""
        self._file, self._in_background = file, in_background
        self._counts: Counts | None = None
        self._tally = Tally.empty()
        self._last = 0  # number of the last counted passage
        self._following: Following | None = None

    def stop(self) -> None:
        """Ends the thread, if there is one."""
        if self._following:
            self._following.stop()

    @property
    def arrived(self) -> bool:
        """Whether a thread has counted, so that `update` has new counts although the file is unchanged."""
        return self._following is not None and self._following.tally.done()

    def started(self) -> bool:
        """Begins counting, with the next `update`. Returns whether it had begun before."""
        if self._counts is not None:
            return True
        self._take(self._tally)
        return False

    @property
    def latest(self) -> Counts:
        """The counts as of the last `update`, after `started`."""
        assert self._counts is not None, "`started` comes first"
        return self._counts

    def update(self) -> None:
        """Counts what was committed since, or starts a thread that does.

        Raises: StoreError when the file is damaged, or memory is short.
        """
        with self._reported():
            self._update()

    def settle(self, alive: Callable[[], None]) -> None:
        """Brings the file of counts up to date, which only a large store has. Raises StoreError."""
        file = self._file
        with self._reported():
            counts_file.brought_up_to_date(None, file.db.conn, file.path, self._vocab_size, alive)

    def forget(self) -> None:
        """Takes what was removed out of the file of counts; or removes the file, if it cannot be written."""
        try:
            self.settle(lambda: None)
        except StoreError:
            with suppress(OSError):
                counts_file.remove(self._file.path)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            with reported(self._file.path):
                yield
        except InputError as error:
            raise StoreError(f"{self._file.path} is damaged: {error}") from error

    def _update(self) -> None:
        if self._following is not None and self._following.tally.done():
            self._follow(self._following)
        if self._counts is None or self._counted_at_once(self._counts):
            return
        if not self._in_background:
            self._take(self._tally.brought_up_to_date(self._file.db.conn, self._file.path, self._vocab_size))
            return
        if self._following is None:
            self._following = Following(self._file.path, self._tally, self._vocab_size)
            if wait([self._following.tally], _MOMENT).done:
                self._follow(self._following)
        if self._tally.removals != self._removals:
            self._counts = Counts(self._vocab_size, Tally.empty().windows)

    def _counted_at_once(self, counts: Counts) -> bool:
        """Counts new passages, or all of them after a removal, if they are few; returns whether the counts are
        complete."""
        tally, last = self._tally, self._last
        if self._removals != tally.removals:
            tally, last = Tally.empty(removals=self._removals), 0
            counts = Counts(self._vocab_size, tally.windows)
        new, tokens = [], counts.fresh
        for row in new_passages(self._file.db.conn, last):
            tokens += len(row[2]) // 4
            if tokens > FRESH:
                return False
            new.append(row)
        for number, times, ids in new:
            for run in runs(ids):
                counts.add(run.tolist(), times)
            last = number
        self._tally, self._counts, self._last = tally, counts, last
        return True

    def _follow(self, following: Following) -> None:
        """Takes over a thread's counts."""
        self._following = None
        try:
            self._take(following.tally.result())
        except MemoryError as error:
            raise StoreError(
                f"{self._file.path} needs more memory for its counts than is free. Switch it off."
            ) from error

    def _take(self, tally: Tally) -> None:
        self._tally, self._last = tally, tally.last
        older = tally.older and tally.older.windows
        self._counts = Counts(self._vocab_size, tally.windows, older=older)

    @property
    def _removals(self) -> int:
        return int(self._file.settings["removals"])

    @property
    def _vocab_size(self) -> int:
        return int(self._file.settings["vocab_size"])
