"""The rows of a pass, as both torch engines handle them: the inputs with logits, the branches of a tree of tokens,
and masks in the form that transformers' layers add.

Shapes: B rows, n inputs each, C columns of the cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.models.base import Row

# Rows of different sizes share a pass if padding them is cheaper than a second pass. A pass reads all weights once,
# which costs about as much as computing this many positions.
PADDING = 16  # inputs


def wants_every(row: Row) -> bool:
    """Whether logits are wanted after each input, and not only after the last."""
    return row.every or row.parents is not None


def wanted(row: Row) -> range:
    """The inputs of a row after which logits are computed; of a silent one the last, because a pass computes some."""
    n = len(row.inputs)
    return range(n) if wants_every(row) else range(n - 1, n)


def result(row: Row, logits: Tensor) -> Tensor:
    """What a pass returns for a row, of the logits (n, V) after its wanted inputs."""
    return torch.empty(0) if row.silent else logits if wants_every(row) else logits[0]


def trees(rows: list[Row], n: int) -> tuple[Tensor, Tensor]:
    """The distance of each input from its sequence's end (B, n), and the inputs that it attends to (B, n, n). Rows
    without branches are chains; padding attends to itself, because a softmax over nothing is NaN."""
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
    """Masks (B, 1, n, C) to add to attention scores, 0 or the smallest number; by kind of layer if there are several.

    Args:
        hidden: (B, n, C) bool, the columns that an input must not see.
        distance: (B, n, C) or broadcastable to it: positions from an input back to a column.
        windows: the attention window of each kind of layer, in positions; None for unlimited.
    """
    masks: dict[str, Tensor] = {}
    for kind, width in windows.items():
        far = hidden if width is None else hidden | (distance >= width)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        masks[kind] = mask.masked_fill_(far, torch.finfo(dtype).min)[:, None]
    return masks if len(masks) > 1 else next(iter(masks.values()))
