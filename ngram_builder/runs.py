"""Sorted runs on disk: windows with their counts, each run sorted and distinct, merged block by block.

A run is a file of rows of W + 1 u64: the words of a window, then its count. Runs are read in slices of rows, so
memory depends on the size of a block and not on the length or the number of runs.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ngram_builder.count import KeptGrams, Packing, count_rows, sum_rows
from ngram_builder.disk import synced

# Peak memory of sorting, per window of two words: words, sorted words, the permutation, its workspace, ids; and per row
# of a merged block.
_PER_WINDOW = 72
_PER_MERGED_ROW = 128
LEAST_WINDOWS = 1 << 16  # the minimum number of windows handled at once
FAN_IN = 128  # runs read at once; more are merged in several rounds
_SAMPLES = 1000  # per block, to find the cuts


def windows_within(memory: int, packing: Packing) -> int:
    """The number of windows that can be sorted at once in `memory` bytes."""
    return max(memory // (_PER_WINDOW + 24 * max(packing.words - 2, 0)), LEAST_WINDOWS)


def rows_within(memory: int, packing: Packing) -> int:
    """The number of rows that can be merged at once in `memory` bytes."""
    return max(memory // (_PER_MERGED_ROW + 32 * max(packing.words - 2, 0)), LEAST_WINDOWS)


@dataclass(frozen=True)
class Run:
    """A file of `rows` sorted, distinct windows."""

    path: Path
    rows: int

    def intact(self, packing: Packing) -> bool:
        """Whether the file exists with the expected size."""
        try:
            return self.path.stat().st_size == self.rows * 8 * (packing.words + 1)
        except FileNotFoundError:
            return False


def write_run(path: Path, blocks: Iterator[KeptGrams]) -> Run:
    """Writes consecutive sorted blocks as one run; the data is on the disk when this returns."""
    rows = 0
    with synced(path) as file:
        for words, counts in blocks:
            for at in range(0, len(counts), LEAST_WINDOWS):
                part = slice(at, at + LEAST_WINDOWS)
                file.write(np.column_stack([*(word[part] for word in words), counts[part]]).tobytes())
            rows += len(counts)
    return Run(path, rows)


def new_run(folder: Path) -> Path:
    """The path of a run, which is never used twice."""
    return folder / f"run-{uuid.uuid4().hex}.rows"


def compacted(
    runs: list[Run], folder: Path, packing: Packing, memory: int, save: Callable[[list[Run]], None] = lambda _: None
) -> list[Run]:
    """Merges runs until few enough remain to read all of them at once. `save` is called with what remains, before
    those that were merged are removed."""
    while len(runs) > FAN_IN:
        oldest = runs[:FAN_IN]
        blocks = merged(oldest, packing, rows_within(memory, packing))
        runs = [*runs[FAN_IN:], write_run(new_run(folder), blocks)]
        save(runs)
        for run in oldest:
            run.path.unlink(missing_ok=True)
    return runs


def sorted_windows(ids: np.ndarray, packing: Packing, at_once: int) -> Iterator[KeptGrams]:
    """Yields the distinct windows of a stream of documents (uint32, token + 1, a 0 after every document), counted.

    In parts of at most `at_once` windows, each sorted separately.
    """
    for start in range(0, len(ids), at_once):
        # A window may extend into the next part; it belongs to the part in which it begins.
        words = packing.windows(ids[start : start + at_once + packing.order - 1], at_once)
        yield count_rows(words)


def merged(
    runs: list[Run],
    packing: Packing,
    at_once: int,
    low: tuple[int, ...] | None = None,
    high: tuple[int, ...] | None = None,
) -> Iterator[KeptGrams]:
    """Yields windows from `low` up to but without `high`, sorted and distinct, in blocks of about `at_once` rows."""
    runs = [run for run in runs if run.rows]
    spans = [_span(_mapped(run, packing), low, high) for run in runs]
    limits = _limits(runs, packing, spans, -(-sum(b - a for a, b in spans) // at_once))
    cuts = [_cuts(_mapped(run, packing), span, limits) for run, span in zip(runs, spans, strict=True)]
    for bounds in zip(*(pairwise(cut) for cut in cuts), strict=True):
        parts = [_read(run, packing, a, b) for run, (a, b) in zip(runs, bounds, strict=True) if b > a]
        if not parts:
            continue
        words = np.stack([np.concatenate([part[:, i] for part in parts]) for i in range(packing.words)])
        counts = np.concatenate([part[:, -1] for part in parts])
        if len(parts) == 1:  # already sorted and distinct
            yield words, counts
            continue
        del parts
        words, (counts,) = sum_rows(words, counts[None])
        yield words, counts


def equal_ranges(runs: list[Run], packing: Packing, number: int) -> list[int]:
    """First tokens 0 < t < V, ascending, that divide all windows into at most `number` ranges of about equal size."""
    samples = [_sample(_mapped(run, packing), 0, run.rows, 2000) for run in runs if run.rows]
    firsts = np.sort(np.concatenate([packing.column(sample[:, :-1].T, 0) for sample in samples]))
    cuts = np.unique(firsts[np.arange(1, number) * len(firsts) // number]).astype(np.int64) - 1
    return [int(token) for token in cuts if token > 0]


def _mapped(run: Run, packing: Packing) -> np.ndarray:
    """The rows of a run. Keep only one at a time: each takes a file handle, and its pages that were read count as this
    process's memory."""
    return np.memmap(run.path, dtype=np.uint64, mode="r", shape=(run.rows, packing.words + 1))


def _read(run: Run, packing: Packing, start: int, end: int) -> np.ndarray:
    width = packing.words + 1
    rows = np.fromfile(run.path, dtype=np.uint64, count=(end - start) * width, offset=start * width * 8)
    return rows.reshape(-1, width)


def _lower_bound(rows: np.ndarray, key: tuple[int, ...]) -> int:
    """The first row whose window is not less than `key`."""
    return bisect_left(range(len(rows)), key, key=lambda i: tuple(rows[i, :-1].tolist()))


def _sample(rows: np.ndarray, start: int, end: int, number: int) -> np.ndarray:
    return np.array(rows[start : end : max((end - start) // number, 1)])


def _span(rows: np.ndarray, low: tuple[int, ...] | None, high: tuple[int, ...] | None) -> tuple[int, int]:
    """Where the windows from `low` up to but without `high` are."""
    return _lower_bound(rows, low) if low else 0, _lower_bound(rows, high) if high else len(rows)


def _cuts(rows: np.ndarray, span: tuple[int, int], limits: list[tuple[int, ...]]) -> list[int]:
    """Where the blocks between these limits begin in a span, and its end."""
    start, end = span
    return [start, *(min(max(_lower_bound(rows, limit), start), end) for limit in limits), end]


def _limits(runs: list[Run], packing: Packing, spans: list[tuple[int, int]], blocks: int) -> list[tuple[int, ...]]:
    """Windows that divide all spans together into this many blocks of about equal size."""
    if blocks <= 1:
        return []
    total = sum(b - a for a, b in spans)
    samples = blocks * _SAMPLES
    spaced = [
        _sample(_mapped(run, packing), a, b, max((b - a) * samples // total, 1))
        for run, (a, b) in zip(runs, spans, strict=True)
        if b > a
    ]
    keys = np.concatenate(spaced)[:, :-1]
    keys = keys[np.lexsort(keys.T[::-1])]
    chosen = keys[np.arange(1, blocks) * len(keys) // blocks]
    return sorted({tuple(row) for row in chosen.tolist()})
