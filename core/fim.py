"""Models that were trained to fill in the middle: they have tokens that say which text stands before and after a gap.

The prompt is then <prefix> text before <suffix> text after <middle>, and what the model goes on with fills the gap
(Bavarian et al., arXiv 2207.14255, prefix-suffix-middle). Every family of models has names of its own for the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.models.tokenizer import Tokenizer

NAMES = (  # prefix, suffix, middle
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
)
FOLLOWING = 128  # tokens of the following text that the model sees


@dataclass(frozen=True)
class FimTokens:
    """The three tokens of a vocabulary."""

    prefix: int
    suffix: int
    middle: int

    def around(self, before: list[int], after: list[int]) -> list[int]:
        """The prompt for a gap between two texts. After its last token stands what fills the gap."""
        return [self.prefix, *before, self.suffix, *after[:FOLLOWING], self.middle]


def fim_tokens(tokenizer: Tokenizer) -> FimTokens | None:
    """The tokens of this vocabulary; None where it has none."""
    for names in NAMES:
        ids = [tokenizer.special_names.get(name) for name in names]
        if None not in ids:
            return FimTokens(*ids)  # pyright: ignore[reportArgumentType]
    return None
