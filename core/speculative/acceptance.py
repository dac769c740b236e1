"""Which proposed token the text goes on with, one small function per rule. Each looks at one position.

p (V,) float64 is the target's distribution there, after temperature and truncation; q (V,) the one from which the
drafter drew its proposals.

Lossless rules decide for one token: the next of the text has the distribution p whatever was proposed. Tolerant
rules decide whether a token that lost this draw may stand all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TINY = 1e-300


def recursive_rejection(
    p: np.ndarray, q: np.ndarray, proposed: Sequence[int], chance: np.random.Generator
) -> tuple[int | None, int]:
    """Lossless for several proposals that were drawn out of q without replacement (Jeon et al. 2024, Chen et al. 2024).

    One after the other is accepted with probability min(1, p(x) / q(x)) (Leviathan et al. 2023). After one that was
    rejected, p becomes norm(max(0, p - q)), and q loses the rejected token: the next proposal was drawn from the rest.

    Returns: which of the proposed tokens, or None; and the next token of the text.
    """
    for which, x in enumerate(proposed):
        if q[x] <= 0:  # cannot have been drawn: rounding
            continue
        if chance.random() * q[x] < p[x]:
            return which, x
        left = np.maximum(p - q, 0.0)
        total = left.sum()
        if total <= TINY:  # p = q up to rounding, where nothing is rejected
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
    """Tolerant (Medusa, Cai et al. 2024): p(x) > min(ε, δ·exp(-H(p))). More passes where the target is unsure."""
    return bool(p[x] > min(epsilon, delta * np.exp(-entropy(p))))


def fuzzy(p: np.ndarray, q: np.ndarray, threshold: float) -> bool:
    """Tolerant (FSD, Holsman et al. 2025): drafter and target agree well enough here, JS(p, q) ≤ T in nats, that
    whatever the drafter proposes may stand."""
    return jensen_shannon(p, q) <= threshold


def draw(p: np.ndarray, chance: np.random.Generator) -> int:
    """One token out of p, which may sum to anything above 0."""
    cumulative = np.cumsum(p)
    # The first place that reaches beyond a uniform share of the total: never one of no probability.
    at = int(np.searchsorted(cumulative, chance.random() * cumulative[-1], side="right"))
    return min(at, int(np.flatnonzero(p)[-1])) if at >= len(p) or p[at] <= 0 else at


def draw_several(q: np.ndarray, n: int, chance: np.random.Generator) -> list[int]:
    """Up to n different tokens out of q, one after the other, without replacement."""
    q, found = q.copy(), []
    for _ in range(min(n, int(np.count_nonzero(q)))):
        found.append(draw(q, chance))
        q[found[-1]] = 0.0
    return found


def entropy(p: np.ndarray) -> float:
    """H(p) in nats."""
    some = p[p > 0]
    return float(-(some * np.log(some)).sum())


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """JS(p, q) in nats, 0 to ln 2."""
    m = 0.5 * (p + q)
    total = 0.0
    for x in (p, q):
        some = x > 0
        total += 0.5 * float((x[some] * np.log(x[some] / m[some])).sum())
    return max(total, 0.0)
