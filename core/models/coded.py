"""Weights in the few-bit formats of GGUF files: reads them from a file, and arranges them for `native.cpp`.

Decoded values are exactly those of a float32 reader of the file; nothing is rounded again. Shapes: a
matrix (out, in) has its inputs in blocks of 32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from core.models.gguf_file import GGUFTensor

BLOCK = 32  # inputs that share a scale
# Types of GGUF: bits, and whether there are offsets.
TYPES = {
    GGMLQuantizationType.Q4_0: (4, False),
    GGMLQuantizationType.Q4_1: (4, True),
    GGMLQuantizationType.Q8_0: (8, False),
}


@dataclass(frozen=True)
class Coded:
    """A matrix (out, in): integers with a scale, and an offset, for every 32 inputs of an output.

    Attributes:
        bits: 4 or 8; with 4 there are offsets, else none.
        scales, offsets: (out, in / 32) float16.
        codes: of 8 bits: (out, in / 32, 32) int8. Of 4 bits: (out, in / 32, 16) uint8, each byte with those of two
            inputs side by side, the first one's in its lower half. A weight is scale · code + offset.
    """

    bits: int
    scales: Tensor
    offsets: Tensor | None
    codes: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1] * BLOCK

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, chosen: Tensor) -> Coded:
        offsets = None if self.offsets is None else self.offsets.index_select(0, chosen)
        return Coded(self.bits, self.scales.index_select(0, chosen), offsets, self.codes.index_select(0, chosen))

    def decoded(self) -> Tensor:
        """(out, in) float32."""
        codes = self.codes if self.bits == 8 else torch.stack([self.codes & 15, self.codes >> 4], -1).flatten(2)
        weights = codes.float().mul_(self.scales.float()[..., None])
        return (weights if self.offsets is None else weights.add_(self.offsets.float()[..., None])).flatten(1)

    def panels(self, panel: int) -> Tensor:
        """(panels, bytes), as `native.cpp` reads them."""

        def of(x: Tensor) -> Tensor:
            """(out, blocks, …) -> (panels, blocks, bytes), the outputs of a panel side by side."""
            return in_panels(x, panel).movedim(1, -1).contiguous().view(torch.uint8).flatten(2)

        words = self.codes.view(torch.int32)  # (out, blocks, words of four bytes)
        return torch.cat([of(x) for x in (self.scales, self.offsets, words) if x is not None], -1).flatten(1)

    @staticmethod
    def of(tensor: GGUFTensor) -> Coded | None:
        """A tensor of a GGUF file; None for a tensor of another type."""
        if tensor.kind not in TYPES or len(tensor.shape) != 2:
            return None
        bits, both = TYPES[tensor.kind]
        # (out, blocks, bytes): scale, offset, codes; with 4 bits those of inputs i and i + 16 share a byte.
        data = tensor.data()
        block = data.reshape(len(data), -1, (4 if both else 2) + bits * BLOCK // 8)

        def part(start: int, end: int | None, kind: type[np.generic]) -> np.ndarray:
            return np.ascontiguousarray(block[..., start:end]).view(kind)

        scales = torch.from_numpy(part(0, 2, np.float16)[..., 0])
        if bits == 8:
            return Coded(8, scales, None, torch.from_numpy(part(2, None, np.int8)))
        offsets = torch.from_numpy(part(2, 4, np.float16)[..., 0]) if both else -8 * scales
        pairs = part(4 if both else 2, None, np.uint16)  # (out, blocks, 8): four inputs, two of either half
        codes = np.empty((*pairs.shape[:2], BLOCK // 2), np.uint8)
        codes[..., :8] = pairs & 0x000F | pairs >> 4 & 0x00F0
        codes[..., 8:] = pairs >> 4 & 0x000F | pairs >> 8 & 0x00F0
        return Coded(4, scales, offsets, torch.from_numpy(codes))


Weight = Tensor | Coded


def joined(parts: Iterable[Weight]) -> Weight:
    """Maps of the same inputs, one below the other: coded if all of them are, in the same way."""
    parts = list(parts)
    coded = [part for part in parts if isinstance(part, Coded)]
    if len(coded) < len(parts) or len({part.bits for part in coded}) > 1:
        return torch.cat([part.decoded() if isinstance(part, Coded) else part for part in parts])
    offsets = [part.offsets for part in coded if part.offsets is not None]
    return Coded(
        coded[0].bits,
        torch.cat([part.scales for part in coded]),
        torch.cat(offsets) if offsets else None,
        torch.cat([part.codes for part in coded]),
    )


def filled(x: Tensor, panel: int) -> Tensor:
    """(out, …) with zeros to a multiple of `panel`."""
    if len(x) % panel == 0:
        return x
    return F.pad(x, (0, 0) * (x.ndim - 1) + (0, -len(x) % panel))


def in_panels(x: Tensor, panel: int) -> Tensor:
    """(out, …) -> (panels, panel, …)"""
    return filled(x, panel).unflatten(0, (-1, panel))
