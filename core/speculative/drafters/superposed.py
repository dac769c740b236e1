"""The k drafts of Superposed Decoding as the tree: k beginnings for one pass per level."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.errors import InputError
from core.models.base import LanguageModel
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.tree import TokenTree
from core.superposed import superpose

BELIEF = 0.5  # first belief in a token past the first; running estimates correct it


class SuperposedDrafter(Drafter):
    """Drafts by the target itself, or by a smaller model with the same tokenizer."""

    name = "superposed"

    def __init__(self, model: LanguageModel, k: int = 3, **options: Any) -> None:
        """
        Args:
            model: what the drafts come from.
            k: their number.
            options: of `core.superposed.superpose`; without forks unless they are asked for, which cost passes.
        """
        if k < 1:
            raise InputError(f"k {k} given; at least 1 draft expected.")
        self.model, self.k, self.options = model, k, {"forks": 0, **options}
        self.width = k
        self._sequence = model.open()

    def draft(self, moment: Moment, depth: int, chance: np.random.Generator) -> TokenTree:
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
            [(token, BELIEF if i else min(beginning, 1.0)) for i, token in enumerate(ids)]
            for ids, beginning in zip(last.ids, last.beginnings, strict=True)
        )

    def close(self) -> None:
        self._sequence.close()
