"""`eval adapter`: predicts the writer's next token, measures the match of the best of k drafts and the keys that drafts
save, with and without an adapter that was trained on an earlier text, alone and with n-gram stores; and measures the
time of a pass."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from timeit import repeat
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from torch import Tensor

from app.options.settings import DraftSettings
from app.options.typist import Way, passages, shelf_of, typed
from core.autocomplete import Autocomplete, load_autocomplete
from core.errors import InputError
from core.models import LanguageModel
from core.ngram import Interpolation
from core.ngram.base import chosen
from core.ngram.shelf import interpolation
from research.evals.personal import drafted, learn_and_test, newest
from research.options import (
    DraftCountOptions,
    Learned,
    MixedOptions,
    PastOptions,
    PlacesOptions,
    Share,
    Training,
    amount,
)
from research.places import places
from research.report import Progress, Report, counted
from research.scores import half_interval
from research.texts import sample

if TYPE_CHECKING:
    from core.ngram.interpolation import Store
    from core.ngram.personal import PersonalStore
    from training.personal import Outcome

PLACES = 1536  # whose next token is compared
DRAFTED = 600  # places with drafts
TYPED = 8  # characters that the typist writes for each of these places
TYPED_K = 3  # drafts of the typist
CONTEXT, RUN = 96, 32  # tokens before the first place of a window, and places of a window
CONSIDERED = 32  # the model's most probable tokens; they and the n-grams' proposals are the candidates
PASSES = 60  # timed passes, with and without the adapter in turn


@dataclass(frozen=True)
class Placed:
    """The rank of the writer's token at one place, from 0, and its ln p."""

    rank: int
    logp: float


@dataclass
class Tested:
    """What was measured with one choice of stores, with or without the adapter.

    Attributes:
        places: the writer's next tokens.
        matches: by k, tokens of the best draft that agree with the writer, at places that are the same for all.
        saved: percent of the keys of each passage; the passages are the same for all.
    """

    places: list[Placed] = field(default_factory=list)
    matches: dict[int, list[float]] = field(default_factory=dict)
    saved: list[float] = field(default_factory=list)


MODEL, BASE, BOTH = "model", "base store", "base and personal stores"


def adapted(name: str) -> str:
    return f"{name}, adapter"


@dataclass(frozen=True)
class AdapterOptions(DraftCountOptions, MixedOptions, PastOptions, PlacesOptions):
    share: Share = 100.0
    learned: Learned = None
    repetitions: Annotated[
        int | None, amount("Places per kind of text; by default 1536, and 600 of them for drafts and typing.")
    ] = None
    minutes: Training = 10.0


def measure(options: AdapterOptions, progress: Progress) -> Report:
    from core.models.adapter import load
    from core.ngram.personal import PersonalStore

    autocomplete = load_autocomplete(options.model, options.backend, store=chosen(options.base_store), personal=False)
    model, base = autocomplete.model, autocomplete.ngrams
    learnt, tested = learn_and_test(options)
    windows = windows_of(
        [model.tokenizer.encode(text) for of_kind in tested.values() for text in of_kind], options.repetitions or PLACES
    )
    count = min(DRAFTED, options.repetitions or DRAFTED)
    drafted_at = places(model.tokenizer, tested, count, options.context)
    written = passages(tested, TYPED * count)
    with (
        nullcontext(options.learned) if options.learned else tempfile.TemporaryDirectory() as folder,
        PersonalStore.open(Path(folder) / "writer.sqlite", model.tokenizer, create=True) as store,
    ):
        store.add("past", newest(learnt, options.share / 100))  # the same text as before leaves the adapter
        outcome, floor = _learned(store, base, options, progress)
        adapter = load(store.learned)
        rules = {MODEL: None, BASE: interpolation(base), BOTH: interpolation(base, [store])}
        typists = {
            MODEL: Autocomplete(model),
            BASE: Autocomplete(model, base),
            BOTH: Autocomplete(model, base, shelf=shelf_of(store)),
        }
        results: dict[str, Tested] = {}
        for on in (False, True):
            model.adapt([(adapter, adapter.result.strength)] if on else [])
            of = {name: results.setdefault(adapted(name) if on else name, Tested()) for name in rules}
            for window in counted(windows, "window", progress):
                logits = _logits(model, window)
                for name, rule in rules.items():
                    of[name].places += placed(rule, window, logits)
            for name, rule in rules.items():
                for k in options.ks:
                    progress(f"{k} drafts with {adapted(name) if on else name}")
                    of[name].matches[k] = [float(drafted(model, place, rule, k).match) for place in drafted_at]
            for name, typist in typists.items():
                progress(f"typing with {adapted(name) if on else name}")
                way = Way("as shipped", DraftSettings(k=TYPED_K, ngrams=name != MODEL))
                of[name].saved = [typed(typist, passage, way).saved for passage in written]
        times = timed_passes(model, lambda on: model.adapt([(adapter, 1.0)] if on else []))
        report = report_of(results, outcome, floor, times)
    model.close()
    return report


def report_of(
    results: Mapping[str, Tested], outcome: Outcome, floor: float, times: tuple[list[float], list[float]]
) -> Report:
    """
    Args:
        results: of the three choices of stores, then of the same with the adapter.
        floor: seconds that training a token takes at least, if all weights are trained.
        times: of passes in seconds, without and with the adapter.
    """
    report = Report("eval adapter")
    for name, tested in results.items():
        logs = [each.logp for each in tested.places]
        row = {
            "with": name,
            "places": len(logs),
            "first": fmean(each.rank < 1 for each in tested.places),
            "first_three": fmean(each.rank < 3 for each in tested.places),
            "ln_p": fmean(logs),
            "ln_p_ci": half_interval(_by_window(logs)),
        }
        for k, matches in tested.matches.items():
            row |= {f"match_{k}": fmean(matches), f"match_{k}_ci": half_interval(matches)}
            row |= {f"match_{k}_gain_ci": _gain(matches, results[BASE].matches[k])[1]}
        row |= {"keys_saved_percent": fmean(tested.saved), "keys_ci": half_interval(tested.saved)}
        row |= {"keys_gain_ci": _gain(tested.saved, results[BASE].saved)[1]}
        report.rows.append(row)
    result, trained = outcome.result, outcome.curve[-1][0]  # each token as often as it was trained
    report.rows[0] |= {"pass_ms": 1000 * median(times[0])}
    report.rows[3] |= {
        "pass_ms": 1000 * median(times[1]),
        "tokens": result.tokens,
        "trained_tokens": trained,
        "seconds": outcome.seconds,
        "tokens_per_s": trained / outcome.seconds,
        "floor_tokens_per_s": 1 / floor,
        "held_out_gain": result.gain,
        "held_out_error": result.error,
        "strength": result.strength,
        "general": result.general,
    }
    base, both, best = results[BASE], results[BOTH], results[adapted(BOTH)]
    gained = [b.logp - a.logp for a, b in zip(both.places, best.places, strict=True)]
    report.rows[-1] |= {"gain": fmean(gained), "gain_ci": half_interval(_by_window(gained))}
    report.target("ln p gained beside both stores", fmean(gained), ">= 0")
    for k, matches in base.matches.items():
        ratio = fmean(best.matches[k]) / max(fmean(matches), 1e-9)
        report.target(f"match of the best of {k}, both stores and adapter / base store", ratio, ">= 1.3")
    keys, _ = _gain(best.saved, base.saved)
    report.target("keys saved, points more than with the base store", keys, ">= 4")
    ratios = [b / a for a, b in zip(*times, strict=True)]
    report.target("one pass with the adapter / without", median(ratios), "<= 1.08")
    return report


def _gain(values: Sequence[float], before: Sequence[float]) -> tuple[float, float]:
    """Returns the mean difference of values in pairs, and half of its confidence interval."""
    gained = [b - a for a, b in zip(before, values, strict=True)]
    return fmean(gained), half_interval(gained)


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
        best = row.topk(min(CONSIDERED, len(row)))
        proposed = rule.proposals([before], [float(best.values[-1].exp())])[0]
        ids = list(dict.fromkeys([token, *best.indices.tolist(), *proposed]))
        scores = rule.scores(row[torch.tensor(ids)].numpy()[None], [before], np.array([ids]))[0]
        yield Placed(int((scores > scores[0]).sum()), float(scores[0]))


def _learned(
    store: PersonalStore, base: Store | None, options: AdapterOptions, progress: Progress
) -> tuple[Outcome, float]:
    """Trains an adapter as `polydraft learn` does. Returns its outcome, and the floor of `_floor`."""
    from core.models.load import load_module
    from training.personal import Outcome, learn

    module = load_module(options.model)
    floor = _floor(module.layers.module.num_parameters())
    for stage in learn(store, module, base, sample(), options.minutes):
        if isinstance(stage, Outcome):
            return stage, floor
        progress(f"{stage.description} {stage.share:.0%}")
    raise AssertionError("`learn` ends with an outcome")


def _floor(parameters: int, size: int = 1024) -> float:
    """Returns the seconds that training all parameters takes per token at least: 3 passes of 2 operations each, at the
    rate of the quickest of some float32 products of square matrices on this machine."""
    x = torch.randn(size, size)
    seconds = min(repeat(lambda: torch.mm(x, x), number=1, repeat=8))
    return 3 * 2 * parameters * seconds / (2 * size**3)


def _logits(model: LanguageModel, window: list[int]) -> Tensor:
    with closing(model.open()) as sequence:
        return sequence.feed_every(window[:-1])


def timed_passes(model: LanguageModel, switch: Callable[[bool], None]) -> tuple[list[float], list[float]]:
    """Returns the seconds of passes of one token, without and with the adapter in turn."""
    times: tuple[list[float], list[float]] = [], []
    sequence = model.open()
    sequence.feed([5] * 32)
    for _ in range(PASSES):
        for on in (False, True):
            switch(on)
            for timed in (False, True):  # the first pass loads the other weights into the processor's caches
                began = time.perf_counter()
                sequence.feed([5])
                if timed:
                    times[on].append(time.perf_counter() - began)
                sequence.rewind(32)
    sequence.close()
    return times


def _by_window(values: Sequence[float]) -> list[float]:
    """Returns the means over windows, because the places of one window depend on each other."""
    return [fmean(values[at : at + RUN]) for at in range(0, len(values), RUN)]
