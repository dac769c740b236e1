"""Prompts for models that were trained to fill in the middle: special tokens mark the text before and after a gap.

The prompt is <prefix> text before <suffix> text after <middle>, and the model continues it with the text of the gap
(Bavarian et al., arXiv 2207.14255, prefix-suffix-middle). Each family of models has different names for the tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from core.models.tokenizer import Tokenizer
from core.ngram.interpolation import Interpolation
from core.ngram.store import CandidateIds, Contexts

NAMES = (  # prefix, suffix, middle
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
)
FOLLOWING = 128  # tokens of the following text that the model reads


@dataclass(frozen=True)
class FimTokens:
    """The three tokens of a vocabulary."""

    prefix: int
    suffix: int
    middle: int

    def around(self, before: list[int], after: list[int]) -> list[int]:
        """The prompt for a gap between two texts. Its continuation is the text of the gap."""
        return [self.prefix, *before, self.suffix, *after[:FOLLOWING], self.middle]


def fim_tokens(tokenizer: Tokenizer) -> FimTokens | None:
    """The tokens of this vocabulary; None if it has none."""
    for names in NAMES:
        ids = [tokenizer.special_names.get(name) for name in names]
        if None not in ids:
            return FimTokens(*ids)  # pyright: ignore[reportArgumentType]
    return None


class AcrossPrompt(Interpolation):
    """N-grams for drafts after such a prompt: their contexts are the text before the gap followed by the draft."""

    def __init__(self, inner: Interpolation, prompt: int, before: list[int]) -> None:
        """`prompt` is the number of the prompt's tokens, with which each context begins; `before` replaces them."""
        self._inner, self._prompt, self._before = inner, prompt, before

    def after(self, text: Sequence[int]) -> AcrossPrompt:
        """The same for drafts after the text before the gap; `text` is the prompt."""
        return AcrossPrompt(self._inner.after(self._before), self._prompt, self._before)

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds) -> np.ndarray:
        return self._inner.scores(logq, self._plain(contexts), candidates)

    def scores_without(
        self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._inner.scores_without(logq, self._plain(contexts), candidates)

    def proposals(self, contexts: Contexts, least: Sequence[float], known: Collection[int] = ()) -> list[list[int]]:
        return self._inner.proposals(self._plain(contexts), least, known)

    def alone(self, contexts: Contexts, candidates: CandidateIds) -> tuple[np.ndarray, np.ndarray] | None:
        return self._inner.alone(self._plain(contexts), candidates)

    def knows(self, ids: Sequence[int]) -> bool:
        return self._inner.knows(ids)

    def knows_own(self, context: Sequence[int], tokens: Sequence[int]) -> bool:
        return self._inner.knows_own(context, tokens)

    def _plain(self, contexts: Contexts) -> list[list[int]]:
        return [[*self._before, *context[self._prompt :]] for context in contexts]
