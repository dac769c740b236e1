"""Helpers of the n-gram tests: a word tokenizer, counting by brute force, and stores of given n-grams."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from app.learning.personal import PersonalStores
from core.ngram import NgramStore
from ngram_builder import parts, pipeline, ranges, runs, write
from ngram_builder.count import Packing, sum_rows

Gram = tuple[int, ...]


class WordTokenizer:
    """Words between spaces that are numbers are the ids themselves: "3 1 2" is [3, 1, 2]."""

    def __init__(self, vocab_size: int = 64) -> None:
        self.pieces = [f"{i} ".encode() for i in range(vocab_size)]
        self.fingerprint = hashlib.sha256(b"".join(self.pieces)).hexdigest()

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split() if word.isdigit()]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(map(str, ids))


class Noting(WordTokenizer):
    """Notes what it encodes."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.texts.append(text)
        return super().encode(text)


def add_text(stores: PersonalStores, name: str, origin: str, text: str) -> int:
    """Adds a document to a personal store, as the readers would pass it on. Returns its tokens."""
    with stores.at(name) as store:
        return store.add(origin, [text])


def brute_force(
    documents: Iterable[Sequence[int]], orders: range, min_count: Mapping[int, int]
) -> tuple[dict[Gram, int], dict[Gram, int]]:
    """n-grams of the wanted orders with their counts, pruned, and the totals of their contexts."""
    counts: Counter[Gram] = Counter()
    for ids in documents:
        for n in orders:
            counts.update(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))
    kept = {gram: n for gram, n in counts.items() if n >= (min_count[len(gram)] if len(gram) > 1 else 1)}
    totals: Counter[Gram] = Counter()
    for gram, n in kept.items():
        totals[gram[:-1]] += n
    return kept, dict(totals)


@contextmanager
def tiny_runs(least: int = 4) -> Iterator[None]:
    """Builds that cut everything small: runs of `least` windows, several rounds of merging, many ranges."""
    small = {
        (runs, "LEAST_WINDOWS"): least,
        (runs, "_PER_WINDOW"): 1 << 40,
        (runs, "_PER_MERGED_ROW"): 1 << 40,
        (runs, "FAN_IN"): 3,
        (parts, "BATCH"): 1,
        (pipeline, "LEAST_WINDOWS"): 1,
        (pipeline, "_RANGE_ROWS"): least,
        (ranges, "LEAST_WINDOWS"): least,
        (ranges, "_PER_ROW"): 1 << 40,
    }
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in small.items():
            patch.setattr(module, name, value)
        yield


@contextmanager
def segments_of(most: int) -> Iterator[None]:
    """Builds whose stores have segments of at most `most` n-grams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "MOST_ENTRIES", most)
        yield


def store_of(path: Path, ngrams: Mapping[Gram, int], vocab_size: int, orders: range) -> NgramStore:
    """A store of just these n-grams; every token among them becomes known."""
    packing = Packing(orders[-1], vocab_size)
    grams: dict[Gram, int] = Counter((token,) for gram in ngrams for token in gram)
    grams |= {gram: n for gram, n in ngrams.items() if len(gram) > 1}
    block, (sums,) = sum_rows(packing.pack([*grams]), np.array([[*grams.values()]], dtype=np.uint64))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = runs.write_run(folder / "run", iter([(block, sums)]))
        plan = pipeline.Plan(folder, packing, orders, dict.fromkeys(orders, 1), 1 << 26, 1, exact=True, whole=True)
        about = {"closed": False, "tokenizer": {"fingerprint": "f", "name": "test"}}
        about |= {"documents": 1, "tokens": 1, "sources": []}
        pipeline.write_merged(path, plan, [run], about, pipeline.BuildReport())
    return NgramStore.open(path, verify=True)
