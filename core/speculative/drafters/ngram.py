"""Proposals without a model pass: continuations of the same tokens earlier in the text (prompt look-up), and the
continuations in n-gram stores.

The text itself comes first: the longest tail of at most LONGEST tokens that occurred before, with the continuation of
each of its last few occurrences. After the end of such a continuation, a store's most frequent tokens follow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.ngram.interpolation import Store
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.stores import CONTEXTS, StoreFollowers
from core.speculative.tree import TokenTree

LONGEST, SHORTEST = 6, 2  # tokens of a tail that is looked up in the text
PLACES = 3  # occurrences of a tail whose continuations are proposed, the latest first
BRANCHES = 2  # continuations in a store that are proposed at the first token


class NgramDrafter(Drafter):
    """Proposes continuations from the text and from n-gram stores."""

    name = "n-gram"

    def __init__(self, stores: Sequence[Store] = (), most: int = 16) -> None:
        """
        Args:
            stores: the first one that contains a context is used. Without stores: prompt look-up alone.
            most: the highest number of tokens in a tree.
        """
        self._followers = StoreFollowers(stores, BRANCHES + 1)
        self.most = most
        self._ids: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}  # n-gram of the text -> ends of its latest occurrences

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        ids = moment.ids
        self._read(ids)
        depth = min(depth, self.most)
        paths = [self._extended(ids, path, depth) for path in self._repeated(ids, depth)]
        for token, share in self._followers.after(ids)[:BRANCHES]:
            paths.append(self._extended(ids, [(token, share)], depth))
        tree = TokenTree.of_paths(paths)
        if len(tree) <= self.most:
            return tree
        order = np.argsort(-tree.products(), kind="stable")[: self.most]  # a child is never before its parent
        return tree.only(order.tolist())

    def _read(self, ids: list[int]) -> None:
        """Stores the n-grams of the tokens that were added to the text since the last call."""
        if self._ids != ids[: len(self._ids)]:
            self._ids, self._ends = [], {}
        for end in range(len(self._ids) + 1, len(ids) + 1):
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                ends = self._ends.setdefault(tuple(ids[end - n : end]), [])
                ends.append(end)
                del ends[: -PLACES - 1]
        self._ids = list(ids)

    def _repeated(self, ids: list[int], depth: int) -> list[list[tuple[int, float]]]:
        """Returns the continuations of earlier occurrences of the longest repeated tail, the latest first."""
        for n in range(min(LONGEST, len(ids)), SHORTEST - 1, -1):
            earlier = [end for end in self._ends.get(tuple(ids[-n:]), []) if end < len(ids)]
            if earlier:
                # A rough prior, n / (n + 1); the estimated acceptance rate corrects it.
                first, later = n / (n + 1), LONGEST / (LONGEST + 1)
                return [
                    [(token, later if i else first / (rank + 1)) for i, token in enumerate(ids[end : end + depth])]
                    for rank, end in enumerate(reversed(earlier[-PLACES:]))
                ]
        return []

    def _extended(self, ids: list[int], path: list[tuple[int, float]], depth: int) -> list[tuple[int, float]]:
        """Returns the path, continued by a store's most frequent tokens as long as there are any."""
        path, tail = list(path), [*ids[-max(CONTEXTS) :], *(token for token, _ in path)]
        while len(path) < depth and (followers := self._followers.after(tail)):
            path.append(followers[0])
            tail.append(followers[0][0])
        return path
