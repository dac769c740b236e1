"""Proposals of a smaller model with the same tokenizer: a chain of tokens, each with siblings.

Under sampling it draws, with the target's own temperature and rule, `width` different tokens at each level and
goes on after the first; greedily it takes its likeliest ones.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.models.base import LanguageModel
from core.speculative.acceptance import draw_several
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.target import TargetSampling
from core.speculative.tree import DraftDistribution, TokenTree


class ModelDrafter(Drafter):
    """Proposes tokens of a smaller model, with one of its sequences, which contains the text."""

    has_distribution = True

    def __init__(
        self, model: LanguageModel, target: LanguageModel, choice: TargetSampling | None = None, width: int = 1
    ) -> None:
        """
        Args:
            model: the smaller one.
            target: it must have the same tokenizer.
            choice: how the text is sampled; None for greedy decoding.
            width: the number of tokens proposed at each level.
        Raises: InputError if the two models' tokenizers differ, or width is below 1.
        """
        if model.tokenizer.fingerprint != target.tokenizer.fingerprint or model.vocab_size != target.vocab_size:
            raise InputError(
                f"{model.name} and {target.name} have different tokenizers; a draft model must share its target's."
            )
        if width < 1:
            raise InputError(f"width {width} given; at least 1 token per level expected.")
        self.name = f"model {model.name}"
        self.choice = choice or TargetSampling(temperature=0.0)
        self.draws = not self.choice.greedy
        self.width, self.model = width, model
        self._sequence = model.open()

    def draft(self, moment: Moment, depth: int, chance: np.random.Generator) -> TokenTree:
        ids = moment.ids
        room = self.model.context_length - len(ids)
        depth = min(depth, self.most // self.width, room)
        if depth < 1:
            return TokenTree()
        tree = TokenTree()
        logits, at, text = self._sequence.sync(ids), -1, list(ids)
        for level in range(depth):
            if moment.distributions:
                tree.own[at] = DraftDistribution(logits, temperature=moment.temperature)
            proposed, shares = self._propose(logits, text, at, tree, chance)
            first = len(tree.ids)
            tree.ids.extend(proposed)
            tree.parents.extend([at] * len(proposed))
            tree.confidence.extend(shares)
            at = first
            if level + 1 < depth:
                text.append(tree.ids[at])
                logits = self._sequence.feed([tree.ids[at]])
        return tree  # the fed proposals stay in the cache: `sync` keeps those that become text

    def _propose(
        self, logits: Tensor, text: list[int], at: int, tree: TokenTree, chance: np.random.Generator
    ) -> tuple[list[int], list[float]]:
        if self.choice.greedy:
            top, ids = torch.topk(logits, self.width)
            shares = (top - torch.logsumexp(logits, 0)).exp()
            return ids.tolist(), shares.tolist()
        q = self.choice.probabilities(logits, text)
        tree.drawn[at] = q
        found = draw_several(q, self.width, chance)
        return found, [float(q[x]) for x in found]

    def close(self) -> None:
        self._sequence.close()
