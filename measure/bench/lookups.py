"""Measures the share of n-gram look-ups in the time of a llama.cpp step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from statistics import median
from typing import ParamSpec, TypeVar

import numpy as np

from core.models import load_model
from core.ngram import Interpolation, NgramStore
from core.ngram.shelf import interpolation
from core.ngram.store import CandidateIds, Contexts
from core.superposed import superpose
from measure.report import BenchOptions, Report
from training import texts as text

K, LENGTH, PREFIXES = 8, 10, 40

Answer = TypeVar("Answer")
P = ParamSpec("P")


class Timed(Interpolation):
    """A rule that measures its own time.

    Attributes:
        seconds: total time in the rule.
    """

    def __init__(self, rule: Interpolation) -> None:
        self.rule, self.seconds = rule, 0.0

    def after(self, text: Sequence[int]) -> Timed:
        self.rule = self._timed(self.rule.after, text)
        return self

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds) -> np.ndarray:
        return self._timed(self.rule.scores, logq, contexts, candidates)

    def scores_without(
        self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._timed(self.rule.scores_without, logq, contexts, candidates)

    def proposals(self, contexts: Contexts, least: Sequence[float], known: Collection[int] = ()) -> list[list[int]]:
        return self._timed(self.rule.proposals, contexts, least, known)

    def knows(self, ids: Sequence[int]) -> bool:
        return self._timed(self.rule.knows, ids)

    def _timed(self, look_up: Callable[P, Answer], *arguments: P.args, **named: P.kwargs) -> Answer:
        start = time.perf_counter()
        try:
            return look_up(*arguments, **named)
        finally:
            self.seconds += time.perf_counter() - start


def of_a_step(store: NgramStore, options: BenchOptions, report: Report) -> None:
    """Times the look-ups for K drafts of 3·K candidates each during drafting, and the rest of the same step."""
    model = load_model(options.model, "llama.cpp")
    rule = interpolation(store)
    assert rule is not None
    timed, shares, spent = Timed(rule), [], []
    sequence = model.open()
    for prefix in text.prefixes(model.tokenizer, text.load(options.text), PREFIXES):
        sequence.sync(prefix)
        timed.seconds, start = 0.0, time.perf_counter()
        steps = 0
        for _ in superpose(
            model, prefix, K, LENGTH, sequence=sequence, ngrams=timed, exact_steps=0, stop_ids=frozenset()
        ):
            steps += 1
        spent.append(timed.seconds / steps)
        shares.append(timed.seconds / (time.perf_counter() - start - timed.seconds))
    sequence.close()
    model.close()
    report.rows.append({"store": f"look-ups of a step, k={K}", "ms": median(spent) * 1000})
    report.target("look-ups, % of a llama.cpp step", 100 * median(shares), "<= 8")
