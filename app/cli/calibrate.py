"""`polydraft calibrate`: measures the constants of ARC's tolerance, once per model (Algorithm 1)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.controls import THETA
from core.errors import InputError
from core.models import Tokenizer, load_model
from core.models.prose import prose_of
from core.ngram.base import BASE_STORE, base_store
from core.options import Backend
from core.speculative.calibration import Calibration, CalibrationError, user_file
from core.speculative.drafters.ngram import NgramDrafter
from training.calibration import Coverage, calibrate, collect, coverage
from training.texts import load as load_text

SHORTEST, LONGEST = 32, 128  # tokens of a prompt
PAPER_LONGEST = 256  # the paper's, which takes twice the time


@dataclass(frozen=True)
class CalibrationRun:
    """What is calibrated, as `polydraft calibrate` takes it; a budget of None is its `--paper`."""

    model: str
    backend: Backend
    text: Path | None
    prompts: int
    delta: float
    temperature: float
    budget: float | None
    buckets: int
    positions: int | None
    prose: bool


def run(
    wanted: CalibrationRun, out: Path | None, progress: Callable[[str], None]
) -> tuple[Calibration, Coverage, Path]:
    """Calibrates and saves; returns the result, what it says of its own pairs, and its path."""
    if not 0 < wanted.delta < 1:
        raise InputError(f"delta {wanted.delta} given; between 0 and 1 expected.")
    paper = wanted.budget is None
    if not paper and (wanted.buckets or wanted.positions is not None):
        raise InputError("--buckets and --positions change nothing without --paper; add it, or leave them out.")
    progress("loading the model")
    model = load_model(wanted.model, wanted.backend)
    if wanted.prose and (adapter := prose_of(model)) is not None:
        model.adapt([(adapter, 1.0)])
    passages = cut(model.tokenizer, wanted.text, wanted.prompts, longest=PAPER_LONGEST if paper else LONGEST)
    store, _ = base_store(model.tokenizer.fingerprint, BASE_STORE)
    samples = collect(
        model,
        passages,
        drafter=NgramDrafter([store] if store else []),
        temperature=wanted.temperature,
        published=paper,
        progress=lambda n: progress(f"prompt {n} of {len(passages)}"),
    )
    calibration = calibrate(
        model,
        samples,
        delta=wanted.delta,
        budget=wanted.budget,
        buckets=wanted.buckets,
        prompts=len(passages),
        temperature=wanted.temperature,
        positions=wanted.positions,
    )
    file = out or user_file(model, wanted.temperature, paper, wanted.positions)
    file.parent.mkdir(parents=True, exist_ok=True)
    calibration.save(file)
    model.close()
    return calibration, coverage(samples, calibration, THETA), file


def sentences(calibration: Calibration, held: Coverage) -> list[str]:
    """The constants, and what they say of the pairs that they were measured on."""
    c = calibration.overall
    accepted = (
        f"it accepts {held.accepted:.1%}, of which JS ≤ U for {held.held_accepted:.1%} and JS ≤ τ_δ for "
        f"{held.tolerable:.1%}; their mean JS is {held.mean_js:.3f} nats."
        if held.accepted
        else "it accepts none of them."
    )
    return [
        f"{calibration.model}: c'_s {c.c_s:.3g}, ακ {c.alpha_kappa:.3g}, τ_δ {c.tau:.3g} from "
        f"{calibration.samples} pairs",
        f"JS ≤ U for {held.held:.1%} of them. At θ = {THETA:g} {accepted}",
    ]


def is_calibration(path: Path) -> bool:
    """Whether a file has constants, which are measured anew."""
    try:
        Calibration.load(path)
    except CalibrationError:
        return False
    return True


def cut(tokenizer: Tokenizer, text: Path | None, count: int, longest: int = LONGEST) -> list[list[int]]:
    """`count` passages of 32 to `longest` tokens, spread over the documents as evenly as possible."""
    rng = random.Random(0)
    documents = [document for file in load_text(text) for document in file]
    rng.shuffle(documents)
    prefixes: list[list[int]] = []
    for number in range(count):
        document = documents[number % len(documents)]
        at = rng.randrange(max(len(document) - 6 * longest, 1))
        ids = tokenizer.encode(document[at : at + 6 * longest])
        length = rng.randint(SHORTEST, longest)
        if len(ids) >= SHORTEST:
            prefixes.append(tokenizer.start_ids + ids[-length:])
    if not prefixes:
        raise InputError(f"No document of {SHORTEST} tokens in {text}; give a longer text.")
    return prefixes
