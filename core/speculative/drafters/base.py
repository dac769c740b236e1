"""The interface of drafters, which propose the next tokens of a text at a low cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from core.dice import Dice
from core.speculative.tree import TokenTree


@dataclass(frozen=True)
class Moment:
    """The inputs of a drafter.

    Attributes:
        ids: the text so far, its last token included.
        features: for drafters that name `layers`: the target's hidden states (len(ids) - 1, 3·D) that enter those
            layers, side by side, of every position of the text but the last token's, which is not fed yet. A view:
            copy it to keep it longer than the call.
        dice: that the target's tokens are drawn with; None where it takes the likeliest.
        temperature: that they are drawn at; 1 without dice.
        whole: the drafter's own distributions decide something, so the tree is to contain them, and the likelihoods.
    """

    ids: list[int]
    features: Tensor | None = None
    dice: Dice | None = None
    temperature: float = 1.0
    whole: bool = False


class Drafter(ABC):
    """Proposes a tree of tokens after a text.

    Attributes:
        name: for tables and the status line.
        draws: its proposals are drawn by chance. Then a part of a tree may be left out only for reasons that were known
            before the draw, or sampling is no longer lossless: it is told how deep to go, and not pruned afterwards.
        width: most tokens per level, for `draws`.
        most: most tokens that it proposes at once.
        layers: of the target, whose hidden states it wants to see (EAGLE-3: a low, a middle and a high one).
        tells: it has a distribution over the tokens, and hands it over when it is asked to (`Moment.whole`).
    """

    name: str
    draws: bool = False
    width: int = 1
    most: int = 32
    layers: tuple[int, ...] = ()
    tells: bool = False

    @abstractmethod
    def draft(self, moment: Moment, depth: int, chance: np.random.Generator) -> TokenTree:
        """Propose up to `depth` levels; an empty tree is fine. Every call sees a text that goes on from the last
        one's, or another text altogether."""

    def close(self) -> None:  # noqa: B027 - most drafters hold nothing
        """Release its resources; closing twice is harmless."""
