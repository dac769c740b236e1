"""Weights in the few-bit formats of GGUF files, kept as a file has them until compiled code needs them in its own order
(`native/files.h`). Decoded values are those of a float32 reader of the file; nothing is rounded again. Codes of 5 bits
take 6 in compiled code. Shapes: a matrix (out, in) has its inputs in blocks of 32 or 256.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor

from core.errors import ModelFileError
from core.models.gguf_file import GGUFTensor

BLOCK = 32  # inputs that share an offset
INFINITE = 0x7C00  # the exponent of infinity and NaN in half precision
LARGE = 0x7000  # the least exponent of numbers that are infinite when multiplied by 8
Type = GGMLQuantizationType


class Form(NamedTuple):
    """How compiled code has the weights.

    Attributes:
        bits: 4, 6 or 8, of a code.
        offsets: whether there are offsets.
        scaled: whether scales and offsets are bytes with a factor for every 256 inputs, and not half precision.
        group: inputs that share a scale.
    """

    bits: int
    offsets: bool
    scaled: bool = False
    group: int = BLOCK


class FileType(NamedTuple):
    """A type of GGUF.

    Attributes:
        form: in compiled code.
        halves: the places of numbers of half precision in a block, in bytes.
        exponent: a number in half precision must be below it.
    """

    form: Form
    halves: tuple[int, ...]
    exponent: int = INFINITE


TYPES = {
    Type.Q4_0: FileType(Form(4, True), (0,), LARGE),  # the offset is -8 times the scale
    Type.Q4_1: FileType(Form(4, True), (0, 2)),
    Type.Q5_0: FileType(Form(6, False), (0,)),
    Type.Q5_1: FileType(Form(6, True), (0, 2)),
    Type.Q8_0: FileType(Form(8, False), (0,)),
    Type.Q4_K: FileType(Form(4, True, scaled=True), (0, 2)),
    Type.Q5_K: FileType(Form(6, True, scaled=True), (0, 2)),
    Type.Q6_K: FileType(Form(6, False, scaled=True, group=16), (208,)),
}
# Plain numbers, which stay as they are.
PLAIN = {Type.F32: torch.float32, Type.F16: torch.float16, Type.BF16: torch.bfloat16}


@dataclass(frozen=True)
class Coded:
    """A matrix (out, in) of one of `TYPES`.

    Attributes:
        type: in the file.
        blocks: (rows, bytes) uint8, as in the file.
        order: (out,) int64, the row that has each output; None if they are in this order.
    """

    type: GGMLQuantizationType
    blocks: Tensor
    order: Tensor | None = None

    @property
    def form(self) -> Form:
        return TYPES[self.type].form

    @property
    def shape(self) -> tuple[int, int]:
        inputs, size = GGML_QUANT_SIZES[self.type]
        return len(self), self.blocks.shape[1] // size * inputs

    def __len__(self) -> int:
        return len(self.blocks if self.order is None else self.order)

    def __getitem__(self, chosen: Tensor) -> Coded:
        return replace(self, order=chosen if self.order is None else self.order[chosen])

    def split(self, sizes: list[int]) -> list[Coded]:
        """As many matrices, with these numbers of outputs."""
        if self.order is None:
            return [replace(self, blocks=part) for part in self.blocks.split(sizes)]
        return [replace(self, order=part) for part in self.order.split(sizes)]

    def float(self) -> Tensor:
        """(out, in) float32, decoded."""
        blocks = self.blocks if self.order is None else self.blocks[self.order]
        return torch.from_numpy(np.ascontiguousarray(dequantize(blocks.numpy(), self.type), np.float32))

    @staticmethod
    def of(tensor: GGUFTensor, memory: Tensor | None = None) -> Coded | None:
        """A tensor of a GGUF file, in `memory` if these bytes are given; None for a tensor of another type. Raises
        ModelFileError for a scale or an offset that is not finite: compiled code takes it for a large number."""
        if tensor.kind not in TYPES or len(tensor.shape) != 2:
            return None
        memory = memory_of(tensor.bytes) if memory is None else memory
        data, of = tensor.data(memory.numpy()), TYPES[tensor.kind]
        numbers = data.view(np.uint16).reshape(-1, GGML_QUANT_SIZES[tensor.kind][1] // 2)
        if any(bool((numbers[:, place // 2] & INFINITE >= of.exponent).any()) for place in of.halves):
            raise ModelFileError(f"{tensor.name} of the model has a scale that is not finite; download the file again.")
        return Coded(tensor.kind, memory.view(data.shape))


Weight = Tensor | Coded  # both have a length and a shape, `float`, `split`, and rows by their numbers


def memory_of(size: int) -> Tensor:
    """So many bytes. NumPy asks the kernel for large pages, PyTorch does not: filling them takes less time."""
    return torch.from_numpy(np.empty(size, np.uint8))


def weights_of(tensors: Sequence[GGUFTensor]) -> list[Weight]:
    """As `weight_of` has them, of coded ones one behind the other in memory, so that `joined` need not copy them."""
    memory = memory_of(sum(tensor.bytes for tensor in tensors))
    ends = accumulate(tensor.bytes for tensor in tensors)
    return [weight_of(tensor, memory[end - tensor.bytes : end]) for tensor, end in zip(tensors, ends, strict=True)]


def weight_of(tensor: GGUFTensor, memory: Tensor | None = None) -> Weight:
    """The tensor in its own format; a coded one is read into `memory`, if that is given. Raises ModelFileError for a
    type that none of the above is, and for numbers that are not finite."""
    coded = Coded.of(tensor, memory)
    if coded is not None:
        return coded
    if tensor.kind == Type.BF16:
        plain = torch.from_numpy(tensor.data().view(np.uint16)).view(torch.bfloat16)
    else:
        plain = torch.from_numpy(tensor.data() if tensor.kind in PLAIN else tensor.unpacked())
    if not bool(torch.isfinite(plain).all()):
        raise ModelFileError(f"{tensor.name} of the model has a number that is not finite; download the file again.")
    return plain


def joined(parts: Iterable[Weight]) -> list[Weight]:
    """Maps of the same inputs, one below the other. Neighbours become one if they have the same type."""
    groups: list[list[Weight]] = []
    for part in parts:
        if groups and _type_of(groups[-1][0]) == _type_of(part):
            groups[-1].append(part)
        else:
            groups.append([part])
    return [_one(alike) for alike in groups]


def _type_of(weight: Weight) -> GGMLQuantizationType | torch.dtype:
    return weight.type if isinstance(weight, Coded) else weight.dtype


def _one(alike: list[Weight]) -> Weight:
    """One map of maps of the same type."""
    if len(alike) == 1:
        return alike[0]
    coded = [part for part in alike if isinstance(part, Coded)]
    if not coded:
        return torch.cat([part for part in alike if isinstance(part, Tensor)])
    blocks = _neighbours([part.blocks for part in coded])
    if all(part.order is None for part in coded):
        return replace(coded[0], blocks=blocks)
    orders, first = list[Tensor](), 0
    for part in coded:
        orders.append(first + (torch.arange(len(part)) if part.order is None else part.order))
        first += len(part.blocks)
    return replace(coded[0], blocks=blocks, order=torch.cat(orders))


def _neighbours(parts: list[Tensor]) -> Tensor:
    """The rows of all parts; a copy, unless they are one behind the other in memory."""
    memory, place = parts[0].untyped_storage().data_ptr(), parts[0].data_ptr()
    for part in parts:
        if part.data_ptr() != place or part.untyped_storage().data_ptr() != memory or not part.is_contiguous():
            return torch.cat(parts)
        place += part.nbytes
    rows, width = sum(map(len, parts)), parts[0].shape[1]
    return parts[0].as_strided((rows, width), (width, 1), parts[0].storage_offset())


def filled(x: Tensor, panel: int) -> Tensor:
    """(out, …) with zeros to a multiple of `panel`."""
    if len(x) % panel == 0:
        return x
    return F.pad(x, (0, 0) * (x.ndim - 1) + (0, -len(x) % panel))


def in_panels(x: Tensor, panel: int) -> Tensor:
    """(out, …) -> (panels, panel, …)"""
    return filled(x, panel).unflatten(0, (-1, panel))
