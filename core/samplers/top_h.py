"""Top-H: as much mass as a bound on the entropy of the kept tokens allows (Potraghloo et al., arXiv 2509.02510)."""

from __future__ import annotations

import torch
from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, exponentials, in_range
from core.samplers.radix import boundary, keep_best

_DEFAULT = default_numbers("top-h")


class TopH(Rule):
    """Keeps the longest run of most probable tokens, renormalised to q_S, with H(q_S) ≤ α·H(p) (eq. 56 of Top-W).

    Adding a less probable token always raises the entropy of such a run, so the first token above the bound ends it.
    """

    title = "top-H"
    on_cpu = True

    def __init__(self, alpha: PerRow = _DEFAULT["alpha"]) -> None:
        """
        Args:
            alpha: α above 0, at most 1 (keeps everything). One value, or one per row.
        Raises: InputError.
        """
        self.alpha = in_range("alpha", alpha, 0, 1, open_low=True)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        e, z = exponentials(x, best)
        energy = e * (best - x).clamp(max=1e4)  # -e·ln e; a dropped token's e is 0
        alpha = column(self.alpha, z)
        bound = alpha * _entropy(z, energy.sum(-1, keepdim=True, dtype=torch.float64))
        bound = bound.masked_fill(alpha >= 1, float("inf"))
        cut = boundary(x, [e, energy], bound, lambda bound, mass, warm: _entropy(mass, warm) <= bound)
        alone = cut.before == 0
        return keep_best(x, cut.key, torch.where(alone, cut.held.clamp(min=1), cut.held), cut.ties)


def _entropy(mass: Tensor, energy: Tensor) -> Tensor:
    """H in nats of weights e, renormalised, from Σe and -Σ e·ln e; 0 for an empty set."""
    return torch.where(mass > 0, mass.log() + energy / mass, 0.0)
