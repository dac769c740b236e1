"""Turns the n-grams of stores into sorted runs, which are merged as those of text are, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from core.ngram.store import NgramStore
from ngram_builder.count import KeptGrams, Packing, sum_rows
from ngram_builder.runs import Run, compacted, new_run, write_run

_AT_ONCE = 1 << 19  # n-grams as objects of Python, some 100 MB


def runs_of_stores(stores: Sequence[NgramStore], folder: Path, packing: Packing, memory: int) -> list[Run]:
    """Writes the n-grams of these stores that have a count, and not more tokens than `packing` has, as runs."""
    folder.mkdir()
    runs = [write_run(new_run(folder), iter([block])) for block in _blocks(stores, packing)]
    return compacted(runs, folder, packing, memory)


def _blocks(stores: Sequence[NgramStore], packing: Packing) -> Iterator[KeptGrams]:
    for store in stores:
        ngrams = ((ids, seen) for ids, seen, _ in store.ngrams() if seen and len(ids) <= packing.order)
        while some := [*islice(ngrams, _AT_ONCE)]:
            words = packing.pack([ids for ids, _ in some])
            rows, (sums,) = sum_rows(words, np.array([[seen for _, seen in some]], dtype=np.uint64))
            yield rows, sums
