"""Weights as GGUF files have them, in a few bits each: read from a file, and put in order for `native.cpp`.

What they stand for is exactly what a reader of the file makes of them in float32; nothing is rounded anew. Shapes: a
matrix (out, in) has its inputs in blocks of 32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from core.models.gguf_file import GGUFTensor

BLOCK = 32  # inputs that share a scale
# Types of GGUF: bits, and whether there are offsets in the file.
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
        codes: (out, in / 32, 32), uint8 below 16, or int8. A weight is scale · code + offset.
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
        offsets = None if self.offsets is None else self.offsets[chosen]
        return Coded(self.bits, self.scales[chosen], offsets, self.codes[chosen])

    def decoded(self) -> Tensor:
        """(out, in) float32."""
        weights = self.scales.float()[..., None] * self.codes.float()
        return (weights if self.offsets is None else weights + self.offsets.float()[..., None]).flatten(1)

    def panels(self, panel: int) -> Tensor:
        """(panels, bytes), as `native.cpp` reads them."""

        def of(x: Tensor) -> Tensor:
            """(out, blocks, …) -> (panels, blocks, …, panel)"""
            return in_panels(x, panel).movedim(1, -1)

        head = [of(x).contiguous().view(torch.uint8) for x in (self.scales, self.offsets) if x is not None]
        codes = of(self.codes.view(torch.uint8))  # (panels, blocks, 32, panel)
        if self.bits == 4:
            codes = codes[:, :, 0::2] | codes[:, :, 1::2] << 4
        words = codes.unflatten(2, (-1, 4)).transpose(3, 4)  # of four bytes
        return torch.cat([*head, words.flatten(2)], -1).flatten(1)

    @staticmethod
    def of(tensor: GGUFTensor) -> Coded | None:
        """A tensor of a GGUF file; None for one that has another type."""
        if tensor.kind not in TYPES or len(tensor.shape) != 2:
            return None
        bits, both = TYPES[tensor.kind]
        # (out, blocks, bytes): scale, offset, codes; with 4 bits those of inputs i and i + 16 share a byte.
        block = torch.from_numpy(tensor.data()).unflatten(1, (-1, (4 if both else 2) + bits * BLOCK // 8))
        scales = block[..., :2].contiguous().view(torch.float16)[..., 0]
        if bits == 8:
            return Coded(8, scales, None, block[..., 2:].contiguous().view(torch.int8))
        offsets = block[..., 2:4].contiguous().view(torch.float16)[..., 0] if both else -8 * scales
        packed = block[..., 4 if both else 2 :]
        return Coded(4, scales, offsets, torch.cat([packed & 15, packed >> 4], -1))


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
    return F.pad(x, (0, 0) * (x.ndim - 1) + (0, -len(x) % panel))


def in_panels(x: Tensor, panel: int) -> Tensor:
    """(out, …) -> (panels, panel, …)"""
    return filled(x, panel).unflatten(0, (-1, panel))
