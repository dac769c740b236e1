"""Min-p: the tokens with at least a fraction p of the most probable token's probability (Nguyen et al. 2024)."""

from __future__ import annotations

from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, in_range, keep_where

_DEFAULT = default_numbers("min-p")


class MinP(Rule):
    """Keeps p_i ≥ p · p_max, which is l_i ≥ l_max - ln(1/p)."""

    title = "min-p"

    def __init__(self, min_p: PerRow = _DEFAULT["min_p"]) -> None:
        """
        Args:
            min_p: p, 0 (keeps everything) to 1. One value, or one per row.
        Raises: InputError.
        """
        self.min_p = in_range("min_p", min_p, 0, 1)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        # Computed on probabilities rather than logits, for the same rounding as in transformers.
        p = x.softmax(-1)
        return keep_where(x, p >= column(self.min_p, x) * p.amax(-1, keepdim=True))
