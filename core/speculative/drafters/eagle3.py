"""An EAGLE-3 head proposes: a tree that grows where the head is sure (EAGLE-2's dynamic tree, Li et al. 2024 and 2025).

At each level the `beam` likeliest paths so far go on: one pass of the head over their last tokens, whose `beam`
likeliest next tokens each are candidates. Of all candidates of all levels, the likeliest `most` are proposed; a path
is as likely as the product of what the head says along it, so a token never stands without its parent.

Where the target draws its tokens with dice that are known beforehand, the head counts them in: likeliest are then the
tokens with the largest ln q + G, and how likely one is, is its share of exp(ln q + G) among its siblings. So the head
guesses the target's draw and not its favourite, and the target draws what it would have drawn; see `core.dice`.

The head follows the text: positions whose features the target handed over stay in its cache, and those of the tree are
written behind them and overwritten the next time. Two engines do this: the one here on the CPU, and for a target on a
static cache the one of `eagle3_static.py`, on its device.

Shapes: n positions, C columns, D width of the head, H heads of width w (keys are repeated to as many), b the beam.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from core.models import native
from core.models.base import LanguageModel
from core.models.static import StaticModel
from core.speculative.drafters.base import Drafter, Moment
from core.speculative.drafters.eagle3_cpu import CompiledHead, PackedHead
from core.speculative.drafters.eagle3_head import likeliest
from core.speculative.drafters.eagle3_static import StaticTrees
from core.speculative.eagle3 import Eagle3Head
from core.speculative.tree import TokenTree

DEFAULT_HEAD = Path(__file__).resolve().parents[3] / "assets" / "eagle3-default"  # for the default model
DEPTH = 6


class Eagle3Drafter(Drafter):
    """See the head of this file."""

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
            self._trees = _CpuTrees(head, target.embeddings, beam, most)
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
            tree = self._trees(ids, moment.features, start, depth, moment.temperature, self._noise(moment, depth))
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


class _CpuTrees:
    """The engine for the CPU."""

    def __init__(self, head: Eagle3Head, embeddings: Tensor, beam: int, most: int) -> None:
        compiled = not native.why_not_width(head.config.width)
        self._head = CompiledHead(head) if compiled else PackedHead(head)
        self._vocabulary = head.vocabulary
        self._embeddings, self._beam, self._most = embeddings, beam, most

    def __call__(
        self, ids: list[int], features: Tensor, start: int, depth: int, heat: float, noise: Tensor | None
    ) -> TokenTree:
        """Read what the text has grown by, of which `start` positions are known, and grow the tree. ids (T,), features
        (T - 1, 3·D_t): position t has the features of token t and the embedding of token t + 1. `heat` is the
        temperature, noise (depth, V_d)."""
        new = torch.tensor(ids[start + 1 :])
        count = len(new)
        positions = torch.arange(start, start + count)
        seen = torch.ones(count, start + count, dtype=torch.bool).tril_(start) if count > 1 else None
        features = self._head.fuse(features[start:])
        outputs, logits = self._head(self._embeddings[new], features, positions, start, seen, last=True)
        return self._grown(outputs[-1], logits, len(ids) - 1, depth, heat, noise)

    def close(self) -> None:
        """Nothing is held that others wait for."""

    def _grown(
        self, output: Tensor, logits: Tensor, text: int, depth: int, heat: float, noise: Tensor | None
    ) -> TokenTree:
        """The tree behind `text` positions in the cache, the last of which had this output (D,) and logits (1, V_d)."""
        vocabulary = self._vocabulary
        b = min(self._beam, len(vocabulary))
        best, at = (each[0] for each in likeliest(logits, b, heat, None if noise is None else noise[0]))
        ids, parents, paths, said = [vocabulary[at]], [torch.full((b,), -1)], [best], [best]
        # The paths that go on: their places among the candidates, their sums, and the output that each came from.
        places, sums, outputs = torch.arange(b), best, output.expand(b, -1)
        seen = torch.zeros(b, 0, dtype=torch.bool)  # which passed tokens of the tree each path has
        total = b
        for level in range(1, depth):
            n = level * b  # columns of the tree after this pass
            seen = torch.cat((seen, torch.eye(b, dtype=torch.bool)), 1)
            mask = torch.cat((torch.ones(b, text, dtype=torch.bool), seen), 1)
            tokens = torch.cat(ids)[places]
            positions = torch.full((b,), text + level - 1)
            outputs, logits = self._head(self._embeddings[tokens], outputs, positions, text + n - b, mask)
            own, at = likeliest(logits, b, heat, None if noise is None else noise[level])  # (b, b)
            reached = (sums[:, None] + own).flatten()
            ids.append(vocabulary[at.flatten()])
            parents.append(places.repeat_interleave(b))
            paths.append(reached)
            said.append(own.flatten())
            sums, chosen = reached.topk(b)
            places = total + chosen
            total += b * b
            came = chosen // b
            outputs, seen = outputs[came], seen[came]
        return self._likeliest(*(torch.cat(each) for each in (ids, parents, paths, said)))

    def _likeliest(self, ids: Tensor, parents: Tensor, paths: Tensor, said: Tensor) -> TokenTree:
        # Stable, and a child stands behind its parent: where both are as likely, the parent comes first.
        kept = torch.argsort(paths, descending=True, stable=True)[: self._most].sort().values
        new = {-1: -1} | {old: i for i, old in enumerate(kept.tolist())}
        return TokenTree(ids[kept].tolist(), [new[old] for old in parents[kept].tolist()], said[kept].exp().tolist())
