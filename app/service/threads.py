"""Thread settings: processors for torch beside llama.cpp, and the interpreter for the event loop beside the engine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.models import LanguageModel


def leave_cores_to(model: LanguageModel) -> None:
    """Gives torch one thread when llama.cpp runs the model.

    Torch then only computes rules on one row of logits, a millisecond each. A second thread would wait for a core on
    which one of llama.cpp's threads still spins: ten times as long, and seconds at worst.
    """
    if model.backend == "llama.cpp":
        import torch

        torch.set_num_threads(1)


def take_turns_quickly() -> None:
    """Lets threads switch after 0.5 ms instead of Python's 5.

    Every call of torch releases the interpreter and waits for it afterwards. While requests of many tabs keep the
    event loop busy, the engine thread would wait 5 ms dozens of times in one pass.
    """
    sys.setswitchinterval(0.0005)
