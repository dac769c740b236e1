"""Weights in the few-bit formats of GGUF files: reads them from a file, and arranges them for `native/weights.h`.

Decoded values are exactly those of a float32 reader of the file; nothing is rounded again. Codes of 5 bits take 6
here. Shapes: a matrix (out, in) has its inputs in blocks of 32, and in some forms these in blocks of 256.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from gguf.constants import GGMLQuantizationType
from torch import Tensor

from core.errors import ModelFileError
from core.models.gguf_file import GGUFTensor

BLOCK = 32  # inputs that share an offset
SUPER_BLOCK = 256  # inputs that share factors
IN_CACHE = 200_000  # bytes of a file that are rearranged at a time
INFINITE = 0x7C00  # the exponent of infinity and NaN in half precision
Type = GGMLQuantizationType


class Form(NamedTuple):
    """How weights are coded.

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


@dataclass(frozen=True)
class Coded:
    """A matrix (out, in): integers with a scale for every 16 or 32 inputs of an output, and in some forms an offset for
    every 32. A weight is scale · code + offset.

    Attributes:
        scales: (out, in / 32, scales) float16, or int8 with `factors`.
        offsets: (out, in / 32, 1) of the same type, or None.
        codes: of 8 bits: (out, in / 32, 32) int8. Of 4 bits: (out, in / 32, 16) uint8, each byte with those of two
            inputs at a distance of four, the first one's in its lower half; four bytes have eight inputs. Of 6 bits:
            (out, in / 32, 24) uint8, twelve bytes for 16 inputs: signed codes of the first twelve in their upper six
            bits, and of the last four in the lower two bits of three bytes at a distance of four, the highest first.
        factors: (out, in / 256, 1 or 2) float16, of the scales and of the offsets, or None.
    """

    form: Form
    scales: Tensor
    offsets: Tensor | None
    codes: Tensor
    factors: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1] * BLOCK

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, chosen: Tensor) -> Coded:
        return self._with(lambda x: x.index_select(0, chosen))

    def split(self, sizes: list[int]) -> list[Coded]:
        """As many matrices, with these numbers of outputs."""
        ends = torch.tensor(sizes).cumsum(0).tolist()
        return [self._with(lambda x, first=end - n, end=end: x[first:end]) for n, end in zip(sizes, ends, strict=True)]

    def _with(self, change: Callable[[Tensor], Tensor]) -> Coded:
        parts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "form"}
        return replace(self, **{name: None if x is None else change(x) for name, x in parts.items()})

    def decoded(self) -> Tensor:
        """(out, in) float32."""
        codes = self.codes
        if self.form.bits == 4:
            of_eight = codes.unflatten(2, (-1, 4))
            codes = torch.stack([of_eight & 15, of_eight >> 4], -2).flatten(2)
        if self.form.bits == 6:
            of_sixteen = codes.unflatten(2, (-1, 3, 4))
            high, middle, low = ((of_sixteen[..., i : i + 1, :] & 3) << (6 - 2 * i) for i in range(3))
            codes = torch.cat([of_sixteen, high | middle | low], -2).flatten(2).view(torch.int8) >> 2
        weights = codes.float().unflatten(2, (-1, self.form.group))
        weights.mul_(self._numbers(self.scales, 0)[..., None])
        if self.offsets is not None:
            weights.add_(self._numbers(self.offsets, 1)[..., None])
        return weights.flatten(1)

    def _numbers(self, x: Tensor, factor: int) -> Tensor:
        """Scales or offsets (out, blocks, n) as float32."""
        if self.factors is None:
            return x.float()
        of_super = x.float().unflatten(1, (-1, SUPER_BLOCK // BLOCK))
        return of_super.mul_(self.factors[:, :, factor, None, None].float()).flatten(1, 2)

    def panels(self, panel: int) -> Tensor:
        """(panels, bytes), as `native/weights.h` reads them."""

        def of(x: Tensor) -> Tensor:
            """(out, blocks, …) -> (panels, blocks, bytes), the outputs of a panel side by side."""
            return in_panels(x, panel).movedim(1, -1).contiguous().view(torch.uint8).flatten(2)

        words = self.codes.view(torch.int32)  # (out, blocks, words of four bytes)
        blocks = torch.cat([of(x) for x in (self.scales, self.offsets, words) if x is not None], -1)
        if self.factors is not None:
            blocks = torch.cat([of(self.factors), blocks.unflatten(1, (-1, SUPER_BLOCK // BLOCK)).flatten(2)], -1)
        return blocks.flatten(1)

    @staticmethod
    def of(tensor: GGUFTensor) -> Coded | None:
        """A tensor of a GGUF file; None for a tensor of another type. Raises ModelFileError for a scale or an offset
        that is not finite: compiled code takes it for a large number."""
        if tensor.kind not in TYPES or len(tensor.shape) != 2:
            return None
        form, read = TYPES[tensor.kind]
        inputs = SUPER_BLOCK if form.scaled else BLOCK
        data = tensor.data()
        scales, offsets, codes, factors = _in_parts(read, data.reshape(len(data), tensor.shape[1] // inputs, -1))
        out, blocks = len(data), tensor.shape[1] // BLOCK

        def by_block(x: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(x)).view(out, blocks, -1)

        halves = [x.view(np.uint16) for x in (scales, offsets, factors) if x is not None and x.dtype == np.float16]
        if any(bool((x & INFINITE == INFINITE).any()) for x in halves):
            raise ModelFileError(f"{tensor.name} of the model has a scale that is not finite; download the file again.")
        return Coded(
            form,
            by_block(scales),
            None if offsets is None else by_block(offsets),
            by_block(codes),
            None if factors is None else torch.from_numpy(np.ascontiguousarray(factors)),
        )


# --- the types of GGUF

Read = tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray | None]  # scales, offsets, codes, factors


def _in_parts(read: Callable[[np.ndarray], Read], blocks: np.ndarray) -> Read:
    """`read` of all outputs (out, …), some at a time, so that what it computes in between stays in the cache."""
    some = max(IN_CACHE // max(blocks[0].nbytes, 1), 1)
    if len(blocks) <= some:
        return read(blocks)
    made: list[np.ndarray | None] = []
    for first in range(0, len(blocks), some):
        part = read(blocks[first : first + some])
        made = made or [None if x is None else np.empty((len(blocks), *x.shape[1:]), x.dtype) for x in part]
        for to, x in zip(made, part, strict=True):
            if to is not None and x is not None:
                to[first : first + some] = x
    scales, offsets, codes, factors = made
    assert scales is not None and codes is not None
    return scales, offsets, codes, factors


def _part(blocks: np.ndarray, start: int, end: int | None, kind: type[np.generic]) -> np.ndarray:
    return np.ascontiguousarray(blocks[..., start:end]).view(kind)


def _by_eight(halves: np.ndarray) -> np.ndarray:
    """(…, n) bytes with a code of one list in their lower halves and of another in their upper ones -> (…, 2, n / 2),
    the codes of each list, eight in four bytes."""
    of_eight = np.ascontiguousarray(halves).view(np.uint32).reshape(*halves.shape[:-1], -1, 2)  # inputs 0-3, and 4-7
    first, last = of_eight[..., 0], of_eight[..., 1]
    lower, upper = np.uint32(0x0F0F0F0F), np.uint32(0xF0F0F0F0)
    codes = np.stack([first & lower | (last & lower) << 4, (first & upper) >> 4 | last & upper], -2)
    return codes.view(np.uint8)


def _apart(halves: np.ndarray) -> np.ndarray:
    """(…, n) bytes with a code of one list in their lower halves and of another in their upper ones -> (…, 2, n)."""
    return np.stack([halves & 15, halves >> 4], -2)


def _q4_0(blocks: np.ndarray) -> Read:
    scales = _part(blocks, 0, 2, np.float16)
    return scales, np.float16(-8) * scales, _by_eight(blocks[..., 2:]), None


def _q4_1(blocks: np.ndarray) -> Read:
    return _part(blocks, 0, 2, np.float16), _part(blocks, 2, 4, np.float16), _by_eight(blocks[..., 4:]), None


def _by_sixteen(codes: np.ndarray) -> np.ndarray:
    """(…, n) bytes with signed codes in their lower 6 bits -> (…, 3 n / 4), those of 16 in twelve bytes."""
    words = np.ascontiguousarray(codes).view(np.uint32).reshape(*codes.shape[:-1], -1, 4)  # of four codes
    lower, lowest = np.uint32(0x3F3F3F3F), np.uint32(0x03030303)
    packed = (words[..., :3] & lower) << 2 | words[..., 3:] >> np.array([4, 2, 0], np.uint32) & lowest
    return packed.view(np.uint8).reshape(*codes.shape[:-1], -1)


def _five_bits(blocks: np.ndarray, start: int) -> np.ndarray:
    """Codes of a block's 32 inputs: their fifth bits in four bytes, then the others."""
    fifth = np.unpackbits(np.ascontiguousarray(blocks[..., start : start + 4]), axis=-1, bitorder="little")
    others = _apart(blocks[..., start + 4 :])
    return others.reshape(*fifth.shape) | fifth << 4


def _q5_0(blocks: np.ndarray) -> Read:
    return _part(blocks, 0, 2, np.float16), None, _by_sixteen(_five_bits(blocks, 2) - np.uint8(16)), None


def _q5_1(blocks: np.ndarray) -> Read:
    return _part(blocks, 0, 2, np.float16), _part(blocks, 2, 4, np.float16), _by_sixteen(_five_bits(blocks, 4)), None


def _q8_0(blocks: np.ndarray) -> Read:
    return _part(blocks, 0, 2, np.float16), None, _part(blocks, 2, None, np.int8), None


def _factors(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of Q4_K and Q5_K: scales and offsets of each block, 6 bits of 12 bytes each, and their factors. The file states
    what to subtract."""
    factors = _part(blocks, 0, 4, np.float16)
    first, second, rest = (blocks[..., 4 + i : 8 + i] for i in (0, 4, 8))
    scales = np.concatenate([first & 63, rest & 15 | first >> 2 & 48], -1)
    offsets = np.concatenate([second & 63, rest >> 4 | second >> 2 & 48], -1)
    return scales.view(np.int8), offsets.view(np.int8), factors * np.array([1, -1], np.float16)


def _q4_k(blocks: np.ndarray) -> Read:
    scales, offsets, factors = _factors(blocks)
    return scales, offsets, _by_eight(blocks[..., 16:].reshape(*blocks.shape[:2], 4, 32)), factors


def _q5_k(blocks: np.ndarray) -> Read:
    scales, offsets, factors = _factors(blocks)
    fifth = blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1  # (…, 8, 32)
    others = _apart(blocks[..., 48:].reshape(*blocks.shape[:2], 4, 32)).reshape(fifth.shape)
    return scales, offsets, _by_sixteen(others | fifth << 4), factors


def _q6_k(blocks: np.ndarray) -> Read:
    shape = blocks.shape[:2]
    lower = _apart(blocks[..., :128].reshape(*shape, 2, 64)).reshape(*shape, 2, 4, 32)
    upper = blocks[..., 128:192].reshape(*shape, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    codes = _by_sixteen((lower | upper << 4) ^ 32)  # as 32 less
    return _part(blocks, 192, 208, np.int8), None, codes, _part(blocks, 208, None, np.float16)


TYPES: dict[GGMLQuantizationType, tuple[Form, Callable[[np.ndarray], Read]]] = {
    Type.Q4_0: (Form(4, True), _q4_0),
    Type.Q4_1: (Form(4, True), _q4_1),
    Type.Q5_0: (Form(6, False), _q5_0),
    Type.Q5_1: (Form(6, True), _q5_1),
    Type.Q8_0: (Form(8, False), _q8_0),
    Type.Q4_K: (Form(4, True, scaled=True), _q4_k),
    Type.Q5_K: (Form(6, True, scaled=True), _q5_k),
    Type.Q6_K: (Form(6, False, scaled=True, group=16), _q6_k),
}
# Plain numbers, which stay as they are.
PLAIN = {Type.F32: torch.float32, Type.F16: torch.float16, Type.BF16: torch.bfloat16}


Weight = Tensor | Coded


def weight_of(tensor: GGUFTensor) -> Weight:
    """The tensor in its own format. Raises ModelFileError for a type that none of the above is, and for numbers that
    are not finite."""
    coded = Coded.of(tensor)
    if coded is not None:
        return coded
    if tensor.kind == Type.BF16:
        plain = torch.from_numpy(tensor.data().view(np.uint16)).view(torch.bfloat16)
    else:
        plain = torch.from_numpy(tensor.data() if tensor.kind in PLAIN else tensor.unpacked())
    if not bool(torch.isfinite(plain).all()):
        raise ModelFileError(f"{tensor.name} of the model has a number that is not finite; download the file again.")
    return plain


def float32(weight: Weight) -> Tensor:
    """(out, in)"""
    return weight.decoded() if isinstance(weight, Coded) else weight.float()


def rows_of(weight: Weight, chosen: Tensor) -> Weight:
    return weight.rows(chosen) if isinstance(weight, Coded) else weight[chosen]


def split(weight: Weight, sizes: list[int]) -> list[Weight]:
    """Several maps that a file stores as one, with these numbers of outputs."""
    return [*weight.split(sizes)]


def joined(parts: Iterable[Weight]) -> list[Weight]:
    """Maps of the same inputs, one below the other. Neighbours become one if they have the same form."""
    groups: list[list[Weight]] = []
    for part in parts:
        if groups and _form(groups[-1][0]) == _form(part):
            groups[-1].append(part)
        else:
            groups.append([part])
    return [_one(alike) for alike in groups]


def _form(weight: Weight) -> Form | torch.dtype:
    return weight.form if isinstance(weight, Coded) else weight.dtype


def _one(alike: list[Weight]) -> Weight:
    """One map of maps of the same form."""
    if len(alike) == 1:
        return alike[0]
    coded = [part for part in alike if isinstance(part, Coded)]
    if not coded:
        return torch.cat([part for part in alike if isinstance(part, Tensor)])
    first = coded[0]

    def all_of(name: str) -> Tensor | None:
        return None if getattr(first, name) is None else torch.cat([getattr(part, name) for part in coded])

    return replace(first, **{each.name: all_of(each.name) for each in fields(first) if each.name != "form"})


def filled(x: Tensor, panel: int) -> Tensor:
    """(out, …) with zeros to a multiple of `panel`."""
    if len(x) % panel == 0:
        return x
    return F.pad(x, (0, 0) * (x.ndim - 1) + (0, -len(x) % panel))


def in_panels(x: Tensor, panel: int) -> Tensor:
    """(out, …) -> (panels, panel, …)"""
    return filled(x, panel).unflatten(0, (-1, panel))
