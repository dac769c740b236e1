"""Where drafts may begin in a half-typed word, for whoever needs one place and one distribution."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def only(logits: Tensor, allowed: np.ndarray) -> Tensor:
    """Logits (…, V) with every other token at -inf."""
    where = torch.from_numpy(np.asarray(allowed, dtype=np.int64))
    masked = torch.full_like(logits, -torch.inf)
    masked[..., where] = logits[..., where]
    return masked


def likeliest_place(logits: list[Tensor], word_ids: list[int], starts: list[np.ndarray] | None) -> int:
    """After how many tokens of the word most of the probability begins: 0 … len(logits) - 1.

    Args:
        logits: (V,) after the prefix, then after each of the word's first tokens, as many as are known.
        starts: the tokens that may follow there; None is any.
    """
    if not starts or len(logits) < 2:
        return 0
    path, mass = 0.0, []  # log-probability of the word's tokens so far; what begins at each place
    for n, (after, allowed) in enumerate(zip(logits, starts, strict=False)):
        logq = after.log_softmax(0)
        share = float(torch.logsumexp(logq[torch.from_numpy(allowed)], 0)) if len(allowed) else -np.inf
        mass.append(path + share)
        path += float(logq[word_ids[n]]) if n + 1 < len(logits) else 0.0
    return int(np.argmax(mass))
