"""The token boundaries at which drafts may begin: after the text, or inside a half-typed word."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from core.drafting.drafts import Options
from core.samplers.base import Processor, Rule


@dataclass(frozen=True)
class Boundaries:
    """Drafts may begin after the first n tokens of `word`, with a token of `starts[n]`.

    Attributes:
        word: tokens of the half-typed word; [] without one.
        starts: token ids (n,) for each boundary; None allows any token, after the text.
        slips: tokens with which a draft may begin before the word although they do not agree with its letters, because
            these contain a slip: for each word that may be meant its ids (n,), and ln P(typed | meant) less ln P(typed
            | typed).
    """

    word: list[int] = field(default_factory=list)
    starts: list[np.ndarray] | None = None
    slips: list[tuple[np.ndarray, float]] = field(default_factory=list)

    @classmethod
    def of(cls, options: Options) -> Boundaries:
        """The boundary after the text, with the options' `first_ids` or with any token."""
        return cls([], None if options.first_ids is None else [np.asarray(options.first_ids)])

    def allowed(self, boundary: int) -> np.ndarray | None:
        """The tokens (n,) that are allowed there; None allows any."""
        return self.starts[boundary] if self.starts else None

    def likeliest(self, logits: list[Tensor]) -> int:
        """The most probable boundary, 0 … len(logits) - 1, for modes whose drafts all begin at one boundary.

        Args:
            logits: (V,) after the text, then after each of the word's first tokens, as far as they are known.
        """
        if not self.starts or len(logits) < 2:
            return 0
        path, mass = 0.0, []  # log-probability of the word's tokens so far; of beginning at each boundary
        for n, (after, allowed) in enumerate(zip(logits, self.starts, strict=False)):
            logq = after.log_softmax(0)
            share = float(torch.logsumexp(logq[torch.from_numpy(allowed)], 0)) if len(allowed) else -np.inf
            mass.append(path + share)
            path += float(logq[self.word[n]]) if n + 1 < len(logits) else 0.0
        return int(np.argmax(mass))


def apply_rule(rule: Processor, input_ids: Tensor, logits: Tensor, allowed: np.ndarray) -> Tensor:
    """Logits (B, V) of the tokens that a rule keeps of those that may follow, all others at -inf."""
    measuring = rule.measuring(logits, input_ids) if isinstance(rule, Rule) else rule
    return measuring(input_ids, mask_others(logits, allowed))


def mask_others(logits: Tensor, allowed: np.ndarray) -> Tensor:
    """Logits (…, V) with every other token at -inf."""
    where = torch.from_numpy(np.asarray(allowed, dtype=np.int64))
    masked = torch.full_like(logits, -torch.inf)
    masked[..., where] = logits[..., where]
    return masked
