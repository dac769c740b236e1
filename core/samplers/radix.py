"""Finds the cut in a row that is ordered by a key, without sorting it: radix select on sums.

"The fewest best tokens that reach mass p" needs no order among the tokens, only the key at which a sum passes a
bound. So tokens are counted into bins by the leading 11 bits of their key, cumulative sums give the bin in which the
bound is passed, and the same is repeated inside that bin with the next 11 bits. Three rounds find the exact
float32 key, six a float64 one.

There are two implementations: `_all_rows` uses tensors of fixed shape, without host synchronisation, for a GPU;
`_one_row` continues with only the tokens of the chosen bin, for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.samplers.base import DROPPED, keep_where

_BITS = 11  # per round: 2,048 bins a row, whatever the vocabulary

Holds = Callable[..., Tensor]  # (bound, *sums) -> whether the sums are still within the bound, elementwise


class Boundary(NamedTuple):
    """The first key, in descending order, at which the sums no longer hold.

    Attributes:
        key: (B, 1). Every better key holds; -inf if all keys hold.
        ties: the number of tokens with exactly this key, (B, 1).
        held: the number of those that still hold, (B, 1), 0 … ties.
        before: the first weight's sum over all better keys, (B, 1) float64.
    """

    key: Tensor
    ties: Tensor
    held: Tensor
    before: Tensor


def boundary(key: Tensor, weights: list[Tensor], bound: Tensor, holds: Holds) -> Boundary:
    """Finds the key at which the sums over the best tokens stop holding.

    Args:
        key: (B, V) float32 or float64, larger is better, no NaN.
        weights: (B, V) each; tokens of the same key have the same weights.
        bound: (B, 1), passed to `holds`.
        holds: whether sums over all keys down to some key still hold. Once it fails it must fail for
            every longer sum.
    """
    if key.device.type != "cpu":
        return _all_rows(key, weights, bound, holds)
    rows = [
        _one_row(key[n], [w[n] for w in weights], lambda *sums, n=n: holds(bound[n], *sums)) for n in range(len(key))
    ]
    at, ties, held, before = zip(*rows, strict=True)
    return Boundary(
        torch.tensor(at, dtype=key.dtype).unsqueeze(1),
        torch.tensor(ties).unsqueeze(1),
        torch.tensor(held).unsqueeze(1),
        torch.tensor(before, dtype=torch.float64).unsqueeze(1),
    )


def keep_best(x: Tensor, at: Tensor, count: Tensor, ties: Tensor) -> Tensor:
    """Keeps the values of x (B, V) above `at`, and `count` (B, 1) of those equal to it.

    Among ties the last ids are kept, as in a stable ascending sort cut from the left.
    """
    if x.device.type == "cpu":
        out = [_keep_row(*row) for row in zip(x, *(c.flatten().tolist() for c in (at, count, ties)), strict=True)]
        return torch.stack(out)
    return keep_where(x, _best(x, at, count))


def _keep_row(x: Tensor, at: float, count: int, ties: int) -> Tensor:
    if count == 0:
        return torch.threshold(x, at, DROPPED)
    if count >= ties:
        return torch.threshold(x, float(np.nextafter(x.new_tensor(at).numpy(), -np.inf)), DROPPED)
    return torch.where(_best(x[None], torch.tensor([[at]], dtype=x.dtype), torch.tensor([[count]]))[0], x, DROPPED)


def _best(x: Tensor, at: Tensor, count: Tensor) -> Tensor:
    tied = x == at
    from_the_end = tied.flip(-1).cumsum(-1).flip(-1)
    return (x > at) | (tied & (from_the_end <= count))


def _one_row(key: Tensor, weights: list[Tensor], holds: Callable[..., Tensor]) -> tuple[float, int, int, float]:
    """The fields of `Boundary` for one row (V,)."""
    bits, inside = _monotone(key), [w.double() for w in weights]
    before = [0.0] * len(weights)
    settled, width = 0, torch.finfo(key.dtype).bits
    while settled < width and len(key) > 1:
        digits = min(_BITS, width - settled)
        last = (1 << digits) - 1
        bins = last - ((bits >> (width - settled - digits)) & last).long()  # best first
        sums = [torch.zeros(last + 1, dtype=torch.float64).scatter_add_(0, bins, w).cumsum_(0) for w in inside]
        fails = ~holds(*(b + s for b, s in zip(before, sums, strict=True)))
        fails[-1] = True  # if no bin fails, the cut lies below all of them
        first = int(fails.byte().argmax())
        if first:
            before = [b + float(s[first - 1]) for b, s in zip(before, sums, strict=True)]
        here = torch.from_numpy(np.flatnonzero(bins.numpy() == first))
        key, bits, inside = key[here], bits[here], [w[here] for w in inside]
        settled += digits
    ties = len(key)
    if not ties:
        return DROPPED, 0, 0, before[0]
    each = [float(w[0]) for w in inside]
    low, high = 0, ties  # `low` of them hold; more than `high` cannot
    while low < high:
        middle = (low + high + 1) // 2
        good = bool(
            holds(*(torch.tensor(b + middle * w, dtype=torch.float64) for b, w in zip(before, each, strict=True)))
        )
        low, high = (middle, high) if good else (low, middle - 1)
    return float(key[0]), ties, low, before[0]


def _all_rows(key: Tensor, weights: list[Tensor], bound: Tensor, holds: Holds) -> Boundary:
    bits = _monotone(key)  # (B, V)
    width = torch.finfo(key.dtype).bits
    weights = [w.double() for w in weights]
    inside = weights  # 0 outside the bins chosen so far
    before = [torch.zeros(len(key), 1, dtype=torch.float64, device=key.device) for _ in weights]
    chosen = torch.zeros(len(key), 1, dtype=torch.int64, device=key.device)
    settled = 0  # leading bits that are already determined
    while settled < width:
        digits = min(_BITS, width - settled)
        shift, last = width - settled - digits, (1 << digits) - 1
        if settled:
            member = ((bits >> (shift + digits)) & ((1 << settled) - 1)) == chosen
            inside = [w * member for w in weights]
        bins = last - ((bits >> shift) & last).long()  # best first
        empty = torch.zeros(len(key), last + 1, dtype=torch.float64, device=key.device)
        sums = [empty.scatter_add(1, bins, w).cumsum_(1) for w in inside]
        fails = ~holds(bound, *(b + s for b, s in zip(before, sums, strict=True)))
        fails[:, -1] = True
        first = fails.byte().argmax(1, keepdim=True)  # (B, 1)
        earlier = (first - 1).clamp(min=0)
        before = [b + torch.where(first > 0, s.gather(1, earlier), 0.0) for b, s in zip(before, sums, strict=True)]
        chosen = (chosen << digits) + (last - first)
        settled += digits
    at = _float_of(chosen, key.dtype)
    tied = key == at
    ties = tied.sum(-1, keepdim=True)
    each = [(w * tied).sum(-1, keepdim=True) / ties.clamp(min=1) for w in weights]
    low, high = torch.zeros_like(ties), ties
    for _ in range(24):  # up to 2^24 ties
        middle = (low + high + 1) // 2
        good = holds(bound, *(b + middle * w for b, w in zip(before, each, strict=True)))
        low, high = torch.where(good, middle, low), torch.where(good, high, (middle - 1).clamp(min=0))
    return Boundary(at, ties, low, before[0])


def _monotone(key: Tensor) -> Tensor:
    """Integers (as unsigned bit patterns) that compare like the floats."""
    raw = (key + 0.0).view(_integers(key.dtype))  # + 0.0: there is one zero
    limits = torch.iinfo(raw.dtype)
    return raw ^ ((raw >> (limits.bits - 1)) & limits.max) ^ limits.min


def _float_of(chosen: Tensor, dtype: torch.dtype) -> Tensor:
    """The float with this pattern; a NaN's pattern below all floats becomes -inf."""
    integers = _integers(dtype)
    limits = torch.iinfo(integers)
    ordered = chosen.to(integers) ^ limits.min
    value = (ordered ^ ((ordered >> (limits.bits - 1)) & limits.max)).view(dtype)
    return torch.where(value.isnan(), -torch.inf, value)


def _integers(dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if dtype == torch.float64 else torch.int32
