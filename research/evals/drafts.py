"""`eval drafts`: quality against time. Every method makes drafts at the same places, in turns, so that other load
affects all methods equally; times are ratios within the run.

At the first places of each kind all drafts are completed, which gives the times, the duplicates and the perplexity of
the best draft by the model alone (Superposed Decoding, Figures 9 to 11 by --k, --context and --length). "as shipped"
ends drafts early, which lowers their perplexity; "forks=N" with the app's N is the same at full length. At the others a
method stops when further tokens cannot change the figures on matching, which takes a sixth of the time. With --rules
only these methods draft, and there are neither targets nor places inside words.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Annotated

import typer

from app.options.settings import DraftSettings, drafting
from core.autocomplete import Autocomplete
from core.models.base import common
from core.modes.start import Mode
from core.ngram.shelf import interpolation
from core.options import DRAFTING
from research import texts as text
from research.evals.methods import AS_SHIPPED, NUCLEUS_OF_TOP_K, PAPERS, NamedMethod, Wanted, methods
from research.evals.perplexity import perplexity
from research.options import (
    AutocompleteOptions,
    DraftCountOptions,
    Length,
    Part,
    PlacesOptions,
    PlotOptions,
    Rules,
    amount,
    loaded,
)
from research.options import chosen as chosen_of
from research.places import LENGTH, PREFIX, places, texts
from research.plots import PlotPoint, lines, page, scatter, series
from research.report import Progress, Report, ReportRow, counted, number_in, text_in, turned
from research.scores import Score, half_interval, scored, summary
from research.texts import words as places_of

# Drawn by perplexity against k: the paper's peers, its method, and ours
PLOTTED = {(NUCLEUS_OF_TOP_K, "no"), ("beam", "no"), *((name, "yes") for name in (*PAPERS, AS_SHIPPED))}
Results = dict[tuple[str, bool, int], list[Score]]  # method, with n-grams, k


@dataclass(frozen=True)
class DraftsEvalOptions(PlotOptions, DraftCountOptions, AutocompleteOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places per kind of text.")] = 600
    timed: Annotated[int, typer.Option(min=1, help="Places per kind whose drafts are made whole and timed.")] = 60
    part: Part = "all"
    length: Length = LENGTH
    rules: Rules = None


def measure(options: DraftsEvalOptions, progress: Progress) -> Report:
    autocomplete = loaded(options)
    model, base = autocomplete.model, autocomplete.ngrams
    by_kind, ks, length = texts(options.text, options.part), options.ks, options.length
    chosen = places(model.tokenizer, by_kind, options.repetitions, options.context, length=length)
    compared = methods(base, interpolation(base))
    named = chosen_of("rules", options.rules, {method.name: method for method in compared})
    compared = [method for method in compared if method.name in named]
    results: Results = {}
    kinds = len({place.kind for place in chosen})
    timed = kinds * options.timed  # places alternate between the kinds
    sequence = model.open()
    for number, place in enumerate(counted(chosen, "place", progress)):
        runs = [(method, k) for k in ks for method in compared if not (method.single and k != ks[0])]
        for method, k in turned(runs, number):
            sequence.sync(place.before)
            if number < timed:
                began = time.perf_counter()
                drafts = method.draft(sequence, place.before, k, length)
                ms = 1000 * (time.perf_counter() - began)
                score = scored(model.tokenizer, place.kind, drafts, place.after, ms)
                best = [perplexity(sequence, place.before, draft) for draft in drafts if draft]
                score = replace(score, perplexity=min(best, default=math.nan))
            else:
                drafts = method.draft(sequence, place.before, k, length, telling(method, place.after))
                score = scored(model.tokenizer, place.kind, drafts, place.after, math.nan, whole=False)
            for each in ks if method.single else (k,):  # a single draft is compared for every k
                results.setdefault((method.name, method.ngrams, each), []).append(score)
    sequence.close()
    report = report_of(results)
    if (options.context, length) != (PREFIX, LENGTH):
        report.targets = []  # they are for the default lengths
    if options.rules is None:
        report.rows += inside_words(autocomplete, options, progress)
    model.close()
    return report


def inside_words(autocomplete: Autocomplete, options: DraftsEvalOptions, progress: Progress) -> list[ReportRow]:
    """Returns rows for places inside a word of which 1 to 4 letters are typed: the number of following characters in
    the best draft, and how often one draft restores the word, with the page's settings except for forks. More drafts
    than the page's most are omitted."""
    every = places_of(text.load(options.text), options.repetitions)
    rows = []
    for k in (k for k in options.ks if k <= DRAFTING["k"].high):
        ways: dict[str, tuple[DraftSettings, Mode]] = {
            AS_SHIPPED: (DraftSettings(k=k), Mode()),
            "distinct beginnings": (DraftSettings(k=k, forks=0), Mode()),
            "branching greedy": (DraftSettings(k=k, end_below=0), Mode("branching")),
        }
        session = autocomplete.open()
        by_way: dict[str, list[tuple[int, bool]]] = {name: [] for name in ways}
        for number, place in enumerate(counted(every, f"inside words, k={k}: place", progress)):
            typed = 1 + number % 4
            rest = place.document[place.at + typed : place.at + 80]
            for name, (settings, mode) in ways.items():
                before = place.before + place.word[:typed]
                completion = session.complete(drafting(settings, before=before, mode=mode)).finish(autocomplete.model)
                best = max((common(draft.text, rest) for draft in completion.drafts), default=0)
                by_way[name].append((best, best >= len(place.word) - typed))
        session.close()
        for name, scores in by_way.items():
            characters = [float(n) for n, _ in scores]
            rows.append(
                {
                    "kind": "inside a word",
                    "k": k,
                    "method": name,
                    "ngrams": "yes" if autocomplete.ngrams is not None else "no",
                    "places": len(scores),
                    "characters": fmean(characters),
                    "characters_ci": half_interval(characters),
                    "word": fmean(whole for _, whole in scores),
                }
            )
    return rows


def telling(method: NamedMethod, after: list[int]) -> Wanted:
    """Returns a function that is true while further tokens may change the match with the writer's text: while a draft
    agrees up to its end; for methods that drop drafts, while one agrees at all, because it may still be dropped."""
    if method.drops:
        return lambda drafts: any(draft[0] == after[0] for draft in drafts)
    return lambda drafts: any(draft == after[: len(draft)] for draft in drafts)


def report_of(results: Results) -> Report:
    """Rows for every kind of text and all together, and the targets over all."""
    report = Report("eval drafts")
    kinds = sorted({score.kind for scores in results.values() for score in scores})
    for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
        for (method, ngrams, k), scores in sorted(results.items(), key=lambda item: (item[0][2], item[0][1])):
            of_kind = [score for score in scores if kind in (score.kind, "all")]
            about = {"kind": kind, "k": k, "method": method, "ngrams": "yes" if ngrams else "no"}
            report.rows.append(about | summary(of_kind))
    measured = {k for _, ngrams, k in results if ngrams}  # the targets are with n-grams

    def match(method: str, ngrams: bool, k: int) -> float:
        return number_in(summary(results[method, ngrams, k]), "match")

    def slower(method: str, peer: str, k: int) -> float:
        """Returns the median over places of the ratio of two times at the same place, both with n-grams."""
        pairs = zip(results[method, True, k], results[peer, True, k], strict=True)
        return median(a.ms / b.ms for a, b in pairs if not math.isnan(a.ms))

    branching, ours = "branching greedy", AS_SHIPPED
    if not {branching, ours, "beam", NUCLEUS_OF_TOP_K} <= {method for method, _, _ in results}:
        return report
    for k, share in ((3, "<= 0.75"), (8, "<= 0.5")):
        if k not in measured:
            continue
        value = match(ours, True, k) / match(branching, True, k)
        report.target(f"{ours}, k={k}: match / branching greedy with n-grams", value, ">= 1.03")
        report.target(f"{ours}, k={k}: time / branching greedy with n-grams", slower(ours, branching, k), share)
    for peer in ("beam", NUCLEUS_OF_TOP_K) if 3 in measured else ():
        value = match(ours, True, 3) / max(match(peer, False, 3), 1e-9)
        report.target(f"{ours}, k=3: match / {peer} without n-grams", value, ">= 1.5")
    return report


def plots(report: Report) -> str:
    """Draws quality against time over all text, one chart per k: points filled with n-grams, hollow without; and, for
    more than two k, the perplexity of the best draft against k (Superposed Decoding, Figure 9)."""
    charts = []
    timed = [row for row in report.rows if "ms" in row]
    for k in sorted({number_in(row, "k") for row in timed}):
        groups: dict[str, list[PlotPoint]] = {}
        for row in timed:
            if row["kind"] != timed[-1]["kind"] or row["k"] != k:
                continue
            name, label = text_in(row, "method").replace("superposed, the ", "the "), ""
            for setting in (", r=", "forks="):  # one line for all its values
                before, separator, value = name.partition(setting)
                if separator:
                    name, label = f"{before}{setting.replace('=', ' = ')}…", value
            point = PlotPoint(number_in(row, "ms"), number_in(row, "match"), label, filled=row["ngrams"] == "yes")
            groups.setdefault(name, []).append(point)
        charts.append(scatter(f"Tokens that match, best of {k:g} drafts", "ms for the drafts", groups))
    if len({row["k"] for row in timed}) > 2:
        compared = [
            row for row in timed if row["kind"] == timed[-1]["kind"] and (row["method"], row["ngrams"]) in PLOTTED
        ]
        charts.append(lines("Perplexity of the best of k drafts", "k", series(compared, "method", "k", "perplexity")))
    return page(charts)
