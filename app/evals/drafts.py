"""`eval drafts`: quality against time. Every method drafts from the same places, in turns, so that the machine's load
falls on all alike; times are ratios within the run.

The first places of each kind are drafted from to the end, which gives the times and the duplicates. At the others a
method is stopped as soon as what it would still say can change none of the figures on matching, which takes a sixth of
the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median

from app.bench.report import Report
from app.evals.methods import Going, Named, methods
from app.evals.options import LENGTH, Options, places, texts
from app.evals.plots import Point, page, scatter
from app.evals.scores import Score, scored, summary
from app.settings import DraftSettings
from core.autocomplete import load_autocomplete
from core.ngram.shelf import interpolation

PLACES = 600
TIMED = 60
KS = (3, 8)

Results = dict[tuple[str, bool, int], list[Score]]  # method, with n-grams, k


def measure(options: Options, progress: Callable[[str], None]) -> Report:
    progress("loading the model")
    autocomplete = load_autocomplete(options.model, options.backend, personal=False)
    model, base = autocomplete.model, autocomplete.ngrams
    chosen = places(model.tokenizer, texts(options.text), options.repetitions or PLACES, options.context)
    compared = methods(base, interpolation(base))
    results: Results = {}
    kinds = len({place.kind for place in chosen})
    timed = kinds * (options.timed or TIMED)  # places come in turns of the kinds
    sequence = model.open()
    for number, place in enumerate(chosen):
        progress(f"place {number + 1} of {len(chosen)}")
        runs = [(method, k) for k in KS for method in compared if not (method.single and k != KS[0])]
        start = number % len(runs)  # none is always first
        for method, k in runs[start:] + runs[:start]:
            sequence.sync(place.before)
            if number < timed:
                began = time.perf_counter()
                drafts = method.draft(sequence, place.before, k, LENGTH)
                ms = 1000 * (time.perf_counter() - began)
                score = scored(model.tokenizer, place.kind, drafts, place.after, ms)
            else:
                drafts = method.draft(sequence, place.before, k, LENGTH, telling(method, place.after))
                score = scored(model.tokenizer, place.kind, drafts, place.after, math.nan, whole=False)
            for key in _keys(method, k):
                results.setdefault(key, []).append(score)
    sequence.close()
    model.close()
    return judged(results, DraftSettings().exact_steps)


def telling(method: Named, after: list[int]) -> Going:
    """Whether more tokens may change how far the drafts agree with the writer: while one agrees to its end so far, or,
    where drafts are dropped, while one agrees at all, for it may not be there in the end."""
    if method.drops:
        return lambda drafts: any(draft[0] == after[0] for draft in drafts)
    return lambda drafts: any(draft == after[: len(draft)] for draft in drafts)


def _keys(method: Named, k: int) -> list[tuple[str, bool, int]]:
    """Greedy has one draft and stands beside every k."""
    return [(method.name, method.ngrams, each) for each in (KS if method.single else (k,))]


def judged(results: Results, shipped: int) -> Report:
    """Rows for every kind of text and all together, and the targets over all.

    Args:
        shipped: exact steps that the app's default is.
    """
    report = Report("eval drafts")
    kinds = sorted({score.kind for scores in results.values() for score in scores})
    for kind in [*kinds, "all"] if len(kinds) > 1 else kinds:
        for (method, ngrams, k), scores in sorted(results.items(), key=lambda item: (item[0][2], item[0][1])):
            of_kind = [score for score in scores if kind in (score.kind, "all")]
            about = {"kind": kind, "k": k, "method": method, "ngrams": "yes" if ngrams else "no"}
            report.rows.append(about | summary(of_kind))
    with_ngrams = any(ngrams for _, ngrams, _ in results)
    if not with_ngrams:
        return report

    def match(method: str, ngrams: bool, k: int) -> float:
        return summary(results[method, ngrams, k])["match"]

    def slower(one: str, other: str, k: int) -> float:
        """Median over places of one time by another of the same place; n-grams in both."""
        pairs = zip(results[one, True, k], results[other, True, k], strict=True)
        return median(a.ms / b.ms for a, b in pairs if not math.isnan(a.ms))

    branching = "branching greedy"
    for r in dict.fromkeys((1, shipped)):
        ours = f"superposed, r={r}"
        for k, quality, share in ((3, ">= 0.95", "<= 0.72"), (8, ">= 0.92", "<= 0.45")):
            value = match(ours, True, k) / match(branching, True, k)
            report.target(f"r={r}, k={k}: match / branching greedy with n-grams", value, quality)
            report.target(f"r={r}, k={k}: time / branching greedy with n-grams", slower(ours, branching, k), share)
        report.target(
            f"r={r}, k=3: match / branching greedy without n-grams",
            match(ours, True, 3) / match(branching, False, 3),
            ">= 1",
        )
        for peer in ("beam", "nucleus"):
            value = match(ours, True, 3) / max(match(peer, False, 3), 1e-9)
            report.target(f"r={r}, k=3: match / {peer} without n-grams", value, ">= 1.5")
    return report


def plots(report: Report) -> str:
    """Quality against time over all text, one chart per k: filled with n-grams, hollow without."""
    charts = []
    for k in KS:
        groups: dict[str, list[Point]] = {}
        for row in report.rows:
            if row["kind"] != report.rows[-1]["kind"] or row["k"] != k:
                continue
            name, _, r = row["method"].removeprefix("superposed, the ").partition(", r=")
            filled = row["ngrams"] == "yes"
            if r:  # one line of growing r with n-grams, one without
                name = f"{name}, r = 0 …" if filled else f"{name}, bare"
            groups.setdefault(name, []).append(Point(row["ms"], row["match"], r, filled))
        charts.append(scatter(f"Tokens that match, best of {k} drafts", f"ms for drafts of {LENGTH} tokens", groups))
    return page(charts)
