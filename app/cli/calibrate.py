"""`polydraft calibrate`: measures the constants of ARC's tolerance, once per model (Algorithm 1)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.cli.shared import Backend, Model, Yes, refuse_to_replace
from app.machine.output import say
from core.controls import THETA
from core.errors import InputError
from core.models import Tokenizer, load_model
from core.models.prose import prose_of
from core.ngram.base import BASE_STORE, base_store
from core.options import DRAFTING
from core.speculative.calibration import Calibration, CalibrationError, user_file
from core.speculative.drafters.ngram import NgramDrafter
from training.calibration import Coverage, calibrate, collect, coverage
from training.texts import load as load_text

SHORTEST, LONGEST = 32, 128  # tokens of a prompt
PAPER_LONGEST = 256  # the paper's, which takes twice the time


@dataclass(frozen=True)
class CalibrationRun:
    """The options of `polydraft calibrate`."""

    text: Annotated[
        Path | None, typer.Option(help="A file or folder of text to cut prompts from; .txt or .jsonl.zst.")
    ] = None
    prompts: Annotated[int, typer.Option(min=1, help="How many prompts.", metavar="N")] = 200
    out: Annotated[Path | None, typer.Option(help="The file to write; by default in the user's data folder.")] = None
    delta: Annotated[float, typer.Option(help="The share of positions where the bound may fail.", metavar="N")] = 0.05
    temperature: Annotated[
        float, typer.Option(min=0.05, help="The temperature at which texts will be sampled.", metavar="N")
    ] = 1.0
    budget: Annotated[
        float,
        typer.Option(min=0.01, max=1, help="The divergence to tolerate, in bits; 1 tolerates everything.", metavar="N"),
    ] = 0.5
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="Measure the paper's constants, for evaluations and benchmarks; the app does not use them."
        ),
    ] = False
    buckets: Annotated[
        int,
        typer.Option(
            min=0,
            help="With --paper: the number of entropy classes with separate constants; 0 for one set.",
            metavar="N",
        ),
    ] = 0
    positions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --paper: the number of positions of a text that share the risk delta; by default each has it.",
            metavar="N",
        ),
    ] = None
    prose: Annotated[
        bool, typer.Option("--prose/--no-prose", help="With the adapter to prose, if the model has one, or without.")
    ] = bool(DRAFTING["prose"].default)
    yes: Yes = False
    model: Model = "default"
    backend: Backend = "auto"

    def check(self) -> None:
        """Raises InputError for a value out of range, for an option that would have no effect, and for another file
        at `--out`."""
        if (out := self.out) is not None:
            refuse_to_replace(out, self.yes, is_calibration)
        if not 0 < self.delta < 1:
            raise InputError(f"delta {self.delta} given; between 0 and 1 expected.")
        if not self.paper and (self.buckets or self.positions is not None):
            raise InputError("--buckets and --positions change nothing without --paper; add it, or leave them out.")


def run(wanted: CalibrationRun) -> None:
    """Calibrates, saves the constants, and says what they are."""
    wanted.check()
    with Console(stderr=True).status("calibrating …") as status:
        calibration, held, file = _measured(wanted, lambda what: status.update(f"{what} …"))
    c = calibration.overall
    say(
        f"{calibration.model}: c'_s {c.c_s:.3g}, ακ {c.alpha_kappa:.3g}, τ_δ {c.tau:.3g} from "
        f"{calibration.samples} pairs"
    )
    accepted = (
        f"it accepts {held.accepted:.1%}, of which JS ≤ U for {held.held_accepted:.1%} and JS ≤ τ_δ for "
        f"{held.tolerable:.1%}; their mean JS is {held.mean_js:.3f} nats."
        if held.accepted
        else "it accepts none of them."
    )
    say(f"JS ≤ U for {held.held:.1%} of them. At θ = {THETA:g} {accepted}")
    say(file)


def _measured(wanted: CalibrationRun, progress: Callable[[str], None]) -> tuple[Calibration, Coverage, Path]:
    """The constants, what they say of the pairs that they were measured on, and their file."""
    progress("loading the model")
    model = load_model(wanted.model, wanted.backend)
    if wanted.prose and (adapter := prose_of(model)) is not None:
        model.adapt([(adapter, 1.0)])
    passages = cut(model.tokenizer, wanted.text, wanted.prompts, longest=PAPER_LONGEST if wanted.paper else LONGEST)
    store, _ = base_store(model.tokenizer.fingerprint, BASE_STORE)
    samples = collect(
        model,
        passages,
        drafter=NgramDrafter([store] if store else []),
        temperature=wanted.temperature,
        published=wanted.paper,
        progress=lambda n: progress(f"prompt {n} of {len(passages)}"),
    )
    calibration = calibrate(
        model,
        samples,
        delta=wanted.delta,
        budget=None if wanted.paper else wanted.budget,
        buckets=wanted.buckets,
        prompts=len(passages),
        temperature=wanted.temperature,
        positions=wanted.positions,
    )
    file = wanted.out or user_file(model, wanted.temperature, wanted.paper, wanted.positions)
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
