"""Verifies the tokens of drafts: computes the token that the target would choose after the same text, n-grams mixed in.

Shapes: V vocabulary, m candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from core.drafting.candidates import log_total, top_indices
from core.drafting.removed_tokens import RemovedTokens
from core.ngram.interpolation import Interpolation


@dataclass(frozen=True)
class Verifier:
    """Computes the next token of a target, n-grams included: the n-grams rescore the target's most probable candidates.

    Attributes:
        ngrams: as for drafting; None for the target alone.
        candidates: m, the number of the target's most probable tokens that the n-grams rescore.
        removed: tokens that it does not choose after certain contexts.
    """

    ngrams: Interpolation | None = None
    candidates: int = 9
    removed: RemovedTokens | None = None

    def __call__(
        self, logits: list[Tensor], contexts: list[list[int]], tokens: list[int]
    ) -> list[tuple[int, float, float]]:
        """For each position, given its logits (V,), the text before it and a token to verify: the token that the target
        chooses, its log-probability, and the log-probability of the token to verify."""
        if not logits:
            return []
        left = [self._left(after.numpy(), context) for after, context in zip(logits, contexts, strict=True)]
        listed = [top_indices(x, self.candidates) for x in left]
        totals = [log_total(after.numpy(), 1.0) for after in logits]
        if self.ngrams is not None:
            last = [np.exp(float(x[ids[-1]]) - total) for x, ids, total in zip(logits, listed, totals, strict=True)]
            more = self.ngrams.proposals(contexts, last)
            more = [[i for i in ids if np.isfinite(x[i])] for x, ids in zip(left, more, strict=True)]
            listed = [np.array(list(dict.fromkeys([*a.tolist(), *b]))) for a, b in zip(listed, more, strict=True)]
        widest = max(map(len, listed))
        ids = np.zeros((len(listed), widest + 1), dtype=np.int64)
        for row, top, token in zip(ids, listed, tokens, strict=True):
            row[: len(top)], row[len(top) : -1], row[-1] = top, top[0], token  # shorter ones repeat their first
        scores = np.stack(
            [x.numpy()[row].astype(np.float64) - t for x, row, t in zip(logits, ids, totals, strict=True)]
        )
        if self.ngrams is not None:
            scores = self.ngrams.scores(scores, contexts, ids)
        best = scores[:, :-1].argmax(1)
        return [(int(ids[i, best[i]]), float(scores[i, best[i]]), float(scores[i, -1])) for i in range(len(listed))]

    def _left(self, x: np.ndarray, context: list[int]) -> np.ndarray:
        """Logits (V,) without the tokens that are removed after a context."""
        removed = () if self.removed is None else self.removed.after(context)
        if removed:
            x = x.copy()
            x[list(removed)] = -np.inf
        return x
