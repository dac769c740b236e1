"""The rules that accept a proposed token at one position, one function each.

p (V,) float64 is the target's distribution there, after temperature and truncation; q (V,) is the distribution from
which the drafter sampled its proposals.

Lossless rules choose the next token of the text so that its distribution is p, whatever was proposed. Tolerant rules
decide whether to accept a proposal that the lossless rule rejected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TINY = 1e-300


def recursive_rejection(
    p: np.ndarray, q: np.ndarray, proposed: Sequence[int], chance: np.random.Generator
) -> tuple[int | None, int]:
    """Lossless rule for several proposals sampled from q without replacement (Jeon et al. 2024, Chen et al. 2024).

    Each proposal in turn is accepted with probability min(1, p(x) / q(x)) (Leviathan et al. 2023). After a rejection,
    p becomes norm(max(0, p - q)), and the rejected token is removed from q, because the next proposal was sampled from
    the rest.

    Returns: the index of the accepted proposal, or None; and the next token of the text.
    """
    for which, x in enumerate(proposed):
        if q[x] <= 0:  # only by rounding: such a token cannot be sampled
            continue
        if chance.random() * q[x] < p[x]:
            return which, x
        left = np.maximum(p - q, 0.0)
        total = left.sum()
        if total <= TINY:  # p = q up to rounding, so every proposal is accepted
            return which, x
        p = left / total
        q = q.copy()
        q[x] = 0.0
        rest = q.sum()
        if rest <= TINY:
            break
        q /= rest
    return None, draw(p, chance)


def typical(p: np.ndarray, x: int, epsilon: float = 0.09, delta: float = 0.3) -> bool:
    """Tolerant (Medusa, Cai et al. 2024): p(x) > min(ε, δ·exp(-H(p))). The threshold is lower where the target is
    unsure."""
    return bool(p[x] > min(epsilon, delta * np.exp(-entropy(p))))


def fuzzy(p: np.ndarray, q: np.ndarray, threshold: float) -> bool:
    """Tolerant (FSD, Holsman et al. 2025): accepts all proposals where JS(p, q) ≤ T in nats."""
    return jensen_shannon(p, q) <= threshold


def draw(p: np.ndarray, chance: np.random.Generator) -> int:
    """Samples a token from p, which may have any positive sum."""
    cumulative = np.cumsum(p)
    # The first token whose cumulative probability exceeds a uniform share of the total. Its own probability is not 0.
    at = int(np.searchsorted(cumulative, chance.random() * cumulative[-1], side="right"))
    return min(at, int(np.flatnonzero(p)[-1])) if at >= len(p) or p[at] <= 0 else at


def draw_several(q: np.ndarray, n: int, chance: np.random.Generator) -> list[int]:
    """Samples up to n different tokens from q, one after the other, without replacement."""
    q, found = q.copy(), []
    for _ in range(min(n, int(np.count_nonzero(q)))):
        found.append(draw(q, chance))
        q[found[-1]] = 0.0
    return found


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
