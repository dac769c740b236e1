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

    def evidence(self, contexts: Contexts, candidates: Candidates, orders: Sequence[int] | None = None) -> Evidence:
        """Counts and totals per order; see `NgramStore.evidence`."""
        ...

    def count(self, ids: Sequence[int]) -> int:
        """How often this n-gram was seen; 0 if it is not stored."""
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

    @abstractmethod
    def knows(self, ids: Sequence[int]) -> bool:
        """Whether any of its stores has seen this n-gram."""


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

    def knows(self, ids: Sequence[int]) -> bool:
        return self.store.count(ids) > 0

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: Candidates) -> np.ndarray:
        logq = _checked(logq, contexts)
        g = self.probabilities(contexts, candidates)
        with np.errstate(divide="ignore"):
            mixed = (1 - self.alpha) * logq + self.alpha * np.log(g)  # eq. 6
        alone = (1 - self.alpha) * logq - self.penalty  # eq. 7
        return np.where(g.any(axis=1, keepdims=True), mixed, alone)


# The largest weight of each order n = 2 … 6 in `Linear`, before α; longer contexts than these share the last.
SHARES = (0.12, 0.45, 0.7, 0.7, 1.0)
# What `familiarity` looks at: 4-grams that end in the last 24 tokens.
_FAMILIAR_ORDER, _FAMILIAR_WINDOW = 4, 24
# Where it looks for the end of the typed text: no draft is longer than this less the window.
_LOOKED_THROUGH = 96


class Linear(Interpolation):
    """The model's distribution as the base; each order's estimate is mixed in as far as its context is known.

    From the shortest context to the longest, for every candidate:

        p ← (1 - w)·p + w·count/total,    w = α · share_n · (total / (seen + ½))² · familiarity

    `seen` is how often the context occurred and `total` how often it went on in a way that was kept, so
    (seen - total)/seen is the Good-Turing estimate of a continuation never seen, and w is small for contexts
    that go on in many rare ways as well as for rare ones. `familiarity` is how much of the text so far the
    store knows; it keeps a store out of text that is not its own. Nothing is forbidden for being unseen:
    every candidate keeps Π(1 - w) of what the model gave it.

    The form and the constants were fitted on held-out text; docs/ngram-stores.md has the figures.
    """

    def __init__(
        self,
        stores: Store | Sequence[tuple[Store, float]],
        alpha: float = 0.9,
        shares: Sequence[float] = SHARES,
        floor: float = 0.1,
    ) -> None:
        """
        Args:
            stores: one store, or several, each with a factor for its α; mixed in one after the other, so that
                the last has the last word.
            alpha: the largest weight of any one order, 0 (n-grams off) to 1.
            shares: what each order may have of α, for n = 2, 3, …; higher orders have the last one's.
            floor: familiarity of a text of which the store knows nothing, 0 to 1.
        """
        self.stores = list(stores) if isinstance(stores, Sequence) else [(stores, 1.0)]
        for name, value in [
            ("alpha", alpha),
            ("floor", floor),
            *(("a store's factor", f) for _, f in self.stores),
        ]:
            _check_share(name, value)
        if not shares or min(shares) < 0 or max(shares) > 1:
            raise InputError(f"shares {list(shares)} given; at least one, from 0 to 1, expected.")
        self.alpha, self.shares, self.floor = alpha, tuple(shares), floor

    def knows(self, ids: Sequence[int]) -> bool:
        return any(store.count(ids) > 0 for store, _ in self.stores)

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: Candidates) -> np.ndarray:
        p = np.exp(_checked(logq, contexts))  # (d, m)
        # What the drafts share is what was typed; their own words would only confirm the store that chose
        # them.
        typed = _shared_tail(contexts)
        for store, factor in self.stores:
            known = store.evidence(contexts, candidates, [n for n in store.orders if n > 1])
            kept = np.minimum(known.totals / (np.maximum(known.seen, known.totals) + 0.5), 1.0)  # (d, N)
            shares = [self.shares[min(n - 2, len(self.shares) - 1)] for n in known.orders]
            familiar = self.floor + (1 - self.floor) * familiarity(store, typed)
            w = self.alpha * factor * familiar * np.array(shares) * kept**2  # (d, N)
            fractions = known.fractions()  # (d, N, m)
            for n in range(len(known.orders)):
                p = (1 - w[:, n, None]) * p + w[:, n, None] * fractions[:, n]
        with np.errstate(divide="ignore"):
            return np.log(p)


def familiarity(store: Store, ids: Sequence[int]) -> float:
    """The share of the last 4-grams of a text that the store knows, 0 to 1: is this its kind of text?"""
    n = min(_FAMILIAR_ORDER, store.orders[-1])
    tail = ids[-(_FAMILIAR_WINDOW + n - 1) :]
    windows = range(len(tail) - n + 1)
    return sum(store.count(tail[i : i + n]) > 0 for i in windows) / len(windows) if windows else 0.0


def _shared_tail(contexts: Contexts) -> list[int]:
    """The last tokens of what all contexts begin with, found among the last tokens of the shortest one."""
    shortest = min(map(len, contexts), default=0)
    start = max(shortest - _LOOKED_THROUGH, 0)
    tails = [context[start:shortest] for context in contexts]
    end = next((i for i, tokens in enumerate(zip(*tails, strict=True)) if len(set(tokens)) > 1), shortest - start)
    return list(tails[0][:end]) if tails else []


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name} {value} given; 0 to 1 expected.")


def _checked(logq: np.ndarray, contexts: Contexts) -> np.ndarray:
    logq = np.asarray(logq, dtype=np.float64)
    if logq.ndim != 2 or len(logq) != len(contexts):
        raise InputError(f"Log-probabilities of shape {logq.shape} given for {len(contexts)} drafts.")
    return logq
