"""ARC-Decode: pruning before verification, and acceptance within a calibrated risk.

The two parts are independent. *Pruning* (eqs. 1-4) drops improbable proposals before the target verifies them.
*LTS*, the local tolerance score (eqs. 10, 13-15), decides whether a proposed token t_d may replace the target's most
probable token t_m, which it may if both lead to nearly the same next distribution. LTS is computed from the logits of
the verifying pass, the embeddings, and constants that `core.speculative.calibration` stores for each model.
"""

from __future__ import annotations

import math
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

CLAMP = 1e-9  # lower bound of the probabilities in a margin: the ε-clamp of eq. 11


@dataclass(frozen=True)
class Pruning:
    """The parameters of pruning.

    Attributes:
        lam: λ, how strongly uncertainty and depth raise the share of mass that is dropped (ours, see `share`); 0 gives
            the paper's equations.
        epsilon: ε, the share of each depth's mass that may be dropped where the target is sure (eq. 3).
        leaf: τ_d / θ_d, at least 1: the threshold of leaves relative to that of tokens with children (eq. 4).
        noise: whether a path's probability includes the noise with which the target samples. The paper's e^ℓ(c) does
            not, because its draws are not coupled: there the drafter does not know which tokens the noise favours.
            Here it proposes these, which e^ℓ(c) alone would drop.
    """

    lam: float = PRUNE_LAMBDA
    epsilon: float = PRUNE_EPSILON
    leaf: float = 1.0
    noise: bool = True

    def __post_init__(self) -> None:
        if self.lam < 0:
            raise InputError(f"lam {self.lam} given; 0 or more expected.")
        if not 0 <= self.epsilon < 1:
            raise InputError(f"epsilon {self.epsilon} given; 0 to below 1 expected.")
        if self.leaf < 1:
            raise InputError(f"leaf {self.leaf} given; at least 1 expected: the threshold of leaves is not lower.")

    def share(self, depth: int, h: float) -> float:
        """Returns ε_d = 1 - (1 - ε)·exp(-λ·d·H_m). This rule is ours: eq. 1 multiplies every score of a depth by
        exp(-λ·d·H_m), but eq. 3 compares only scores of the same depth, so the factor cancels out and λ has no effect.
        Here the factor reduces the mass that each depth keeps."""
        return 1 - (1 - self.epsilon) * math.exp(-self.lam * depth * h)


def normalised_entropy(p: np.ndarray) -> float:
    """Returns H_m of eq. 2: the entropy of p (V,) as a share of the largest possible entropy."""
    return entropy(p) / math.log(len(p))


def kept(tree: TokenTree, h: float, pruning: Pruning) -> list[int]:
    """Returns the indices of the kept tokens (eqs. 3-4, with the path's probability as the score of eq. 1, and our
    ε_d). The parent of every kept token is kept, too.

    θ_d is the *largest* threshold that covers 1 - ε_d of a depth's mass: the smallest, as the paper writes, would keep
    all tokens. h is H_m at the position of the text's last token, one step before the tree, which is known before the
    pass that verifies the tree.
    """
    score = tree.mass(pruning.noise)
    children = tree.children()
    at_depth: dict[int, list[int]] = {}
    for node, depth in enumerate(tree.depths):
        at_depth.setdefault(depth, []).append(node)
    standing: set[int] = set()
    for depth in sorted(at_depth):
        indices = at_depth[depth]
        theta = _threshold(score[indices], pruning.share(depth, h))
        for node in indices:
            bound = theta if node in children else theta * pruning.leaf
            if score[node] >= bound and (depth == 0 or tree.parents[node] in standing):
                standing.add(node)
        # A kept parent keeps at least its best child.
        for parent in {tree.parents[node] for node in indices}:
            if (parent < 0 or parent in standing) and not standing & set(children[parent]):
                standing.add(max(children[parent], key=lambda node: score[node]))
    return sorted(standing)


def _threshold(scores: np.ndarray, epsilon: float) -> float:
    """Returns the largest θ with Σ_{q̃ ≥ θ} q̃ ≥ (1 - ε) Σ q̃ (eq. 3)."""
    ordered = np.sort(scores)[::-1]
    covered = np.cumsum(ordered)
    at = int(np.searchsorted(covered, (1 - epsilon) * covered[-1] * (1 - 1e-12)))
    return float(ordered[min(at, len(ordered) - 1)])


def margin(p: np.ndarray, t_m: int, t_d: int) -> float:
    """Returns Δℓ̃ = log p̃(t_m) - log p̃(t_d) after the ε-clamp (eq. 11)."""
    return math.log(max(p[t_m], CLAMP)) - math.log(max(p[t_d], CLAMP))


def whitened_distance(embeddings: Tensor, whitening: np.ndarray, t_m: int, t_d: int) -> float:
    """Returns ‖W Δe‖² (eq. 10) of the *input* embeddings, whether or not the model ties them to its output."""
    difference = (embeddings[t_d] - embeddings[t_m]).double().numpy()
    return float(np.square(whitening * difference).sum())


class Risk(NamedTuple):
    """A proposal's risk, and the highest tolerated risk.

    Attributes:
        bound: U = min(U_emb, U_logit) (eqs. 10, 13, 14): JS(q_{j+1}, r_{j+1}) is at most U with probability 1 - δ.
        tolerance: τ_δ.
    """

    bound: float
    tolerance: float


def risk(p: np.ndarray, model: LanguageModel, calibration: Calibration, t_d: int, depth: int) -> Risk:
    """Computes the risk of one proposal.

    Args:
        p: (V,) the target's probabilities p̃ at this position, after temperature and rule.
        model: the target.
        t_d: the proposed token; t_m is the most probable in p.
        depth: of the proposal in its tree, which selects the bucket of constants.
    """
    t_m = int(p.argmax())
    if t_d == t_m:
        return Risk(0.0, calibration.overall.tau)
    emb = whitened_distance(model.embedded([t_m, t_d]), calibration.whitening, 0, 1)
    logit = margin(p, t_m, t_d) ** 2
    constants = calibration.constants(normalised_entropy(p), depth, emb)
    return Risk(constants.bound(emb, logit), constants.tau)


def local_tolerance_score(p: np.ndarray, model: LanguageModel, calibration: Calibration, t_d: int, depth: int) -> float:
    """Returns LTS = 1 - U / τ_δ (eq. 15): 1 for the target's most probable token, below 0 beyond the tolerated risk,
    -∞ for tokens that may not replace another (`exact_only`).

    Args:
        model: the target. The other arguments are those of `risk`.
    """
    t_m = int(p.argmax())
    if t_d != t_m and not {t_d, t_m}.isdisjoint(exact_only(model.tokenizer)):
        return -math.inf
    bounded = risk(p, model, calibration, t_d, depth)
    return 1.0 - bounded.bound / bounded.tolerance
