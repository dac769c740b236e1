"""Converts the target's logits to the probabilities from which its next token is sampled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.samplers.base import Processor
from core.samplers.chain import parts
from core.samplers.greedy import Greedy
from core.samplers.temperature import Temperature


@dataclass(frozen=True)
class TargetSampling:
    """Temperature, then a rule or a chain of rules of `core.samplers`.

    Attributes:
        temperature: T; 0 takes the most probable token.
        rule: crops the logits after the temperature; None crops nothing.
    """

    temperature: float = 1.0
    rule: Processor | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature {self.temperature} given; 0 or more expected.")

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken."""
        return self.overall_temperature == 0

    @cached_property
    def overall_temperature(self) -> float:
        """The temperature of sampling, including the one in the rule; 0 for the most probable token."""
        product = self.temperature
        for part in parts(self.rule):
            if isinstance(part, Greedy):
                return 0.0
            if isinstance(part, Temperature):
                product *= float(torch.as_tensor(part.temperature).flatten()[0])
        return product

    @property
    def crops(self) -> str:
        """The names of the rules that drop tokens; "" if there are none."""
        cropping = [part for part in parts(self.rule) if part is not None and not isinstance(part, Temperature)]
        return ", ".join(getattr(part, "title", "a rule of your own") for part in cropping)

    def probabilities(self, logits: Tensor, ids: list[int]) -> np.ndarray:
        """Returns probabilities (V,) float64 for logits (V,) after the text `ids`; 0 for tokens that the rule drops."""
        if self.greedy:
            p = np.zeros(len(logits))
            p[int(logits.argmax())] = 1.0
            return p
        x = logits / self.temperature if self.temperature != 1 else logits
        if self.rule is not None:
            x = self.rule(torch.tensor([ids]), x[None])[0]
        return softmax(x.numpy())


def softmax(x: np.ndarray) -> np.ndarray:
    """Returns probabilities (V,) float64 for logits, which may contain -inf."""
    e = np.exp(x.astype(np.float64) - float(x.max()))
    return e / e.sum()
