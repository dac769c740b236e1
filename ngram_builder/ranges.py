"""The merge step, range by range of first tokens: runs become sorted files of pruned n-grams, one file for each order.

A row is W + 2 u64: the words of an n-gram, its count, and the sum of the counts of its stored continuations. Rows are
written as they are counted, and read in slices, so memory does not depend on the number of n-grams.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import IO

import numpy as np

from ngram_builder.count import Entries, Packing
from ngram_builder.disk import synced
from ngram_builder.levels import CountsOfCounts, levels_of
from ngram_builder.plan import Plan
from ngram_builder.runs import LEAST_WINDOWS, Run, merged
from ngram_builder.work import read_json, write_json

_PER_ROW = 448  # bytes of memory per row of a block: merged, then counted for every order
_LEAST_CUT = 0.75  # of the most n-grams of a segment: the shortest n-gram after so many begins the next one


@dataclass
class MergedRange:
    """What a file `range-….json` says of a range.

    Attributes:
        name: how the names of its files begin.
        rows, ngrams, contexts: of each order from 1 on the rows in its file, those with a count, and those with
            continuations.
        tokens, total: the count of the empty n-gram, and the sum of its stored continuations.
        tally: see `CountsOfCounts.packed`.
    """

    name: str
    rows: list[int]
    ngrams: list[int]
    contexts: list[int]
    tokens: int = 0
    total: int = 0
    tally: list[list[list[int]]] = field(default_factory=list)

    def files(self, folder: Path) -> list[Path]:
        """The files of order 1, 2, …"""
        return [folder / f"{self.name}-{n}.rows" for n in range(1, len(self.rows) + 1)]


def merge_range(
    plan: Plan, number: int, runs: Sequence[Run], tokens: tuple[int | None, int | None], memory: int
) -> None:
    """Counts and prunes the n-grams that begin with the tokens from `tokens[0]` up to but without `tokens[1]`, and
    writes them. `memory`: bytes that merging may take."""
    packing = plan.packing
    low, high = (None if token is None else packing.first(token) for token in tokens)
    blocks = merged(list(runs), packing, max(memory // _PER_ROW, LEAST_WINDOWS), low, high)
    # Another worker, presumed dead, may still write the same range: its files have other names.
    nothing = [0] * packing.order
    result = MergedRange(f"range-{number:05d}-{uuid.uuid4().hex[:8]}", [*nothing], [*nothing], [*nothing])
    tally = CountsOfCounts(packing.order)
    with ExitStack() as opened:
        files = [opened.enter_context(synced(path)) for path in result.files(plan.ranges)]
        for empty, *levels in levels_of(blocks, packing, plan.orders, plan.min_counts, tally, plan.whole):
            result.tokens += int(empty.counts.sum())
            result.total += int(empty.totals.sum())
            for at, (level, file) in enumerate(zip(levels, files, strict=True)):
                result.rows[at] += len(level.counts)
                result.ngrams[at] += int(np.count_nonzero(level.counts))
                result.contexts[at] += int(np.count_nonzero(level.totals))
                for start in range(0, len(level.counts), LEAST_WINDOWS):
                    some = slice(start, start + LEAST_WINDOWS)
                    columns = [*(word[some] for word in level.words), level.counts[some], level.totals[some]]
                    file.write(np.column_stack(columns).tobytes())
    result.tally = tally.packed()
    write_json(_range_path(plan, number), asdict(result))


def _range_path(plan: Plan, number: int) -> Path:
    return plan.ranges / f"range-{number:05d}.json"


def read_range(plan: Plan, number: int) -> MergedRange | None:
    """The description of a range; None if it is not merged yet, or one of its files does not match it."""
    if (stored := read_json(_range_path(plan, number))) is None:
        return None
    known = MergedRange(**stored)
    try:
        sizes = [path.stat().st_size for path in known.files(plan.ranges)]
    except FileNotFoundError:
        return None
    return known if sizes == [rows * _width(plan.packing) for rows in known.rows] else None


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file."""

    path: Path
    start: int
    rows: int


class Level:
    """All n-grams of one order, ascending, over the files of all ranges."""

    def __init__(self, files: Sequence[tuple[Path, int]], packing: Packing) -> None:
        """From the files, ascending by their first tokens, with the number of rows of each."""
        self._files = [(path, rows) for path, rows in files if rows]
        self._starts = [0, *accumulate(rows for _, rows in self._files)]
        self._packing = packing
        self._opened: tuple[Path, IO[bytes]] | None = None  # the file that was read last

    def __len__(self) -> int:
        return self._starts[-1]

    def close(self) -> None:
        if self._opened:
            self._opened[1].close()
            self._opened = None

    def key(self, i: int) -> tuple[int, ...]:
        """The words of n-gram i."""
        at = bisect_right(self._starts, i) - 1
        path = self._files[at][0]
        if self._opened is None or self._opened[0] != path:
            self.close()
            self._opened = path, path.open("rb", buffering=0)
        _, file = self._opened
        file.seek((i - self._starts[at]) * _width(self._packing))
        return tuple(np.frombuffer(file.read(8 * self._packing.words), dtype=np.uint64).tolist())

    def lower_bound(self, key: tuple[int, ...], low: int, high: int) -> int:
        """The first n-gram from `low` to `high` that is not less than `key`."""
        return low + bisect_left(range(low, high), key, key=self.key)

    def pieces(self, start: int, end: int) -> list[Piece]:
        """Where the n-grams from `start` up to but without `end` are."""
        found = []
        for (path, _), begin, stop in zip(self._files, self._starts, self._starts[1:], strict=False):
            low, high = max(start, begin), min(end, stop)
            if low < high:
                found.append(Piece(path, low - begin, high - low))
        return found


def ids_of(key: Sequence[int], packing: Packing) -> tuple[int, ...]:
    """The token ids of an n-gram in words."""
    ids: list[int] = []
    for column in range(packing.order):
        word, shift = packing.shift(column)
        if not (symbol := key[word] >> int(shift) & ((1 << packing.bits) - 1)):
            break
        ids.append(symbol - 1)
    return tuple(ids)


def segments_of(levels: Sequence[Level], most: int) -> list[list[int]]:
    """Where segments of at most `most` n-grams begin in each level, and where the last one ends.

    The place depends on the n-grams alone. A segment begins at an n-gram as short as possible, so that few contexts
    are divided.
    """
    ends = [len(level) for level in levels]
    starts = [[0] * len(levels)]
    while sum(ends) - sum(starts[-1]) > most:
        starts.append(_next_start(levels, starts[-1], ends, most))
    return [*starts, ends]


def _next_start(levels: Sequence[Level], start: Sequence[int], ends: Sequence[int], most: int) -> list[int]:
    """Where the segment after the one at `start` begins, in each level."""

    def before(key: tuple[int, ...]) -> list[int]:
        """In each level, the first n-gram that is not less than `key`."""
        return [
            level.lower_bound(key, low, min(end, low + most + 1))
            for level, low, end in zip(levels, start, ends, strict=True)
        ]

    largest: list[int] = list(start)
    for level, low, end in zip(levels, start, ends, strict=True):
        # The n-grams of this order with at most `most` n-grams before them.
        here = range(low, min(end, low + most + 1))
        if number := bisect_right(here, most + sum(start), key=lambda i, level=level: sum(before(level.key(i)))):
            largest = max(largest, before(level.key(here[number - 1])), key=sum)
        if sum(largest) - sum(start) >= _LEAST_CUT * most:
            break
    return largest


def read_pieces(pieces: Sequence[Piece], packing: Packing) -> Entries:
    """Reads n-grams of one order."""
    columns = packing.words + 2
    parts = [
        np.fromfile(piece.path, np.uint64, piece.rows * columns, offset=piece.start * _width(packing))
        for piece in pieces
    ]
    rows = np.concatenate(parts).reshape(-1, columns) if parts else np.zeros((0, columns), dtype=np.uint64)
    return Entries(rows[:, :-2].T.copy(), rows[:, -2].copy(), rows[:, -1].copy())


def _width(packing: Packing) -> int:
    """Bytes of a row."""
    return 8 * (packing.words + 2)
