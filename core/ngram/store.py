"""A read-only n-gram store: one memory-mapped file, of segments with a trie over n-grams of all orders each.

This module handles token ids and counts, no text and no models. The file format is in research/docs/files.md.

Terms: an n-gram of order n is n tokens; its first n-1 are its context. `count` is the number of occurrences of an
n-gram, `total` of a context the sum of the counts of its stored continuations. With pruning, total
is less than the context's own count: the difference is the number of occurrences whose continuation was too
rare to keep.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError
from core.ngram.container import Container
from core.ngram.errors import StoreError
from core.ngram.keys import RankCode
from core.ngram.manifest import check_manifest
from core.ngram.segments import Segment, Segments

# λ_n of eq. 5 for n = 2 … 6 (Superposed Decoding, appendix B). They sum to 0.5.
PAPER_WEIGHTS: dict[int, float] = {2: 0.01, 3: 0.04, 4: 0.15, 5: 0.18, 6: 0.12}

_NOTHING = (0, 0)
MOST_ORDER = 32  # tokens of an n-gram in any store that is opened
REMEMBERED = 1 << 17  # cached look-ups, some 20 MB
REMEMBERED_LISTS = 1 << 14  # cached lists of continuations, some 10 MB
QUICK = 128  # n-grams that `quick_continuations` reads at most, some 30 µs

Contexts = Sequence[Sequence[int]]
CandidateIds = Sequence[int] | Sequence[Sequence[int]] | np.ndarray


@dataclass(frozen=True)
class Evidence:
    """A store's counts for d contexts and m candidates each, order by order.

    Attributes:
        orders: the N requested orders, ascending; order n uses the last n-1 tokens of a context.
        counts: (d, N, m) float64, how often the candidate followed the context.
        totals: (d, N) float64, sum of the counts of all stored continuations of the context.
        seen: (d, N) float64, how often the context itself occurred (0 if unknown); never less than `totals`
            if counts are exact and n-grams of the context's order were kept.
    """

    orders: tuple[int, ...]
    counts: np.ndarray
    totals: np.ndarray
    seen: np.ndarray

    def fractions(self) -> np.ndarray:
        """count / total per order, (d, N, m); 0 for an unknown context."""
        totals = self.totals[:, :, None]
        return np.divide(self.counts, totals, out=np.zeros_like(self.counts), where=totals > 0)


@dataclass(frozen=True)
class TypedEvidence(Evidence):
    """With `types` (d, N) float64: how many different tokens followed the context."""

    types: np.ndarray


def asked_of(
    known: tuple[int, ...], contexts: Contexts, candidates: CandidateIds, orders: Sequence[int] | None
) -> tuple[tuple[int, ...], np.ndarray]:
    """The orders asked of a store that has the `known` ones, and the candidates as an array. Raises InputError for
    other orders, and shapes that do not fit."""
    wanted = known if orders is None else tuple(sorted(orders))
    for n in wanted:
        if n not in known:
            raise InputError(f"Order {n} requested; this store has {known[0]} to {known[-1]}.")
    ids = np.asarray(candidates)
    if ids.ndim not in (1, 2) or (ids.ndim == 2 and len(ids) != len(contexts)):
        raise InputError(f"Candidates of shape {ids.shape} given for {len(contexts)} contexts.")
    return wanted, ids


class NgramStore:
    """n-gram counts in a file.

    Attributes:
        path: the file.
        manifest: its description: tokenizer, orders, n-grams per order, sources, pruning.
        orders: orders of the n-grams that can give probabilities, ascending (single tokens, order 1, are
            always stored and not listed).
        fingerprint: `Tokenizer.fingerprint` of the tokenizer whose ids these are.
    """

    def __init__(self, container: Container) -> None:
        """Use `NgramStore.open`."""
        self._container = container
        self.path = container.path
        self.manifest: dict[str, Any] = container.manifest
        check_manifest(self.manifest, self.path)
        self.orders: tuple[int, ...] = tuple(self.manifest["orders"])
        self.fingerprint: str = self.manifest["tokenizer"]["fingerprint"]
        keys = self.manifest["keys"]
        self._closed: bool = self.manifest["closed"]
        try:
            code, ranked = RankCode(keys["one"], keys["two"]), keys["tokens"]
        except InputError as error:
            raise StoreError(f"{self.path} is damaged: {error}") from error
        first, last = min(self.orders, default=0), max(self.orders, default=0)
        if not 1 <= first <= last <= MOST_ORDER or self.orders != tuple(range(first, last + 1)):
            raise StoreError(
                f"{self.path} is damaged: orders {self.orders} are not a contiguous range in 1-{MOST_ORDER}."
            )
        self._code = code
        listed = container.section("tokens")
        if len(listed) % 4:
            raise StoreError(f"{self.path} is damaged: its tokens take {len(listed)} bytes, not a multiple of 4.")
        by_rank = np.frombuffer(listed, dtype="<u4")
        if len(by_rank) != ranked or ranked > code.capacity:
            raise StoreError(f"{self.path} is damaged: {len(by_rank)} tokens listed, {ranked} expected.")
        self._keys: dict[int, bytes] = dict(
            zip(by_rank.tolist(), code.strings(ranked), strict=True)
        )  # token id -> its bytes in a key; ids never seen are missing
        self._segments = self._mapped_segments()
        self._known: dict[bytes, tuple[int, int]] = {}
        self._followers: dict[tuple[bytes, int], list[tuple[int, int]]] = {}  # of `quick_continuations`

    @classmethod
    def open(cls, path: str | Path, fingerprint: str | None = None, verify: bool = False) -> NgramStore:
        """Maps a store.

        Args:
            path: the file.
            fingerprint: `Tokenizer.fingerprint` of the tokenizer whose ids will be looked up; None skips the
                check.
            verify: read the whole file and compare checksums. Without it a file with altered sections may return wrong
                numbers: verify a file from a network once.

        Raises: StoreError for a file that is not an intact store of this version and tokenizer.
        """
        container = Container(path, verify=verify)
        store = cls(container)
        if fingerprint is not None and fingerprint != store.fingerprint:
            name = store.manifest["tokenizer"].get("name", "another model")
            raise StoreError(
                f"{store.path} was built for the tokenizer of {name} and its ids stand for other tokens here. Build "
                "one with this model's tokenizer: `polydraft ngram build SOURCE -o FILE --tokenizer MODEL`, and choose "
                "it with --base-store FILE or in My writing; or choose --base-store none."
            )
        return store

    def __len__(self) -> int:
        """The number of stored n-grams of all orders, including single tokens."""
        return self.manifest["entries"]

    def __repr__(self) -> str:
        return f"NgramStore({str(self.path)!r}, orders {self.orders[0]}-{self.orders[-1]}, {len(self)} n-grams)"

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each kind of section, all segments together."""
        sizes: Counter[str] = Counter()
        for name, size in self._container.sizes.items():
            sizes[name.partition(".")[0]] += size
        return dict(sizes)

    def count(self, ids: Sequence[int]) -> int:
        """The number of occurrences of this n-gram; 0 if it is not stored."""
        return self._found(ids)[0]

    def total(self, ids: Sequence[int]) -> int:
        """Sum of the counts of the stored continuations of this context; 0 if it has none."""
        return self._found(ids)[1]

    def evidence(self, contexts: Contexts, candidates: CandidateIds, orders: Sequence[int] | None = None) -> Evidence:
        """The counts for each candidate, for all contexts in one call.

        Args:
            contexts: d lists of token ids, each a text so far; the last n-1 ids of each are used.
            candidates: (m,) ids, the same for all contexts, or (d, m).
            orders: any subset of the store's orders; None is all of them.

        Raises: InputError for an order that the store lacks, or shapes that do not fit.
        """
        self._container.check_unchanged()
        wanted, ids = asked_of(self.orders, contexts, candidates, orders)
        d, m, key_of = len(contexts), ids.shape[-1], self._keys.get
        counts, totals, seen = np.zeros((d, len(wanted), m)), np.zeros((d, len(wanted))), np.zeros((d, len(wanted)))
        tokens: list[int] = ids.tolist() if ids.ndim == 1 else []
        keys = [key_of(i) for i in tokens]
        # Drafts usually share their last tokens, so contexts are cached within a call.
        met: dict[bytes, tuple[int, int, list[int]]] = {}
        for row, context in enumerate(contexts):
            if ids.ndim == 2:
                tokens = ids[row].tolist()
                keys, met = [key_of(i) for i in tokens], {}
            below: list[int] | None = None  # this row's counts of the order below
            for column, (suffix, ending) in enumerate(self._suffixes(context, wanted)):
                if (known := met.get(suffix)) is None:
                    known = met[suffix] = self._continuations(suffix, ending, keys, tokens, below)
                seen[row, column], totals[row, column], known_counts = known
                if known_counts:
                    counts[row, column] = known_counts
                elif self._closed:
                    break  # an n-gram whose suffix has no count has none either
                below = known_counts
        return Evidence(wanted, counts, totals, seen)

    def probabilities(
        self,
        context_ids: Sequence[int],
        candidate_ids: Sequence[int],
        weights: Mapping[int, float] | None = None,
    ) -> np.ndarray:
        """Eq. 5 for one context: Σ_n λ_n · count(context_n, candidate) / total(context_n), (m,) float64.

        An order whose context or n-gram is unknown adds nothing: no back-off, no renormalisation of the
        weights.

        Args:
            context_ids: the text so far; its last n-1 ids are order n's context.
            candidate_ids: m ids.
            weights: λ per order n; None is the paper's, for the orders of this store.
        """
        return self.probabilities_batch([context_ids], candidate_ids, weights)[0]

    def probabilities_batch(
        self, contexts: Contexts, candidates: CandidateIds, weights: Mapping[int, float] | None = None
    ) -> np.ndarray:
        """Eq. 5 for d contexts in one call, (d, m) float64; see `evidence` and `probabilities`."""
        lam = {n: w for n, w in PAPER_WEIGHTS.items() if n in self.orders} if weights is None else weights
        fractions = self.evidence(contexts, candidates, list(lam)).fractions()  # (d, N, m)
        return np.tensordot(fractions, np.array([lam[n] for n in sorted(lam)]), axes=(1, 0))

    def ngrams(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """All n-grams with count and total, segment by segment; contexts that were pruned have count 0."""
        self._container.check_unchanged()
        for segment in self._segments:
            for key, i in segment.trie.iteritems():
                count, total = segment.records[i]
                yield tuple(self._tokens(key)), count, total
            self._container.release_pages()

    def continuations(self, context: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        """The `limit` most frequent tokens that followed this context: (id, count). Slow for frequent
        contexts: it iterates over every stored n-gram that starts with this one."""
        self._container.check_unchanged()
        prefix = self._key(context)
        if prefix is None:
            return []
        below = ((segment, segment.trie.iteritems(prefix)) for segment in self._segments.spread(context).segments)
        return self._most_frequent(prefix, below, limit)

    def quick_continuations(self, context: Sequence[int], limit: int) -> list[tuple[int, int]]:
        """`continuations`, or [] if more than QUICK stored n-grams start with this context."""
        prefix = self._key(context)
        if prefix is None or not self._found(context)[1]:
            return []
        if (known := self._followers.get((prefix, limit))) is None:
            if len(self._followers) >= REMEMBERED_LISTS:
                self._followers.clear()
            self._container.check_unchanged()
            below, left = list[tuple[Segment, list[tuple[bytes, int]]]](), QUICK
            for segment in self._segments.spread(context).segments:
                below.append((segment, [*islice(segment.trie.iteritems(prefix), left + 1)]))
                left -= len(below[-1][1])
                if left < 0:
                    break
            known = self._most_frequent(prefix, below, limit) if left >= 0 else []
            self._followers[prefix, limit] = known
        return [*known]

    def forget_looked_up(self) -> None:
        """Forget the results of earlier look-ups, which answer the same ones again."""
        self._known.clear()
        self._followers.clear()

    def verify(self) -> None:
        """Compares every part of the file with its checksum. Raises StoreError."""
        self._container.verify()

    def _tokens(self, key: bytes) -> Iterator[int]:
        """The ids of a key. Raises StoreError if the key is invalid."""
        at, ids, lengths = 0, self._ids, self._code.lengths
        while at < len(key):
            end = at + lengths[key[at]]
            if (token := ids.get(key[at:end])) is None:
                raise StoreError(f"{self.path} is damaged: the key {key.hex()} is not an n-gram.")
            yield token
            at = end

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The token id of each code in a key."""
        return {code: token for token, code in self._keys.items()}

    def _most_frequent(
        self, prefix: bytes, below: Iterable[tuple[Segment, Iterable[tuple[bytes, int]]]], limit: int | None
    ) -> list[tuple[int, int]]:
        """The `limit` most frequent continuations of a context, given the n-grams that start with it, by segment."""
        at, length = len(prefix), self._code.lengths
        tokens: list[tuple[int, int]] = []
        try:
            for segment, found in below:
                direct = [(key, i) for key, i in found if at < len(key) == at + length[key[at]]]
                counts = segment.records.counts([i for _, i in direct])
                tokens += [
                    (-count, self._ids[key[at:]]) for (key, _), count in zip(direct, counts, strict=True) if count
                ]
        except KeyError as error:
            raise StoreError(f"{self.path} is damaged: the key {error.args[0].hex()} is not an n-gram.") from None
        return [(token, -count) for count, token in sorted(tokens)[:limit]]

    def _key(self, ids: Sequence[int]) -> bytes | None:
        keys = self._keys
        try:
            return b"".join([keys[i] for i in ids])
        except KeyError:
            return None

    def _suffixes(self, context: Sequence[int], orders: Sequence[int]) -> Iterator[tuple[bytes, Sequence[int]]]:
        """For each order the last n-1 tokens and their key, up to the first token that the store does not contain."""
        suffix, length = b"", 0
        for n in orders:
            if len(context) < n - 1:
                return
            while length < n - 1:
                length += 1
                if (key := self._keys.get(context[-length])) is None:
                    return
                suffix = key + suffix
            yield suffix, context[len(context) - length :]

    def _continuations(
        self,
        suffix: bytes,
        ending: Sequence[int],
        keys: Sequence[bytes | None],
        candidates: Sequence[int],
        below: list[int] | None,
    ) -> tuple[int, int, list[int]]:
        """(seen, total, [count of each candidate after these tokens]); the list is empty if there are no
        continuations."""
        segments, edges = self._segments.spread(ending)
        seen, total = self._record(suffix, segments[0])
        if not total:
            return seen, 0, []
        if below and self._closed:  # a count is at most that of the same n-gram without its first token
            keys = [key if had else None for key, had in zip(keys, below, strict=True)]
        known, record = self._known, self._record
        grams = [None if key is None else suffix + key for key in keys]
        if edges:
            homes = [segments[bisect_right(edges, 2 * i)] for i in candidates]
            counts = [
                (known.get(gram) or record(gram, home))[0] if gram else 0
                for gram, home in zip(grams, homes, strict=True)
            ]
        else:
            home = segments[0]
            counts = [(known.get(gram) or record(gram, home))[0] if gram else 0 for gram in grams]
        return seen, total, counts

    def _found(self, ids: Sequence[int]) -> tuple[int, int]:
        """The record of an n-gram, which is read if it is not known yet."""
        if (key := self._key(ids)) is None:
            return _NOTHING
        if key not in self._known:
            self._container.check_unchanged()
        return self._record(key, self._segments.of(ids))

    def _record(self, key: bytes, segment: Segment) -> tuple[int, int]:
        """The n-gram's count and total; (0, 0) if its segment does not have it."""
        if (known := self._known.get(key)) is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            i = segment.trie.get(key)
            known = self._known[key] = _NOTHING if i is None else segment.records[i]
        return known

    def _mapped_segments(self) -> Segments:
        """Maps all segments. Raises StoreError."""
        container, total = self._container, self.manifest["entries"]
        listed = [(f".{i}", about) for i, about in enumerate(self.manifest.get("segments", []))]
        if container.version == 1:
            listed = [("", {"first": (), "entries": total, "records": self.manifest["records"]})]
        if sum(about["entries"] for _, about in listed) != total:
            raise StoreError(f"{self.path} is damaged: its segments do not hold {total} n-grams.")
        segments: list[Segment] = []
        for ending, about in listed:
            segments.append(Segment(container, about, ending, longest=3 * self.orders[-1]))
            if len(listed) > 1:  # a large store does not stay in memory because its checksums were compared
                container.release_pages()
        try:
            return Segments(segments)
        except ValueError as error:
            raise StoreError(f"{self.path} is damaged: {error}.") from error
