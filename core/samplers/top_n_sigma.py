"""Top-nσ: the tokens within n standard deviations of the largest logit (Tang et al., arXiv 2411.07641)."""

from __future__ import annotations

import torch
from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, in_range, keep_from

_DEFAULT = default_numbers("top-n-sigma")


class TopNSigma(Rule):
    """Keeps l_i ≥ M - n·σ, M the largest logit and σ the logits' standard deviation (algorithm 1).

    Temperature scales M and σ alike, so the kept set is the same for every T (theorem 4.1), at any position of the rule
    in a chain. Tokens that an earlier rule dropped do not enter σ; those that cannot follow a half-typed word do
    (`measuring`), because σ belongs to the model's distribution. `≥` and the sample deviation follow the
    paper's listing (its algorithm uses >, which would keep nothing when all logits are equal).
    """

    title = "top-nσ"

    def __init__(self, n: PerRow = _DEFAULT["n"]) -> None:
        """
        Args:
            n: 0 (only the most probable token) upwards; the paper's upper limit is 2·√3. One value, or one per row.
        Raises: InputError.
        """
        self.n = in_range("n", n, 0, float("inf"))
        self._sigma: Tensor | None = None  # (B, 1), of the whole rows

    def measuring(self, whole: Tensor, input_ids: Tensor | None = None) -> TopNSigma:
        rule = TopNSigma(self.n)
        rule._sigma = deviation(whole.float() if whole.dtype != torch.float64 else whole)
        return rule

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        sigma = deviation(x) if self._sigma is None else self._sigma.to(x)
        return keep_from(x, best - column(self.n, x) * sigma)


def deviation(x: Tensor) -> Tensor:
    """Sample standard deviation (B, 1) of the logits above -inf; 0 if there is only one."""
    if x.device.type == "cpu" and x.shape[1] > 1:
        plain = x.std(-1, keepdim=True)
        if bool(plain.isfinite().all()):  # nothing dropped yet
            return plain
    alive = x > -torch.inf
    count = alive.sum(-1, keepdim=True)
    mean = torch.where(alive, x, 0).sum(-1, keepdim=True) / count
    squares = torch.where(alive, (x - mean) ** 2, 0).sum(-1, keepdim=True)
    return (squares / (count - 1).clamp(min=1)).sqrt()
