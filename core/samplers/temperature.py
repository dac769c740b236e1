"""Temperature: divides the logits by T. Below 1 the most probable tokens gain weight, above 1 they lose it. Drops
nothing."""

from __future__ import annotations

from torch import Tensor

from core.samplers.base import PerRow, Rule, column, in_range


class Temperature(Rule):
    """p_i ∝ exp(l_i / T) (Ackley et al. 1985)."""

    title = "temperature"

    def __init__(self, temperature: PerRow = 1.0) -> None:
        """
        Args:
            temperature: T above 0; for the limit T → 0 use `Greedy`. One value, or one per row.
        Raises: InputError.
        """
        self.temperature = in_range("temperature", temperature, 0, float("inf"), open_low=True)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        return x / column(self.temperature, x)
