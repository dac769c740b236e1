"""Statistics of speculation, as the page shows them beside the drafts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """Statistics of speculation so far.

    Attributes:
        accept_length: τ, tokens of a draft per pass over it; 0 before the first pass.
        speedup: the time that the same tokens take one by one, by the machine's cost curve, over the time taken.
        notice: a sentence, if speculation was switched off, or the drafter does not fit the model as it is now.
    """

    accept_length: float
    speedup: float
    notice: str | None
