"""Mixes n-grams into the drafts: from a model's log-probabilities and the stores' counts to one score per
candidate.

Shapes: d drafts, m candidates. `Geometric` is the paper's rule (Superposed Decoding, eqs. 5-7). `Linear` is ours:
n-grams add evidence and exclude nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from core.errors import InputError
from core.ngram.store import PAPER_WEIGHTS, CandidateIds, Contexts, Evidence, TypedEvidence
from core.options import LIBRARY


class Store(Protocol):
    """The interface that a rule needs of a store: an `NgramStore`, or any other source of counts (a personal store)."""

    @property
    def orders(self) -> tuple[int, ...]:
        """The orders with evidence, ascending."""
        ...

    def evidence(self, contexts: Contexts, candidates: CandidateIds, orders: Sequence[int] | None = None) -> Evidence:
        """Counts and totals per order; see `NgramStore.evidence`."""
        ...

    def count(self, ids: Sequence[int]) -> int:
        """The number of occurrences of this n-gram; 0 if it is not stored."""
        ...

    def continuations(self, context: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        """The tokens that followed this context: (id, count), most frequent first."""
        ...

    def quick_continuations(self, context: Sequence[int], limit: int) -> list[tuple[int, int]]:
        """`continuations`, or [] where it would take too long for a step of drafting."""
        ...


class Interpolation(ABC):
    """One rule, called once per decoding step for all drafts."""

    @abstractmethod
    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds) -> np.ndarray:
        """Scores of the candidates after each draft.

        Args:
            logq: (d, m) float, natural logarithms of the model's probabilities; -inf is allowed.
            contexts: d lists of token ids: the text before and the draft so far.
            candidates: (m,) ids, the same for all drafts, or (d, m).

        Returns: (d, m) float64 log scores, to be added to the drafts' own; they need not be normalised.
        Raises: InputError when the shapes do not fit.
        """

    def after(self, text: Sequence[int]) -> Interpolation:
        """The rule for drafts after this text, which each of their contexts begins with."""
        return self

    def scores_without(
        self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds
    ) -> tuple[np.ndarray, np.ndarray]:
        """`scores`, and the scores without the personal stores; the same array if no personal store has evidence."""
        scores = self.scores(logq, contexts, candidates)
        return scores, scores

    def proposals(self, contexts: Contexts, least: Sequence[float], known: Collection[int] = ()) -> list[list[int]]:
        """For each context, a few tokens to add to the candidates, most probable first: those to which the stores alone
        give `least` and more, whatever their probability in the model.

        Args:
            least: (d,) probabilities.
            known: tokens that are candidates already.
        """
        return [[] for _ in contexts]

    def alone(self, contexts: Contexts, candidates: CandidateIds) -> tuple[np.ndarray, np.ndarray] | None:
        """The stores without the model: ln p (d, m) of the candidates, -inf where they give nothing, and the weight
        (d, 1) of the stores in the mixture. None if the rule cannot separate them."""
        return None

    @abstractmethod
    def knows(self, ids: Sequence[int]) -> bool:
        """Whether any of its stores contains this n-gram."""

    def knows_own(self, context: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether a personal store contains this context, which may be empty, with one of these tokens after it."""
        return False


class Geometric(Interpolation):
    """Eqs. 5-7 as in the authors' code: q^(1-α) · g^α, where g = Σ λ_n · count/total.

    A candidate without a count after a draft (g = 0) gets -inf. If no candidate of a draft has a count,
    the draft continues with q^(1-α), and `penalty` is subtracted from its score once per step (eq. 7: δ =
    e^-penalty). λ is not renormalised for orders whose context is missing, nor g over the candidates.
    """

    def __init__(
        self,
        store: Store | Sequence[tuple[Store, float]],
        alpha: float = 0.54,
        weights: Mapping[int, float] = PAPER_WEIGHTS,
        penalty: float = 200.0,
    ) -> None:
        """
        Args:
            store: or several, each with its share in g, which are normalised. The paper swaps a domain's store in;
                shares of several are ours.
            weights: λ per order; orders that a store lacks add nothing.
        Raises: InputError for no store, and for values out of range.
        """
        _check_share("alpha", alpha)
        several = list(store) if isinstance(store, Sequence) else [(store, 1.0)]
        total = sum(share for _, share in several)
        if not total > 0:
            raise InputError("No store with a share above 0 given; one or more expected.")
        self.stores = [(each, share / total) for each, share in several]
        self.alpha, self.penalty = alpha, penalty
        orders = {n for each, _ in several for n in each.orders}
        self.weights = {n: w for n, w in sorted(weights.items()) if n in orders}

    def probabilities(self, contexts: Contexts, candidates: CandidateIds) -> np.ndarray:
        """g of eq. 5, (d, m) float64."""
        shares = []
        for store, share in self.stores:
            orders = [n for n in self.weights if n in store.orders]
            fractions = store.evidence(contexts, candidates, orders).fractions()  # (d, N, m)
            shares.append(share * np.tensordot(fractions, np.array([self.weights[n] for n in orders]), axes=(1, 0)))
        return sum(shares[1:], start=shares[0])

    def alone(self, contexts: Contexts, candidates: CandidateIds) -> tuple[np.ndarray, np.ndarray]:
        """ln g, and α for every draft, which is an exponent here."""
        with np.errstate(divide="ignore"):
            return np.log(self.probabilities(contexts, candidates)), np.full((len(contexts), 1), self.alpha)

    def knows(self, ids: Sequence[int]) -> bool:
        return any(store.count(ids) > 0 for store, _ in self.stores)

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds) -> np.ndarray:
        logq = _checked(logq, contexts)
        g = self.probabilities(contexts, candidates)
        with np.errstate(divide="ignore"):
            mixed = (1 - self.alpha) * logq + self.alpha * np.log(g)  # eq. 6
        alone = (1 - self.alpha) * logq - self.penalty  # eq. 7
        return np.where(g.any(axis=1, keepdims=True), mixed, alone)


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name} {value} given; 0 to 1 expected.")


# The input of `familiarity`: 4-grams that end in the last 24 tokens.
_FAMILIAR_ORDER, _FAMILIAR_WINDOW = 4, 24
PROPOSALS = 3  # tokens that the stores may propose after a context
# The range in which it searches the end of the typed text: no draft is longer than this minus the window.
_LOOKED_THROUGH = 96


@dataclass(frozen=True)
class Trust:
    """The weight of a store's estimate after one context in the mixture:

        w = α · share_n · kept^exponent · (floor + (1 - floor)·familiarity)
        kept = total / (seen + types_weight·types + offset)

    Attributes:
        shares: the largest weight of each order n = 2, 3, … before α; longer contexts share the last.
        exponent, types_weight, offset: see above.
        floor: the share of the weight that remains in a text unfamiliar to the store, 0 to 1; 1 ignores familiarity.
    """

    shares: tuple[float, ...]
    exponent: float = 2.0
    types_weight: float = 0.0
    offset: float = 0.5
    floor: float = 1.0

    def __post_init__(self) -> None:
        if not self.shares or min(self.shares) < 0 or max(self.shares) > 1:
            raise InputError(f"shares {list(self.shares)} given; at least one, from 0 to 1, expected.")
        _check_share("floor", self.floor)

    def familiar(self, store: Store, text: Sequence[int]) -> float:
        """The factor floor + (1 - floor)·familiarity for drafts after a text."""
        return 1.0 if self.floor == 1 else self.floor + (1 - self.floor) * familiarity(store, text)

    def familiar_at(self, store: Store, text: Sequence[int], start: int) -> np.ndarray:
        """`familiar` before each token of a text from `start` on."""
        if self.floor == 1:
            return np.ones(len(text) - start)
        n, low = _familiar_order(store), max(start - _FAMILIAR_WINDOW - _FAMILIAR_ORDER, 0)
        known = [store.count(text[i : i + n]) > 0 for i in range(low, len(text) - n)]
        sums = np.concatenate([[0], np.cumsum(known)])  # of the n-grams that begin before a place
        ends = np.maximum(np.arange(start, len(text)) - low - n + 1, 0)
        begins = np.maximum(ends - _FAMILIAR_WINDOW, 0)
        shares = (sums[ends] - sums[begins]) / np.maximum(ends - begins, 1)
        return self.floor + (1 - self.floor) * shares

    def weights(self, known: Evidence, familiar: float | np.ndarray) -> np.ndarray:
        """w without α for every context and order, (d, N); `familiar` may differ by context, (d, 1)."""
        below = np.maximum(known.seen, known.totals) + self.offset
        if self.types_weight and isinstance(known, TypedEvidence):
            below = below + self.types_weight * known.types
        kept = np.minimum(known.totals / np.where(below > 0, below, 1.0), 1.0)  # 0 for unknown contexts
        shares = np.array([self._share(n) for n in known.orders])
        return familiar * shares * kept**self.exponent

    def _share(self, order: int) -> float:
        return self.shares[min(order - 2, len(self.shares) - 1)]


# A large store in which rare n-grams are pruned. `seen` is the number of occurrences of a context, `total` the number
# of those with a stored continuation, so (seen - total)/seen is the Good-Turing estimate of a new continuation. w is
# small for contexts with many rare continuations as well as for rare contexts. Familiarity keeps the store from
# influencing text that it does not resemble.
PRUNED = Trust(shares=(0.12, 0.45, 0.7, 0.7, 1.0), floor=0.1)

# One person's text without pruning. A context with many different continuations gets less weight (Witten-Bell), and a
# context that occurred once hardly any. `polydraft eval tune` found the values.
WHOLE = Trust(shares=(0.5, 0.95, 0.4, 0.4, 0.95), exponent=3.0, types_weight=2.0, offset=0.1)


@dataclass(frozen=True)
class Mixed:
    """One store in a mixture.

    Attributes:
        store, alpha, trust: with its α and its trust.
        personal: the tokens that it decided on are marked.
    """

    store: Store
    alpha: float = LIBRARY.alpha
    trust: Trust = PRUNED
    personal: bool = False


class Linear(Interpolation):
    """The model's distribution as the base; each order's estimate is mixed in as far as its context is known.

    From the shortest context to the longest, for every candidate, with w of `Trust`:

        p ← (1 - w)·p + w·count/total

    No candidate is excluded: every one keeps Π(1 - w) of the model's probability.

    The form and the constants were fitted on held-out text; research/docs/ngram-stores.md has the figures.
    """

    def __init__(self, stores: Store | Sequence[tuple[Store, float] | Mixed], alpha: float = LIBRARY.alpha) -> None:
        """
        Args:
            stores: one store, or several, each with a factor for its α or as `Mixed`; mixed in one after the
                other, so that the last has the largest influence.
            alpha: of stores that are not `Mixed`: the largest weight of any one order, 0 (n-grams off) to 1.
        """
        _check_share("alpha", alpha)
        listed: Sequence[tuple[Store, float] | Mixed]
        listed = stores if isinstance(stores, Sequence) else [(stores, 1.0)]
        self.stores = [s if isinstance(s, Mixed) else Mixed(s[0], alpha * s[1]) for s in listed]
        self._familiar: list[float] | None = None  # by store, after the text of `after`
        self._offsets: list[np.ndarray] | None = None  # by store and order, see `earned`
        for mixed in self.stores:
            _check_share("a store's factor", mixed.alpha)

    def after(self, text: Sequence[int]) -> Linear:
        """The rule for drafts after this text. Its familiarity to the stores is computed here, once. The drafts' own
        words do not count: they would only confirm the store that proposed them."""
        changed = copy(self)
        changed._familiar = self._familiar_after(text)
        return changed

    def earned(self, offsets: list[np.ndarray]) -> Linear:
        """The rule with other weights: w' = σ(logit w + b), with b (N,) for each store; see `core.ngram.earned`."""
        changed = copy(self)
        changed._offsets = offsets
        return changed

    def knows(self, ids: Sequence[int]) -> bool:
        return any(mixed.store.count(ids) > 0 for mixed in self.stores)

    def knows_own(self, context: Sequence[int], tokens: Sequence[int]) -> bool:
        own, n = [mixed.store for mixed in self.stores if mixed.personal], len(context) + 1
        if n == 1 or len(tokens) < 16:  # evidence takes as long as some dozen counts, and needs a context
            return any(store.count([*context, token]) > 0 for store in own for token in tokens)
        return any(store.evidence([context], tokens, [n]).counts.any() for store in own if n in store.orders)

    def proposals(self, contexts: Contexts, least: Sequence[float], known: Collection[int] = ()) -> list[list[int]]:
        proposed = [[i for i in self._following(context) if i not in known] for context in contexts]
        some = [n for n, ids in enumerate(proposed) if ids]
        if not some:
            return proposed
        widest = max(len(proposed[n]) for n in some)
        candidates = [[*proposed[n], *proposed[n][:1] * (widest - len(proposed[n]))] for n in some]
        nothing = np.full((len(some), widest), -np.inf)  # by the model
        given = np.exp(self.scores(nothing, [contexts[n] for n in some], candidates)).tolist()
        for n, p in zip(some, given, strict=True):
            ranked = sorted((-p, i) for p, i in zip(p, proposed[n], strict=False) if p >= least[n])
            proposed[n] = [i for _, i in ranked[:PROPOSALS]]
        return proposed

    def scores(self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds) -> np.ndarray:
        return self.scores_without(logq, contexts, candidates)[0]

    def scores_without(
        self, logq: np.ndarray, contexts: Contexts, candidates: CandidateIds
    ) -> tuple[np.ndarray, np.ndarray]:
        p = np.exp(_checked(logq, contexts))  # (d, m)
        others = p
        for n, (mixed, familiar) in enumerate(zip(self.stores, self._factors(contexts), strict=True)):
            if not mixed.alpha:
                continue
            known = mixed.store.evidence(contexts, candidates, [n for n in mixed.store.orders if n > 1])
            w = mixed.alpha * mixed.trust.weights(known, familiar)  # (d, N)
            if self._offsets is not None:
                raised = w * np.exp(self._offsets[n])
                w = raised / (1 - w + raised)
            fractions = known.fractions()  # (d, N, m)
            together = others is p  # no personal store so far
            p = _mixed_in(p, w, fractions)
            if not mixed.personal:
                others = p if together else _mixed_in(others, w, fractions)
        with np.errstate(divide="ignore"):
            scores = np.log(p)
            return scores, (scores if others is p else np.log(others))

    def alone(self, contexts: Contexts, candidates: CandidateIds) -> tuple[np.ndarray, np.ndarray]:
        """The mixture is (1 - w)·p + w·p_stores for any p of the model, so those of p = 0 and of p = 1 give both."""
        shape = len(contexts), np.shape(candidates)[-1]
        given = np.exp(self.scores(np.full(shape, -np.inf), contexts, candidates))
        weight = 1 - (np.exp(self.scores(np.zeros(shape), contexts, candidates)) - given)[:, :1]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(given > 0, np.log(given / weight), -np.inf), weight

    def _factors(self, contexts: Contexts) -> list[float]:
        """`Trust.familiar` of each store. Without a text, the common beginning of the contexts counts as the text."""
        return self._familiar or self._familiar_after(_shared_tail(contexts))

    def _familiar_after(self, text: Sequence[int]) -> list[float]:
        return [mixed.trust.familiar(mixed.store, text) for mixed in self.stores]

    def _following(self, context: Sequence[int]) -> list[int]:
        """The most frequent tokens after the context in each store: after its longest known end first."""
        following: dict[int, None] = {}
        for mixed in self.stores if len(context) > 1 else ():
            of_store: dict[int, None] = {}
            for n in sorted(mixed.store.orders, reverse=True) if mixed.alpha else ():
                if len(of_store) >= PROPOSALS or n <= 2:  # one token alone is too little context for a proposal
                    break
                if len(context) >= n - 1:
                    quick = mixed.store.quick_continuations(context[1 - n :], PROPOSALS)
                    of_store.update(dict.fromkeys(i for i, _ in quick))
            following |= of_store
        return list(following)


def familiarity(store: Store, ids: Sequence[int]) -> float:
    """The share of the last 4-grams of a text that the store contains, 0 to 1."""
    n = _familiar_order(store)
    tail = ids[-(_FAMILIAR_WINDOW + n - 1) :]
    windows = range(len(tail) - n + 1)
    return sum(store.count(tail[i : i + n]) > 0 for i in windows) / len(windows) if windows else 0.0


def _familiar_order(store: Store) -> int:
    return min(_FAMILIAR_ORDER, store.orders[-1])


def _mixed_in(p: np.ndarray, w: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """p (d, m) with the estimates (d, N, m) of one store mixed in by their weights (d, N), order after order."""
    kept, added = 1 - w[:, :, None], w[:, :, None] * fractions
    for n in range(w.shape[1]):
        p = kept[:, n] * p + added[:, n]
    return p


def _shared_tail(contexts: Contexts) -> list[int]:
    """The end of the common beginning of all contexts, searched among the last tokens of the shortest one."""
    shortest = min(map(len, contexts), default=0)
    start = max(shortest - _LOOKED_THROUGH, 0)
    tails = [context[start:shortest] for context in contexts]
    end = next((i for i, tokens in enumerate(zip(*tails, strict=True)) if len(set(tokens)) > 1), shortest - start)
    return list(tails[0][:end]) if tails else []


def _checked(logq: np.ndarray, contexts: Contexts) -> np.ndarray:
    logq = np.asarray(logq, dtype=np.float64)
    if logq.ndim != 2 or len(logq) != len(contexts):
        raise InputError(f"Log-probabilities of shape {logq.shape} given for {len(contexts)} drafts.")
    return logq
