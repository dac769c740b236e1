"""A model's input embeddings in the form in which its weights are stored: rows are decoded when they are read.

In float32 the whole table takes four to eight times its place in a file, which may be half of the model. Drafts read a
few rows of each pass. Shapes: V vocabulary, D width, n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from core.models.coded import Coded, Weight
from core.models.gguf_file import GGUFTensor

Ids = Tensor | Iterable[int]
MOST = 65504 * 127 * 127  # of a coded weight: a finite factor in half precision, times two codes
_CHUNK = 4096  # rows that are decoded at once


class Embeddings:
    """The table (V, D). All results are float32 on the CPU.

    Attributes:
        shape: (V, D).
        finite: whether all numbers are.
    """

    def __init__(
        self, shape: tuple[int, int], read: Callable[[Tensor], Tensor], factor: float = 1.0, largest: float = 0.0
    ) -> None:
        """
        Args:
            read: row numbers (n,) -> rows (n, D) float32, a copy. Raises IndexError for others.
            factor: by which some families multiply them.
            largest: a bound of the size of the stored numbers.
        """
        self.shape, self._read, self._factor = shape, read, factor
        self.finite = largest * abs(factor) <= torch.finfo(torch.float32).max
        self._whole: Tensor | None = None

    @staticmethod
    def of_tensor(table: Tensor) -> Embeddings:
        """Of a table that is there in float32."""
        embeddings = Embeddings((table.shape[0], table.shape[1]), lambda ids: table[ids], largest=_size(table))
        embeddings._whole = table
        return embeddings

    @staticmethod
    def of_gguf(tensor: GGUFTensor) -> Embeddings:
        """Of a tensor of a GGUF file, whose bytes are kept. Raises ModelFileError for a type that is not read."""
        data = tensor.data()  # (V, bytes)
        tensor.unpacked(data[:1])
        shape = tensor.shape[0], tensor.shape[-1]
        return Embeddings(shape, lambda ids: torch.from_numpy(tensor.unpacked(data[ids.numpy()])))

    def rows(self, ids: Ids) -> Tensor:
        """Rows (n, D), a copy; the others are not decoded."""
        chosen = ids if isinstance(ids, Tensor) else torch.tensor(list(ids), dtype=torch.int64)
        if self._whole is not None:
            return self._whole[chosen]
        if not len(chosen):
            return torch.empty(0, self.shape[1])
        rows = self._read(chosen)
        return rows if self._factor == 1 else rows.mul_(self._factor)

    def whole(self) -> Tensor:
        """(V, D), decoded by the first call."""
        if self._whole is None:
            table = torch.empty(self.shape)
            for ids in torch.arange(len(table)).split(_CHUNK):
                table[ids[0] : ids[-1] + 1] = self.rows(ids)
            self._whole = table
        return self._whole


def largest(weight: Weight) -> float:
    """A bound of the size of a file's weights, whose numbers are finite."""
    return float(MOST) if isinstance(weight, Coded) else _size(weight.float())


def _size(table: Tensor) -> float:
    """The largest absolute value; NaN if any number is."""
    numbers = table.numpy(force=True)
    return float(np.maximum(numbers.max(), -numbers.min())) if numbers.size else 0.0
