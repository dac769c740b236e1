"""Greedy: only the most probable token, the first of several with equal probability."""

from __future__ import annotations

import torch
from torch import Tensor

from core.samplers.base import DROPPED, Rule


class Greedy(Rule):
    """Keeps argmax_i l_i."""

    title = "greedy"

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        return torch.full_like(x, DROPPED).scatter_(1, x.argmax(-1, keepdim=True), best)
