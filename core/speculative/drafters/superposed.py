"""Proposals from Superposed Decoding: a tree of k drafts, made with one pass per level."""

from __future__ import annotations

from typing import Any

from core.errors import InputError
from core.models.base import LanguageModel
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.tree import TokenTree
from core.superposed import superpose

PRIOR = 0.5  # confidence in each token after the first; the estimated acceptance rate corrects it


class SuperposedDrafter(Drafter):
    """Proposes drafts of the target itself, or of a smaller model with the same tokenizer."""

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
        last = None
        for drafts in superpose(self.model, moment.ids, self.k, depth, sequence=self._sequence, **self.options):
            last = drafts
        if last is None:
            return TokenTree()
        return TokenTree.of_paths(
            [(token, PRIOR if i else min(p_first, 1.0)) for i, token in enumerate(ids)]
            for ids, p_first in zip(last.ids, last.p_first, strict=True)
        )

    def close(self) -> None:
        self._sequence.close()
