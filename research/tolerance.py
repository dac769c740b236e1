"""Rules of mode "arc" that tables compare with ours: ARC's tolerance as published, Medusa's and FSD's, and pruning by
other scores. They are the functions that `tolerance` and `prune` of `core.speculative.generate` take.

p (V,) float64 is the target's distribution at one position, q (V,) the drafter's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from core.controls import THETA
from core.errors import InputError
from core.models import LanguageModel
from core.speculative import Calibration, TokenTree
from core.speculative.acceptance import TINY, entropy, jensen_shannon
from core.speculative.arc import Pruning, kept, normalised_entropy, risk
from core.speculative.options import Prune, Tolerate


def published_score(p: np.ndarray, model: LanguageModel, calibration: Calibration, x: int, depth: int) -> float:
    """Returns LTS = 1 - U / τ_δ of a proposal x, where every token may replace any other, as in the paper."""
    bounded = risk(p, model, calibration, x, depth)
    return 1.0 - bounded.bound / bounded.tolerance


def as_published(model: LanguageModel, calibration: Calibration, theta: float = THETA) -> Tolerate:
    """Accepts the first proposal in the drafter's order whose LTS is at least θ, unless the one that the target draws
    precedes it."""

    def tolerate(
        tree: TokenTree, indices: list[int], p: np.ndarray, drawn: int, depth: int
    ) -> tuple[int | None, float | None]:
        ids = [tree.ids[node] for node in indices]
        for which, x in enumerate(ids[: ids.index(drawn) if drawn in ids else None]):
            score = published_score(p, model, calibration, x, depth) if p[x] > 0 else -math.inf
            if score >= theta:
                return which, score
        return None, None

    return tolerate


def typical(epsilon: float = 0.09, delta: float = 0.3) -> Tolerate:
    """Medusa's rule (Cai et al. 2024): p(x) > min(ε, δ·exp(-H(p))). It accepts more where the target is unsure."""
    return _most_probable(lambda tree, indices, p: p > min(epsilon, delta * np.exp(-entropy(p))))


def fuzzy(threshold: float = 0.3) -> Tolerate:
    """FSD (Holsman et al. 2025): accepts all proposals where JS(p, q) ≤ T in nats. The drafter must have distributions,
    and `distributions=True` be given beside it."""
    return _most_probable(lambda tree, indices, p: (p > 0) & (jensen_shannon(p, _own(tree, indices, p)) <= threshold))


def _most_probable(fits: Callable[[TokenTree, list[int], np.ndarray], np.ndarray]) -> Tolerate:
    """Accepts the most probable of the proposals that fit, where the target draws none of them."""

    def tolerate(
        tree: TokenTree, indices: list[int], p: np.ndarray, drawn: int, depth: int
    ) -> tuple[int | None, float | None]:
        ids = [tree.ids[node] for node in indices]
        good = [] if drawn in ids else np.flatnonzero(fits(tree, indices, p)[ids]).tolist()
        return max(good, key=lambda which: p[ids[which]], default=None), None

    return tolerate


def _own(tree: TokenTree, indices: list[int], p: np.ndarray) -> np.ndarray:
    """Returns the drafter's own distribution (V,) at one position, over the tokens that the target's rule keeps in
    p. Raises InputError if the tree does not have it."""
    own = tree.own.get(tree.parents[indices[0]])
    if own is None:
        raise InputError(
            "FSD given with a drafter that returns no distributions; use an EAGLE-3 head or a draft model, and "
            "distributions=True."
        )
    q = np.where(p > 0, own.over(len(p)), 0.0)
    total = q.sum()
    return q / total if total > TINY else q


# Scores of single tokens, from the path's probability, depth and α.
SCORES: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "depth": lambda probability, depth, alpha: probability * (1 + alpha * depth),
    "depth-exp": lambda probability, depth, alpha: probability * np.exp(0.5 * alpha * depth),
    "probability": lambda probability, _, __: probability,
}


def ranked(tree: TokenTree, count: int, by: str, alpha: float = 1.0) -> list[int]:
    """Returns the indices of the best `count` tokens by a score, without those whose parents are dropped.

    Args:
        by: a name of SCORES.
        alpha: α, the weight of the depth.
    """
    scores = SCORES[by](tree.mass(), np.array(tree.depths), alpha)
    best = set(np.argsort(-scores, kind="stable")[:count].tolist())
    standing: set[int] = set()
    for node in sorted(best):
        if tree.parents[node] < 0 or tree.parents[node] in standing:
            standing.add(node)
    return sorted(standing)


def pruned_by(score: str, alpha: float = 1.0) -> Prune:
    """Keeps as many proposals as ARC's pruning, chosen by a score of SCORES (the paper's Table 8)."""
    return lambda tree, p: ranked(tree, len(kept(tree, normalised_entropy(p), Pruning())), score, alpha)


def pruned_as_published(tree: TokenTree, p: np.ndarray) -> list[int]:
    """The paper's equations 1-4, by the drafter's own distribution; `distributions=True` must be given beside it."""
    return kept(tree, normalised_entropy(p), Pruning(lam=0.0, noise=False))
