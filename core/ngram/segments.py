"""The segments of a store: each holds the n-grams of one range, in order of token ids, in a trie with its own records.

So a store of any size is written, checked and merged segment by segment, in memory for one. N-grams compare as tuples
of ids do: a context stands before its continuations. A segment extends from its `first` n-gram up to the next one's.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import marisa_trie

from core.ngram.checked import check_once
from core.ngram.container import Container
from core.ngram.errors import StoreError
from core.ngram.records import Records
from core.ngram.trie_check import Malformed

RECORDS = ("codes", "marks", "pairs", "wide")  # the sections of the records


class Segment:
    """The n-grams of one range.

    Attributes:
        first: the n-gram at which the range begins; empty in the first segment.
        trie: from the key of an n-gram to its number.
        records: the counts, by that number.
    """

    __slots__ = ("first", "records", "trie")

    def __init__(self, container: Container, about: Mapping[str, Any], ending: str, longest: int) -> None:
        """Maps a segment.

        Args:
            about: its entry in the manifest.
            ending: of the names of its sections.
            longest: maximum bytes of a key.
        Raises: StoreError.
        """
        self.first: tuple[int, ...] = tuple(about["first"])
        self.records = Records(about["records"], {name: container.section(name + ending) for name in RECORDS})
        self.trie = marisa_trie.BinaryTrie()
        trie = container.section(f"trie{ending}")
        try:
            check_once(trie, longest)
            self.trie.map(trie)
        except (Malformed, RuntimeError, ValueError, MemoryError) as error:
            raise StoreError(f"{container.path} is damaged: its trie cannot be read ({error}).") from error
        if not len(self.trie) == len(self.records) == about["entries"]:
            raise StoreError(
                f"{container.path} is damaged: {len(self.trie)} n-grams found, {about['entries']} expected."
            )


class Spread(NamedTuple):
    """Where the continuations of a context are.

    Attributes:
        segments: that hold them, ascending; the first one also holds the context itself.
        edges: for each segment but the first, twice the token with which its first continuation ends, plus 1 if it
            begins after that n-gram. So `bisect_right(edges, 2 * token)` is the number of a continuation's segment.
    """

    segments: Sequence[Segment]
    edges: Sequence[int]


class Segments:
    """The segments of a store, ascending."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Raises ValueError if the first one does not begin at the empty n-gram, or they do not ascend."""
        self._segments = list(segments)
        self._firsts = [segment.first for segment in self._segments]
        if self._firsts[:1] != [()] or any(a >= b for a, b in zip(self._firsts, self._firsts[1:], strict=False)):
            raise ValueError("its segments are not in order")
        self._of_token: dict[int, Spread] = {}  # of all n-grams that begin with a token
        self._divided: dict[tuple[int, ...], Spread] = {}  # of contexts whose continuations are in several segments

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def of(self, ids: Sequence[int]) -> Segment:
        """The segment that holds this n-gram if any does."""
        return self._segments[bisect_right(self._firsts, tuple(ids)) - 1]

    def spread(self, context: Sequence[int]) -> Spread:
        """Where this context and its continuations are."""
        if context:
            if (known := self._of_token.get(context[0])) is None:
                known = self._of_token[context[0]] = self._found((context[0],))
            if len(known.segments) == 1:
                return known
        ids = tuple(context)
        if (spread := self._divided.get(ids)) is None:
            spread = self._found(ids)
            if len(spread.segments) > 1:
                self._divided[ids] = spread
        return spread

    def _found(self, ids: tuple[int, ...]) -> Spread:
        start = bisect_right(self._firsts, ids) - 1
        end = bisect_left(self._firsts, (*ids, math.inf))
        n = len(ids)
        edges = [2 * first[n] + (len(first) > n + 1) for first in self._firsts[start + 1 : end]]
        return Spread(self._segments[start:end], edges)
