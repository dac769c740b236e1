"""How the target's next token is chosen: from logits to the probabilities it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.samplers.base import Processor


@dataclass(frozen=True)
class TargetSampling:
    """Temperature, then a rule or a chain of rules of `core.samplers`.

    Attributes:
        temperature: T; 0 takes the likeliest token.
        rule: crops the logits after the temperature; None crops nothing.
    """

    temperature: float = 1.0
    rule: Processor | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature {self.temperature} given; 0 or more expected.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def probabilities(self, logits: Tensor, ids: list[int]) -> np.ndarray:
        """(V,) float64, from logits (V,) after the text `ids`; 0 for tokens that the rule drops."""
        if self.greedy:
            p = np.zeros(len(logits))
            p[int(logits.argmax())] = 1.0
            return p
        x = logits / self.temperature if self.temperature != 1 else logits
        if self.rule is not None:
            x = self.rule(torch.tensor([ids]), x[None])[0]
        return softmax(x.numpy())


def softmax(x: np.ndarray) -> np.ndarray:
    """(V,) float64 out of logits, -inf among them."""
    e = np.exp(x.astype(np.float64) - float(x.max()))
    return e / e.sum()
