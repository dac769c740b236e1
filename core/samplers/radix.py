"""Finds the cut in a row that is ordered by a key, without sorting it: radix select on sums.

"The fewest best tokens that reach mass p" needs no order among the tokens, only the key at which a sum passes a
bound. So tokens are counted into bins by the leading 11 bits of their key, cumulative sums give the bin in which the
bound is passed, and the same is repeated with the tokens of that bin and the next 11 bits. Three rounds find the exact
float32 key, six a float64 one. All tensors are on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.samplers.base import DROPPED

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
    rows = zip(x, *(c.flatten().tolist() for c in (at, count, ties)), strict=True)
    return torch.stack([_keep_row(*row) for row in rows])


def _keep_row(x: Tensor, at: float, count: int, ties: int) -> Tensor:
    if count == 0:
        return torch.threshold(x, at, DROPPED)
    if count >= ties:
        return torch.threshold(x, float(np.nextafter(x.new_tensor(at).numpy(), -np.inf)), DROPPED)
    kept = torch.threshold(x, at, DROPPED)
    last = np.flatnonzero(x.numpy() == x.numpy().dtype.type(at))[-count:]
    kept[last] = x[last]
    return kept


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


def _monotone(key: Tensor) -> Tensor:
    """Integers (as unsigned bit patterns) that compare like the floats."""
    raw = (key + 0.0).view(torch.int64 if key.dtype == torch.float64 else torch.int32)  # + 0.0: there is one zero
    limits = torch.iinfo(raw.dtype)
    return raw ^ ((raw >> (limits.bits - 1)) & limits.max) ^ limits.min
