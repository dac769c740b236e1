"""`eval verified`: superposed drafts before and after they are checked in one tree pass, beside branching greedy.

Matching is as in `eval drafts`: the longest beginning that any of k drafts shares with what the writer wrote. Times are
medians over places, methods in turns. Perplexity is that of the drafts' tokens under the model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import fmean, median

from app.bench.report import Report
from app.evals.methods import superposed
from app.evals.options import LENGTH, Options, places, texts
from app.evals.scores import Score, scored, summary
from core.autocomplete import load_autocomplete
from core.models import Sequence, load_model
from core.ngram.shelf import interpolation
from core.speculative import Calibration, CalibrationError
from core.speculative.calibration import for_model
from core.speculative.verified import verify

PLACES = 60  # per kind of text
KS = (3, 8)
BRANCHING, SUPERPOSED, VERIFIED = "branching greedy", "superposed, r=1", "superposed, r=1, verified"


def measure(options: Options, progress: Callable[[str], None]) -> Report:
    progress("loading the model")
    autocomplete = load_autocomplete(options.model, options.backend, personal=False)
    model = autocomplete.model
    judge = load_model(options.verify_with, options.backend) if options.verify_with else model  # type: ignore[arg-type]
    rule = interpolation(autocomplete.ngrams)
    try:
        calibration: Calibration | None = for_model(judge)
    except CalibrationError as error:
        progress(str(error))
        calibration = None
    drafting = {BRANCHING: superposed(rule, None), SUPERPOSED: superposed(rule, 1)}
    scores: dict[tuple[str, int], list[Score]] = {}
    logprobs: dict[tuple[str, int], list[float]] = {}
    chosen = places(model.tokenizer, texts(options.text), options.repetitions or PLACES, options.context)
    sequence, checked = model.open(), judge.open()
    for number, place in enumerate(chosen):
        progress(f"place {number + 1} of {len(chosen)}")
        runs = [(name, k) for k in KS for name in (BRANCHING, SUPERPOSED, VERIFIED)]
        for name, k in runs[number % len(runs) :] + runs[: number % len(runs)]:
            sequence.sync(place.before)
            checked.sync(place.before)
            began = time.perf_counter()
            drafts = drafting.get(name, drafting[SUPERPOSED])(sequence, place.before, k, LENGTH)
            if name == VERIFIED:
                found = verify(checked, place.before, drafts, calibration=calibration)
                drafts = [v.ids for v in found]
            ms = 1000 * (time.perf_counter() - began)
            scores.setdefault((name, k), []).append(scored(model.tokenizer, place.kind, drafts, place.after, ms))
            logprobs.setdefault((name, k), []).extend(_logprobs(checked, place.before, drafts))
    for s in (sequence, checked):
        s.close()
    report = Report("eval verified")
    for (name, k), of_run in scores.items():
        perplexity = math.exp(-fmean(logprobs[name, k]))
        tokens = len(logprobs[name, k]) / len(of_run) / k
        report.rows.append({"method": name, "k": k, "tokens": tokens, "perplexity": perplexity, **summary(of_run)})
    for k in KS:
        ours, theirs = scores[VERIFIED, k], scores[BRANCHING, k]
        share = fmean(s.match for s in ours) / max(fmean(s.match for s in theirs), 1e-9)
        report.target(f"matching prefix, verified / branching, k={k}", share, ">= 0.95")
    slower = median(a.ms / b.ms for a, b in zip(scores[VERIFIED, 8], scores[BRANCHING, 8], strict=True))
    report.target("time, verified / branching, k=8", slower, "<= 1.0")
    model.close()
    if judge is not model:
        judge.close()
    return report


def _logprobs(sequence: Sequence, before: list[int], drafts: list[list[int]]) -> list[float]:
    """ln p of every token of the drafts under the model."""
    return [x for v in verify(sequence, before, drafts, theta=None) for x in v.logprobs]
