"""Proposals of an EAGLE-3 head: a dynamic tree, which grows where the head is sure (Li et al. 2024 and 2025).

`eagle3_tree.py` grows the tree.

If the target samples with known noise G (`core.noise`), the head adds it to its own distribution q: it proposes the
tokens with the largest ln q + G, and the confidence of a token is its share of exp(ln q + G) among its siblings. So the
head predicts the sampled token and not the most probable one, and the target's samples do not change.

The head's cache contains the positions of the texts whose features the target has computed. The positions of the trees
are overwritten by the next trees. There are two engines: `eagle3_cpu.py` in compiled code, in which several texts share
each pass of the head, and `eagle3_static.py` in torch, for a target with a static cache and where there is no compiled
code, one text after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.models.adapter import Adapter
from core.models.base import LanguageModel
from core.models.native import why_not_width
from core.models.static import StaticModel
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.eagle3_cpu import CpuTrees
from core.speculative.drafters.eagle3_static import StaticTrees
from core.speculative.drafters.eagle3_tree import HeadText
from core.speculative.eagle3 import Eagle3Head
from core.speculative.tree import TokenTree

DEFAULT_HEAD = Path(__file__).resolve().parents[3] / "assets" / "eagle3-default"  # for the default model
PROSE_HEAD = "eagle3"  # in the folder of an adapter to prose: a head that was trained for the model with it
DEPTH = 6


def head_of(prose: Adapter | None) -> Path:
    """The folder of the head that drafts while a model computes with this adapter to prose: the one in the adapter's
    folder, if there is one; otherwise, and without an adapter, the head for the default model as it came."""
    head = prose and prose.folder and prose.folder / PROSE_HEAD
    return head if head and head.is_dir() else DEFAULT_HEAD


class Eagle3Drafter(Drafter):
    """Proposes trees with an EAGLE-3 head."""

    name = "EAGLE-3"

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
        if isinstance(target, StaticModel) or why_not_width(head.config.width):
            self._trees = StaticTrees(head, target, beam, depth, most)
        else:
            self._trees = CpuTrees(head, target, beam, most)
        self._vocabulary = head.vocabulary.numpy()

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        return self.draft_all([moment], [depth])[0]

    def draft_all(self, moments: Sequence[Moment], depths: Sequence[int]) -> list[TokenTree]:
        trees = [TokenTree() for _ in moments]
        # Texts share passes if they are sampled alike, as the drafts of one request are.
        alike: dict[tuple[float, bool, bool], dict[int, HeadText]] = {}
        for n, (moment, depth) in enumerate(zip(moments, depths, strict=True)):
            if depth >= 1 and moment.features is not None and len(moment.ids) >= 2:
                depth = min(depth, self.depth)
                text = HeadText(moment.ids, moment.features, depth, self._noise(moment, depth))
                how = moment.temperature, moment.noise is None, moment.distributions
                alike.setdefault(how, {})[n] = text
        with torch.inference_mode():
            for (temperature, _, distributions), texts in alike.items():
                grown = self._trees(list(texts.values()), temperature, distributions)
                for n, tree in zip(texts, grown, strict=True):
                    trees[n] = tree
        return trees

    def _noise(self, moment: Moment, depth: int) -> Tensor | None:
        """Returns the noise that is added to ln q at each level, (depth, V_d); None without noise."""
        if moment.noise is None:
            return None
        rows = [moment.noise.gumbel(len(moment.ids) + level, self._vocabulary) for level in range(depth)]
        return torch.from_numpy(np.stack(rows)).float()

    def close(self) -> None:
        self._trees.close()
