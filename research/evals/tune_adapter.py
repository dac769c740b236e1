"""`eval tune-adapter`: compares hyperparameters of adapters on the training text only.

Cross-validation: the text is divided into FOLDS parts. With each setting an adapter is trained on the other parts and
evaluated on the remaining one, and on general text. The test text is not read. A setting differs from the shipped
recipe in one hyperparameter. The first fold is evaluated with every setting before the second one is begun.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from core.errors import InputError
from core.models.adapter import PROJECTIONS
from core.models.load import load_module
from core.ngram.base import base_store
from core.ngram.counts import Counts
from core.ngram.interpolation import Interpolation
from core.ngram.shelf import interpolation
from research.evals.personal import newest
from research.learned import read_results, write_results
from research.options import Learned, ModelOptions, Share, StoreOptions, Training, amount
from research.places import texts
from research.report import Progress, Report, ReportRow
from training.adapter import AdapterRecipe, Student, Trainer
from training.held_out import (
    CONTEXT,
    WINDOW,
    held_out_windows,
    mean_of,
    means_of_blocks,
    mixed_gains,
    spaced,
    standard_error,
)
from training.personal import allowed_strength, joined, recipe_for

FOLDS = 2
GENERAL_WINDOWS = 8  # of general text
CHANCE = 0.05  # that some setting seems better than the shipped one and is not
SHIPPED = "as shipped"
LATER = "second half of the text later"
RESULTS = "tune-adapter.json"  # in the folder that is given with --learned


@dataclass(frozen=True)
class AdapterSetting:
    """One way to train an adapter.

    Attributes:
        name: what differs from the shipped way.
        general: pieces of general text that are trained with each piece of the writer's.
        later: whether the text arrives in two halves; with the second one, `recipe.replays` earlier pieces are trained
            per new piece.
        beside: the name of the setting that this one is compared with.
    """

    name: str
    recipe: AdapterRecipe
    general: float = 0.0
    later: bool = False
    beside: str = SHIPPED


@dataclass(frozen=True)
class Fold:
    """One part of the text and the rest.

    Attributes:
        rest: the ids before and after the part.
        pieces: those of the rest, (N, T).
        windows: of the part.
    """

    rest: list[list[int]]
    pieces: np.ndarray
    windows: list[Tensor]


@dataclass(frozen=True)
class General:
    """General text: pieces (N, T) that may be trained, and windows of other text on which the loss is measured."""

    pieces: np.ndarray
    windows: list[Tensor]


@dataclass(frozen=True)
class FoldResult:
    """The result of one setting on one fold.

    Attributes:
        logp: means over blocks of places of ln p, by model and adapter alone at full strength.
        gains: the same of the gain in ln p at `strength`, with the base store and the n-grams of the rest mixed in.
        general: the change of the mean ln p of general text at full strength.
        strength: the largest that the app allows; see `allowed_strength`.
        tokens: trained, each as often as it was.
        seconds: of training and evaluation.
    """

    logp: list[float]
    gains: list[float]
    general: float
    strength: float
    tokens: int
    seconds: float


Results = dict[tuple[AdapterSetting, int], FoldResult]  # by the setting and the fold's number


def settings(pieces: int) -> list[AdapterSetting]:
    """Returns the settings for a number of pieces, the shipped one first, then those that may matter most for their
    time."""
    usual = recipe_for(pieces)
    fewer, more = max(usual.epochs // 2, 1), 2 * usual.epochs
    later = AdapterSetting(LATER, usual, later=True)
    varied = [
        AdapterSetting(SHIPPED, usual),
        *(AdapterSetting(f"rate {rate:g}", replace(usual, rate=rate)) for rate in (2 * usual.rate, usual.rate / 2)),
        AdapterSetting(f"epochs {fewer}", replace(usual, epochs=fewer)),
        AdapterSetting("general text 0.25", usual, general=0.25),
        AdapterSetting("all places", replace(usual, places=tuple(PROJECTIONS))),
        AdapterSetting("places q, v", replace(usual, places=("q_proj", "v_proj"))),
        *(AdapterSetting(f"rank {n}", replace(usual, rank=n)) for n in (2 * usual.rank, usual.rank // 2)),
        AdapterSetting("general text 0.5", usual, general=0.5),
        later,
        *(
            replace(later, name=f"{LATER}, replays {n}", recipe=replace(usual, replays=n), beside=LATER)
            for n in (0, 2 * usual.replays)
        ),
        AdapterSetting(f"epochs {more}", replace(usual, epochs=more)),
    ]
    return [setting for setting in varied if setting.name != f"epochs {usual.epochs}"]


@dataclass(frozen=True)
class TuneAdapterOptions(ModelOptions, StoreOptions):
    text: Annotated[Path | None, typer.Option(help="A file or folder of text by others.")] = None
    past: Annotated[Path | None, typer.Option(help="The writer's text, which is learned.")] = None
    share: Share = 100.0
    learned: Learned = None
    repetitions: Annotated[int, amount("Places of each fold whose next token is predicted.")] = 4608
    minutes: Training = 60.0


def measure(options: TuneAdapterOptions, progress: Progress) -> Report:
    ends = time.monotonic() + 60 * (options.minutes)
    model = load_module(options.model)
    base, _ = base_store(model.tokenizer.fingerprint, options.store)
    written = [text for of_kind in texts(options.past).values() for text in of_kind]
    encode = model.tokenizer.encode
    between = encode("\n\n")
    ids = joined([encode(text) for text in newest(written, options.share / 100)], between).tolist()
    length = AdapterRecipe().length
    folds = folds_of(ids, length, options.repetitions)
    general = general_of([[encode(text) for text in of_kind] for of_kind in texts(options.text).values()], length)
    every = settings(min(len(fold.pieces) for fold in folds))

    windows = [window.tolist() for window in [*general.windows, *(w for fold in folds for w in fold.windows)]]
    texts_read = [ids, general.pieces.tolist(), windows]
    store = "" if base is None else str(options.store)
    identity = sha256(json.dumps([model.fingerprint, texts_read, store]).encode()).hexdigest()
    path = None if options.learned is None else options.learned / RESULTS
    results = known_results(path, identity, every) if path else {}

    plain = model.layers.module.to("cpu", torch.float32)
    alone = Student(deepcopy(plain), every[0].recipe, torch.float32)
    general_before = [mean_of(alone.logprobs(window, 0.0)) for window in general.windows]
    for number, fold in enumerate(folds):
        missing = [setting for setting in every if (setting, number) not in results]
        before = [alone.logprobs(window, 0.0) for window in fold.windows] if missing else []
        rule = interpolation(base, [Counts.of(model.vocab_size, [(ids, 1) for ids in fold.rest])])
        for setting in missing:
            began = time.monotonic()
            # float32 on every machine, so that results of several runs are comparable.
            student = Student(deepcopy(plain), setting.recipe, torch.float32)
            tokens = 0
            for tokens in trained(student, setting, fold.pieces, general):
                progress(f"fold {number + 1} of {FOLDS}, {setting.name}: {tokens:,} tokens")
                if time.monotonic() > ends:
                    return report_of(results, every)
            strength, changes = allowed_strength(student, general.windows, general_before)
            logp, gains = evaluate(student, strength, fold.windows, before, rule)
            seconds = time.monotonic() - began
            results[setting, number] = FoldResult(logp, gains, changes[1.0], strength, tokens, seconds)
            if path:
                write_results(path, identity, as_rows(results))
    return report_of(results, every)


def folds_of(ids: list[int], length: int, places: int) -> list[Fold]:
    """Divides the text into FOLDS parts of neighbouring tokens. Raises InputError for a short text."""
    cuts = [len(ids) * number // FOLDS for number in range(FOLDS + 1)]
    folds = []
    for low, high in pairwise(cuts):
        rest = [part for part in (ids[:low], ids[high:]) if part]
        pieces = [part[at : at + length] for part in rest for at in range(0, len(part) - length + 1, length)]
        if len(pieces) < 2:
            raise InputError(
                f"{len(ids)} tokens of training text given; at least {2 * FOLDS * length} expected. Give a longer text "
                "with --past, or a larger --share."
            )
        windows = held_out_windows(ids[low:high])
        folds.append(Fold(rest, np.array(pieces), spaced(windows, max(places // (WINDOW - CONTEXT), 1))))
    return folds


def general_of(kinds: Sequence[Sequence[list[int]]], length: int) -> General:
    """Divides text by others, documents by kind, into pieces to train and windows to measure. Raises InputError for a
    short text."""
    streams = [[token for document in documents for token in document] for documents in kinds]
    halves = [(ids[: len(ids) // 2], ids[len(ids) // 2 :]) for ids in streams]
    pieces = [ids[at : at + length] for ids, _ in halves for at in range(0, len(ids) - length + 1, length)]
    if not pieces:
        raise InputError(f"The general text has less than {2 * length} tokens of any kind; give a longer --text.")
    windows = held_out_windows([token for _, ids in halves for token in ids])
    return General(np.array(pieces), spaced(windows, GENERAL_WINDOWS))


def trained(student: Student, setting: AdapterSetting, pieces: np.ndarray, general: General) -> Iterator[int]:
    """Trains the student as the setting says. Yields the number of tokens trained after every step. Raises InputError
    if there is too little general text."""
    count = round(setting.general * len(pieces))
    if count > len(general.pieces):
        raise InputError(
            f"The general text has {len(general.pieces)} pieces to train; {count} expected. Give a longer --text."
        )
    recipe = setting.recipe
    every = np.array([*pieces, *spaced(list(general.pieces), count)])
    state = None
    for stage in [pieces[: len(pieces) // 2], every] if setting.later else [every]:
        trainer = Trainer(student, stage, recipe, state)
        for _ in trainer.run():
            yield trainer.trained
        state = trainer.state(0)


def evaluate(
    student: Student, strength: float, windows: list[Tensor], before: list[Tensor], rule: Interpolation | None
) -> tuple[list[float], list[float]]:
    """Returns `FoldResult.logp` and `FoldResult.gains`, given the model's own ln p in the windows."""
    logs: list[float] = []
    gains: list[float] = []
    for window, alone in zip(windows, before, strict=True):
        full = student.logprobs(window)
        allowed = full if strength == 1 else student.logprobs(window, strength)
        logs += full[CONTEXT - 1 :].tolist()
        gains += mixed_gains(rule, window, alone, allowed)
    return means_of_blocks(logs), means_of_blocks(gains)


def report_of(results: Results, every: Sequence[AdapterSetting]) -> Report:
    """Makes the report; a setting that was not measured has no figures."""
    report = Report("eval tune-adapter")
    surplus: dict[str, float] = {}  # in standard errors
    named = {setting.name: setting for setting in every}
    for setting in every:
        by_fold = {fold: each for (other, fold), each in results.items() if other == setting}
        row: ReportRow = {"setting": setting.name, "folds": len(by_fold)}
        report.rows.append(row)
        if not by_fold:
            continue
        row |= {
            "trained_tokens": round(fmean(each.tokens for each in by_fold.values())),
            "seconds": fmean(each.seconds for each in by_fold.values()),
            "ln_p": fmean(block for each in by_fold.values() for block in each.logp),
            "general": fmean(each.general for each in by_fold.values()),
            "strength": fmean(each.strength for each in by_fold.values()),
            "gain": fmean(block for each in by_fold.values() for block in each.gains),
        }
        usual = named[setting.beside]
        pairs = [(results[usual, fold], each) for fold, each in by_fold.items() if (usual, fold) in results]
        if setting != usual and pairs:
            logp = [b - a for old, new in pairs for a, b in zip(old.logp, new.logp, strict=True)]
            gain = [b - a for old, new in pairs for a, b in zip(old.gains, new.gains, strict=True)]
            row |= {"beside": setting.beside, "ln_p_more": fmean(logp), "ln_p_error": standard_error(logp)}
            row |= {"gain_more": fmean(gain), "gain_error": standard_error(gain)}
            surplus[setting.name] = fmean(gain) / max(standard_error(gain), 1e-9)
    if surplus:
        limit = NormalDist().inv_cdf(1 - CHANCE / len(surplus))  # Bonferroni's, for this many comparisons
        name = max(surplus, key=lambda name: surplus[name])
        report.target(f"gain with {name} less that beside it, in standard errors", surplus[name], f"<= {limit:.2f}")
    return report


def known_results(path: Path, identity: str, every: Sequence[AdapterSetting]) -> Results:
    """Returns the results of earlier runs with these settings. Raises InputError if they are of another model or
    text."""
    known = {_key(setting): setting for setting in every}
    kept = read_results(path, identity, "model or text") or []
    return {(known[key], fold): FoldResult(**each) for key, fold, each in kept if key in known}


def as_rows(results: Results) -> list[list[object]]:
    return [[_key(setting), fold, asdict(each)] for (setting, fold), each in results.items()]


def _key(setting: AdapterSetting) -> str:
    return json.dumps(asdict(setting), sort_keys=True)
