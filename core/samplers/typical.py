"""Locally typical sampling: tokens whose surprise is close to its expectation (Meister et al. 2022)."""

from __future__ import annotations

from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, in_range, keep_where
from core.samplers.radix import boundary

_DEFAULT = default_numbers("typical")


class Typical(Rule):
    """Keeps the tokens with the smallest | -ln p_i - H(p) | that together have at least the given mass.

    The most probable token may be dropped. Ties at the last deviation are kept, as in transformers.
    """

    title = "typical"
    on_cpu = True

    def __init__(self, mass: PerRow = _DEFAULT["mass"]) -> None:
        """
        Args:
            mass: above 0, at most 1 (keeps everything). One value, or one per row.
        Raises: InputError.
        """
        self.mass = in_range("mass", mass, 0, 1, open_low=True)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        logp = x.log_softmax(-1)
        p = logp.exp()
        entropy = -(logp * p).nansum(-1, keepdim=True)
        nearness = -(-logp - entropy).abs()  # (B, V); dropped tokens are infinitely far
        mass = column(self.mass, x).double()
        enough = (mass * p.sum(-1, keepdim=True).double()).masked_fill(mass >= 1, float("inf"))
        cut = boundary(nearness, [p], enough, lambda enough, kept: kept < enough)
        return keep_where(x, nearness >= cut.key)
