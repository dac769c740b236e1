"""Top-p, or nucleus: the smallest set of most probable tokens with at least mass p (Holtzman et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, exponentials, in_range
from core.samplers.radix import boundary, keep_best

_DEFAULT = default_numbers("top-p")


class TopP(Rule):
    """Keeps a token while the more probable ones have mass below p; at p = 1 all, at p = 0 the most probable one."""

    title = "top-p"
    on_cpu = True

    def __init__(self, top_p: PerRow = _DEFAULT["top_p"]) -> None:
        """
        Args:
            top_p: p, 0 to 1. One value, or one per row.
        Raises: InputError.
        """
        self.top_p = in_range("top_p", top_p, 0, 1)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        e, z = exponentials(x, best)  # (B, V), (B, 1)
        p = column(self.top_p, z)
        enough = (p * z).clamp_min(torch.finfo(z.dtype).tiny).masked_fill(p >= 1, float("inf"))
        cut = boundary(x, [e], enough, lambda enough, mass: mass < enough)
        # Tokens at the cut hold while the mass up to and including them is too small; the one that reaches p is kept
        # too.
        return keep_best(x, cut.key, cut.held + 1, cut.ties)
