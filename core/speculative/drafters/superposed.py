"""Proposals from Superposed Decoding: a tree of k drafts, made with one pass per level.

If the target samples with known noise (`core.noise`), it is added to the logits from which the drafts are made, so
they are made of tokens that the target probably samples.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.models.base import LanguageModel
from core.noise import SeededNoise
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.model import LIKELY
from core.speculative.tree import TokenTree
from core.superposed import superpose


class SuperposedDrafter(Drafter):
    """Proposes drafts of the target itself, or of a smaller model with the same tokenizer. The confidence in a token is
    its probability in its draft."""

    name = "superposed"

    def __init__(self, model: LanguageModel, k: int = 3, **options: Any) -> None:
        """
        Args:
            model: makes the drafts.
            k: the number of drafts.
            options: of `core.superposed.superpose`; `forks` is 0 by default, because forks need more passes.
        """
        if k < 1:
            raise InputError(f"k {k} given; at least 1 draft expected.")
        self.model, self.k = model, k
        self.options = {"forks": 0, **options}
        self.width = k
        self._sequence = model.open()

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        room = self.model.context_length - len(moment.ids) - 1
        depth = min(depth, max(self.most // self.k, 1), room)
        if depth < 1:
            return TokenTree()
        rule = None if moment.noise is None else _Noisy(moment.noise, moment.temperature)
        how = {**self.options, "sequence": self._sequence, "tau": moment.temperature, "rule": rule}
        *_, last = superpose(self.model, moment.ids, self.k, depth, **how)
        return TokenTree.of_paths(
            [*zip(draft.ids, np.exp(np.diff(draft.totals, prepend=0.0)).tolist(), strict=True)] for draft in last.drafts
        )

    def close(self) -> None:
        self._sequence.close()


class _Noisy:
    """A rule that adds the target's noise to the logits of the most probable tokens, and drops the others."""

    reads_text: ClassVar[bool] = False  # only its length, which drafts that share a pass have in common

    def __init__(self, noise: SeededNoise, temperature: float) -> None:
        self.noise, self.temperature = noise, temperature

    def __call__(self, input_ids: Tensor, logits: Tensor) -> Tensor:
        noisy = torch.full_like(logits, -torch.inf)
        for row, scores in zip(noisy, logits, strict=True):
            top, tokens = torch.topk(scores, min(LIKELY, len(scores)))
            gumbel = self.noise.gumbel(input_ids.shape[1], tokens.cpu().numpy())
            row[tokens] = top + self.temperature * torch.from_numpy(gumbel).to(top)
        return noisy
