"""XTC, exclude top choices: drops the most probable of several viable tokens, at some of the places.

Source: P. E. Weidmann, pull request 6335 of oobabooga/text-generation-webui (2024); llama.cpp has the same rule.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Set
from hashlib import blake2b

import torch
from torch import Tensor

from core.controls import default_numbers
from core.samplers.base import PerRow, Rule, column, in_range, keep_where

_DEFAULT = default_numbers("xtc")


class XTC(Rule):
    """With the given probability, drops all tokens with p_i ≥ threshold except the least probable of them.

    Fewer than two such tokens change nothing. As in the source, nothing is dropped where a line end or the end of the
    text would be, because paragraphs would become longer. Tokens that tie for the least probable all stay. The source
    draws a number at each token; here it is a hash of the text, so a text has the same drafts each time, with
    speculation, too. Without `input_ids` the tokens are always dropped. On a GPU this rule waits for the ids.
    """

    title = "XTC"
    reads_text = True

    def __init__(
        self,
        threshold: PerRow = _DEFAULT["threshold"],
        probability: PerRow = _DEFAULT["probability"],
        ends: Set[int] = frozenset(),
    ) -> None:
        """
        Args:
            threshold: from which a token is viable, above 0 to 1; above 0.5 the rule changes nothing. One value, or one
                per row.
            probability: of dropping tokens at a place, 0 to 1. One value, or one per row.
            ends: ids of tokens that end a line or the text: `Tokenizer.ends`.
        Raises: InputError.
        """
        self.threshold = in_range("threshold", threshold, 0, 1, open_low=True)
        self.probability = in_range("probability", probability, 0, 1)
        self.ends = sorted(ends)

    def crop(self, x: Tensor, best: Tensor, input_ids: Tensor | None) -> Tensor:
        p = x.softmax(-1)
        viable = p >= column(self.threshold, x)
        least = torch.where(viable, p, 2.0).amin(-1, keepdim=True)
        keep = ~viable | (p <= least)
        if ends := self.ends[: bisect_left(self.ends, x.shape[-1])]:
            keep |= ~keep[:, ends].all(-1, keepdim=True)
        if input_ids is not None:
            drawn = [[_uniform(ids)] for ids in input_ids.tolist()]
            chosen = torch.tensor(drawn, dtype=torch.float64, device=x.device) < column(
                self.probability, x, torch.float64
            )
            keep |= ~chosen
        return keep_where(x, keep)


def _uniform(ids: list[int]) -> float:
    """A number from 0 to below 1, which depends on the whole text."""
    text = torch.tensor(ids, dtype=torch.int64).numpy().tobytes()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") / 2**64
