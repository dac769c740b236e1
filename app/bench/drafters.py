"""The drafter that a measurement of speculation uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from core.errors import BackendUnavailable
from core.models import LanguageModel
from core.ngram import NgramStore
from core.speculative import Drafter, NgramDrafter
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
from core.speculative.eagle3 import Eagle3Head, HeadError


def eagle3(model: LanguageModel, progress: Callable[[str], None], head: Path | None = None) -> Eagle3Drafter | None:
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
    model: LanguageModel, stores: list[NgramStore], progress: Callable[[str], None], head: Path | None = None
) -> Drafter:
    """Returns the drafter of an EAGLE-3 head, or that of n-grams if there is no head for this model."""
    return eagle3(model, progress, head) or NgramDrafter(stores)
