"""The interface of drafters, which propose the next tokens of a text at a low cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from core.noise import SeededNoise
from core.speculative.tree import TokenTree


@dataclass(frozen=True)
class Moment:
    """The inputs of a drafter.

    Attributes:
        ids: the text so far, including its last token.
        features: for drafters with `layers`, the target's hidden states (len(ids) - 1, 3·D) that enter those layers,
            concatenated, at every position of the text except the last token's, which is not fed yet. A view: a caller
            that needs it after the call copies it.
        noise: the noise with which the target's tokens are sampled; None if it takes the most probable token, or if
            the drafter may not know it. With `sampled` it is the drafter's own.
        temperature: T of the target's samples; 1 if it takes the most probable token.
        sampled: whether the proposals must be samples of the drafter's own distributions, for the rejection sampler.
        distributions: whether the tree must contain the drafter's own distributions and likelihoods.
    """

    ids: list[int]
    features: Tensor | None = None
    noise: SeededNoise | None = None
    temperature: float = 1.0
    distributions: bool = False
    sampled: bool = False


class Drafter(ABC):
    """Proposes a tree of tokens after a text.

    Attributes:
        name: for tables and the status line.
        width: the usual number of tokens per level.
        most: the highest number of tokens in a tree.
        layers: the target's layers whose input it needs (EAGLE-3: a low, a middle and a high one).
        samples: whether it can sample its proposals (`Moment.sampled`).
    """

    name: str
    width: int = 1
    most: int = 32
    layers: tuple[int, ...] = ()
    samples: bool = False

    @abstractmethod
    def draft(self, moment: Moment, depth: int) -> TokenTree:
        """Returns a tree of at most `depth` levels, which may be empty. The text may continue the previous call's text,
        or may be another."""

    def draft_all(self, moments: Sequence[Moment], depths: Sequence[int]) -> list[TokenTree]:
        """Returns a tree for each of several texts that are continued together: the trees that `draft` returns for
        them, one after the other. A drafter that computes several at once with less work overrides this."""
        return [self.draft(*arguments) for arguments in zip(moments, depths, strict=True)]

    def close(self) -> None:  # noqa: B027 - most drafters have no resources
        """Releases the resources; may be called twice."""
