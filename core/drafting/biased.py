"""Drafts from other logits than the model's: numbers that a program adds to those of some tokens, in every mode."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from core.drafting.driver import Drafting
from core.errors import InputError
from core.models.base import Tokenizer
from core.phrases import BANNED


def bias_of(given: Iterable[tuple[int | str, float]], tokenizer: Tokenizer) -> Tensor | None:
    """The numbers (V,) to add; None if there are none. A text stands for all of its tokens.

    Raises: InputError for an id that the model does not have.
    """
    bias = torch.zeros(len(tokenizer.pieces))
    for token, number in given:
        ids = tokenizer.encode(token) if isinstance(token, str) else [token]
        if wrong := [i for i in ids if not 0 <= i < len(bias)]:
            raise InputError(f"A bias for token {wrong[0]} given; the model's tokens are 0 to {len(bias) - 1}.")
        bias[ids] += -torch.inf if number <= BANNED else number
    return bias if bias.any() else None


def biased(drafting: Drafting, bias: Tensor) -> Drafting:
    """Yields what `drafting` yields, and adds the bias (V,) to the logits that it receives."""
    try:
        rows, drafts = next(drafting)
        while rows:
            logits = yield rows, drafts
            rows, drafts = drafting.send([x + bias if x.numel() else x for x in logits])
        yield [], drafts
    finally:
        drafting.close()
