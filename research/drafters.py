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
from core.speculative.calibration import for_model, user_file
from core.speculative.drafters.eagle3 import DEFAULT_HEAD, Eagle3Drafter
from core.speculative.eagle3 import Eagle3Head, HeadError
from research.report import Progress
from research.tolerance import as_published

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
    options: dict[str, Any]  # {} for ours

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
        for name, calibration in of_paper.items():
            how = {"draws": "independent", "tolerance": as_published(model, calibration), "lam": 0.0}
            kinds[f"{ARC} {name}"] = Arc(calibration, how)
    return kinds


def published(model: LanguageModel, sampling: TargetSampling | None = None) -> dict[str, Calibration]:
    """Returns by name the calibrations of a model by the paper's Algorithm 1 that were made on this machine for a way
    of sampling: that of the paper's main text, and those whose δ is that of a text of n positions (corollary ii).

    Args:
        sampling: as for `Calibration.check`.
    Raises: CalibrationError if there is none.
    """
    sampling = sampling or TargetSampling()
    temperature = sampling.overall_temperature
    first = user_file(model, temperature, paper=True)
    calibrations: dict[str, Calibration] = {}
    for file in sorted(first.parent.glob(f"{first.stem}*.json"), key=lambda file: (len(file.stem), file.stem)):
        calibration = Calibration.load(file).check(model, sampling)
        share = "" if calibration.positions is None else f", δ over {calibration.positions} positions"
        calibrations["as published" + share] = calibration
    if not calibrations:
        at = "" if temperature in (0, 1) else f" --temperature {temperature:g}"
        raise CalibrationError(
            f"{model.name} is not calibrated by the paper; run `polydraft calibrate --paper{at}` once."
        )
    return calibrations
