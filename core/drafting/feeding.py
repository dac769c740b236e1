"""Rows that make a sequence hold a draft: the sequence keeps the positions that agree, and is fed the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from core.drafting.drafts import Draft
from core.models.base import Row, Sequence


def row_of(sequence: Sequence, prefix: list[int], ids: list[int]) -> Row:
    """Makes a sequence that holds the prefix hold `ids` after it. The last of them is always fed."""
    at = len(prefix)
    last = min(sequence.length, len(prefix) + len(ids) - 1)
    while at < last and sequence.inputs[at] == ids[at - len(prefix)]:
        at += 1
    sequence.rewind(at)
    return Row(sequence, ids[at - len(prefix) :])


def own_row(draft: Draft, sequence: Sequence, prefix: list[int]) -> Row:
    """Feeds a draft's latest token on a sequence of its own, which is forked off at the first call."""
    if draft.sequence is None:
        draft.sequence = sequence.fork()
    return row_of(draft.sequence, prefix, draft.ids)


def before_mixtures(sequence: Sequence, prefix: list[int], best: Draft) -> list[Tensor]:
    """Rewinds to the place where the best draft begins. Returns the embeddings (n, D) of the tokens of the half-typed
    word before it that the sequence does not hold."""
    if not best.start:
        sequence.rewind(len(prefix))
        return []
    missing = row_of(sequence, prefix, best.ids[: best.start + 1]).inputs
    return [sequence.model.embeddings[torch.tensor(missing[:-1])]] if len(missing) > 1 else []
