"""Proposals of a smaller model with the same tokenizer: a chain of its most probable tokens.

If the target samples with known noise (`core.noise`), the smaller model adds it to its own distribution, as an EAGLE-3
head does, and proposes the token that the target probably samples. For the rejection sampler it samples its own
distribution with noise of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.errors import InputError
from core.models.base import LanguageModel
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.tree import DraftDistribution, TokenTree

LIKELY = 512  # the most probable tokens, to which the noise is added


class ModelDrafter(Drafter):
    """Proposes tokens of a smaller model, with one of its sequences, which contains the text."""

    samples = True

    def __init__(self, model: LanguageModel, target: LanguageModel) -> None:
        """
        Args:
            model: the smaller one.
            target: it must have the same tokenizer.
        Raises: InputError if the two models' tokenizers differ.
        """
        if model.tokenizer.fingerprint != target.tokenizer.fingerprint or model.vocab_size != target.vocab_size:
            raise InputError(
                f"{model.name} and {target.name} have different tokenizers; a draft model must share its target's. "
                "Choose a smaller model of the same family."
            )
        self.name, self.model = f"model {model.name}", model
        self._sequence = model.open()

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        text = list(moment.ids)
        depth = min(depth, self.most, self.model.context_length - len(text))
        tree = TokenTree()
        if depth < 1:
            return tree
        logits = self._sequence.sync(text)
        for level in range(depth):
            parent = level - 1
            if moment.distributions:
                tree.own[parent] = DraftDistribution(logits, temperature=moment.temperature)
            token, confidence = _proposed(logits, moment, len(text))
            tree.ids.append(token)
            tree.parents.append(parent)
            tree.confidence.append(confidence)
            text.append(token)
            if level + 1 < depth:
                logits = self._sequence.feed([token])
        return tree  # the fed proposals stay in the cache: `sync` keeps those that become text

    def close(self) -> None:
        self._sequence.close()


def _proposed(logits: Tensor, moment: Moment, position: int) -> tuple[int, float]:
    """Returns the token to propose after a text of `position` tokens, and its probability of being the target's."""
    considered = len(logits) if moment.sampled else min(LIKELY, len(logits))
    scores, tokens = torch.topk(logits / moment.temperature, considered)
    if moment.noise is not None:
        scores = scores + torch.from_numpy(moment.noise.gumbel(position, tokens.cpu().numpy())).to(scores)
    best = int(scores.argmax())
    return int(tokens[best]), float((scores[best] - torch.logsumexp(scores, 0)).exp())
