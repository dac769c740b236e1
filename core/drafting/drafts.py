"""A draft, the drafts after one step, and the options that drafts are made with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from core.drafting.figures import Figures
from core.errors import InputError
from core.models.base import LanguageModel
from core.models.base import Sequence as Cached
from core.ngram.interpolation import Geometric, Interpolation, Linear, Store
from core.options import DEFAULT
from core.samplers.base import Processor

WITH_FORKS = 24  # candidates at least, where drafts part where the probability is


@dataclass(frozen=True)
class Options:
    """How drafts are made; the defaults are those of `core.options`.

    Attributes:
        k, length: number of drafts, tokens per draft.
        ngrams: a store, several as [(store, factor), …], or an `Interpolation`; None for the model alone.
        mixing, alpha, penalty: how a store is mixed in: "linear" (ours) or "geometric" (eqs. 5-7, δ = e^-penalty).
        tau: temperature τ, divides the logits before everything else but `rule`.
        candidates: tokens considered per step, the same for all drafts; None means 3k, as the authors have it, with
            forks at least 24.
        rule: crops the logits, as a transformers LogitsProcessor.
        distinct: each draft is a lineage of its own, kept alive. False: the paper's top k of d × m.
        forks: passes that search for the places where the drafts part; 0: all part at their first token.
        exact_steps: r steps after that in which each draft's own token runs through the model as well.
        end_below: a draft ends before a word whose first token is less probable than this; 0: at `length` alone.
        min_branch: no draft parts from the others with less probability than this, unless there is no other.
        stop_ids: tokens that end a draft; None means the tokenizer's ends of text.
        first_ids: the only tokens a draft may begin with; probabilities are given that.
        reset_every, seed: section 5.3's resets every s steps; the draw is seeded.
    """

    k: int = DEFAULT["k"]
    length: int = DEFAULT["length"]
    ngrams: Store | Sequence[tuple[Store, float]] | Interpolation | None = None
    alpha: float | None = None
    tau: float = DEFAULT["tau"]
    candidates: int | None = None
    penalty: float = 200.0
    rule: Processor | None = None
    distinct: bool = DEFAULT["distinct"]
    exact_steps: int = DEFAULT["exact_steps"]
    forks: int = DEFAULT["forks"]
    end_below: float = DEFAULT["end_below"]
    min_branch: float = DEFAULT["min_branch"]
    mixing: Literal["linear", "geometric"] = "linear"
    stop_ids: frozenset[int] | None = None
    first_ids: np.ndarray | None = None
    reset_every: int | None = None
    seed: int = DEFAULT["seed"]

    def __post_init__(self) -> None:
        for name, low in (("k", 1), ("length", 1), ("exact_steps", 0), ("forks", 0)):
            if getattr(self, name) < low:
                raise InputError(f"{name} {getattr(self, name)} given; at least {low} expected.")
        if not self.tau > 0:
            raise InputError(f"tau {self.tau} given; a temperature above 0 expected.")
        for name in ("end_below", "min_branch"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} given; a probability from 0 to below 1 expected.")
        if self.candidates is not None and self.candidates < self.k:
            raise InputError(f"{self.candidates} candidates given for {self.k} drafts; at least as many expected.")
        if self.mixing not in ("linear", "geometric"):
            raise InputError(f"mixing {self.mixing!r} given; 'linear' or 'geometric' expected.")
        if self.reset_every is not None and self.reset_every < 1:
            raise InputError(f"reset_every {self.reset_every} given; at least 1 step expected.")

    @property
    def m(self) -> int:
        """The number of candidates. With forks there are more than the paper's 3k: what n-grams know to come next is
        often not among the nine tokens that the model finds likeliest."""
        return self.candidates or max(3 * self.k, WITH_FORKS if self.forks and self.distinct else 0)

    def stops(self, model: LanguageModel) -> frozenset[int]:
        """The tokens that end a draft of this model."""
        return model.tokenizer.eos_ids if self.stop_ids is None else self.stop_ids

    def interpolation(self) -> Interpolation | None:
        """The n-gram rule these options name, or None without n-grams."""
        if self.ngrams is None or isinstance(self.ngrams, Interpolation):
            return self.ngrams
        if self.mixing == "linear":
            return Linear(self.ngrams) if self.alpha is None else Linear(self.ngrams, self.alpha)
        if isinstance(self.ngrams, Sequence):
            raise InputError(f"mixing 'geometric' given with {len(self.ngrams)} stores; one store expected.")
        if self.alpha is None:
            return Geometric(self.ngrams, penalty=self.penalty)
        return Geometric(self.ngrams, self.alpha, penalty=self.penalty)


@dataclass(frozen=True)
class Kept:
    """A row that the reader still sees and that agrees with the text: it keeps its place.

    Attributes:
        row: its number, 0 … k-1.
        ids: its tokens after the prefix, those of a half-typed word included.
        grows: whether it is short enough to be continued.
        totals: ln p of the row up to each of its tokens, as the request that drafted it found them; only their
            differences count, for the text has moved on since. [] where they are not known.
    """

    row: int
    ids: list[int]
    grows: bool = False
    totals: list[float] = field(default_factory=list)


@dataclass(eq=False)
class Draft:
    """One draft, in every mode.

    Attributes:
        ids: its tokens after the prefix; an ended draft includes the token that ended it.
        totals: ln p of the draft up to each of its tokens from `start` on, at τ, n-grams mixed in.
        row: its lineage, which is its place among the rows, 0 … k-1; a draft keeps it while it grows.
        start: how many of its tokens belong to the half-typed word before the first that is its own.
        stem: how many tokens it had from there when its growth began.
        branch: probability of the token with which it parts from the other drafts.
        own: how many leading tokens rest on the draft itself: exact ones, then superposed ones for as long as the draft
            carries most of the mixture or the n-grams hold its last three tokens. The tokens after them were read out
            of a mixture that mostly belongs to other drafts.
        exact: how many leading tokens were computed on their own.
        personal: for each token, whether a personal store decided on it: without that store another token would stand
            there, or, for a first token, the draft would not.
        how: for each token, how speculation produced it, and its LTS where it has one; [] without speculation.
        ended: it met a stop token, or everything was ruled out.
        rests: it does not grow: a kept row that is long enough, or going on was likelier wrong than right.
        sequence: holds the prefix and `ids[:-1]`, while its own tokens run through the model.
    """

    ids: list[int]
    totals: list[float]
    row: int
    start: int = 0
    stem: int = 1
    branch: float = 1.0
    own: int = 0
    exact: int = 0
    personal: list[bool] = field(default_factory=list)
    how: list[tuple[str, float | None]] = field(default_factory=list)
    ended: bool = False
    rests: bool = False
    sequence: Cached | None = field(default=None, repr=False)

    @classmethod
    def alone(cls, ids: list[int], logprob: float, row: int, start: int = 0) -> Draft:
        """A draft with one token of its own, in the modes in which every draft runs through the model by itself."""
        p, n = float(np.exp(logprob)), len(ids)
        return cls(ids, [logprob], row, start, branch=p, own=n, exact=n, personal=[False] * n)

    @property
    def tokens(self) -> int:
        """How many tokens it has from its first own one."""
        return len(self.totals)

    @property
    def logprob(self) -> float:
        return self.totals[-1] if self.totals else 0.0

    @property
    def beginning(self) -> float:
        """Probability of its first own token."""
        return float(np.exp(self.totals[0])) if self.totals else 1.0

    def child(
        self, token: int, total: float, personal: bool = False, own: bool = True, exact: bool = True, row: int = -1
    ) -> Draft:
        """The draft with one more token; without the sequence."""
        return replace(
            self,
            ids=[*self.ids, token],
            totals=[*self.totals, total],
            row=self.row if row < 0 else row,
            own=self.own + (own and self.own == len(self.ids)),
            exact=self.exact + exact,
            personal=[*self.personal, personal],
            sequence=None,
        )

    def after(self, before: Draft) -> Draft:
        """A copy of the draft with the tokens of another before its own; without the sequence."""
        n = len(before.ids)
        return replace(
            self,
            ids=before.ids + self.ids,
            totals=before.totals + [before.logprob + total for total in self.totals],
            start=before.start + self.start,
            own=n + self.own,
            exact=n + self.exact,
            personal=before.personal + self.personal,
            sequence=None,
        )

    def close(self) -> None:
        """Close its own sequence, if there is one."""
        if self.sequence is not None:
            self.sequence.close()
        self.sequence = None


def still_alive(drafts: list[Draft], stop: frozenset[int]) -> list[Draft]:
    """Orders the drafts by their scores, ends those that met a stop token, and returns the others."""
    for draft in drafts:
        draft.ended = draft.ended or draft.ids[-1] in stop
        if draft.ended:
            draft.close()
    drafts.sort(key=lambda draft: -draft.logprob)
    return [draft for draft in drafts if not draft.ended]


def best_of(drafts: Sequence[Draft], k: int) -> list[Draft]:
    """The k drafts of the highest scores, best first."""
    return sorted(drafts, key=lambda draft: -draft.logprob)[:k]


@dataclass(frozen=True)
class Drafts:
    """The drafts after one step.

    Attributes:
        drafts: best first.
        step: 1 after the first pass.
        done: nothing follows.
        settled: from now on drafts only grow. Before, a row may still be replaced by one that parts elsewhere.
        finished: by the paper's rule (distinct=False), the drafts that met a stop token and their scores, best first;
            in every other way of drafting these drafts stay among the others, and `ended` marks them.
        checked: a model has looked at the drafts; see `core.drafting.checked`.
        figures: statistics of speculation, where there is some.
    """

    drafts: list[Draft]
    step: int
    done: bool = False
    settled: bool = True
    finished: list[tuple[list[int], float]] = field(default_factory=list)
    checked: bool = False
    figures: Figures | None = None

    @classmethod
    def of(cls, drafts: Sequence[Draft], step: int, done: bool = False, figures: Figures | None = None) -> Drafts:
        """Copies of the drafts as they are now, without their sequences."""
        return cls([replace(draft, sequence=None) for draft in drafts], step, done, figures=figures)

    # Each draft's attribute of that name, in the order of the drafts.

    @property
    def ids(self) -> list[list[int]]:
        return [draft.ids for draft in self.drafts]

    @property
    def logprobs(self) -> list[float]:
        return [draft.logprob for draft in self.drafts]

    @property
    def beginnings(self) -> list[float]:
        return [draft.beginning for draft in self.drafts]

    @property
    def branches(self) -> list[float]:
        return [draft.branch for draft in self.drafts]

    @property
    def lineages(self) -> list[int]:
        return [draft.row for draft in self.drafts]

    @property
    def exact(self) -> list[int]:
        return [draft.exact for draft in self.drafts]

    @property
    def ended(self) -> list[bool]:
        return [draft.ended for draft in self.drafts]

    @property
    def how(self) -> list[list[tuple[str, float | None]]]:
        return [draft.how for draft in self.drafts]
