"""Writes counted n-grams to a store file: ranks, keys, the trie, records, the container.
research/docs/files.md describes the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import marisa_trie
import numpy as np

from core.ngram.container import write_container
from core.ngram.keys import RankCode
from core.ngram.records import pack_records
from ngram_builder.count import Entries, Packing

TRIES = 3  # nested tries inside the trie: more make it smaller and look-ups slower
_BLOCK = 1 << 18


def write_store(
    path: Path, entries: list[Entries], packing: Packing, about: Mapping[str, Any], exact: bool = False
) -> None:
    """Writes the store; `about` goes into the manifest. The same entries give the same bytes."""
    single = entries[1]
    tokens = packing.column(single.words, 0).astype(np.int64) - 1
    by_rank = tokens[np.lexsort((tokens, -single.counts.astype(np.int64)))]
    code = RankCode.for_tokens(len(by_rank))
    table, lengths = code.table(len(by_rank))
    rank_of = np.zeros(packing.vocab_size, dtype=np.int64)
    rank_of[by_rank] = np.arange(len(by_rank))

    def keys() -> Iterator[bytes]:
        for n, level in enumerate(entries):
            for at in range(0, len(level.counts), _BLOCK):
                yield from _keys(level.words[:, at : at + _BLOCK], n, packing, rank_of, table, lengths)

    trie = marisa_trie.BinaryTrie(keys(), num_tries=TRIES)
    total = sum(len(level.counts) for level in entries)
    ids = np.fromiter((trie.key_id(key) for key in keys()), dtype=np.int64, count=total)
    counts, totals = np.zeros(total, dtype=np.uint64), np.zeros(total, dtype=np.uint64)
    counts[ids] = np.concatenate([level.counts for level in entries])
    totals[ids] = np.concatenate([level.totals for level in entries])
    records, sections = pack_records(counts, totals, exact)
    manifest = {
        **about,
        "entries": total,
        "keys": {"one": code.one, "two": code.two, "tokens": len(by_rank)},
        "records": records,
    }
    write_container(path, manifest, {"tokens": by_rank.astype("<u4").tobytes(), "trie": trie.tobytes(), **sections})


def _keys(
    words: np.ndarray, n: int, packing: Packing, rank_of: np.ndarray, table: np.ndarray, lengths: np.ndarray
) -> Iterator[bytes]:
    rows = words.shape[1]
    spelt = np.zeros((rows, n, 3), dtype=np.uint8)
    used = np.zeros((rows, n), dtype=np.uint8)
    for column in range(n):
        ranks = rank_of[packing.column(words, column).astype(np.int64) - 1]
        spelt[:, column], used[:, column] = table[ranks], lengths[ranks]
    flat = spelt[np.arange(3) < used[:, :, None]].tobytes()
    ends = np.cumsum(used.sum(axis=1, dtype=np.int64)).tolist()
    start = 0
    for end in ends:
        yield flat[start:end]
        start = end
