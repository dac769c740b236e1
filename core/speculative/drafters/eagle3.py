"""Proposals of an EAGLE-3 head: a dynamic tree, which grows where the head is sure (Li et al. 2024 and 2025).

`eagle3_tree.py` grows the tree.

If the target samples with known noise G (`core.dice`), the head adds it to its own distribution q: it proposes the
tokens with the largest ln q + G, and the confidence of a token is its share of exp(ln q + G) among its siblings. So the
head predicts the sampled token and not the most probable one, and the target's samples do not change.

The head's cache contains the positions of the text whose features the target has computed. The positions of a tree
follow them and are overwritten by the next tree. There are two engines: `eagle3_cpu.py`, and `eagle3_static.py` for a
target with a static cache, on the target's device.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.models.base import LanguageModel
from core.models.static import StaticModel
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.eagle3_cpu import CpuTrees
from core.speculative.drafters.eagle3_static import StaticTrees
from core.speculative.eagle3 import Eagle3Head
from core.speculative.tree import TokenTree

DEFAULT_HEAD = Path(__file__).resolve().parents[3] / "assets" / "eagle3-default"  # for the default model
DEPTH = 6


class Eagle3Drafter(Drafter):
    """Proposes trees with an EAGLE-3 head."""

    name = "EAGLE-3"
    has_distribution = True

    def __init__(
        self,
        head: Eagle3Head,
        target: LanguageModel,
        beam: int = 8,
        depth: int = DEPTH,
        most: int = 32,
    ) -> None:
        """
        Args:
            head: of this target.
            target: with the torch backend, which gives access to the hidden states.
            beam: the number of paths that continue at each level, and of candidates after each.
            depth, most: the highest numbers of levels and of tokens in the tree.
        Raises: HeadError for another target's head; BackendUnavailable for a target without access to hidden states.
        """
        head.check(target.vocab_size, target.dim)
        self.layers = head.config.feature_layers(target.depth)
        target.watch(self.layers)
        self.beam, self.depth, self.most = beam, depth, most
        self.width = 4  # the typical number of tokens per level
        if isinstance(target, StaticModel):
            self._trees = StaticTrees(head, target, beam, depth, most)
        else:
            self._trees = CpuTrees(head, target.embeddings, beam, most)
        self._vocabulary = head.vocabulary.numpy()
        self._ids: list[int] = []  # the text whose first len - 1 positions are in the head's cache

    def draft(self, moment: Moment, depth: int, chance: np.random.Generator) -> TokenTree:
        ids, depth = moment.ids, min(depth, self.depth)
        if depth < 1 or moment.features is None or len(ids) < 2:
            return TokenTree()
        same = 0
        for a, b in zip(self._ids, ids, strict=False):
            if a != b:
                break
            same += 1
        # Without new positions, the last one is computed again.
        start = min(max(same - 1, 0), len(ids) - 2)
        self._ids = []  # until the new positions are in the cache
        with torch.inference_mode():
            noise = self._noise(moment, depth)
            tree = self._trees(ids, moment.features, start, depth, moment.temperature, noise, moment.distributions)
        self._ids = list(ids)
        return tree

    def _noise(self, moment: Moment, depth: int) -> Tensor | None:
        """Returns the noise that is added to ln q at each level, (depth, V_d); None without dice."""
        if moment.dice is None:
            return None
        rows = [moment.dice.gumbel(len(moment.ids) + level, self._vocabulary) for level in range(depth)]
        return torch.from_numpy(np.stack(rows)).float()

    def close(self) -> None:
        self._trees.close()
