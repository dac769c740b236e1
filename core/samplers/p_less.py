"""P-less: the tokens at least as probable as a correct random guess (Tan, Wu and Howard, arXiv 2509.23234)."""

from __future__ import annotations

from torch import Tensor

from core.samplers.base import Rule, exponentials, keep_where


class PLess(Rule):
    """Keeps p_i ≥ Σ_j p_j², the probability that two independent samples of p are the same token. The threshold follows
    the whole distribution, so there is no parameter; it never exceeds the largest p.
    """

    title = "p-less"

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        e, z = exponentials(x, best)  # p = e / z, so p ≥ Σp² is e ≥ Σe² / z
        threshold = e.double().square().sum(-1, keepdim=True) / z
        # Rounding must not drop the most probable token, whose e is 1.
        return keep_where(x, e >= threshold.clamp(max=1).to(e.dtype))
