"""What measurements of speculation share: n-gram stores, drafters, and the accept length of several texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.errors import BackendUnavailable
from core.models import LanguageModel
from core.ngram import NgramStore
from core.ngram.base import base_store
from core.speculative import Drafter, NgramDrafter, Statistics
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
from core.speculative.eagle3 import Eagle3Head, HeadError
from measure.report import Progress


def base_stores(model: LanguageModel, path: Path | None) -> list[NgramStore]:
    """Returns the base store in a list; [] if there is none for the model's tokenizer."""
    store, _ = base_store(model.tokenizer.fingerprint, path)
    return [] if store is None else [store]


def accept_length(statistics: Sequence[Statistics]) -> float:
    """Returns τ: tokens of a text per pass; 0 without a pass."""
    return sum(s.tokens for s in statistics) / max(sum(s.cycles for s in statistics), 1)


def eagle3(model: LanguageModel, progress: Progress, head: Path | None = None) -> Eagle3Drafter | None:
    """Returns the drafter with this head, or with the one for the default model. Where that one does not fit the model,
    reports the reason and returns None."""
    try:
        return Eagle3Drafter(Eagle3Head.load(head or DEFAULT_HEAD), model)
    except (HeadError, BackendUnavailable) as error:
        if head is not None:
            raise
        progress(str(error))
        return None


def best_drafter(
    model: LanguageModel, stores: list[NgramStore], progress: Progress, head: Path | None = None
) -> Drafter:
    """Returns the drafter of an EAGLE-3 head, or that of n-grams if there is no head for this model."""
    return eagle3(model, progress, head) or NgramDrafter(stores)
