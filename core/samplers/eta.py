"""η-sampling: a probability floor that decreases with the model's uncertainty (Hewitt et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, in_range, keep_where

_DEFAULT = default_numbers("eta")


class Eta(Rule):
    """Keeps p_i ≥ η = min(ε, √ε·exp(-H(p))), and always the most probable token."""

    title = "η"

    def __init__(self, epsilon: PerRow = _DEFAULT["epsilon"]) -> None:
        """
        Args:
            epsilon: ε, above 0, at most 1. One value, or one per row.
        Raises: InputError.
        """
        self.epsilon = in_range("epsilon", epsilon, 0, 1, open_low=True)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        p = x.softmax(-1)
        logp = x - x.logsumexp(-1, keepdim=True)
        entropy = -(logp.clamp(min=torch.finfo(x.dtype).min) * p).sum(-1, keepdim=True)
        epsilon = column(self.epsilon, x)
        eta = torch.minimum(epsilon, epsilon.sqrt() * (-entropy).exp())
        return keep_where(x, (p >= eta) | (x == best))
