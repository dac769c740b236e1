"""Estimates how long drafts take with a model that is not loaded, from passes of another one on this machine: of the
default model, or of the model that drafts.

A pass with few inputs takes the time of reading the weights, so its time grows with their bytes. A key takes one pass
of the typed token, and one pass of four rows for each further token of the drafts.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.models.costs import CostCurve, finished, timing
from core.models.load import load_model
from core.models.torch_model import TorchModel
from core.options import DRAFTING

ROUNDS = 20  # of timed passes: a second or two, and less than ten with any load
ROWS = 4  # of a pass that grows three drafts
# How many times as long passes of one row, and of four, take in llama.cpp: research/docs/performance.md
ONE_IN_LLAMA_CPP, FOUR_IN_LLAMA_CPP = 1.7, 3.4
LENGTH = int(DRAFTING["length"].default)


@dataclass(frozen=True)
class Speed:
    """Of compiled code on this machine.

    Attributes:
        one, four: ms of a pass of one row, and of four rows, for each byte of weights.
    """

    one: float
    four: float

    @classmethod
    def of(cls, costs: CostCurve, weights: int) -> Speed:
        """From the times of a model's rows.

        Args:
            weights: bytes of the model.
        """
        return cls(costs(1) / weights, costs(ROWS) / weights)

    def ms(self, weights: int, length: int = LENGTH, compiled: bool = True) -> float:
        """Of a key: of drafts of `length` tokens, with a model of so many bytes."""
        one, four = (1.0, 1.0) if compiled else (ONE_IN_LLAMA_CPP, FOUR_IN_LLAMA_CPP)
        return weights * (self.one * one + self.four * four * (length - 1))


def measure() -> Speed | None:
    """Times the default model; None if it does not run in compiled code here. Raises as `load_model`."""
    model = load_model("default", "torch")
    try:
        if not isinstance(model, TorchModel) or not model.compiled_as:
            return None
        times = finished(timing(model, "rows", (1, ROWS), ROUNDS))
        return Speed.of(CostCurve.of_times(times), model.layers.module.bytes)
    finally:
        model.close()
