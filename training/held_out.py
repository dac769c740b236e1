"""Evaluates an adapter on held-out text: windows of it, and the gain in ln p, alone and mixed with n-grams."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.ngram.interpolation import Interpolation

T = TypeVar("T")

WINDOW, CONTEXT = 256, 64  # tokens of a held-out window, and those at its beginning that are only context
BLOCK = 64  # tokens: adjacent tokens depend on each other, so the standard error is that of means over blocks
MOST_WINDOWS = 48  # held-out windows, evenly spaced
LEAST_HELD_OUT = 320  # tokens


def held_out_windows(ids: Sequence[int] | np.ndarray) -> list[Tensor]:
    """Returns windows of at most WINDOW ids, whose tokens after the context together cover the text; if there are too
    many, an evenly spaced selection. Raises InputError for too little text."""
    if len(ids) < LEAST_HELD_OUT:
        raise InputError(f"{len(ids)} tokens are held out; at least {LEAST_HELD_OUT} expected. Give more text.")
    step = WINDOW - CONTEXT
    starts = spaced(range(0, len(ids) - CONTEXT, step), MOST_WINDOWS)
    return [torch.from_numpy(np.array(ids[at : at + WINDOW], dtype=np.int64)) for at in starts]


def spaced(values: Sequence[T], count: int) -> list[T]:
    """Returns an evenly spaced selection of at most `count` values."""
    if count >= len(values):
        return list(values)
    return [values[i] for i in np.linspace(0, len(values) - 1, count).round().astype(int)]


def mean_of(logprobs: Tensor) -> float:
    """Returns the mean of a window's ln p (T - 1,), without its context."""
    return float(logprobs[CONTEXT - 1 :].mean())


def mixed(rule: Interpolation | None, window: Tensor, *logprobs: Tensor) -> np.ndarray:
    """Returns ln p mixed with the n-grams, (n, m) for n values of `logprobs`, each (T - 1,), and the m tokens of a
    window (T,) after its context."""
    ids = window.tolist()
    scores = torch.stack(logprobs, 1)[CONTEXT - 1 :].double().numpy()  # (m, n)
    if rule is not None:
        for at, row in enumerate(scores, start=CONTEXT):
            row[:] = rule.scores(row[None], [ids[:at]], np.full((1, len(row)), ids[at]))[0]
    return scores.T


def mixed_gains(rule: Interpolation | None, window: Tensor, before: Tensor, after: Tensor) -> list[float]:
    """Returns the increase of ln p from `before` to `after` (T - 1,), both mixed with the n-grams, for each token of a
    window (T,) after its context."""
    low, high = mixed(rule, window, before, after)
    return (high - low).tolist()


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean of the values of at least two blocks, and its standard error, computed from means of blocks."""
    return fmean(values), standard_error(means_of_blocks(values))


def means_of_blocks(values: Sequence[float]) -> list[float]:
    """Returns the means over blocks of BLOCK values; a last one of less than half a block is left out."""
    return [fmean(values[at : at + BLOCK]) for at in range(0, len(values) - BLOCK // 2, BLOCK)]


def standard_error(values: Sequence[float]) -> float:
    """Returns the standard error of the mean of at least two independent values."""
    return stdev(values) / math.sqrt(len(values))
