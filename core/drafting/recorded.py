"""Candidates that fill a record of how drafts are made."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from core.drafting.candidates import Candidates, ScoredTokens
from core.drafting.drafts import Options
from core.drafting.record import Record


def candidates_of(options: Options, text: list[int], record: Record | None) -> Candidates:
    """The candidates after a text, which fill the record if there is one."""
    return Candidates(options, text) if record is None else RecordedCandidates(options, text, record)


class RecordedCandidates(Candidates):
    """Computes the same, and records it."""

    def __init__(self, options: Options, text: list[int], record: Record) -> None:
        super().__init__(options, text)
        self.record = record
        self._superposed = False  # whether the logits are those of the superposed row
        self._kept: int | None = None  # tokens that the rule kept, of the latest logits
        self._after: dict[tuple[int, ...], tuple[Tensor, int | None]] = {}  # logits by context, until they are mixed

    def crop(self, logits: Tensor, context: list[int], allowed: np.ndarray | None = None) -> Tensor:
        cropped = super().crop(logits, context, allowed)
        self._kept = int(np.isfinite(cropped.numpy()).sum())
        return cropped

    def select(
        self, logits: Tensor, contexts: list[list[int]], also: Iterable[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        selected = super().select(logits, contexts, also)
        self._after |= {tuple(context): (logits, self._kept) for context in contexts}
        return selected

    def select_among(
        self, logits: Tensor, context: list[int], allowed: np.ndarray, also: Iterable[int] = ()
    ) -> tuple[np.ndarray, np.ndarray, float]:
        selected = super().select_among(logits, context, allowed, also)
        self._after[tuple(context)] = logits, self._kept
        return selected

    def mix(self, logq: np.ndarray, contexts: list[list[int]], candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert self.record is not None
        scores, without = super().mix(logq, contexts, candidates)
        after = [self._after[tuple(context)] for context in contexts]
        logits, kept = [x for x, _ in after], [n for _, n in after]
        by = "superposed" if self._superposed else "own"
        self.record.score(contexts, logits, candidates, logq, scores, without, self.ngrams, kept, by)
        self._after.clear()
        return scores, without

    def score_shared(self, logits: Tensor, contexts: list[list[int]]) -> list[ScoredTokens]:
        self._superposed = self.options.k > 1  # the only draft has the row for itself
        try:
            return super().score_shared(logits, contexts)
        finally:
            self._superposed = False
