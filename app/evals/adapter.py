"""`eval adapter`: predicts the writer's next token, and measures the match of the best of three drafts, with and
without an adapter that was trained on an earlier text, alone and with n-gram stores; and measures the time of a
pass."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from app.bench.report import Report
from app.bench.text import SAMPLE
from app.evals.options import EvalOptions, places
from app.evals.personal import drafted, learn_and_test
from app.evals.scores import half_interval
from core.autocomplete import load_autocomplete
from core.errors import InputError
from core.models import LanguageModel
from core.ngram import Interpolation
from core.ngram.base import chosen
from core.ngram.shelf import interpolation

if TYPE_CHECKING:
    from core.models.adapter import Result
    from core.ngram.interpolation import Store
    from core.ngram.personal import PersonalStore

PLACES = 1536  # whose next token is compared
DRAFTED = 300  # places with drafts
CONTEXT, RUN = 96, 32  # tokens before the first place of a window, and places of a window
CONSIDERED = 32  # the model's most probable tokens; they and the n-grams' proposals are the candidates
PROPOSED = 8
PASSES = 60  # timed passes, with and without the adapter in turn


@dataclass(frozen=True)
class Placed:
    """The rank of the writer's token at one place, from 0, and its ln p."""

    rank: int
    logp: float


def measure(options: EvalOptions, progress: Callable[[str], None]) -> Report:
    from core.models.adapter import load
    from core.ngram.personal import PersonalStore

    progress("loading the model")
    autocomplete = load_autocomplete(options.model, options.backend, store=chosen(options.base_store), personal=False)
    model = autocomplete.model
    learnt, tested = learn_and_test(options)
    windows = windows_of(
        [model.tokenizer.encode(text) for found in tested.values() for text in found], options.repetitions or PLACES
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        PersonalStore.open(Path(folder) / "writer.sqlite", model.tokenizer, create=True) as store,
    ):
        store.add("past", learnt)
        result, seconds = _learned(store, autocomplete.ngrams, options, progress)
        adapter = load(store.learned)
        rules = {
            "model": None,
            "base store": interpolation(autocomplete.ngrams),
            "base and personal stores": interpolation(autocomplete.ngrams, [store]),
        }
        chosen_places = places(model.tokenizer, tested, min(DRAFTED, options.repetitions or DRAFTED), options.context)
        found: dict[str, list[Placed]] = {}
        matches: dict[str, list[float]] = {}
        for adapted in (False, True):
            model.adapt([(adapter, adapter.result.strength)] if adapted else [])
            for name in rules:
                found[f"{name}, adapter" if adapted else name] = []
            for number, window in enumerate(windows):
                progress(f"window {number + 1} of {len(windows)}")
                logits = _logits(model, window)
                for name, rule in rules.items():
                    found[f"{name}, adapter" if adapted else name] += placed(rule, window, logits)
            for name, rule in rules.items():
                progress(f"drafts with {name}")
                scores = [drafted(model, place, rule) for place in chosen_places]
                matches[f"{name}, adapter" if adapted else name] = [float(score.match) for score in scores]
        times = _timed(model, lambda on: model.adapt([(adapter, 1.0)] if on else []))
        report = judged(found, matches, result, seconds, times)
    model.close()
    return report


def judged(
    found: dict[str, list[Placed]],
    matches: dict[str, list[float]],
    result: Result,
    seconds: float,
    times: tuple[list[float], list[float]],
) -> Report:
    """
    Args:
        matches: tokens of the best draft that agree with the writer, at places that are the same for all.
        times: of passes in seconds, without and with the adapter.
    """
    report = Report("eval adapter")
    for name, at_places in found.items():
        logs = [each.logp for each in at_places]
        report.rows.append(
            {
                "with": name,
                "places": len(at_places),
                "first": fmean(each.rank < 1 for each in at_places),
                "first_three": fmean(each.rank < 3 for each in at_places),
                "ln_p": fmean(logs),
                "ln_p_ci": half_interval(_by_window(logs)),
                "match": fmean(matches[name]),
                "match_ci": half_interval(matches[name]),
            }
        )
    report.rows[0] |= {"pass_ms": 1000 * median(times[0])}
    report.rows[3] |= {
        "pass_ms": 1000 * median(times[1]),
        "tokens": result.tokens,
        "seconds": seconds,
        "held_out_gain": result.gain,
        "held_out_error": result.error,
        "strength": result.strength,
        "general": result.general,
    }
    both = "base and personal stores"
    gained = [b.logp - a.logp for a, b in zip(found[both], found[f"{both}, adapter"], strict=True)]
    report.rows[-1] |= {"gain": fmean(gained), "gain_ci": half_interval(_by_window(gained))}
    report.target("ln p gained beside both stores", fmean(gained), ">= 0")
    base, best = fmean(matches["base store"]), fmean(matches[f"{both}, adapter"])
    report.target("match of the best of 3, both stores and adapter / base store", best / max(base, 1e-9), ">= 1.3")
    ratios = [b / a for a, b in zip(*times, strict=True)]
    report.target("one pass with the adapter / without", median(ratios), "<= 1.08")
    return report


def windows_of(documents: Sequence[list[int]], places: int) -> list[list[int]]:
    """Returns evenly spaced windows of CONTEXT + RUN tokens without overlap, with at most this many places. Raises
    InputError if no document is long enough."""
    size = CONTEXT + RUN
    every = [ids[at : at + size] for ids in documents for at in range(0, len(ids) - size + 1, size)]
    if not every:
        raise InputError(f"No document of the text has {size} tokens; give a longer one.")
    count = min(max(places // RUN, 1), len(every))
    return [every[i] for i in np.linspace(0, len(every) - 1, count).round().astype(int)]


def placed(rule: Interpolation | None, window: list[int], logits: Tensor) -> Iterator[Placed]:
    """Yields the result for every place of a window, given the logits (T - 1, V) after each token except the last."""
    logp = logits.log_softmax(-1)
    for at in range(CONTEXT, len(window)):
        row, token = logp[at - 1], window[at]
        if rule is None:
            yield Placed(int((row > row[token]).sum()), float(row[token]))
            continue
        before = window[:at]
        ids = [token, *row.topk(min(CONSIDERED, len(row))).indices.tolist(), *rule.proposals([before], PROPOSED)[0]]
        ids = list(dict.fromkeys(ids))
        scores = rule.scores(row[torch.tensor(ids)].numpy()[None], [before], np.array([ids]))[0]
        yield Placed(int((scores > scores[0]).sum()), float(scores[0]))


def _learned(
    store: PersonalStore, base: Store | None, options: EvalOptions, progress: Callable[[str], None]
) -> tuple[Result, float]:
    """Trains an adapter as `polydraft learn` does. Returns its result, and the seconds of training."""
    from core.models.load import load_module
    from training.personal import Outcome, learn

    module = load_module(options.model)
    general = SAMPLE.read_text(encoding="utf-8")
    for stage in learn(store, module, base, general, options.minutes or 10.0):
        if isinstance(stage, Outcome):
            return stage.result, stage.seconds
        progress(f"{stage.description} {stage.share:.0%}")
    raise AssertionError("`learn` ends with an outcome")


def _logits(model: LanguageModel, window: list[int]) -> Tensor:
    sequence = model.open()
    try:
        return sequence.feed_every(window[:-1])
    finally:
        sequence.close()


def _timed(model: LanguageModel, switch: Callable[[bool], None]) -> tuple[list[float], list[float]]:
    """Returns the seconds of passes of one token, without and with the adapter in turn."""
    times: tuple[list[float], list[float]] = [], []
    sequence = model.open()
    sequence.feed([5] * 32)
    for _ in range(PASSES):
        for on in (False, True):
            switch(on)
            for counted in (False, True):  # the first pass loads the other weights into the processor's caches
                began = time.perf_counter()
                sequence.feed([5])
                if counted:
                    times[on].append(time.perf_counter() - began)
                sequence.rewind(32)
    sequence.close()
    return times


def _by_window(values: Sequence[float]) -> list[float]:
    """Returns the means over windows, because the places of one window depend on each other."""
    return [fmean(values[at : at + RUN]) for at in range(0, len(values), RUN)]
