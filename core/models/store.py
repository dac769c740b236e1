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

import torch
from torch import Tensor


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

    def take(self, line: int, end: int, source: KeyValueStore | None, at: int, columns: range) -> None:
        """Copies a sequence, the `columns` of line `at` of `source`, so that it ends in column `end`. The free columns
        before it become zeros."""
        start = end - len(columns)
        for shape, block in self.blocks.items():
            block[:, line, :, :start].zero_()  # masked, but 0 · NaN would still be NaN
            if source is not None:
                block[:, line, :, start:end] = source.blocks[shape][:, at, :, columns.start : columns.stop]

    def gather(self, line: int, end: int, path: list[int]) -> None:
        """Moves columns `end` + p of a line, for each p of `path`, together, starting at `end`."""
        for block in self.blocks.values():
            positions = torch.tensor(path, device=block.device)
            block[:, line, :, end : end + len(path)] = block[:, line, :, end:].index_select(2, positions)

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
