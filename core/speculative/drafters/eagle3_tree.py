"""The growing of an EAGLE-3 head's tree, level by level, on any device and without asking the host anything.

At each level the b likeliest paths so far go on: one pass of the head over their last tokens, whose b likeliest next
tokens each are candidates. Of all candidates of all levels, the likeliest `most` are kept; a path is as likely as the
product of what the head says along it, so a token never stands without its parent.

Shapes: b the beam, D width of the head, V_d draft vocabulary, m tokens kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.speculative.tree import DraftDistribution, TokenTree

SHARPER = 0.9  # of the temperature, where there are dice: what a head does not know makes it too flat

# (level, tokens (b,), outputs (b, D) that they came from, seen (b, level · b)) -> outputs (b, D), logits (b, V_d).
# `seen` says which tokens of the tree, in the order of passes, each path has; its last b columns are this pass's own.
Advance = Callable[[int, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class Whole(NamedTuple):
    """The head's own distributions in a tree, without the dice.

    Attributes:
        likelihood: (m,) q of each token given its parent.
        rows: (m,) the row of `logits` that each token was chosen from.
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
    whole: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Whole | None]:
    """The tree behind a text whose last position has this output (1, D) and these logits (1, V_d).

    Args:
        vocabulary: (V_d,) the target's ids.
        advance: one pass of the head.
        noise: (depth, V_d), what dice add to ln q at each level, or None.
        whole: return the head's own distributions, too.
    Returns: ids (m,), parents (m,) with -1 for the first level, confidences (m,) of each given its parent, and with
        `whole` the distributions.
    """
    b = min(beam, len(vocabulary))
    at_level: Sequence[Tensor | None] = [None] * depth if noise is None else [*noise[:depth]]
    best, at = (each[0] for each in most_probable(logits, b, temperature, at_level[0]))
    ids, parents, paths, said = [vocabulary[at]], [torch.full_like(at, -1)], [best], [best]
    every, rows, columns = [logits], [torch.zeros_like(at)], [at]
    # The paths that go on: their places among the candidates, their sums, and the output that each came from.
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
        said.append(each.flatten())
        if whole:
            row = 1 + (level - 1) * b + torch.arange(b, device=at.device)
            every.append(logits)
            rows.append(row[:, None].expand(b, b).flatten())
            columns.append(at.flatten())
        sums, chosen = reached.topk(b)
        places = b + (level - 1) * b * b + chosen
        came = chosen // b
        outputs, seen = outputs[came], seen[came]
    # Stable, and a child stands behind its parent: where both are as likely, the parent comes first.
    kept = torch.argsort(torch.cat(paths), descending=True, stable=True)[:most].sort().values
    above = torch.cat(parents)[kept]
    above = torch.where(above < 0, above, torch.searchsorted(kept, above))  # their places among those kept
    found = torch.cat(ids)[kept], above, torch.cat(said)[kept].exp()
    if not whole:
        return *found, None
    row, all_rows = torch.cat(rows)[kept], torch.cat(every)
    likelihood = (all_rows / temperature).softmax(-1)[row, torch.cat(columns)[kept]]
    return *found, Whole(likelihood, row, all_rows)


def most_probable(
    logits: Tensor, b: int, temperature: float | Tensor, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (n, V_d) -> the b tokens likeliest to be the target's next one, best first: ln of how likely, and their
    places in the draft vocabulary, (n, b) each. `noise` (V_d,) is what dice add to ln q."""
    if noise is None:
        return (logits / temperature).log_softmax(-1).topk(b)
    best, at = (logits / (SHARPER * temperature) + noise).topk(b)
    return best.log_softmax(-1), at


def with_distributions(
    ids: list[int], parents: list[int], said: list[float], own: Whole | None, vocabulary: Tensor, temperature: float
) -> TokenTree:
    """A grown tree, and the head's own distributions in it if there are some; vocabulary (V_d,): the target's ids, on
    the host."""
    if own is None:
        return TokenTree(ids, parents, said)
    at = dict(zip(parents, own.rows.tolist(), strict=True))  # all children of a parent come from one row
    q = {parent: DraftDistribution(own.logits[row], vocabulary, temperature) for parent, row in at.items()}
    return TokenTree(ids, parents, said, likelihood=own.likelihood.tolist(), own=q)
