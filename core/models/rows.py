"""What the two torch engines share about the rows of a pass: which logits a row wants, how a tree of tokens branches,
and masks as transformers' layers add them.

Shapes: B rows, n inputs each, C columns of the cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.models.base import Row

# Rows of different sizes share a pass while padding them is cheaper than a second pass. A pass reads all weights once,
# which costs about as much as computing this many positions.
PADDING = 16  # inputs


def wants_every(row: Row) -> bool:
    """Whether logits after each input are wanted, and not only after the last."""
    return row.every or row.parents is not None


def wanted(row: Row) -> range:
    """The inputs of a row after which logits are wanted; of a silent one the last, for a pass computes some."""
    n = len(row.inputs)
    return range(n) if wants_every(row) else range(n - 1, n)


def trees(rows: list[Row], n: int) -> tuple[Tensor, Tensor]:
    """How many positions each input stands behind its sequence's end (B, n), and which inputs it sees (B, n, n). Rows
    without branches are chains; padding sees itself, for a softmax over nothing is NaN."""
    depth, sees = torch.zeros(len(rows), n, dtype=torch.long), torch.eye(n, dtype=torch.bool).repeat(len(rows), 1, 1)
    for line, row in enumerate(rows):
        for i, above in enumerate(range(-1, len(row.inputs) - 1) if row.parents is None else row.parents):
            if above >= 0:
                depth[line, i] = depth[line, above] + 1
                sees[line, i] |= sees[line, above]
    return depth, sees


def added_masks(
    hidden: Tensor, distance: Tensor, windows: dict[str, int | None], dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """Masks (B, 1, n, C) to add to attention scores, 0 or the least number; by kind of layer if there are several.

    Args:
        hidden: (B, n, C) bool, which columns an input must not see.
        distance: (B, n, C) or what broadcasts to it: positions from an input back to a column.
        windows: how far back each kind of layer looks, in positions; None for all the way.
    """
    masks: dict[str, Tensor] = {}
    for kind, width in windows.items():
        far = hidden if width is None else hidden | (distance >= width)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        masks[kind] = mask.masked_fill_(far, torch.finfo(dtype).min)[:, None]
    return masks if len(masks) > 1 else next(iter(masks.values()))
