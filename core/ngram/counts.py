"""Counts of all n-grams of a small text, in memory: what a personal store looks things up in.

A trie laid out in one sorted array: node i stands for an n-gram, its key is (node of the n-gram without its last
token) · V + last token, and nodes are numbered in order of their keys, shorter n-grams first. So keys ascend, a
node's children are neighbours, and all look-ups of one depth are one binary search over many keys at once. Some 25
bytes an n-gram. What was added since the array was made stands beside it in dictionaries, and counts at once.

Knows token ids; knows neither text nor files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from core.errors import InputError
from core.ngram.store import Candidates, Contexts, Evidence

NOWHERE = -1
NO_KEY = -2


class Counts:
    """n-gram counts, orders 1 to `order`.

    Attributes:
        orders: those that give probabilities: 2 … order.
        fresh: tokens added since the array was made; looking things up gets slower with them.
        version: changes whenever the counts do.
    """

    def __init__(
        self, vocab_size: int, order: int, passages: Iterable[tuple[Sequence[int] | np.ndarray, int]] = ()
    ) -> None:
        """
        Args:
            vocab_size: V; ids of V and above are no tokens.
            order: of the longest n-grams, 2 or more.
            passages: token ids, and how many times each counts; an n-gram does not cross from one to the next.
        """
        self.orders = tuple(range(2, order + 1))
        self._v, self._order = vocab_size, order
        self.version = 0
        self.rebuild(passages)

    def rebuild(self, passages: Iterable[tuple[Sequence[int] | np.ndarray, int]]) -> None:
        """Count anew, forgetting everything else."""
        self.version += 1
        self.fresh = 0
        self._added: dict[tuple[int, ...], dict[int, int]] = {}  # context -> continuation -> count
        parts: list[np.ndarray] = []
        weights: list[np.ndarray] = []
        for passage, times in passages:
            parts += [np.asarray(passage, dtype=np.int64), np.array([NOWHERE])]
            weights.append(np.full(len(passage) + 1, times))
        ids = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        times_at = np.concatenate(weights) if weights else np.zeros(0, dtype=np.int64)
        if len(ids) and ids.max() >= self._v:
            raise InputError(f"Token {ids.max()} given; ids below {self._v} expected.")
        at = np.flatnonzero(ids != NOWHERE)  # where the n-grams of this length begin
        keys, counts = [np.zeros(1, dtype=np.int64)], [times_at[at].sum(keepdims=True)]  # the root
        node = np.zeros(len(at), dtype=np.int64)
        first = 1  # number of the first node of this length
        for n in range(1, self._order + 1):
            last = at + n - 1
            inside = last < len(ids)
            at, node, last = at[inside], node[inside], last[inside]
            inside = ids[last] != NOWHERE
            at, node = at[inside], node[inside]
            found, where = np.unique(node * self._v + ids[last[inside]], return_inverse=True)
            keys.append(found)
            counts.append(np.bincount(where, times_at[at], minlength=len(found)).astype(np.int64))
            node = first + where
            first += len(found)
        self._keys = np.concatenate(keys)
        self._keys[0] = -1  # smaller than any child's, and nobody's
        self._counts = np.concatenate(counts)
        parents = self._keys[1:] // self._v
        # Children of node i are nodes starts[i] … starts[i + 1] - 1.
        self._starts = 1 + np.searchsorted(parents, np.arange(len(self._keys) + 1))
        self._totals = np.zeros(len(self._keys), dtype=np.int64)
        np.add.at(self._totals, parents, self._counts[1:])
        # The first step of every look-up, without a search.
        self._tokens = np.full(self._v, NOWHERE, dtype=np.int64)
        ones = np.arange(self._starts[0], self._starts[1])
        self._tokens[self._keys[ones]] = ones
        self._known: dict[tuple[int, ...], int] = {}

    def add(self, passage: Sequence[int], times: int = 1) -> None:
        """Count one more passage, at once."""
        ids = [int(i) for i in passage]
        if ids and not 0 <= min(ids) <= max(ids) < self._v:
            raise InputError(f"Tokens from {min(ids)} to {max(ids)} given; ids from 0 to {self._v - 1} expected.")
        self.version += 1
        self.fresh += len(ids)
        self._known.clear()
        for n in range(self._order):  # tokens of context
            for i in range(len(ids) - n):
                following = self._added.setdefault(tuple(ids[i : i + n]), {})
                following[ids[i + n]] = following.get(ids[i + n], 0) + times

    def __len__(self) -> int:
        """n-grams in the array, of all orders; what was added since is not counted."""
        return len(self._keys) - 1

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._counts.nbytes + self._starts.nbytes + self._totals.nbytes + self._tokens.nbytes

    def count(self, ids: Sequence[int]) -> int:
        """How often this n-gram was seen; the empty one as often as there are tokens."""
        gram = tuple(ids)
        known = self._known.get(gram)
        if known is None:
            if len(self._known) > 1 << 16:
                self._known.clear()
            known = self._known[gram] = self._count(gram)
        return known

    def total(self, ids: Sequence[int]) -> int:
        """How often anything followed this context."""
        context = tuple(ids)
        node = self._node(context)
        return (int(self._totals[node]) if node >= 0 else 0) + sum(self._added.get(context, {}).values())

    def continuations(self, context: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        """What followed this context: (id, count), most frequent first, then by id."""
        node, following = self._node(tuple(context)), dict(self._added.get(tuple(context), {}))
        if node >= 0:
            low, high = self._starts[node], self._starts[node + 1]
            tokens, counts = self._keys[low:high] - node * self._v, self._counts[low:high]
            if limit is not None and not following and high - low > 4 * limit:
                best = np.argpartition(-counts, limit)[:limit]
                # Ties at the edge: whichever; all of them follow equally often.
                tokens, counts = tokens[best], counts[best]
            for token, count in zip(tokens.tolist(), counts.tolist(), strict=True):
                following[token] = following.get(token, 0) + count
        return sorted(following.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def ngrams(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """All n-grams with count and total, in no particular order; the empty one, with count 0, as a context."""
        grams: list[tuple[int, ...]] = [()]
        tokens, parents = self._keys % self._v, self._keys // self._v
        for i in range(1, len(self._keys)):
            grams.append((*grams[int(parents[i])], int(tokens[i])))
        new = {(*context, token) for context, following in self._added.items() for token in following}
        for gram in {*grams, *new}:
            yield gram, self._count(gram) if gram else 0, self.total(gram)

    def evidence(self, contexts: Contexts, candidates: Candidates, orders: Sequence[int] | None = None) -> Evidence:
        """Counts behind each candidate; see `NgramStore.evidence`."""
        wanted = self.orders if orders is None else tuple(sorted(orders))
        for n in wanted:
            if n not in self.orders:
                raise InputError(f"Order {n} asked for; this store holds 2 to {self._order}.")
        ids = np.asarray(candidates, dtype=np.int64)
        if ids.ndim not in (1, 2) or (ids.ndim == 2 and len(ids) != len(contexts)):
            raise InputError(f"Candidates of shape {ids.shape} given for {len(contexts)} contexts.")
        d, m, reach = len(contexts), ids.shape[-1], wanted[-1] - 1 if wanted else 0
        tails = np.full((d, reach), NOWHERE, dtype=np.int64)  # the last tokens of each context
        for row, context in enumerate(contexts):
            tail = context[max(len(context) - reach, 0) :]
            tails[row, reach - len(tail) :] = tail
        tails[tails >= self._v] = NOWHERE
        nodes = self._nodes(tails, wanted)  # (d, N)
        seen, totals = self._counts[nodes].astype(float), self._totals[nodes].astype(float)
        types = (self._starts[nodes + 1] - self._starts[nodes]).astype(float)
        seen[nodes == NOWHERE] = totals[nodes == NOWHERE] = types[nodes == NOWHERE] = 0
        counts = np.zeros((d, len(wanted), m))
        rows, columns = np.nonzero(totals)
        if len(rows):
            asked = nodes[rows, columns, None] * self._v + (ids[rows] if ids.ndim == 2 else ids)
            asked[asked // self._v != nodes[rows, columns, None]] = NO_KEY  # an id out of range
            at = self._find(asked)
            counts[rows, columns] = np.where(at >= 0, self._counts[at], 0)
        if self._added:
            self._add_fresh(contexts, ids, nodes, Evidence(wanted, counts, totals, seen, types))
        return Evidence(wanted, counts, totals, seen, types)

    def _add_fresh(self, contexts: Contexts, ids: np.ndarray, nodes: np.ndarray, known: Evidence) -> None:
        """Add to `known` what was counted since the array was made."""
        assert known.types is not None
        for row, context in enumerate(contexts):
            candidates = (ids[row] if ids.ndim == 2 else ids).tolist()
            for column, n in enumerate(known.orders):
                if len(context) < n - 1:
                    break
                gram = tuple(context[len(context) - n + 1 :])
                times = self._added.get(gram[:-1], {}).get(gram[-1], 0)
                if not times:
                    break  # what is not new after fewer tokens is not after more
                known.seen[row, column] += times
                following = self._added.get(gram)
                if following:
                    known.totals[row, column] += sum(following.values())
                    known.counts[row, column] += [following.get(i, 0) for i in candidates]
                    node = nodes[row, column]
                    before = self._find(node * self._v + np.array(list(following))) if node >= 0 else np.array([])
                    known.types[row, column] += len(following) - int((before >= 0).sum())

    def _nodes(self, tails: np.ndarray, orders: Sequence[int]) -> np.ndarray:
        """The nodes (d, N) of the last n-1 tokens for each order n; NOWHERE where there is none."""
        reach = tails.shape[1]
        lengths = np.array(orders, dtype=np.int64) - 1
        begins = np.clip(reach - lengths, 0, reach)  # in `tails`
        nodes = np.zeros((len(tails), len(lengths)), dtype=np.int64)
        for step in range(reach):
            active = np.flatnonzero(lengths > step)
            tokens, before = tails[:, begins[active] + step], nodes[:, active]
            if step == 0:
                nodes[:, active] = np.where(tokens >= 0, self._tokens[tokens], NOWHERE)
            else:
                nodes[:, active] = self._find(
                    np.where((before >= 0) & (tokens >= 0), before * self._v + tokens, NO_KEY)
                )
        return nodes

    def _find(self, keys: np.ndarray) -> np.ndarray:
        """The nodes of these keys; NOWHERE for keys of none."""
        at = np.searchsorted(self._keys, keys)
        at[at == len(self._keys)] = 0
        at[self._keys[at] != keys] = NOWHERE
        return at

    def _node(self, gram: tuple[int, ...]) -> int:
        node = 0
        for token in gram:
            if not 0 <= token < self._v:
                return NOWHERE
            low, high = self._starts[node], self._starts[node + 1]
            key = node * self._v + token
            node = int(low + np.searchsorted(self._keys[low:high], key))
            if node >= high or self._keys[node] != key:
                return NOWHERE
        return node

    def _count(self, gram: tuple[int, ...]) -> int:
        node = self._node(gram)
        fresh = self._added.get(gram[:-1], {}).get(gram[-1], 0) if gram else self.fresh
        return (int(self._counts[node]) if node >= 0 else 0) + fresh
