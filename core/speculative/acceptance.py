"""The rejection sampler, and measures of distributions.

p (V,) float64 is the target's distribution at one position, after temperature and truncation; q (V,) is the drafter's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TINY = 1e-300


def rejection(
    p: np.ndarray, q: np.ndarray, proposals: Sequence[int], uniform: Sequence[float]
) -> tuple[int | None, np.ndarray]:
    """Lossless (Leviathan et al. 2023, Chen et al. 2023; several proposals: recursive rejection, Jeon et al. 2024):
    accepts a proposal x ~ q with probability min(1, p(x) / q(x)); if it is rejected, the token has the residual
    distribution max(p - q, 0) / Σ max(p - q, 0), for which the next proposal is tried. Either way the token has the
    distribution p.

    Args:
        p, q: (V,) of the target and of the drafter; both have the sum 1.
        proposals: samples of q without replacement, in the order of sampling.
        uniform: a number from 0 to below 1 for each.
    Returns: the index of the accepted proposal and p; or None and the residual (V,), from which the token is sampled.
    """
    left = p
    for n, (x, u) in enumerate(zip(proposals, uniform, strict=True)):
        residual = np.maximum(left - q, 0.0)
        total = residual.sum()
        if u * q[x] < left[x] or total <= 0:  # without a residual p equals q, and only rounding rejects
            return n, p
        left, q = residual / total, q.copy()
        q[x] = 0.0
        q /= max(q.sum(), TINY)
    return None, left


def draw(p: np.ndarray, rng: np.random.Generator) -> int:
    """Samples a token from p, which may have any positive sum."""
    cumulative = np.cumsum(p)
    # The first token whose cumulative probability exceeds a uniform share of the total. Its own probability is not 0.
    at = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return min(at, int(np.flatnonzero(p)[-1])) if at >= len(p) or p[at] <= 0 else at


def entropy(p: np.ndarray) -> float:
    """Returns H(p) in nats."""
    some = p[p > 0]
    return float(-(some * np.log(some)).sum())


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """Returns JS(p, q) in nats, from 0 to ln 2."""
    m = 0.5 * (p + q)
    total = 0.0
    for x in (p, q):
        some = x > 0
        total += 0.5 * float((x[some] * np.log(x[some] / m[some])).sum())
    return max(total, 0.0)
