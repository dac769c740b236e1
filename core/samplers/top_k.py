"""Top-k: the k most probable tokens (Fan et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, in_range, keep_from

_DEFAULT = default_numbers("top-k")


class TopK(Rule):
    """Keeps the k largest logits, and ties with the k-th, as transformers does."""

    title = "top-k"

    def __init__(self, top_k: PerRow = _DEFAULT["top_k"]) -> None:
        """
        Args:
            top_k: k, at least 1; more than the vocabulary keeps everything. One value, or one per row.
        Raises: InputError.
        """
        self.top_k = in_range("top_k", top_k, 1, float("inf"))
        self._most = int(torch.as_tensor(top_k).max())

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        most = min(self._most, x.shape[1])
        k = column(self.top_k, x, torch.int64).clamp(max=most)
        return keep_from(x, x.topk(most).values.gather(1, (k - 1).expand(len(x), 1)))
