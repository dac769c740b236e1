"""Writes counted n-grams to a store file: ranks, then segment by segment keys, trie and records, then one file of all.
research/docs/files.md describes the format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import marisa_trie
import numpy as np

from core.files import write_whole
from core.memory import return_freed
from core.ngram.checked import check_once
from core.ngram.container import ALIGNMENT, Container, Section, write_container
from core.ngram.errors import StoreError
from core.ngram.keys import RankCode
from core.ngram.records import pack_records
from ngram_builder.count import Entries, Packing
from ngram_builder.disk import naming
from ngram_builder.plan import Plan
from ngram_builder.ranges import Piece, read_pieces

TRIES = 3  # nested tries inside the trie: more make it smaller and look-ups slower
MOST_ENTRIES = 1 << 20  # of a segment; the same for every --memory, which must not change the store
MEMORY = 200 << 20  # bytes that writing a segment takes at most, in a process of its own
_BLOCK = 1 << 16
_MANIFEST = 1024  # bytes of a manifest without sources and segments, at most


@dataclass(frozen=True)
class SegmentPlan:
    """What to write into a segment.

    Attributes:
        first: the ids of the n-gram with which it begins.
        empty: count and total of the empty n-gram, which the first segment has.
        pieces: where the n-grams of order 1, 2, … are.
    """

    number: int
    first: tuple[int, ...]
    empty: tuple[int, int] | None
    pieces: list[list[Piece]]

    @property
    def entries(self) -> int:
        return sum(piece.rows for pieces in self.pieces for piece in pieces) + (self.empty is not None)

    def written(self, folder: Path) -> bool:
        """Whether a file of this segment is there."""
        try:
            manifest = Container(segment_path(folder, self.number)).manifest
        except StoreError:
            return False
        return (tuple(manifest["first"]), manifest["entries"]) == (self.first, self.entries)


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"segment-{number:05d}.ngram"


def save_tokens(folder: Path, single: Entries, packing: Packing) -> np.ndarray:
    """Saves the ids of all tokens that occurred, the most frequent first, (n,) u32, and returns them.

    Args:
        single: the n-grams of order 1.
    """
    tokens = packing.column(single.words, 0).astype(np.int64) - 1
    by_rank = tokens[np.lexsort((tokens, -single.counts.astype(np.int64)))].astype("<u4")
    write_whole(folder / "tokens", by_rank.tobytes(), private=False)
    return by_rank


def write_segment(plan: Plan, segment: SegmentPlan) -> int:
    """Writes a segment to a file of its own, and returns the number of its n-grams. The same n-grams give the same
    bytes."""
    packing, by_rank = plan.packing, np.fromfile(plan.segments / "tokens", dtype="<u4")
    code = RankCode.for_tokens(len(by_rank))
    table, lengths = code.table(len(by_rank))
    rank_of = np.zeros(packing.vocab_size, dtype=np.int64)
    rank_of[by_rank] = np.arange(len(by_rank))
    spelt: list[tuple[bytes, np.ndarray]] = []  # of each block of n-grams the keys, and the length of each
    counts, totals = [], []
    for n, entries in enumerate(_entries(segment, packing)):
        counts.append(entries.counts)
        totals.append(entries.totals)
        spelt += [
            _spelt(entries.words[:, at : at + _BLOCK], n, packing, rank_of, table, lengths)
            for at in range(0, len(entries.counts), _BLOCK)
        ]

    trie = marisa_trie.BinaryTrie(_keys(spelt), num_tries=TRIES)
    ids = np.fromiter(map(trie.key_id, _keys(spelt)), dtype=np.uint32, count=segment.entries)
    data = trie.tobytes()
    del trie, spelt
    return_freed()
    check_once(memoryview(data), longest=3 * packing.order)  # what opens the store on this machine need not repeat it
    by_id = np.empty_like(ids)
    by_id[ids] = np.arange(len(ids), dtype=np.uint32)
    records, sections = pack_records(np.concatenate(counts)[by_id], np.concatenate(totals)[by_id], plan.exact)
    manifest = {"first": list(segment.first), "entries": segment.entries, "records": records}
    path = segment_path(plan.segments, segment.number)
    with naming(path):
        write_container(path, manifest, {"trie": data, **sections})
    return_freed()
    return segment.entries


def write_store(
    path: Path, folder: Path, segments: Sequence[SegmentPlan], by_rank: np.ndarray, about: Mapping[str, Any]
) -> None:
    """Writes the store from the files of its segments; `about` goes into the manifest."""
    code = RankCode.for_tokens(len(by_rank))
    sections: dict[str, Section] = {"tokens": by_rank.tobytes()}
    listed: list[dict[str, Any]] = []
    for plan in segments:
        segment = Container(segment_path(folder, plan.number))
        listed.append({key: segment.manifest[key] for key in ("first", "entries", "records")})
        sections |= {f"{name}.{plan.number}": section for name, section in segment.stored().items()}
        segment.close()
    manifest = {
        **about,
        "entries": sum(plan.entries for plan in segments),
        "keys": {"one": code.one, "two": code.two, "tokens": len(by_rank)},
        "records": {"max_relative_error": max(entry["records"]["max_relative_error"] for entry in listed)},
        "segments": listed,
    }
    with naming(path):
        write_container(path, manifest, sections)


def store_size(folder: Path, segments: Sequence[SegmentPlan], by_rank: np.ndarray, about: Mapping[str, Any]) -> int:
    """The bytes that `write_store` would write, or a little more: the manifest says of a segment about as much as the
    manifest of its own file."""
    files = sum(segment_path(folder, plan.number).stat().st_size + ALIGNMENT for plan in segments)
    return files + by_rank.nbytes + len(json.dumps(about, ensure_ascii=False).encode()) + _MANIFEST


def _entries(plan: SegmentPlan, packing: Packing) -> Iterator[Entries]:
    """The n-grams of order 0, 1, …"""
    empty = np.array([plan.empty] if plan.empty else [], dtype=np.uint64).reshape(-1, 2)
    yield Entries(np.zeros((packing.words, len(empty)), dtype=np.uint64), empty[:, 0], empty[:, 1])
    for pieces in plan.pieces:
        yield read_pieces(pieces, packing)


def _spelt(
    words: np.ndarray, n: int, packing: Packing, rank_of: np.ndarray, table: np.ndarray, lengths: np.ndarray
) -> tuple[bytes, np.ndarray]:
    """The keys of n-grams, one after the other, and the length of each."""
    rows = words.shape[1]
    spelt = np.zeros((rows, n, 3), dtype=np.uint8)
    used = np.zeros((rows, n), dtype=np.uint8)
    for column in range(n):
        ranks = rank_of[packing.column(words, column).astype(np.int64) - 1]
        spelt[:, column], used[:, column] = table[ranks], lengths[ranks]
    return spelt[np.arange(3) < used[:, :, None]].tobytes(), used.sum(axis=1, dtype=np.uint8)


def _keys(spelt: Sequence[tuple[bytes, np.ndarray]]) -> Iterator[bytes]:
    for flat, lengths in spelt:
        start = 0
        for end in accumulate(lengths.tolist()):
            yield flat[start:end]
            start = end
