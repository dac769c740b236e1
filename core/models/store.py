"""Keys and values of the plain torch backend, for sequences that fork, rewind and advance in changing groups.

Keys and values are in *stores*. A store has one line per sequence and a column per position; sequences that advance
together are in neighbouring lines of one store and end in the same column:

          column   0 1 2 3 4 5 6 7 8 9
          line 0   a a a a a a a . . .      a, b, c: the inputs of each sequence, right-aligned
          line 1   0 0 0 b b b b . . .      0: zeros in front of a shorter one, masked
          line 2   a a a a a c c . . .      .: room to grow

So a step of all of them appends one column in place and gives the model a view, without a copy. Three rules:

* A fork shares its parent's line until either of them advances; a sequence that advances on a shared line first moves
  to a separate line.
* Sequences that are not neighbours, or have no room left, are copied once into a new store.
* Rewinding only moves a sequence's end. Columns after the end are never read, and are overwritten later.

A tree of tokens is written after the end, with a mask that limits each token to its own path; keeping a path moves
its columns together and the end behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers.cache_utils import Cache


class Tenant(Protocol):
    """A sequence and its place: columns `start` to `end` of line `line` in `store`, which is None before it has any."""

    store: KeyValueStore | None
    line: int
    start: int

    @property
    def end(self) -> int: ...

    @property
    def length(self) -> int: ...


class KeyValueStore:
    """Keys and values of a few sequences. See the beginning of this file.

    A plane is the keys, or the values, of one layer: plane 2·i has the keys of layer i, plane 2·i + 1 its
    values. Planes of one shape (in most models, all of them) share one tensor, so that copying a sequence
    is one operation.

    Attributes:
        planes: (heads, width) of each plane.
        blocks: by shape (heads, width), the planes of that shape: (planes, lines, heads, columns, width).
        capacity: columns.
        tenants: the number of sequences on each line.
    """

    def __init__(
        self,
        planes: list[tuple[int, int]],
        lines: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.planes = planes
        self.capacity = capacity
        self.tenants = [0] * lines
        self.blocks = {
            (heads, width): torch.empty(
                planes.count((heads, width)), lines, heads, capacity, width, dtype=dtype, device=device
            )
            for heads, width in dict.fromkeys(planes)
        }

    def take(self, line: int, end: int, sequence: Tenant) -> None:
        """Copies a sequence so that it ends in column `end`; free columns before it become zeros."""
        start = end - sequence.length
        for shape, block in self.blocks.items():
            block[:, line, :, :start].zero_()  # masked, but 0 · NaN would still be NaN
            if sequence.store is not None:
                held = sequence.store.blocks[shape][:, sequence.line, :, sequence.start : sequence.end]
                block[:, line, :, start:end] = held

    def gather(self, line: int, end: int, path: list[int]) -> None:
        """Moves columns `end` + p of a line, for each p of `path`, together, starting at `end`."""
        for block in self.blocks.values():
            places = torch.tensor(path, device=block.device)
            block[:, line, :, end : end + len(path)] = block[:, line, :, end:].index_select(2, places)

    def window(self, first: int, lines: int, begin: int, end: int) -> list[Tensor]:
        """A view (lines, heads, end - begin, width) of each plane."""
        views = {
            shape: iter(block[:, first : first + lines, :, begin:end].unbind(0)) for shape, block in self.blocks.items()
        }
        return [next(views[shape]) for shape in self.planes]

    def of_line(self, line: int, begin: int, end: int) -> Tensor:
        """A view (planes, heads, end - begin, width) of one line, if all planes are of one shape."""
        (block,) = self.blocks.values()
        return block[:, line, :, begin:end]


@cache
def transformers_appender() -> Callable[[KeyValueStore, int, int, int, int, int], Cache]:
    """The class for transformers' layers, which accept only their `Cache`. Imports transformers."""
    from transformers.cache_utils import Cache

    class Appender(Cache):
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

    return Appender
