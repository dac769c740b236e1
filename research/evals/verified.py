"""`eval verified`: superposed drafts checked in one tree pass and corrected, compared with unchecked ones, with exact
steps, and with branching greedy. All use the same rule for n-grams.

Matching is as in `eval drafts`: the longest beginning that any of k drafts shares with the writer's text. Methods run
in turns. Times are medians over places of the ratio to branching greedy at the same place. Cost is also counted in
tokens fed, which other load on the machine does not change. Perplexity is that of the drafts' tokens under the checking
model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median
from typing import Annotated

import torch

from core.autocomplete import load_autocomplete
from core.models import LanguageModel, Sequence, load_model
from core.ngram.interpolation import Interpolation
from core.ngram.shelf import interpolation
from research.evals.methods import NEVER, superposed
from research.options import Checker, MixedOptions, PlacesOptions, amount
from research.places import LENGTH, places, texts
from research.refined import verified
from research.report import Progress, Report, counted, turned
from research.scores import Score, scored, summary

KS = (3, 8)
EVERY = 4  # perplexity, which takes a separate pass, is computed at every fourth place
BRANCHING = "branching greedy"


@dataclass(frozen=True)
class CheckSetting:
    """How drafts are checked.

    Attributes:
        r: exact steps of the first stretch. first: its tokens. nodes: of each tree. rounds: number of checks.
    """

    r: int
    first: int
    nodes: int
    rounds: int = 1

    def __str__(self) -> str:
        again = f", {self.rounds} rounds" if self.rounds > 1 else ""
        return f"verified: r={self.r}, first {self.first}, {self.nodes} tokens{again}"


EXACT = (0, 1, 2, 3)  # r of superposed drafts without a check
SETTINGS = {
    3: (
        CheckSetting(0, 3, 6),
        CheckSetting(1, 4, 8),
        CheckSetting(1, 10, 8),
        CheckSetting(1, 4, 8, 2),
        CheckSetting(1, 10, 27, 3),
    ),
    8: (
        CheckSetting(0, 3, 12),
        CheckSetting(0, 3, 20),
        CheckSetting(1, 4, 12),
        CheckSetting(1, 4, 20),
        CheckSetting(1, 10, 12),
        CheckSetting(1, 4, 12, 2),
        CheckSetting(1, 10, 72, 3),
    ),
}
TARGET_SETTINGS = {3: CheckSetting(1, 4, 8), 8: CheckSetting(0, 3, 12)}  # the settings of the targets


@dataclass
class MethodRun:
    """One method at all places so far."""

    scores: list[Score]
    fed: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class VerifiedOptions(MixedOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places per kind of text.")] = 60
    verify_with: Checker = None


def measure(options: VerifiedOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, options.store, personal=False)
    model = autocomplete.model
    checker = load_model(options.verify_with, options.backend) if options.verify_with else model
    rule = interpolation(autocomplete.ngrams)
    chosen = places(model.tokenizer, texts(options.text), options.repetitions, options.context)
    ways = {(name, k): way for k in KS for name, way in methods(model, checker, rule, k).items()}
    runs = {key: MethodRun([], [], []) for key in ways}
    sequence, looking = model.open(), checker.open()
    for number, place in enumerate(counted(chosen, "place", progress)):
        for key in turned(list(ways), number):
            sequence.sync(place.before)
            looking.sync(place.before)
            fed, began = model.tokens_fed, time.perf_counter()
            drafts = ways[key](sequence, looking, place.before)
            ms = 1000 * (time.perf_counter() - began)
            runs[key].fed.append(model.tokens_fed - fed)
            runs[key].scores.append(scored(model.tokenizer, place.kind, drafts, place.after, ms))
            if number % EVERY == 0:
                for ids in drafts:
                    runs[key].logprobs.extend(logprobs(looking, place.before, ids))
    for s in (sequence, looking):
        s.close()
    model.close()
    if checker is not model:
        checker.close()
    return report_of(runs)


def logprobs(sequence: Sequence, before: list[int], ids: list[int]) -> list[float]:
    """Returns ln p of each token after a text. Afterwards the sequence contains exactly the text."""
    rows = sequence.sync(before)[None]
    if len(ids) > 1:
        rows = torch.cat([rows, sequence.feed_every(ids[:-1])])
    sequence.rewind(len(before))
    return rows.double().log_softmax(1)[range(len(ids)), ids].tolist()


Way = Callable[[Sequence, Sequence, list[int]], list[list[int]]]


def methods(model: LanguageModel, checker: LanguageModel, rule: Interpolation | None, k: int) -> dict[str, Way]:
    """Returns by name functions that make k drafts from a sequence, the checking model's sequence, and the text."""

    def plain(r: int | None) -> Way:
        method = superposed(rule, r)
        return lambda sequence, looking, before: method(sequence, before, k, LENGTH)

    def checked(s: CheckSetting) -> Way:
        def draft(sequence: Sequence, looking: Sequence, before: list[int]) -> list[list[int]]:
            *_, last = verified(
                model,
                before,
                k,
                LENGTH,
                sequence=sequence,
                target=None if checker is model else looking,
                first=s.first,
                rounds=s.rounds,
                nodes=s.nodes,
                ngrams=rule,
                exact_steps=s.r,
                candidates=3 * k,
                stop_ids=NEVER,
            )
            return last.ids

        return draft

    by_name = {BRANCHING: plain(None)} | {f"superposed, r={r}": plain(r) for r in EXACT}
    return by_name | {str(setting): checked(setting) for setting in SETTINGS[k]}


def report_of(runs: dict[tuple[str, int], MethodRun]) -> Report:
    """Makes a row for each method, and the targets of one setting for each k."""
    report = Report("eval verified")
    for (name, k), run in runs.items():
        row = {"method": name, "k": k, **_against(run, runs[BRANCHING, k]), "tokens fed": fmean(run.fed)}
        of_tokens = {"perplexity": math.exp(-fmean(run.logprobs))} if run.logprobs else {}
        report.rows.append(row | summary(run.scores, range(1, 5)) | of_tokens)
    for k in KS:
        ratios = _against(runs[str(TARGET_SETTINGS[k]), k], runs[BRANCHING, k])
        report.target(f"matching prefix, verified / branching, k={k}", ratios["match / branching"], ">= 0.95")
        if k == 8:
            report.target(f"time, verified / branching, k={k}", ratios["time / branching"], "<= 1.0")
    return report


def _against(run: MethodRun, branching: MethodRun) -> dict[str, float]:
    share = fmean(s.match for s in run.scores) / max(fmean(s.match for s in branching.scores), 1e-9)
    slower = median(a.ms / b.ms for a, b in zip(run.scores, branching.scores, strict=True))
    return {"match / branching": share, "time / branching": slower}
