"""Proposals of a smaller model with the same tokenizer: a chain of tokens, each with siblings.

Under sampling it draws, with the target's own temperature and rule, `width` different tokens at each level and
goes on after the first; greedily it takes its likeliest ones. Where the target draws with dice that are known
beforehand, it counts them in, as an EAGLE-3 head does: it guesses the target's draw (`core.dice`).
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

LIKELY = 512  # tokens among which the one to propose is looked for, by the drafter's own probability


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
                f"{model.name} and {target.name} have different tokenizers; a draft model must share its target's. "
                "Choose a smaller model of the same family."
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
            proposed, shares = self._propose(logits, text, at, tree, chance, moment)
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
        self,
        logits: Tensor,
        text: list[int],
        at: int,
        tree: TokenTree,
        chance: np.random.Generator,
        moment: Moment,
    ) -> tuple[list[int], list[float]]:
        if self.choice.greedy:
            scores, likely = torch.topk(logits / moment.temperature, min(LIKELY, len(logits)))
            if moment.dice is not None:
                scores = scores + torch.from_numpy(moment.dice.gumbel(len(text), likely.cpu().numpy())).to(scores)
            top, places = torch.topk(scores, self.width)
            return likely[places].tolist(), (top - torch.logsumexp(scores, 0)).exp().tolist()
        q = self.choice.probabilities(logits, text)
        tree.drawn[at] = q
        found = draw_several(q, self.width, chance)
        return found, [float(q[x]) for x in found]

    def close(self) -> None:
        self._sequence.close()
