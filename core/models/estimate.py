"""Estimates how long drafts take with a model that is not loaded, from passes of the default model on this machine.

A pass with few inputs takes the time of reading the weights, so its time grows with their bytes. A key takes one pass
of the typed token, and one pass of four rows for each further token of the drafts.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.models.costs import CostCurve, timing_rows
from core.models.load import load_model
from core.models.torch_model import TorchModel

ROUNDS = 20  # of timed passes: a second or two, and less than ten with any load
ROWS = 4  # of a pass that grows three drafts
# How many times as long passes of one row, and of four, take in llama.cpp: docs/performance.md
ONE_IN_LLAMA_CPP, FOUR_IN_LLAMA_CPP = 1.7, 3.4


@dataclass(frozen=True)
class Speed:
    """Of compiled code on this machine.

    Attributes:
        one, four: ms of a pass of one row, and of four rows, for each byte of weights.
    """

    one: float
    four: float

    def ms(self, weights: int, length: int, compiled: bool = True) -> float:
        """Of a key: of drafts of `length` tokens, with a model of so many bytes."""
        one, four = (1.0, 1.0) if compiled else (ONE_IN_LLAMA_CPP, FOUR_IN_LLAMA_CPP)
        return weights * (self.one * one + self.four * four * (length - 1))


def measure() -> Speed | None:
    """Times the default model; None if it does not run in compiled code here. Raises as `load_model`."""
    model = load_model("default", "torch")
    try:
        if not isinstance(model, TorchModel) or not model.compiled_as:
            return None
        timing = timing_rows(model, (1, ROWS), ROUNDS)
        while True:
            try:
                next(timing)
            except StopIteration as end:
                curve = CostCurve.of_times(end.value)
                break
        weights = model.layers.module.bytes
        return Speed(curve(1) / weights, curve(ROWS) / weights)
    finally:
        model.close()
