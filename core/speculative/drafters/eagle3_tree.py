"""Grows the trees of an EAGLE-3 head level by level, on any device and without host synchronisation.

At each level, one pass of the head over the last tokens of the b most probable paths of every text gives the b most
probable next tokens of each as candidates. Of a text's candidates of all levels, the `most` most probable are kept. The
probability of a path is the product of the head's probabilities along it, so the parent of a kept token is kept.

Shapes: R texts, b the beam, D width of the head, V_d draft vocabulary, m tokens kept. Texts with fewer levels come
last, so the texts that continue at a level are the first R'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.speculative.tree import DraftDistribution, TokenTree

SHARPER = 0.9  # factor of the temperature with noise, because a head's distribution is flatter than the target's

# (level, tokens (R', b), their parents' outputs (R', b, D), seen (R', b, level · b)) -> outputs (R', b, D), logits
# (R', b, V_d). `seen` marks each path's tokens among those of its text's tree, in the order of passes; this pass's are
# the last b columns.
Advance = Callable[[int, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class HeadText(NamedTuple):
    """A text that the head drafts for.

    Attributes:
        ids, features: (T,) and (T - 1, 3·D_t): the inputs of position t are the features of token t and the embedding
            of token t + 1.
        depth: the number of levels.
        noise: (depth, V_d), the noise that is added to ln q at each level; None without noise.
    """

    ids: list[int]
    features: Tensor
    depth: int
    noise: Tensor | None


class HeadDistributions(NamedTuple):
    """The head's own distributions in a tree, without the sampling noise.

    Attributes:
        likelihood: (m,) q of each token given its parent.
        rows: (m,) the row of `logits` from which each token was selected.
        logits: (rows, V_d)
    """

    likelihood: Tensor
    rows: Tensor
    logits: Tensor


class Grown(NamedTuple):
    """A tree: ids (m,), parents (m,) with -1 for the first level, confidences (m,) of each given its parent, and the
    head's own distributions, if they were requested."""

    ids: Tensor
    parents: Tensor
    confidences: Tensor
    own: HeadDistributions | None


class _Candidates(NamedTuple):
    """The candidates of one level, (R', n) each: ids, parents, ln p of the path and of the token, and the row and the
    column of the logits (R', rows, V_d) that they come from."""

    ids: Tensor
    parents: Tensor
    paths: Tensor
    logprobs: Tensor
    rows: Tensor
    columns: Tensor


def grow(
    outputs: Tensor,
    logits: Tensor,
    vocabulary: Tensor,
    advance: Advance,
    *,
    beam: int,
    depths: Sequence[int],
    most: int,
    temperature: float | Tensor,
    noise: Tensor | None,
    distributions: bool = False,
) -> list[Grown]:
    """Returns the tree after each text, whose last position has these outputs (R, D) and logits (R, V_d).

    Args:
        vocabulary: (V_d,) the target's ids.
        advance: one pass of the head.
        depths: (R,) the number of levels of each tree, never increasing.
        noise: (levels, R, V_d), the noise that is added to ln q at each level; None without noise.
        distributions: whether the head's own distributions are returned.
    """
    b, R = min(beam, len(vocabulary)), len(depths)
    best, at = most_probable(logits, b, temperature, None if noise is None else noise[0])  # (R, b)
    tokens = vocabulary[at]
    levels = [_Candidates(tokens, torch.full_like(at, -1), best, best, torch.zeros_like(at), at)]
    every = [logits[:, None]]
    # The paths that continue: their indices among the text's candidates, their sums of ln p, their parents' outputs.
    indices, sums, outputs = torch.arange(b, device=at.device).expand(R, b), best, outputs[:, None].expand(-1, b, -1)
    own = torch.eye(b, dtype=torch.bool, device=at.device).expand(R, b, b)
    seen = own[..., :0]
    for level in range(1, depths[0]):
        active = sum(depth > level for depth in depths)  # R'
        seen = torch.cat((seen[:active], own[:active]), 2)
        outputs, logits = advance(level, tokens[:active], outputs[:active], seen)
        of_level = None if noise is None else noise[level, :active, None]
        each, at = (x.flatten(1) for x in most_probable(logits, b, temperature, of_level))  # (R', b · b)
        reached = sums[:active].repeat_interleave(b, 1) + each
        ids = vocabulary[at]
        row = 1 + (level - 1) * b + torch.arange(b * b, device=at.device) // b
        parents = indices[:active].repeat_interleave(b, 1)
        levels.append(_Candidates(ids, parents, reached, each, row.expand(active, -1), at))
        if distributions:
            every.append(logits)
        sums, chosen = reached.topk(b)  # (R', b)
        tokens, indices = ids.gather(1, chosen), b + (level - 1) * b * b + chosen
        text, path = torch.arange(active, device=at.device)[:, None], chosen // b
        outputs, seen = outputs[text, path], seen[text, path]
    grown = []
    for r, depth in enumerate(depths):
        nodes = _Candidates(*(torch.cat([x[r] for x in part]) for part in zip(*levels[:depth], strict=True)))
        # The sort is stable and a child comes after its parent, so of two equally probable ones the parent is first.
        kept = torch.argsort(nodes.paths, descending=True, stable=True)[:most].sort().values
        above = nodes.parents[kept]
        above = torch.where(above < 0, above, torch.searchsorted(kept, above))  # indices among the kept tokens
        q = None
        if distributions:
            row, rows = nodes.rows[kept], torch.cat([x[r] for x in every[:depth]])
            q = HeadDistributions((rows / temperature).softmax(-1)[row, nodes.columns[kept]], row, rows)
        grown.append(Grown(nodes.ids[kept], above, nodes.logprobs[kept].exp(), q))
    return grown


def most_probable(
    logits: Tensor, b: int, temperature: float | Tensor, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the b tokens with the highest probability of being the target's next one, best first, from logits
    (…, V_d): ln p and the indices in the draft vocabulary, (…, b) each. `noise` (…, V_d) is the sampling noise."""
    if noise is None:
        return (logits / temperature).log_softmax(-1).topk(b)
    best, at = (logits / (SHARPER * temperature) + noise).topk(b)
    return best.log_softmax(-1), at


def tree_of(grown: Grown, vocabulary: Tensor, temperature: float) -> TokenTree:
    """Makes the tree of tensors on the host. `vocabulary` (V_d,) is the target's ids, on the host, too."""
    ids, parents, confidences = (part.tolist() for part in grown[:3])
    if grown.own is None:
        return TokenTree(ids, parents, confidences)
    at = dict(zip(parents, grown.own.rows.tolist(), strict=True))  # all children of a parent come from one row
    q = {parent: DraftDistribution(grown.own.logits[row], vocabulary, temperature) for parent, row in at.items()}
    return TokenTree(ids, parents, confidences, likelihood=grown.own.likelihood.tolist(), own=q)
