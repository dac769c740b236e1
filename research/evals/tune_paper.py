"""`eval tune-paper`: the search for α and τ of Superposed Decoding by its paper, for this model and store.

The paper chooses both on a validation split, "by optimizing for the lowest average perplexity across three drafts"
(section 4.1; appendix B: α = .54 and τ = .06 for Llama-2-7B). Here drafts are made with every pair of a grid at the
same places of the validation half of the text (`--part validation`), which `eval drafts --part test` does not read. The
best pair is chosen by two figures: the paper's, the mean perplexity of the three drafts under the model, and ours, the
matching tokens of the best draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Annotated

from core.autocomplete import load_autocomplete
from core.controls import PAPER_METHOD
from core.errors import InputError
from core.models.base import common
from research.evals.methods import by_the_paper
from research.evals.perplexity import perplexity
from research.options import MixedOptions, Part, PlacesOptions, amount
from research.places import LENGTH, places, texts
from research.report import Progress, Report, ReportRow, counted, number_in
from research.scores import half_interval

DRAFTS = 3
ALPHAS = (0.1, 0.3, 0.54, 0.7, 0.9)
TAUS = (0.06, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class TunePaperOptions(MixedOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places per kind of text.")] = 60
    part: Part = "all"


def measure(options: TunePaperOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, options.store, personal=False)
    model, base = autocomplete.model, autocomplete.ngrams
    if base is None:
        raise InputError("There is no base store for this model, so α has no effect; use the default model.")
    # The app's own short text cannot be divided into halves.
    part = "validation" if options.part == "all" and options.text is not None else options.part
    chosen = places(model.tokenizer, texts(options.text, part), options.repetitions, options.context)
    by_pair: dict[tuple[float, float], list[tuple[int, float]]] = {pair: [] for pair in product(ALPHAS, TAUS)}
    sequence = model.open()
    for place in counted(chosen, "place", progress):
        for (alpha, tau), scores in by_pair.items():
            sequence.sync(place.before)
            drafts = by_the_paper(base, alpha=alpha, tau=tau)(sequence, place.before, DRAFTS, LENGTH)
            each = [perplexity(sequence, place.before, ids) for ids in drafts]
            scores.append((max(common(ids, place.after) for ids in drafts), fmean(each)))
    sequence.close()
    model.close()
    return report_of(by_pair, part)


def report_of(by_pair: dict[tuple[float, float], list[tuple[int, float]]], part: str) -> Report:
    """Makes a row for each pair, then one for the best by each figure.

    Args:
        by_pair: the matching tokens and the perplexity at each place, by α and τ.
    """
    report = Report("eval tune-paper")
    for (alpha, tau), scores in by_pair.items():
        matches = [float(match) for match, _ in scores]
        report.rows.append(
            {
                "part": part,
                "alpha": alpha,
                "tau": tau,
                "places": len(scores),
                "match": fmean(matches),
                "match_ci": half_interval(matches),
                "perplexity": fmean(perplexity for _, perplexity in scores),
                "best": "",
            }
        )
    rows: list[ReportRow] = list(report.rows)
    surest = min(rows, key=lambda row: number_in(row, "perplexity"))
    report.rows.append(surest | {"best": "perplexity, as in the paper"})
    best = max(rows, key=lambda row: number_in(row, "match"))
    report.rows.append(best | {"best": "match"})
    paper = next(r for r in rows if (r["alpha"], r["tau"]) == (PAPER_METHOD["alpha"], PAPER_METHOD["tau"]))
    ratio = number_in(best, "match") / max(number_in(paper, "match"), 1e-9)
    report.target("match, best found / the paper's α and τ", ratio, ">= 1.0")
    return report
