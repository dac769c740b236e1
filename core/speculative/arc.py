"""ARC-Decode: pruning before verification, and acceptance within a calibrated risk.

Two independent parts. *Pruning* (eqs. 1-4) drops proposals that are unlikely to matter before the target sees them.
*LTS*, the local tolerance score (eqs. 10, 13-15), says whether a proposed token t_d may stand where the target
would say t_m: whether the two lead to nearly the same next distribution. It is computed from logits and
embeddings that are there anyway, and from constants that `core.speculative.calibration` measures once per model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from core.controls import PRUNE_EPSILON, PRUNE_LAMBDA
from core.errors import InputError
from core.models.base import LanguageModel
from core.speculative.acceptance import entropy
from core.speculative.calibration import Calibration, exact_only
from core.speculative.tree import TokenTree

CLAMP = 1e-9  # the least probability that a margin is taken of: the ε-clamp of eq. 11


@dataclass(frozen=True)
class Pruning:
    """The dials of pruning.

    Attributes:
        lam: λ, by how much uncertainty and depth raise the share that may go (ours, see `share`); 0 is the paper's
            equations.
        epsilon: ε, the share of each depth's mass that may go where the target is sure (eq. 3).
        leaf: τ_d / θ_d, at least 1: leaves need this much more than what has children (eq. 4).
    """

    lam: float = PRUNE_LAMBDA
    epsilon: float = PRUNE_EPSILON
    leaf: float = 1.0

    def __post_init__(self) -> None:
        if self.lam < 0:
            raise InputError(f"lam {self.lam} given; 0 or more expected.")
        if not 0 <= self.epsilon < 1:
            raise InputError(f"epsilon {self.epsilon} given; 0 to below 1 expected.")
        if self.leaf < 1:
            raise InputError(f"leaf {self.leaf} given; at least 1 expected: leaves are not held to less.")

    def share(self, depth: int, h: float) -> float:
        """ε_d = 1 - (1 - ε)·exp(-λ·d·H_m). This rule is ours: eq. 1 multiplies every score of a depth by
        exp(-λ·d·H_m), and eq. 3 compares scores of one depth with each other, so there the factor cancels out and λ
        changes nothing. Here it reduces the mass that a depth has to keep."""
        return 1 - (1 - self.epsilon) * math.exp(-self.lam * depth * h)


def normalised_entropy(p: np.ndarray) -> float:
    """H_m of eq. 2: the entropy of p (V,) as a share of the largest there is."""
    return entropy(p) / math.log(len(p))


def kept(tree: TokenTree, h: float, pruning: Pruning) -> list[int]:
    """The places that stay (eqs. 3-4, with the score e^ℓ(c) of eq. 1 and our ε_d). Every one's parent stays, too.

    θ_d is read as the *largest* threshold that covers 1 - ε_d of a depth's mass: the smallest, as the paper has it,
    would keep everything. h is H_m where the last token of the text was chosen: one step before the tree, and known
    before the pass that verifies it.
    """
    score = tree.mass()
    children = tree.children()
    at_depth: dict[int, list[int]] = {}
    for place, depth in enumerate(tree.depths):
        at_depth.setdefault(depth, []).append(place)
    standing: set[int] = set()
    for depth in sorted(at_depth):
        places = at_depth[depth]
        theta = _threshold(score[places], pruning.share(depth, h))
        for place in places:
            bound = theta if place in children else theta * pruning.leaf
            if score[place] >= bound and (depth == 0 or tree.parents[place] in standing):
                standing.add(place)
        # A parent that stays and would lose all its children gets its best one back.
        for parent in {tree.parents[place] for place in places}:
            if (parent < 0 or parent in standing) and not standing & set(children[parent]):
                standing.add(max(children[parent], key=lambda place: score[place]))
    return sorted(standing)


# Rules for single tokens: e^ℓ, depth and α -> the score.
RULES: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "depth": lambda probability, depth, alpha: probability * (1 + alpha * depth),
    "depth-exp": lambda probability, depth, alpha: probability * np.exp(0.5 * alpha * depth),
    "probability": lambda probability, _, __: probability,
}


def ranked(tree: TokenTree, count: int, by: str, alpha: float) -> list[int]:
    """The places that a rule for single tokens keeps, to compare `kept` with (Table 8): the best `count` by a score of
    e^ℓ and depth, without those whose parents go.

    Args:
        by: a name of RULES.
        alpha: α, the weight of the depth.
    """
    scores = RULES[by](tree.mass(), np.array(tree.depths), alpha)
    best = set(np.argsort(-scores, kind="stable")[:count].tolist())
    standing: set[int] = set()
    for place in sorted(best):
        if tree.parents[place] < 0 or tree.parents[place] in standing:
            standing.add(place)
    return sorted(standing)


def _threshold(scores: np.ndarray, epsilon: float) -> float:
    """The largest θ with Σ_{q̃ ≥ θ} q̃ ≥ (1 - ε) Σ q̃ (eq. 3)."""
    ordered = np.sort(scores)[::-1]
    covered = np.cumsum(ordered)
    at = int(np.searchsorted(covered, (1 - epsilon) * covered[-1] * (1 - 1e-12)))
    return float(ordered[min(at, len(ordered) - 1)])


def margin(p: np.ndarray, t_m: int, t_d: int) -> float:
    """Δℓ̃ = log p̃(t_m) - log p̃(t_d) after the ε-clamp (eq. 11)."""
    return math.log(max(p[t_m], CLAMP)) - math.log(max(p[t_d], CLAMP))


def whitened_distance(embeddings: Tensor, whitening: np.ndarray, t_m: int, t_d: int) -> float:
    """‖W Δe‖² (eq. 10): of *input* embeddings, whether or not the model ties them to its output."""
    difference = (embeddings[t_d] - embeddings[t_m]).double().numpy()
    return float(np.square(whitening * difference).sum())


class Risk(NamedTuple):
    """A proposal's risk, and what it is held against.

    Attributes:
        bound: U = min(U_emb, U_logit) (eqs. 10, 13, 14): JS(q_{j+1}, r_{j+1}) is at most this with probability 1 - δ.
        tolerance: τ_δ.
    """

    bound: float
    tolerance: float


def risk(p: np.ndarray, embeddings: Tensor, calibration: Calibration, t_d: int, depth: int) -> Risk:
    """The risk of one proposal.

    Args:
        p: (V,) the target's probabilities p̃ at this position, temperature and rule applied.
        embeddings: (V, D) of the target.
        t_d: the proposed token; t_m is the likeliest in p.
        depth: of the proposal in its tree, which chooses among bucketed constants.
    """
    t_m = int(p.argmax())
    if t_d == t_m:
        return Risk(0.0, calibration.overall.tau)
    emb = whitened_distance(embeddings, calibration.whitening, t_m, t_d)
    logit = margin(p, t_m, t_d) ** 2
    constants = calibration.constants(normalised_entropy(p), depth, emb)
    # A side whose factor is ∞ is not relied on; ∞ · 0 would be no number.
    sides = [f * raw for f, raw in ((constants.c_s, emb), (constants.alpha_kappa, logit)) if f < math.inf]
    return Risk(min(sides, default=math.inf), constants.tau)


def local_tolerance_score(p: np.ndarray, model: LanguageModel, calibration: Calibration, t_d: int, depth: int) -> float:
    """LTS = 1 - U / τ_δ (eq. 15): 1 for the target's own likeliest token, below 0 beyond the risk that is
    tolerated, -∞ for tokens that may not stand for another (`exact_only`).

    Args:
        model: the target. For the others see `risk`.
    """
    t_m = int(p.argmax())
    if t_d != t_m and not {t_d, t_m}.isdisjoint(exact_only(model.tokenizer)):
        return -math.inf
    found = risk(p, model.embeddings, calibration, t_d, depth)
    return 1.0 - found.bound / found.tolerance
