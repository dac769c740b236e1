"""A store of keys and values as the cache that transformers' layers accept. Imports transformers, which takes long."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

from core.models.store import KeyValueStore


class StoreCache(Cache):
    """A store's interface for a module in one pass: columns `begin` to `end` as the past, n more to fill."""

    def __init__(self, store: KeyValueStore, first: int, lines: int, begin: int, end: int, n: int) -> None:
        super().__init__(layers=[])
        self._store, self._first, self._lines = store, first, lines
        self._begin, self._end, self._n = begin, end, n

    @cached_property
    def _all(self) -> list[Tensor]:
        return self._store.window(self._first, self._lines, self._begin, self._end + self._n)

    @cached_property
    def _new(self) -> list[Tensor]:
        return self._store.window(self._first, self._lines, self._end, self._end + self._n)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Appends keys and values (B, heads, n, width); returns all of them, with the past."""
        keys, values = 2 * layer_idx, 2 * layer_idx + 1
        self._new[keys].copy_(key_states)
        self._new[values].copy_(value_states)
        return self._all[keys], self._all[values]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._end - self._begin

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        # Layers with a sliding window also keep everything, so that they can be rewound; their mask hides the rest.
        return self._end - self._begin + query_length, 0
