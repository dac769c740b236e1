"""Measures the share of n-gram look-ups in the time of a llama.cpp step, and what proposals and earned weights cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from statistics import median
from typing import ParamSpec, TypeVar

import numpy as np

from core.models import load_model
from core.ngram import Interpolation, NgramStore
from core.ngram.earned import Earned
from core.ngram.interpolation import Linear
from core.ngram.shelf import interpolation
from core.ngram.store import CandidateIds, Contexts
from core.superposed import superpose
from research import texts as text
from research.report import Report

K, PAGES_K, LENGTH, PREFIXES = 8, 3, 10, 40
LOGP = -2.0  # of each token of a text; the time of learning from it does not depend on it

Answer = TypeVar("Answer")
P = ParamSpec("P")


class Timed(Interpolation):
    """A rule that measures its own time.

    Attributes:
        seconds: total time in the rule.
        proposing: the part of it in proposals.
        latest: what the scores were computed of last.
    """

    def __init__(self, rule: Interpolation) -> None:
        self.rule, self.seconds, self.proposing = rule, 0.0, 0.0
        self.latest: tuple[np.ndarray, Contexts, CandidateIds] | None = None

    def after(self, text: Sequence[int]) -> Timed:
        self.rule = self._timed(self.rule.after, text)
        return self

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds) -> np.ndarray:
        return self._timed(self.rule.scores, logq, contexts, candidates)

    def scores_without(
        self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds
    ) -> tuple[np.ndarray, np.ndarray]:
        self.latest = logq, contexts, candidates
        return self._timed(self.rule.scores_without, logq, contexts, candidates)

    def proposals(self, contexts: Contexts, least: Sequence[float], known: Collection[int] = ()) -> list[list[int]]:
        before = self.seconds
        proposals = self._timed(self.rule.proposals, contexts, least, known)
        self.proposing += self.seconds - before
        return proposals

    def knows(self, ids: Sequence[int]) -> bool:
        return self._timed(self.rule.knows, ids)

    def _timed(self, look_up: Callable[P, Answer], *arguments: P.args, **named: P.kwargs) -> Answer:
        start = time.perf_counter()
        try:
            return look_up(*arguments, **named)
        finally:
            self.seconds += time.perf_counter() - start


def of_a_step(store: NgramStore, name: str, file: Path | None, report: Report) -> None:
    """Times the look-ups for k drafts of 3·k candidates each as this model drafts after places of a text, and the
    rest of the same step."""
    model = load_model(name, "llama.cpp")
    rule = interpolation(store)
    assert isinstance(rule, Linear)
    prefixes = text.prefixes(model.tokenizer, text.load(file), PREFIXES)
    sequence = model.open()
    for k in (K, PAGES_K):
        spent, proposing, shares, plain, weighted, keys = ([] for _ in range(6))
        for prefix in prefixes:
            sequence.sync(prefix)
            timed, steps, start = Timed(rule), 0, time.perf_counter()
            for _ in superpose(
                model, prefix, k, LENGTH, sequence=sequence, ngrams=timed, exact_steps=0, stop_ids=frozenset()
            ):
                steps += 1
            spent.append(timed.seconds / steps)
            proposing.append(timed.proposing / steps)
            shares.append(timed.seconds / (time.perf_counter() - start - timed.seconds))
            assert timed.latest is not None
            earned, key = of_earned_weights(rule, prefix)
            keys.append(key)
            for linear, times in ((rule, plain), (earned, weighted)):
                times.append(_seconds(linear.after(prefix).scores_without, *timed.latest))
        for name, times in (
            ("look-ups", spent),
            ("proposals", proposing),
            ("scores by given weights", plain),
            ("scores by earned weights", weighted),
        ):
            report.rows.append({"store": f"{name} of a step, k={k}", "ms": median(times) * 1000})
        report.rows.append({"store": f"earned weights at a key, k={k}", "ms": median(keys) * 1000})
        report.target(f"look-ups, % of a llama.cpp step, k={k}", 100 * median(shares), "<= 8")
        report.target(f"proposals, ms a step, k={k}", median(proposing) * 1000, "<= 0.2")
        # The learning at a key counts as if only one step followed it.
        more = [b - a + key for a, b, key in zip(plain, weighted, keys, strict=True)]
        report.target(f"earned weights, ms a step, k={k}", median(more) * 1000, "<= 0.3")
    sequence.close()
    model.close()


def of_earned_weights(rule: Linear, ids: list[int]) -> tuple[Linear, float]:
    """The rule with the weights that its stores earn in a text, and the seconds that its last token took to learn."""
    earned, length = Earned(), len(ids) - 1
    place = earned.unread(ids[:length], 1)
    earned.read(place, ids[place:length], [LOGP] * (length - place))
    earned.rule(rule, length)
    start = time.perf_counter()
    earned.read(length, ids[length:], [LOGP])
    earned_rule = earned.rule(rule, len(ids))
    return earned_rule, time.perf_counter() - start


def _seconds(call: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> float:
    start = time.perf_counter()
    call(*arguments, **named)
    return time.perf_counter() - start
