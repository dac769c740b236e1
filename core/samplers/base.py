"""The base of all rules: the call that transformers expects, sanitising of rows, and cropping.

A rule takes logits (B, V) and returns them with the dropped tokens at -inf. It needs neither transformers nor a
model. The arithmetic is float32, or float64 for float64 logits; float16 and bfloat16 are widened first.

Unusual rows, for every rule alike: NaN counts as -inf. Tokens at +inf share all the probability: they become 0 and
the rest -inf. A row without a value above -inf is returned with -inf everywhere. Every other row keeps at least
one token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, overload

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError

DROPPED = -float("inf")
# (input_ids (B, n), logits (B, V)) -> logits (B, V), as transformers' LogitsProcessor; a `Rule` is one
Processor = Callable[[Tensor, Tensor], Tensor]
PerRow = float | Sequence[float] | Tensor  # one value for all rows, or one for each


class Rule(ABC):
    """A rule on next-token logits, called as transformers calls a `LogitsProcessor`."""

    title: ClassVar[str]  # as the papers write it
    reads_text: bool = False  # whether the result depends on the text so far
    on_cpu: bool = False  # whether the CPU computes it, also for logits on a GPU, which waits then

    @overload
    def __call__(self, input_ids: Tensor | None, scores: Tensor) -> Tensor: ...
    @overload
    def __call__(self, input_ids: np.ndarray | None, scores: np.ndarray) -> np.ndarray: ...

    def __call__(self, input_ids: Tensor | np.ndarray | None, scores: Tensor | np.ndarray) -> Tensor | np.ndarray:
        """Crops the logits.

        Args:
            input_ids: token ids so far (B, n); only rules that depend on the text read them, and all accept None.
            scores: logits (B, V), float16, bfloat16, float32 or float64; they are not changed. Or one row (V,)
                as a NumPy array, with ids (n,), as llama-cpp-python passes it.

        Returns: a new tensor (or array) of the same shape and type, dropped tokens at -inf.
        Raises: InputError for another shape, or a number of per-row values other than B.
        """
        if isinstance(scores, np.ndarray):
            row = None if input_ids is None else torch.as_tensor(np.asarray(input_ids))[None]
            return self(row, torch.from_numpy(np.ascontiguousarray(scores))[None])[0].numpy()
        ids = torch.from_numpy(input_ids) if isinstance(input_ids, np.ndarray) else input_ids
        if scores.ndim != 2:
            raise InputError(f"Logits of shape {tuple(scores.shape)} given; (rows, vocabulary) expected.")
        if self.on_cpu and scores.device.type != "cpu":
            return self(None if ids is None else ids.cpu(), scores.cpu()).to(scores.device)
        wide = scores.detach() if scores.dtype == torch.float64 else scores.detach().float()
        if wide.numel() == 0:
            return scores.clone()
        best = wide.amax(-1, keepdim=True)  # (B, 1), NaN if anything in the row is
        if wide.device.type == "cpu" and bool(best.isfinite().all()):
            return self.crop(wide, best, ids).to(scores.dtype)
        wide, silent = without_nan(wide)
        cropped = self.crop(wide, wide.amax(-1, keepdim=True), ids)
        return cropped.masked_fill(silent, DROPPED).to(scores.dtype)

    def measuring(self, whole: Tensor, input_ids: Tensor | None = None) -> Rule:
        """The rule for rows of which only some tokens may follow: what it measures of a distribution, it takes from
        the whole rows (B, V)."""
        return self

    @abstractmethod
    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        """The rule itself, on logits (B, V) without NaN and +inf; `best` (B, 1) is finite. Must not change x."""


def column(value: PerRow, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A parameter as (B, 1), or (1, 1) when it is the same for all rows."""
    if isinstance(value, int | float):  # created on the device: no synchronisation on a GPU
        return torch.full((1, 1), value, dtype=dtype or x.dtype, device=x.device)
    values = torch.as_tensor(value, dtype=dtype or x.dtype, device=x.device).reshape(-1, 1)
    if len(values) not in (1, len(x)):
        raise InputError(f"{len(values)} values given for {len(x)} rows; one for all or one for each expected.")
    return values


def in_range(name: str, value: PerRow, low: float, high: float, *, open_low: bool = False) -> PerRow:
    """Returns the parameter if it is in [low, high], or in (low, high]. Raises InputError with the value otherwise."""
    try:
        values = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} {value!r:.80} given; a number, or one for each row, expected.") from None
    inside = (values > low if open_low else values >= low) & (values <= high)
    if values.numel() == 0 or not bool(inside.all()):
        given = value if not isinstance(value, Tensor) else value.tolist()
        raise InputError(f"{name} {given} given; {'above' if open_low else 'at least'} {low:g}{_upto(high)} expected.")
    return value


def keep_from(x: Tensor, threshold: Tensor) -> Tensor:
    """Keeps the logits of at least `threshold` (B, 1)."""
    if x.device.type != "cpu":
        return torch.where(x >= threshold, x, DROPPED)
    # torch.threshold is one vectorised pass, a mask costs five; it keeps values *above* its bound.
    below = torch.nextafter(threshold, torch.full_like(threshold, DROPPED)).expand(len(x), 1).flatten().tolist()
    return torch.stack([torch.threshold(row, bound, DROPPED) for row, bound in zip(x, below, strict=True)])


def keep_where(x: Tensor, keep: Tensor) -> Tensor:
    """Keeps the logits of a mask (B, V)."""
    if x.device.type != "cpu":
        return torch.where(keep, x, DROPPED)
    # The same as torch.where by bits: without branches, so a random mask costs no more than a smooth one.
    whole = np.int32 if x.dtype == torch.float32 else np.int64
    mask = keep.numpy().view(np.int8).astype(whole)
    np.negative(mask, out=mask)
    dropped = np.array(DROPPED, dtype=x.numpy().dtype).view(whole)
    bits = x.numpy().view(whole)
    return torch.from_numpy((((bits ^ dropped) & mask) ^ dropped).view(x.numpy().dtype))


def exponentials(x: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """e^(x - max) (B, V), and its sums (B, 1) in float64."""
    e = (x - best).exp_()
    return e, e.sum(-1, keepdim=True, dtype=torch.float64)


def without_nan(x: Tensor) -> tuple[Tensor, Tensor]:
    """Replaces NaN and +inf in the rows; returns also which rows (B, 1) have no value above -inf."""
    x = torch.where(x.isnan(), DROPPED, x)
    best = x.amax(-1, keepdim=True)
    x = torch.where(best.isposinf(), torch.where(x.isposinf(), 0.0, DROPPED).to(x.dtype), x)
    silent = best.isneginf()
    return torch.where(silent, 0.0, x), silent


def _upto(high: float) -> str:
    return "" if high == float("inf") else f" and at most {high:g}"
