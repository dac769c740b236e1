"""How the engine thread shares processors with torch's threads, and the interpreter with the server's event loop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.models import LanguageModel


def leave_cores_to(model: LanguageModel) -> None:
    """One thread for torch where llama.cpp runs the model.

    What torch does then are rules on one row of logits, a millisecond each. A second thread would wait for a core on
    which one of llama.cpp's still spins: ten times as long, and seconds at worst.
    """
    if model.backend == "llama.cpp":
        import torch

        torch.set_num_threads(1)


def take_turns_quickly() -> None:
    """Let threads hand the interpreter over after 0.5 ms, not Python's 5.

    Every call of torch lets go of the interpreter, and waits for it afterwards: while requests of many tabs keep the
    event loop busy, the engine thread would wait 5 ms dozens of times in one pass.
    """
    sys.setswitchinterval(0.0005)
