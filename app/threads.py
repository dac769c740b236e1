"""How many threads torch may use beside the model."""

from __future__ import annotations

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
