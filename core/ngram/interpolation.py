"""How n-grams enter the drafts: from a model's log-probabilities and what the stores know to one score per
candidate.

Shapes: d drafts, m candidates. `Geometric` is the paper's rule (Superposed Decoding, eqs. 5-7). `Linear` is
    ours:
n-grams add evidence and never forbid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from core.errors import InputError
from core.ngram.store import Candidates, Contexts, Evidence


class Store(Protocol):
    """What a rule asks of a store: an `NgramStore`, or anything that counts (a personal store)."""

    @property
    def orders(self) -> tuple[int, ...]:
        """Orders it can give evidence for, ascending."""
        ...

    def evidence(
        self, contexts: Contexts, candidates: Candidates, orders: Sequence[int] | None = None
    ) -> Evidence:
        """Counts and totals per order; see `NgramStore.evidence`."""
        ...


class Interpolation(ABC):
    """One rule, called once per decoding step for all drafts."""

    @abstractmethod
    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: Candidates) -> np.ndarray:
        """Scores of the candidates after each draft.

        Args:
            logq: (d, m) float, natural logarithms of the model's probabilities; -inf is allowed.
            contexts: d lists of token ids: the text before and the draft so far.
            candidates: (m,) ids, the same for all drafts, or (d, m).

        Returns: (d, m) float64 log scores, to be added to the drafts' own; they need not be normalised.
        Raises: InputError when the shapes do not fit.
        """


class Geometric(Interpolation):
    """Eqs. 5-7 as the authors' code has them: q^(1-α) · g^α, where g = Σ λ_n · count/total.

    A candidate that the store has not seen after a draft (g = 0) gets -inf. Where no candidate of a draft has
    been seen, the draft goes on with q^(1-α) and `penalty` is taken off its score once per step (eq. 7: δ =
    e^-penalty). λ is not renormalised for orders whose context is missing, and g not over the candidates.
    """

    def __init__(
        self,
        store: Store,
        alpha: float = 0.54,
        weights: Mapping[int, float] | Sequence[float] = (0.01, 0.04, 0.15, 0.18, 0.12),
        penalty: float = 200.0,
    ) -> None:
        """`weights` are λ per order, or a list for n = 2, 3, …; orders that the store does not hold add
        nothing."""
        _check_share("alpha", alpha)
        if not isinstance(weights, Mapping):
            weights = dict(enumerate(weights, start=2))
        self.store, self.alpha, self.penalty = store, alpha, penalty
        self.weights = {n: w for n, w in sorted(weights.items()) if n in store.orders}

    def probabilities(self, contexts: Contexts, candidates: Candidates) -> np.ndarray:
        """g of eq. 5, (d, m) float64."""
        fractions = self.store.evidence(contexts, candidates, list(self.weights)).fractions()  # (d, N, m)
        return np.tensordot(fractions, np.array(list(self.weights.values())), axes=(1, 0))

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: Candidates) -> np.ndarray:
        logq = _checked(logq, contexts)
        g = self.probabilities(contexts, candidates)
        with np.errstate(divide="ignore"):
            mixed = (1 - self.alpha) * logq + self.alpha * np.log(g)  # eq. 6
        alone = (1 - self.alpha) * logq - self.penalty  # eq. 7
        return np.where(g.any(axis=1, keepdims=True), mixed, alone)


class Linear(Interpolation):
    """The model's distribution as the base; each order's estimate is mixed in as far as its context is known.

    From the shortest context to the longest:   p ← (1 - w)·p + w·(count/total),   w = α · total/(seen +
    evidence)

    where `seen` is how often the context occurred, so that w is small for a rare context and also for one
    that mostly went on in ways too rare to keep: (seen - total)/seen is the Good-Turing estimate of something
    new. Nothing is forbidden for being unseen: every candidate keeps at least Π(1 - w) of what the model gave
    it.
    """

    def __init__(
        self,
        stores: Store | Sequence[tuple[Store, float]],
        alpha: float = 0.5,
        evidence: float = 5.0,
        least: int = 2,
    ) -> None:
        """
        Args:
            stores: one store, or several with a factor for each one's w, mixed in one after the other: the
                last has the last word.
            alpha: the largest share of any one order, 0 to 1.
            evidence: occurrences of a context at which it gets half its share.
            least: the lowest order used.
        """
        _check_share("alpha", alpha)
        if evidence < 0:
            raise InputError(f"evidence {evidence} given; 0 or more expected.")
        self.stores = list(stores) if isinstance(stores, Sequence) else [(stores, 1.0)]
        for _, share in self.stores:
            _check_share("a store's weight", share)
        self.alpha, self.evidence, self.least = alpha, evidence, least

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: Candidates) -> np.ndarray:
        p = np.exp(_checked(logq, contexts))  # (d, m)
        for store, share in self.stores:
            known = store.evidence(contexts, candidates, [n for n in store.orders if n >= self.least])
            occurred = np.maximum(known.seen, known.totals) + self.evidence  # (d, N)
            w = (
                share
                * self.alpha
                * np.divide(known.totals, occurred, out=np.zeros_like(occurred), where=occurred > 0)
            )
            fractions = known.fractions()  # (d, N, m)
            for n in range(len(known.orders)):
                p = (1 - w[:, n, None]) * p + w[:, n, None] * fractions[:, n]
        with np.errstate(divide="ignore"):
            return np.log(p)


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name} {value} given; 0 to 1 expected.")


def _checked(logq: np.ndarray, contexts: Contexts) -> np.ndarray:
    logq = np.asarray(logq, dtype=np.float64)
    if logq.ndim != 2 or len(logq) != len(contexts):
        raise InputError(f"Log-probabilities of shape {logq.shape} given for {len(contexts)} drafts.")
    return logq
