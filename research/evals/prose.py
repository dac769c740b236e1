"""`eval prose`: an adapter to general prose beside the model as it came, at the same places of a text.

At each place one figure is measured twice, without and with the adapter, so that the difference is paired:

    ln p         of the writer's next tokens, of the model alone and mixed with the base store
    match        tokens of the longest correct beginning of any of k drafts as shipped, beside branching greedy
    keys saved   by the simulated typist of `app/options/typist.py`
    bookings     drafts that speak of restaurants, hotels, tickets and the like, after beginnings of letters that do not
    betrays      drafts that bring in what only the corpus of store and adapter speaks of (`research/betrayal.py`), at
                 the places of `research/beginnings.py` and after the same beginnings of letters

The beginnings of letters are those of research/letters.json: a model that has read much dialogue with assistants that
book tables writes letters like it. Every result is kept in the folder of --learned, so a run that was stopped resumes
there. The cost is one row: a pass with the adapter beside a pass without.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

import typer
from torch import Tensor

from app.options.settings import DraftSettings
from app.options.typist import Passage, Way, passages, typed
from core.ask import Ask
from core.autocomplete import Autocomplete
from core.errors import InputError
from core.models import LanguageModel
from core.models.adapter import load
from core.ngram.interpolation import Interpolation
from core.ngram.shelf import interpolation
from research.beginnings import KINDS, drawn
from research.betrayal import betrays
from research.evals.adapter import timed_passes
from research.evals.methods import AS_SHIPPED, NamedMethod, methods
from research.learned import read_results, write_results
from research.options import (
    AutocompleteOptions,
    Learned,
    NamedTextOptions,
    PlacesOptions,
    amount,
    loaded,
    numbers_of_drafts,
)
from research.places import Place, places, texts
from research.report import Progress, Report
from research.scores import half_interval, scored
from research.texts import named
from research.training.prose import by_name, names_in
from training.held_out import CONTEXT, WINDOW, held_out_windows, mixed, spaced

RESULTS = "prose.json"
MADE_OF = "adapter, text, store or number of places"
CHARACTERS = 5000  # typed per kind of text, in passages of 250
TOKENS = 6000  # of each kind of text whose ln p is measured
DRAFTED = 120  # places per kind of text at which drafts are compared, at most
KS, TYPED_KS = (3, 8), (1, 3)
PEER = "branching greedy"
MOST_SLOWER = 1.15  # times the pass of the model as it came
LETTERS = Path(__file__).parents[1] / "letters.json"
BOOKINGS = "drafts of letters that speak of bookings, percent"
BETRAYS = "drafts that betray their corpus, percent"
MOST_BETRAYING = 0.025  # percent, a tenth of the 2 of 819 that did when this was first measured
MODEL, ADAPTED = "as it came", "with the adapter"

Fault = Callable[[str, str], bool]  # of a draft, and the text before the caret
Figures = Callable[[], dict[str, float]]  # of one place, with the model as it is when called
Results = dict[str, list[dict[str, float]]]  # by place: without and with the adapter


@dataclass(frozen=True)
class ProseOptions(AutocompleteOptions, NamedTextOptions, PlacesOptions):
    learned: Learned = None
    repetitions: Annotated[
        int | None,
        amount("Places, tokens and characters per kind of text; by default 120, 6000 and 5000."),
    ] = None
    k: Annotated[
        str | None,
        typer.Option(help="Numbers of drafts, with commas; by default 3,8, and 1,3 for the typist.", metavar="N,N,…"),
    ] = None


def measure(options: ProseOptions, progress: Progress) -> Report:
    if options.adapter is None:
        raise InputError("No adapter given; give the folder that `polydraft train prose` wrote with --adapter.")
    adapter, documents = load(options.adapter), texts_of(options)
    autocomplete = loaded(options, adapted=False)
    model = autocomplete.model
    plans = [
        [(f"{kind}: {name}", figures) for name, figures in planned(autocomplete, of_kind, options).items()]
        for kind, of_kind in documents.items()
    ]
    begun = planned_beginnings(autocomplete, documents, options)
    plans.append([(f"beginnings: {name}", figures) for name, figures in begun.items()])
    plans.append([(f"letters: {name}", figures) for name, figures in planned_letters(autocomplete, options).items()])
    # The kinds in turn, so that a run that was stopped has as many places of each.
    plan = dict(each for turn in zip_longest(*plans) for each in turn if each)
    digest = sha256("\n".join(text for of_kind in documents.values() for text in of_kind).encode()).hexdigest()
    identity = json.dumps([adapter.identity, digest, str(options.store), options.context, options.repetitions])
    path = None if options.learned is None else options.learned / RESULTS
    results: Results = (read_results(path, identity, MADE_OF) or {}) if path else {}
    for number, (name, figures) in enumerate(plan.items()):
        if name in results:
            continue
        progress(f"{name} ({number + 1} of {len(plan)})")
        pair = []
        for adapters in ([], [(adapter, 1.0)]):
            model.adapt(adapters)
            pair.append(figures())
        results[name] = pair
        if path:
            write_results(path, identity, results)
    report = report_of({name: results[name] for name in plan})
    before, after = timed_passes(model, lambda on: model.adapt([(adapter, 1.0)] if on else []))
    ratio = median(slow / fast for fast, slow in zip(before, after, strict=True))
    report.target("one pass with the adapter / without", ratio, f"<= {MOST_SLOWER}")
    model.close()
    return report


def texts_of(options: NamedTextOptions) -> dict[str, list[str]]:
    """Returns the documents by kind; with --only, those of each name. Raises InputError if there is no text."""
    if options.only is None:
        return texts(options.text)
    if options.text is None:
        raise InputError("--only given without --text; give the text in which these documents are.")
    documents = by_name(named([options.text]), names_in(options.only))
    if not (some := {name: [each.text for each in of_name] for name, of_name in documents.items() if of_name}):
        raise InputError(f"{options.text} has none of the documents that {options.only} names.")
    return some


def planned(autocomplete: Autocomplete, documents: list[str], options: ProseOptions) -> dict[str, Figures]:
    """Returns what to measure at each place of one kind of text."""
    model, base = autocomplete.model, autocomplete.ngrams
    rule = interpolation(base)
    stream = [token for text in documents for token in model.tokenizer.encode(text)]
    count = max((options.repetitions or TOKENS) // (WINDOW - CONTEXT), 1)
    windows = spaced(held_out_windows(stream), count)
    drafted = places(model.tokenizer, {"": documents}, min(options.repetitions or DRAFTED, DRAFTED), options.context)
    ways = [way for way in methods(base, rule) if way.ngrams == (base is not None) and way.name in (AS_SHIPPED, PEER)]
    written = passages({"": documents}, options.repetitions or CHARACTERS)
    plan: dict[str, Figures] = {f"ln p, {n}": partial(logs, model, rule, each) for n, each in enumerate(windows)}
    ks = () if options.k is None else numbers_of_drafts(options.k)
    for k in ks or KS:
        plan |= {f"match of {k}, {n}": partial(matches, model, ways, k, each) for n, each in enumerate(drafted)}
    for k in ks or TYPED_KS:
        plan |= {f"keys of {k}, {n}": partial(keys, autocomplete, k, each) for n, each in enumerate(written)}
    return plan


def logs(model: LanguageModel, rule: Interpolation | None, window: Tensor) -> dict[str, float]:
    """Returns the mean ln p of a window's tokens after its context, of the model alone and with the base store."""
    with closing(model.open()) as sequence:
        logits = sequence.feed_every(window[:-1].tolist())
    logp = logits.log_softmax(-1).gather(1, window[1:, None])[:, 0]
    figures = {"ln p": float(mixed(None, window, logp).mean())}
    return figures if rule is None else figures | {"ln p with the base store": float(mixed(rule, window, logp).mean())}


def matches(model: LanguageModel, ways: Sequence[NamedMethod], k: int, place: Place) -> dict[str, float]:
    """Returns the match of the best of k drafts, as shipped and of the peer."""
    figures: dict[str, float] = {}
    with closing(model.open()) as sequence:
        for way in ways:
            sequence.sync(place.before)
            drafts = way.draft(sequence, place.before, k, len(place.after))
            figures[f"match of {k}, {way.name}"] = scored(model.tokenizer, "", drafts, place.after, 0.0).match
    return figures


def keys(autocomplete: Autocomplete, k: int, passage: Passage) -> dict[str, float]:
    """Returns the percentage of keys that k drafts save in a passage."""
    way = Way(AS_SHIPPED, DraftSettings(k=k, ngrams=autocomplete.ngrams is not None))
    return {f"keys saved in percent, {k}": typed(autocomplete, passage, way).saved}


def planned_beginnings(
    autocomplete: Autocomplete, documents: Mapping[str, Sequence[str]], options: ProseOptions
) -> dict[str, Figures]:
    """Returns what to measure where a person begins to write."""
    each = max(min(options.repetitions or DRAFTED, DRAFTED) // len(KINDS), 1)
    return {
        f"{place.kind}, {n}": partial(of_drafts, autocomplete, {BETRAYS: betrays}, place.before)
        for n, place in enumerate(drawn(documents, each))
    }


def planned_letters(autocomplete: Autocomplete, options: ProseOptions) -> dict[str, Figures]:
    """Returns what to measure after each beginning of a letter."""
    letters = json.loads(LETTERS.read_text())
    words = re.compile(letters["bookings"], re.IGNORECASE)
    faults: dict[str, Fault] = {BOOKINGS: lambda draft, _: bool(words.search(draft)), BETRAYS: betrays}
    begun = letters["beginnings"][: options.repetitions]
    return {f"drafts, {n}": partial(of_drafts, autocomplete, faults, each) for n, each in enumerate(begun)}


def of_drafts(autocomplete: Autocomplete, faults: Mapping[str, Fault], before: str) -> dict[str, float]:
    """Returns the percentage of three full-length drafts that have each fault."""
    session = autocomplete.open()
    drafts = session.complete(Ask(before=before)).finish(session.equipped.model).drafts
    session.close()
    if not drafts:
        return dict.fromkeys(faults, 0.0)
    return {name: 100 * fmean(fault(draft.text, before) for draft in drafts) for name, fault in faults.items()}


def report_of(results: Mapping[str, Sequence[Mapping[str, float]]]) -> Report:
    """Makes a row for each figure of each kind of text and of all. `gain_ci` is half of the 95 % confidence interval of
    the paired difference."""
    report = Report("eval prose")
    values: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for place, (before, after) in results.items():
        for figure, value in before.items():
            for kind in (place.partition(": ")[0], "all"):
                values.setdefault((kind, figure), []).append((value, after[figure]))
    for (kind, figure), pairs in sorted(values.items(), key=lambda item: (item[0][0] == "all", item[0])):
        gains = [after - before for before, after in pairs]
        report.rows.append(
            {
                "kind": kind,
                "figure": figure,
                "places": len(pairs),
                MODEL: fmean(before for before, _ in pairs),
                ADAPTED: fmean(after for _, after in pairs),
                "gain": fmean(gains),
                "gain_ci": half_interval(gains),
            }
        )
        worst = fmean(gains) + half_interval(gains) if len(gains) > 1 else fmean(gains)
        if kind != "all" and figure.startswith("ln p"):
            report.target(f"{kind}: {figure}, upper end of the gain's interval", worst, ">= 0")
        if kind == "all" and figure.startswith("keys"):
            report.target(f"{figure}: lower end of the gain's interval", 2 * fmean(gains) - worst, ">= 0")
    if betraying := values.get(("all", BETRAYS)):
        report.target(f"{BETRAYS}, {ADAPTED}", fmean(after for _, after in betraying), f"<= {MOST_BETRAYING}")
    for k in (3, 8):
        ours, peers = values.get(("all", f"match of {k}, {AS_SHIPPED}")), values.get(("all", f"match of {k}, {PEER}"))
        if ours and peers:
            ratio = fmean(after for _, after in ours) / max(fmean(before for before, _ in peers), 1e-9)
            report.target(f"match of {k} {ADAPTED} / {PEER}'s {MODEL}", ratio, f">= {1.16 if k == 3 else 1.10}")
    return report
