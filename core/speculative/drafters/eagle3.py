"""An EAGLE-3 head proposes: a tree that grows where the head is sure (EAGLE-2's dynamic tree, Li et al. 2024 and 2025).

The tree grows as `eagle3_tree.py` says.

Where the target draws its tokens with dice that are known beforehand, the head counts them in: likeliest are then the
tokens with the largest ln q + G, and how likely one is, is its share of exp(ln q + G) among its siblings. So the head
guesses the target's draw and not its favourite, and the target's draws stay the same; see `core.dice`.

The head follows the text: positions whose features the target handed over stay in its cache, and those of the tree are
written behind them and overwritten the next time. Two engines do this: `eagle3_cpu.py`, and for a target on a static
cache `eagle3_static.py`, on its device.
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
    """See the head of this file."""

    name = "EAGLE-3"
    tells = True

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
            target: on torch, for it has to hand over its hidden states.
            beam: paths that go on at each level, and candidates after each.
            depth, most: of the tree.
        Raises: HeadError for another target's head; BackendUnavailable where a target gives no hidden states.
        """
        head.check(target.vocab_size, target.dim)
        self.layers = head.config.feature_layers(target.depth)
        target.watch(self.layers)
        self.beam, self.depth, self.most = beam, depth, most
        self.width = 4  # a tree has about so many tokens per level
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
        # The last position is read again where nothing is new.
        start = min(max(same - 1, 0), len(ids) - 2)
        self._ids = []  # until the rest is read
        with torch.inference_mode():
            noise = self._noise(moment, depth)
            tree = self._trees(ids, moment.features, start, depth, moment.temperature, noise, moment.whole)
        self._ids = list(ids)
        return tree

    def _noise(self, moment: Moment, depth: int) -> Tensor | None:
        """What the dice add to ln q at each level, (depth, V_d)."""
        if moment.dice is None:
            return None
        rows = [moment.dice.gumbel(len(moment.ids) + level, self._vocabulary) for level in range(depth)]
        return torch.from_numpy(np.stack(rows)).float()

    def close(self) -> None:
        self._trees.close()
