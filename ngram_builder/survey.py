"""Estimates what a build will read, take and write, from the beginnings of some of its files."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from core.errors import InputError
from ngram_builder.count import Packing, count_rows, starts_of_groups
from ngram_builder.encoding import encoding
from ngram_builder.inputs import stamped
from ngram_builder.parts import batches
from ngram_builder.readers import Document, File, Reading, expand
from ngram_builder.selection import DocumentSelection, chosen

if TYPE_CHECKING:  # its module imports torch, which counting does not need
    from core.models.base import Tokenizer

SHARE = 0.01  # of the input that is read
_LEAST = 4 << 20  # bytes that are read at least
_MOST = 2_000_000  # tokens that are counted at most, in some 200 MB of memory
_MEMORY = 64 << 20  # bytes for remembered tokens
_FILES = 64  # that are read from, spread over the input
_PER_NGRAM = 3.5  # bytes in a store
# Seconds of merging and writing per second of reading on one core, measured.
_AFTER_READING = 0.8


@dataclass(frozen=True)
class Survey:
    """Estimates for a whole build.

    Attributes:
        read: the share of the input's bytes that was read.
        documents, tokens, ngrams: numbers; n-grams of two tokens and more that remain after pruning.
        store, disk: bytes of the store, and of intermediate files.
        seconds: of the build on this machine.
    """

    files: int
    bytes: int
    read: float
    documents: int
    tokens: int
    ngrams: int
    store: int
    disk: int
    seconds: float


class _Enough(Exception):
    """The beginning of a file was read."""


def survey(
    sources: Iterable[str | Path],
    tokenizer: Tokenizer,
    orders: range,
    min_counts: Mapping[int, int],
    selection: DocumentSelection,
    workers: int,
) -> Survey:
    """Reads some hundredth of the input. Repeated text is not looked for. Raises InputError when it finds no text."""
    files = [stamped(file, selection.signals) for file in expand(sources)]
    total = sum(file.size for file in files)
    budget = max(total * SHARE, _LEAST)
    some = _spread(files)
    share = budget / max(sum(file.size for file in some), 1)  # of each of them, so that all kinds of text count alike
    packing = Packing(orders[-1], len(tokenizer.pieces))
    began = time.monotonic()
    read, streams, documents, tokens = 0, list[np.ndarray](), 0, 0
    with encoding(tokenizer, workers=1, processes=1, memory=_MEMORY) as encode:
        for file in some:
            taken = [0]
            beginning = _beginning(file, selection, share * file.size, taken)
            for ids, _ in encode(batches(beginning)):
                streams += np.split(ids, np.flatnonzero(ids == 0)[:-1] + 1)
                tokens += len(ids) - np.count_nonzero(ids == 0)
            read += taken[0]
            documents = len(streams)
            if tokens >= _MOST:
                break
    if not tokens:
        raise InputError("No text found in the beginnings of the files.")
    whole = max(total / max(read, 1), 1.0)
    kept, windows = _kept(streams, packing, orders, min_counts)
    seconds = time.monotonic() - began
    half, _ = _kept(streams[::2], packing, orders, min_counts)
    growth = math.log2(kept / half) if kept > half > 0 else 1.0
    ngrams = int(kept * whole**growth)
    per_core = seconds * whole * (1 + _AFTER_READING)
    return Survey(
        files=len(files),
        bytes=total,
        read=1 / whole,
        documents=int(documents * whole),
        tokens=int(tokens * whole),
        ngrams=ngrams,
        store=int(ngrams * _PER_NGRAM),
        disk=int(windows * whole * 8 * (packing.words + 1)),
        seconds=per_core / workers,
    )


def _spread(files: Sequence[File]) -> list[File]:
    step = max(len(files) / _FILES, 1.0)
    return [files[int(i * step)] for i in range(min(len(files), _FILES))]


def _beginning(file: File, selection: DocumentSelection, most: float, taken: list[int]) -> Iterator[Document]:
    """The documents in about the first `most` bytes of a file; `taken` grows by the bytes read."""

    def consumed(size: int) -> None:
        if size and taken[0] >= most:
            raise _Enough
        taken[0] += size

    reading = Reading(lambda _: None, consumed, selection.signals)
    try:
        yield from chosen(file, reading, selection, Counter())
    except _Enough:
        return


def _kept(
    streams: Sequence[np.ndarray], packing: Packing, orders: range, min_counts: Mapping[int, int]
) -> tuple[int, int]:
    """The numbers of n-grams of two tokens and more that are kept of these documents, and of distinct windows."""
    windows, times = count_rows(packing.windows(np.concatenate(streams)))
    kept = 0
    for n in orders:
        whole = packing.column(windows, n - 1) != 0
        starts = starts_of_groups(packing.prefix(windows[:, whole], n))
        if n > 1 and len(starts):
            kept += int(np.count_nonzero(np.add.reduceat(times[whole], starts) >= min_counts[n]))
    return kept, len(times)
