"""Continuations in n-gram stores, for drafters that make no model pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from core.ngram.interpolation import Store

# Tokens of a context that is looked up in a store, the longest first; one token is too few.
CONTEXTS = (5, 4, 3, 2)
REMEMBERED = 20_000  # contexts whose continuations are cached


class StoreFollowers:
    """The most frequent tokens after the end of a text, in the first store that contains it."""

    def __init__(self, stores: Sequence[Store], limit: int) -> None:
        """
        Args:
            stores: may be empty.
            limit: the highest number of tokens after a context.
        """
        self._stores, self._limit = list(stores), limit
        self._known = lru_cache(REMEMBERED)(self._look_up)

    def after(self, ids: Sequence[int]) -> list[tuple[int, float]]:
        """Returns (id, share of the context's count), the most frequent first, for the longest context in a store."""
        for n in CONTEXTS:
            if n <= len(ids) and self._stores and (followers := self._known(tuple(ids[-n:]))):
                return followers
        return []

    def _look_up(self, context: tuple[int, ...]) -> list[tuple[int, float]]:
        for store in self._stores:
            if counted := store.continuations(context, self._limit):
                total = max(sum(count for _, count in counted), 1)
                return [(token, count / (total + 1)) for token, count in counted]
        return []
