"""Grows the tree of an EAGLE-3 head level by level, on any device and without host synchronisation.

At each level, one pass of the head over the last tokens of the b most probable paths gives the b most probable next
tokens of each as candidates. Of the candidates of all levels, the `most` most probable are kept. The probability of a
path is the product of the head's probabilities along it, so the parent of a kept token is kept.

Shapes: b the beam, D width of the head, V_d draft vocabulary, m tokens kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.speculative.tree import DraftDistribution, TokenTree

SHARPER = 0.9  # factor of the temperature with dice, because a head's distribution is flatter than the target's

# (level, tokens (b,), their parents' outputs (b, D), seen (b, level · b)) -> outputs (b, D), logits (b, V_d).
# `seen` marks each path's tokens among those of the tree, in the order of passes; this pass's are the last b columns.
Advance = Callable[[int, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class HeadDistributions(NamedTuple):
    """The head's own distributions in a tree, without the noise of the dice.

    Attributes:
        likelihood: (m,) q of each token given its parent.
        rows: (m,) the row of `logits` from which each token was selected.
        logits: (rows, V_d)
    """

    likelihood: Tensor
    rows: Tensor
    logits: Tensor


def grow(
    output: Tensor,
    logits: Tensor,
    vocabulary: Tensor,
    advance: Advance,
    *,
    beam: int,
    depth: int,
    most: int,
    temperature: float | Tensor,
    noise: Sequence[Tensor] | Tensor | None,
    distributions: bool = False,
) -> tuple[Tensor, Tensor, Tensor, HeadDistributions | None]:
    """Returns the tree after a text whose last position has this output (1, D) and these logits (1, V_d).

    Args:
        vocabulary: (V_d,) the target's ids.
        advance: one pass of the head.
        noise: (depth, V_d), the noise that dice add to ln q at each level; None without dice.
        distributions: whether the head's own distributions are returned.
    Returns: ids (m,), parents (m,) with -1 for the first level, confidences (m,) of each given its parent, and the
        distributions or None.
    """
    b = min(beam, len(vocabulary))
    at_level: Sequence[Tensor | None] = [None] * depth if noise is None else [*noise[:depth]]
    best, at = (each[0] for each in most_probable(logits, b, temperature, at_level[0]))
    ids, parents, paths, confidences = [vocabulary[at]], [torch.full_like(at, -1)], [best], [best]
    every, rows, columns = [logits], [torch.zeros_like(at)], [at]
    # The paths that continue: their places among the candidates, their sums of ln p, and their parents' outputs.
    places, sums, outputs = torch.arange(b, device=at.device), best, output.expand(b, -1)
    own = torch.eye(b, dtype=torch.bool, device=at.device)
    seen = own[:, :0]
    for level in range(1, depth):
        seen = torch.cat((seen, own), 1)
        outputs, logits = advance(level, torch.cat(ids)[places], outputs, seen)
        each, at = most_probable(logits, b, temperature, at_level[level])  # (b, b)
        reached = (sums[:, None] + each).flatten()
        ids.append(vocabulary[at.flatten()])
        parents.append(places[:, None].expand(b, b).flatten())
        paths.append(reached)
        confidences.append(each.flatten())
        if distributions:
            row = 1 + (level - 1) * b + torch.arange(b, device=at.device)
            every.append(logits)
            rows.append(row[:, None].expand(b, b).flatten())
            columns.append(at.flatten())
        sums, chosen = reached.topk(b)
        places = b + (level - 1) * b * b + chosen
        path = chosen // b
        outputs, seen = outputs[path], seen[path]
    # The sort is stable and a child comes after its parent, so of two equally probable ones the parent is first.
    kept = torch.argsort(torch.cat(paths), descending=True, stable=True)[:most].sort().values
    above = torch.cat(parents)[kept]
    above = torch.where(above < 0, above, torch.searchsorted(kept, above))  # places among the kept tokens
    found = torch.cat(ids)[kept], above, torch.cat(confidences)[kept].exp()
    if not distributions:
        return *found, None
    row, all_rows = torch.cat(rows)[kept], torch.cat(every)
    likelihood = (all_rows / temperature).softmax(-1)[row, torch.cat(columns)[kept]]
    return *found, HeadDistributions(likelihood, row, all_rows)


def most_probable(
    logits: Tensor, b: int, temperature: float | Tensor, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the b tokens with the highest probability of being the target's next one, best first, from logits
    (n, V_d): ln p and the places in the draft vocabulary, (n, b) each. `noise` (V_d,) is the noise of the dice."""
    if noise is None:
        return (logits / temperature).log_softmax(-1).topk(b)
    best, at = (logits / (SHARPER * temperature) + noise).topk(b)
    return best.log_softmax(-1), at


def with_distributions(
    ids: list[int],
    parents: list[int],
    confidences: list[float],
    own: HeadDistributions | None,
    vocabulary: Tensor,
    temperature: float,
) -> TokenTree:
    """Makes the tree, with the head's own distributions if there are any. `vocabulary` (V_d,) is the target's ids, on
    the host."""
    if own is None:
        return TokenTree(ids, parents, confidences)
    at = dict(zip(parents, own.rows.tolist(), strict=True))  # all children of a parent were selected from one row
    q = {parent: DraftDistribution(own.logits[row], vocabulary, temperature) for parent, row in at.items()}
    return TokenTree(ids, parents, confidences, likelihood=own.likelihood.tolist(), own=q)
