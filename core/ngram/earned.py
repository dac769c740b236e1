"""Stores earn their weights in the text that is being written.

The constants of `Trust` were fitted over many kinds of text, so they are wrong for any single writer. But what the
model and each store gave to the words that are already there is known. So each store and order has an offset b of the
log-odds of its weight,

    w' = σ(logit w + b)

which starts at 0, the constants, and follows the gradient g of ln p of each token that was read, in the steps of
AdaGrad (Duchi et al. 2011): b ← b + RATE · g / √(1 + Σ g²). So the offsets depend on the text, the stores and the model
alone.

A personal store may have learned this very text. Where it contains the n-grams around a token, one learning of them is
left out of its evidence: otherwise every learned text would teach that the store is always right.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import exp, sqrt
from typing import Any

import numpy as np

from core.ngram.interpolation import Linear, Mixed
from core.ngram.store import Evidence, TypedEvidence
from core.ngram.windows import ORDER

RATE = 0.5
MOST = 6.0  # the largest offset, in nats
LEARNED = 512  # tokens before the caret that are learned from, at most; at least half of them in a longer text
LEAST = 1e-12  # probability by which the gradient is divided, at least
ONE_LEARNING = 2  # times that a personal store counts a paragraph that was just written

Estimate = tuple[int, float, float]  # the number of a store and order, its weight w, and its probability of the token


class Earned:
    """What one session has read of its text, and the offsets that follow from it."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._first = 0  # the first token whose probability is known
        self._p: list[float] = []  # the model's probability of each token from there on
        self._low = 0  # the first token that is learned from
        self._learned: _Offsets | None = None

    def unread(self, ids: list[int], begins: int) -> int:
        """Takes a text, and returns the position of its first token that must be read; its length if there is none.

        Args:
            ids: the tokens before the caret.
            begins: the number of tokens before those of the document.
        """
        low = max(begins, 1)  # nothing precedes the first token
        half = LEARNED // 2
        low += max(-(-(len(ids) - low - LEARNED) // half), 0) * half  # in steps: most keys only add to the one before
        known = next((n for n, (a, b) in enumerate(zip(self._ids, ids, strict=False)) if a != b), None)
        known = min(len(self._ids), len(ids)) if known is None else known
        if known < low or self._first > low:
            self._ids, self._first, self._p, self._learned = ids[:low], low, [], None
            known = low
        self._low = low
        return known

    def read(self, position: int, ids: Sequence[int], logp: Sequence[float]) -> None:
        """Replaces the text from a position on by these tokens, each with its ln p by the model."""
        if position < len(self._ids):
            del self._ids[position:], self._p[position - self._first :]
            if self._learned is not None:
                self._learned.cut(position)
        self._ids += ids
        self._p += map(exp, logp)

    def rule(self, rule: Linear, length: int) -> Linear:
        """The rule with the weights that its stores have earned in the first `length` tokens, which have been read."""
        if length <= self._low:
            return rule
        if self._learned is None or not self._learned.fits(rule):
            self._learned = _Offsets(rule, self._first)
        return rule.earned(self._learned.offsets(self._ids[:length], self._p, self._low))

    def copy(self) -> Earned:
        """The same, to be continued apart."""
        duplicate = copy(self)
        duplicate._ids, duplicate._p, duplicate._learned = [*self._ids], [*self._p], None
        return duplicate


@dataclass(frozen=True)
class _Estimates:
    """One store's estimates of one token: by its counts, and with one learning of these n-grams left out."""

    as_counted: list[Estimate]
    without_one_learning: list[Estimate]
    known: bool  # whether it contains the longest n-gram that ends with the token


class _Offsets:
    """The offsets of one rule after each token of a text."""

    def __init__(self, rule: Linear, first: int) -> None:
        self._stores, self._sizes = rule.stores, _sizes(rule)
        self._first = first
        self._estimates: list[list[_Estimates]] = []  # by token from `first` on, and store
        self._low = first
        widths = [len(_orders(mixed)) for mixed in rule.stores]
        self._ends = np.cumsum(widths)[:-1]
        self._starts = [0, *self._ends.tolist()]
        self._none = [0.0] * sum(widths)
        # b and Σ g² after 0, 1, … tokens from `low` on: as far as the tokens that follow cannot change them.
        self._after = [(self._none, self._none)]

    def fits(self, rule: Linear) -> bool:
        """Whether the rule has the same stores with the same contents and settings."""
        return self._stores == rule.stores and self._sizes == _sizes(rule)

    def cut(self, length: int) -> None:
        """Forgets the tokens of the text from this position on."""
        del self._estimates[max(length - self._first, 0) :]
        del self._after[1 + max(length - ORDER + 1 - self._low, 0) :]

    def offsets(self, ids: list[int], p: list[float], low: int) -> list[np.ndarray]:
        """b of each store's orders after a text, learned from its tokens from `low` on."""
        n = len(ids)
        if (new := self._first + len(self._estimates)) < n:
            by_store = [
                _estimates_of(mixed, ids, new, start) for mixed, start in zip(self._stores, self._starts, strict=True)
            ]
            self._estimates += map(list, zip(*by_store, strict=True))
        if low != self._low:
            self._low, self._after = low, [(self._none, self._none)]
        # The n-grams that show a learned text end up to ORDER - 1 tokens later.
        settled = min(len(self._after) - 1, max(n - ORDER + 1 - low, 0))
        b, squares = ([*x] for x in self._after[settled])
        for position in range(low + settled, n):
            near = self._estimates[position - self._first : min(position + ORDER, n) - self._first]
            estimates: list[Estimate] = []
            for store, of_store in enumerate(near[0]):
                learned = any(after[store].known for after in near)
                estimates += of_store.without_one_learning if learned else of_store.as_counted
            _learn(b, squares, p[position - self._first], estimates)
            if position + ORDER <= n and position - low == len(self._after) - 1:
                self._after.append(([*b], [*squares]))
        return np.split(np.array(b), self._ends)


def _learn(b: list[float], squares: list[float], p: float, estimates: list[Estimate]) -> None:
    """One step of AdaGrad along the gradient of ln p of a token, to which the model gives p. A few orders have an
    estimate of each token, so plain numbers are faster than arrays."""
    steps: list[tuple[int, float, float]] = []
    for j, w, estimate in estimates:
        raised = w * exp(b[j])
        w = raised / (1 - w + raised)
        steps.append((j, w, estimate - p))
        p += w * (estimate - p)
    slope = 1 / max(p, LEAST)  # of ln p by the mixture after this estimate
    for j, w, more in reversed(steps):
        g = slope * more * w * (1 - w)
        squares[j] += g * g
        b[j] = max(-MOST, min(MOST, b[j] + RATE * g / sqrt(1 + squares[j])))
        slope *= 1 - w


def _estimates_of(mixed: Mixed, ids: list[int], start: int, number: int) -> list[_Estimates]:
    """A store's estimates of each token from `start` on; its orders have the numbers from `number` on."""
    orders, reach = _orders(mixed), max(mixed.store.orders) - 1
    contexts = [ids[max(position - reach, 0) : position] for position in range(start, len(ids))]
    evidence = mixed.store.evidence(contexts, [[token] for token in ids[start:]], orders)
    longest = evidence.counts[:, -1, 0]  # (t,)
    once = np.minimum(longest, ONE_LEARNING if mixed.personal else 1)[:, None]
    totals = np.maximum(evidence.totals - once, 0)
    counts = np.maximum(evidence.counts - once[:, :, None], 0)
    changed: dict[str, Any] = {"counts": counts, "totals": totals, "seen": np.maximum(evidence.seen - once, totals)}
    if isinstance(evidence, TypedEvidence):
        changed["types"] = evidence.types - (evidence.counts[:, :, 0] > 0) * (counts[:, :, 0] == 0)
    familiar = mixed.trust.familiar_at(mixed.store, ids, start)[:, None]
    whole, without = (_weighed(mixed, known, familiar, number) for known in (evidence, replace(evidence, **changed)))
    return [_Estimates(*each) for each in zip(whole, without, (longest > 0).tolist(), strict=True)]


def _weighed(mixed: Mixed, known: Evidence, familiar: np.ndarray, number: int) -> list[list[Estimate]]:
    """The estimates with weight, for each of t tokens: `known` is (t, N, 1)."""
    weights = (mixed.alpha * mixed.trust.weights(known, familiar)).tolist()
    estimates = known.fractions()[:, :, 0].tolist()
    return [
        [(number + n, w, estimate) for n, (w, estimate) in enumerate(zip(*both, strict=True)) if w > 0]
        for both in zip(weights, estimates, strict=True)
    ]


def _orders(mixed: Mixed) -> list[int]:
    return [n for n in mixed.store.orders if n > 1]


def _sizes(rule: Linear) -> list[int]:
    """The tokens in each personal store: they change when it learns and forgets."""
    return [mixed.store.count(()) for mixed in rule.stores if mixed.personal]
