"""What measurements of speculation share: n-gram stores, drafters, the kinds of ARC, and the accept length of several
texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import BackendUnavailable
from core.models import LanguageModel
from core.ngram import NgramStore
from core.ngram.base import base_store
from core.speculative import Calibration, CalibrationError, Drafter, NgramDrafter, Statistics, TargetSampling
from core.speculative.calibration import for_model, published
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
from core.speculative.eagle3 import Eagle3Head, HeadError
from core.speculative.options import PUBLISHED
from research.report import Progress

ARC = "ARC"
AS_PUBLISHED = "ARC as published"


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


@dataclass(frozen=True)
class Arc:
    """A kind of ARC: its constants, and the options of `generate` beside them."""

    calibration: Calibration
    options: dict[str, Any]  # {} or PUBLISHED

    @property
    def published(self) -> bool:
        """Whether it is the paper's own."""
        return bool(self.options)

    @property
    def how(self) -> dict[str, Any]:
        return {**self.options, "calibration": self.calibration}


def arcs(model: LanguageModel, progress: Progress, sampling: TargetSampling | None = None) -> dict[str, Arc]:
    """Returns by name the kinds of ARC for which the model is calibrated at a way of sampling: ours, the paper's own,
    and the paper's with δ for a text (corollary ii). Reports the reasons why some are missing."""
    kinds: dict[str, Arc] = {}
    try:
        kinds[ARC] = Arc(for_model(model, sampling), {})
    except CalibrationError as error:
        progress(str(error))
    try:
        of_paper = published(model, sampling)
    except CalibrationError as error:
        progress(str(error))
    else:
        kinds |= {f"{ARC} {name}": Arc(calibration, PUBLISHED) for name, calibration in of_paper.items()}
    return kinds
