"""A draft while it grows, the drafts of one step as data, and the options that drafts are made with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from core.errors import InputError
from core.models.base import Sequence
from core.ngram.interpolation import Geometric, Interpolation, Linear
from core.options import DEFAULT

Rule = Callable[[Tensor, Tensor], Tensor]  # (input_ids (1, n), logits (1, V)) -> logits (1, V), as in transformers


@dataclass(frozen=True)
class Options:
    """How drafts are made; the defaults are those of `core.options`. `core.superposed.superpose` explains each one."""

    k: int = DEFAULT["k"]
    length: int = DEFAULT["length"]
    ngrams: Any = None
    alpha: float | None = None
    tau: float = DEFAULT["tau"]
    candidates: int | None = None
    penalty: float = 200.0
    rule: Rule | None = None
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

    def interpolation(self) -> Interpolation | None:
        """The n-gram rule these options name, or None without n-grams."""
        if self.ngrams is None or isinstance(self.ngrams, Interpolation):
            return self.ngrams
        alpha: dict[str, Any] = {} if self.alpha is None else {"alpha": self.alpha}
        if self.mixing == "geometric":
            return Geometric(self.ngrams, penalty=self.penalty, **alpha)
        return Linear(self.ngrams, **alpha)


@dataclass(frozen=True)
class Kept:
    """A row that the reader still sees and that agrees with the text: it keeps its place.

    Attributes:
        row: its number, 0 … k-1.
        ids: its tokens after the prefix, those of a half-typed word included.
        grows: whether it is short enough to be continued.
    """

    row: int
    ids: list[int]
    grows: bool = False


@dataclass(eq=False)
class Draft:
    """One draft while it grows.

    Attributes:
        ids: its tokens after the prefix.
        totals: ln p of the draft up to each of its tokens from `start` on.
        row: its lineage, which is its place among the rows.
        start: how many of its tokens belong to the half-typed word before the first that is its own.
        stem: how many tokens it had from there when its growth began.
        branch: probability of the token with which it parts from the other drafts.
        own: see `Drafts`, counted with the tokens before `start`; `personal` and `ended` likewise.
        rests: it does not grow: a kept row that is long enough, or going on was likelier wrong than right.
        sequence: holds the prefix and `ids[:-1]`, during its exact steps.
    """

    ids: list[int]
    totals: list[float]
    row: int
    start: int = 0
    stem: int = 1
    branch: float = 1.0
    own: int = 1
    personal: list[bool] = field(default_factory=list)
    ended: bool = False
    rests: bool = False
    sequence: Sequence | None = field(default=None, repr=False)

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

    def child(self, token: int, total: float, personal: bool, own: bool) -> Draft:
        """The draft with one more token."""
        return replace(
            self,
            ids=[*self.ids, token],
            totals=[*self.totals, total],
            own=self.own + (own and self.own == len(self.ids)),
            personal=[*self.personal, personal],
            sequence=None,
        )

    def close(self) -> None:
        if self.sequence is not None:
            self.sequence.close()
        self.sequence = None


@dataclass(frozen=True)
class Drafts:
    """The drafts after one step, best first.

    Attributes:
        ids: token ids of each draft, without the prefix; an ended draft includes the token that ended it.
        logprobs: natural logarithm of each draft's score: Σ over its tokens, at τ, n-grams mixed in.
        beginnings: probability of each draft's first token.
        lineages: which row each draft belongs to, 0 … k-1; a draft keeps its number while it grows.
        own: how many leading tokens of each draft rest on the draft itself: exact ones, then superposed ones for
            as long as the draft carries most of the mixture or the n-grams know its last three tokens. What
            follows was read out of a mixture that mostly belongs to other drafts.
        personal: for each draft and token, whether a personal store decided on it: without that store another token
            would stand there, or, for a first token, the draft would not.
        ended: whether each draft has met a stop token. Only with distinct beginnings: else see `finished`.
        finished: drafts that met a stop token and their scores, best first.
        step: 1 after the first pass.
        done: nothing follows.
        how: for each draft and token, how it came and its LTS where it has one; [] without speculation.
        figures: what speculation came to, see `core.speculated.Figures`.
        branches: probability of the token with which each draft parts from the others; [] where that is the first.
        exact: how many leading tokens of each draft were computed on their own; [] where only the first was.
        settled: from now on drafts only grow. Before, a row may still be replaced by one that parts elsewhere.
    """

    ids: list[list[int]]
    logprobs: list[float]
    beginnings: list[float]
    lineages: list[int]
    own: list[int]
    personal: list[list[bool]]
    ended: list[bool]
    finished: list[tuple[list[int], float]]
    step: int
    done: bool
    how: list[list[tuple[str, float | None]]] = field(default_factory=list)
    figures: Any = None
    branches: list[float] = field(default_factory=list)
    exact: list[int] = field(default_factory=list)
    settled: bool = True


def snapshot(
    drafts: Iterable[Draft], finished: Iterable[Draft], settled_on: Draft, options: Options, **state: Any
) -> Drafts:
    """The drafts as data, after the text that resets have settled on; `state` are the step, done and settled."""
    before, drafts = settled_on, list(drafts)
    return Drafts(
        ids=[before.ids + d.ids for d in drafts],
        logprobs=[before.logprob + d.logprob for d in drafts],
        beginnings=[d.beginning for d in drafts],
        lineages=[d.row for d in drafts],
        own=[len(before.ids) + d.own for d in drafts],
        personal=[before.personal + d.personal for d in drafts],
        ended=[d.ended for d in drafts],
        finished=[(before.ids + d.ids, before.logprob + d.logprob) for d in finished],
        branches=[d.branch for d in drafts],
        exact=[len(before.ids) + min(d.start + d.stem + options.exact_steps, len(d.ids)) for d in drafts],
        **state,
    )
