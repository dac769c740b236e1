"""`polydraft calibrate`: measures the constants of ARC's tolerance, once per model (Algorithm 1)."""

from __future__ import annotations

import random
from collections.abc import Callable
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


def run(
    model_name: str,
    backend: Backend,
    text: Path | None,
    prompts: int,
    out: Path | None,
    delta: float,
    temperature: float,
    budget: float | None,
    buckets: int,
    positions: int | None,
    with_prose: bool,
    progress: Callable[[str], None],
) -> tuple[Calibration, Coverage, Path]:
    """Calibrates and saves; returns the result, what it says of its own pairs, and its path. For the arguments see
    `polydraft calibrate`; a budget of None is its `--paper`."""
    if not 0 < delta < 1:
        raise InputError(f"delta {delta} given; between 0 and 1 expected.")
    progress("loading the model")
    model = load_model(model_name, backend)
    if with_prose and (adapter := prose_of(model)) is not None:
        model.adapt([(adapter, 1.0)])
    paper = budget is None
    if not paper and (buckets or positions is not None):
        raise InputError("--buckets and --positions change nothing without --paper; add it, or leave them out.")
    passages = cut(model.tokenizer, text, prompts, longest=PAPER_LONGEST if paper else LONGEST)
    store, _ = base_store(model.tokenizer.fingerprint, BASE_STORE)
    samples = collect(
        model,
        passages,
        drafter=NgramDrafter([store] if store else []),
        temperature=temperature,
        published=paper,
        progress=lambda n: progress(f"prompt {n} of {len(passages)}"),
    )
    calibration = calibrate(
        model,
        samples,
        delta=delta,
        budget=budget,
        buckets=buckets,
        prompts=len(passages),
        temperature=temperature,
        positions=positions,
    )
    file = out or user_file(model, temperature, paper, positions)
    file.parent.mkdir(parents=True, exist_ok=True)
    calibration.save(file)
    model.close()
    return calibration, coverage(samples, calibration, THETA), file


def is_calibration(path: Path) -> bool:
    """Whether a file has constants, which are measured anew."""
    try:
        Calibration.load(path)
    except CalibrationError:
        return False
    return True


def cut(tokenizer: Tokenizer, text: Path | None, count: int, seed: int = 0, longest: int = LONGEST) -> list[list[int]]:
    """`count` passages of 32 to `longest` tokens, spread over the documents as evenly as possible."""
    rng = random.Random(seed)
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
