"""`eval perplexity`: the perplexity of drafts under a language model (Superposed Decoding, Tables 1 and 3 to 6).

At each place every method makes k drafts of 10 tokens. The perplexity of a draft is exp of the mean -ln p of its
tokens, by the model that made it, or by a larger one (`--verify-with`), without n-grams and rules. A judge with another
tokenizer reads the text before and the draft anew, and all of its tokens but the first five count (section 5.1), so
that the whole draft is among them. The columns are the paper's: the mean over places for drafts 1, 2 and 3 in the
method's own order, and for the best of each place; `sd` is the standard deviation of the best, `_ci` half of the 95 %
interval of a mean. As in the paper, one draft of the single methods costs as much as k superposed ones, so the paper
compares the best superposed draft with draft 1 of nucleus.

The rows of the grid vary α and τ of the paper's method, which appendix B tuned for another model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Annotated

from core.autocomplete import load_autocomplete
from core.errors import InputError
from core.models import LanguageModel, Sequence, load_model
from core.ngram import NgramStore
from core.ngram.interpolation import Geometric
from core.ngram.shelf import interpolation
from research.evals.methods import SHIPPED, Method, Wanted, always, by_the_paper, methods, nucleus, superposed
from research.evals.verified import logprobs
from research.options import Checker, MixedOptions, PlacesOptions, PlotOptions, amount
from research.places import LENGTH, places, texts
from research.plots import heat_map, page
from research.report import Progress, Report, ReportRow, counted, number_in, text_in
from research.scores import half_interval, mean

K = 3
UNCOUNTED = 5  # the first tokens of a text for a judge with another tokenizer
ALPHAS = (0.1, 0.3, 0.54, 0.8)
TAUS = (0.06, 0.1, 0.3, 1.0)
# τ and α by the name in the table
GRID = {f"superposed, the paper's, α = {alpha}, τ = {tau}": (tau, alpha) for alpha in ALPHAS for tau in TAUS}


@dataclass(frozen=True)
class PerplexityOptions(PlotOptions, MixedOptions, PlacesOptions):
    repetitions: Annotated[int, amount("Places per kind of text.")] = 40
    verify_with: Checker = None


def measure(options: PerplexityOptions, progress: Progress) -> Report:
    autocomplete = load_autocomplete(options.model, options.backend, options.store, personal=False)
    model, base = autocomplete.model, autocomplete.ngrams
    judge = load_model(options.verify_with, options.backend) if options.verify_with else model
    compared = ways(base)
    chosen = places(model.tokenizer, texts(options.text), options.repetitions, options.context)
    perplexities: dict[str, list[list[float]]] = {name: [] for name in compared}
    sequence, judging = model.open(), judge.open()
    for place in counted(chosen, "place", progress):
        for name, draft in compared.items():
            sequence.sync(place.before)
            drafts = draft(sequence, place.before, K, LENGTH)
            perplexities[name].append([judged(judging, model, place.before, ids) for ids in drafts if ids])
    for opened in (sequence, judging):
        opened.close()
    for loaded in {id(m): m for m in (model, judge)}.values():
        loaded.close()
    report = Report("eval perplexity")
    report.rows = [row(name, of_method) for name, of_method in perplexities.items()]
    return report


def judged(judging: Sequence, model: LanguageModel, before: list[int], ids: list[int]) -> float:
    """Returns the perplexity of a draft of a model by a judge, which may have another tokenizer."""
    judge = judging.model.tokenizer
    if judge.fingerprint == model.tokenizer.fingerprint:
        return perplexity(judging, before, ids)
    text = judge.start_ids + judge.encode(model.tokenizer.decode(before + ids))
    first = len(judge.start_ids) + UNCOUNTED
    if len(text) <= first:
        raise InputError(f"--context {len(before)} given; more than {UNCOUNTED} tokens of the judge expected.")
    return perplexity(judging, text[:first], text[first:])


def ways(base: NgramStore | None) -> dict[str, Method]:
    """Returns the methods by name; those with n-grams only if there is a store."""
    rule, r = interpolation(base), SHIPPED.exact_steps
    known = {(method.name, method.ngrams): method.draft for method in methods(base, rule)}
    by_name = {
        "nucleus": nucleus(None),
        "greedy": known["greedy", False],
        "beam": known["beam", False],
        "superposed, the paper's, without n-grams, τ = 0.06": by_the_paper(None),
        f"superposed, r={r}, without n-grams": superposed(None, r),
    }
    if base is None:
        return by_name
    by_name["n-grams alone"] = ngrams_alone(base)
    by_name[f"superposed, r={r}"] = superposed(rule, r)
    short = Geometric(base, 0.55, {n: w for n, w in Geometric(base).weights.items() if n <= 4})
    by_name["superposed, the paper's, orders 2-4, α = 0.55, τ = 0.1"] = by_the_paper(short, alpha=None, tau=0.1)
    by_name |= {name: by_the_paper(base, alpha=alpha, tau=tau) for name, (tau, alpha) in GRID.items()}
    return by_name


def ngrams_alone(store: NgramStore) -> Method:
    """Returns a method that drafts with the store alone: the k most frequent tokens after the longest stored contexts,
    each continued by the most frequent token. A draft ends where the store has no continuation."""

    def after(context: list[int], k: int) -> list[int]:
        tokens: dict[int, None] = {}
        for n in range(store.orders[-1] - 1, 0, -1):
            if len(tokens) < k and len(context) >= n:
                tokens |= dict.fromkeys(token for token, _ in store.continuations(context[-n:], k))
        return list(tokens)[:k]

    def draft(sequence: Sequence, prefix: list[int], k: int, length: int, wanted: Wanted = always) -> list[list[int]]:
        drafts = [[token] for token in after(prefix, k)]
        for ids in drafts:
            while len(ids) < length and (best := after(prefix + ids, 1)):
                ids += best
        return drafts

    return draft


def perplexity(sequence: Sequence, before: list[int], ids: list[int]) -> float:
    """Returns exp of the mean -ln p of a draft's tokens. Afterwards the sequence contains exactly the text."""
    return math.exp(-fmean(logprobs(sequence, before, ids)))


def row(method: str, perplexities: list[list[float]]) -> ReportRow:
    """Returns a row of the table from each place's perplexities in the order of the drafts. Places without drafts are
    left out."""
    perplexities = [of_place for of_place in perplexities if of_place]
    columns: ReportRow = {"method": method, "places": len(perplexities)}
    for n in range(K):
        columns[f"draft_{n + 1}"] = mean([of_place[n] for of_place in perplexities if len(of_place) > n])
    best = [min(of_place) for of_place in perplexities]
    columns |= {"best": mean(best), "best_ci": half_interval(best)}
    columns["sd"] = stdev(best) if len(best) > 1 else math.nan
    averages = [fmean(of_place) for of_place in perplexities]
    columns |= {"average": mean(averages), "average_ci": half_interval(averages)}
    return columns


def plots(report: Report) -> str:
    """Draws the average and the best perplexity of the paper's method over α and τ (appendix B). Raises InputError if
    no n-grams were used."""
    if not any(row["method"] in GRID for row in report.rows):
        raise InputError("α has no effect without a base store, so there is no map to draw; omit --plot.")
    return page(
        [
            heat_map(
                f"perplexity, {figure} of {K}",
                "τ",
                "α",
                {GRID[text_in(r, "method")]: number_in(r, figure) for r in report.rows if r["method"] in GRID},
            )
            for figure in ("average", "best")
        ]
    )
