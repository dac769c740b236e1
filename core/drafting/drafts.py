"""Data classes: a draft, the drafts after one step, a kept row, and the options of drafting.

Each probability of a draft x_1 … x_n, of its own tokens after a text, has one name. p is the distribution that drafts
are made from: the model's after the rule and at τ, n-grams mixed in (`core.drafting.candidates`). Its condition is what
the pass read: the draft's own tokens, or mixtures of them with those of other drafts. Logarithms are natural.

    totals[i-1]      ln p(x_1 … x_i | text)
    logprob          ln p(x_1 … x_n | text), the last total
    p_joint          the same as a probability, of a row (`core.present`)
    p_first          p(x_1 | text)
    p_branch         p(x_1 … x_b | text), where x_b is the first token in which no other draft agrees
    model_logprobs   ln q(x_i | text, x_1 … x_i-1) of the model alone (`core.logprobs`)
    chance           a calibrated p, that the writer goes on as a row does (`core.time_saved`)
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from torch import Tensor

from core.drafting.removed_tokens import RemovedTokens
from core.errors import InputError, OptionError
from core.models.base import LanguageModel
from core.models.base import Sequence as Cached
from core.ngram.interpolation import Geometric, Interpolation, Linear, Store
from core.options import OPTIONS, DraftOptions, check_types, with_library_defaults
from core.samplers.base import Processor

# Least number of candidates with forks. It is at least 3k for every k of the page, so it is the same for all of them.
WITH_FORKS = 30


@dataclass(frozen=True)
@with_library_defaults
class Options(DraftOptions):
    """The options of drafting, with those that only a program can give. `superpose` takes them by name.

    Attributes:
        k, length: number of drafts, tokens per draft.
        ngrams: a store, several as [(store, factor), …], or an `Interpolation`; None for the model alone.
        mixing, alpha, penalty: how a store is mixed in: "linear" (ours) or "geometric" (eqs. 5-7, δ = e^-penalty).
            alpha None is the default of that way of mixing.
        tau: temperature τ, which divides the logits after `rule`.
        candidates: m, tokens considered per step, the same for all drafts; None is 3k, as in the authors' code, and
            with forks at least 30.
        rule: truncates the logits; a transformers LogitsProcessor.
        distinct: each draft is a separate lineage, continued at every step. False: the paper's top k of d × m.
        forks: passes that search for the tokens at which the drafts branch; 0: all branch at their first token.
        exact_steps: r steps after that in which each draft's latest token also runs through the model separately.
        end_below: a draft ends before a word whose first token is less probable than this; 0: only at `length`.
        min_branch: a draft that branches with less probability than this is omitted, unless it is the only one.
        stop_ids: tokens that end a draft; None is the tokenizer's end-of-text tokens.
        barred: tokens (V,) that no draft contains; None for none.
        bias: numbers (V,) that are added to the logits; None for none.
        stepped_back: tokens that follow certain contexts in no draft, because drafts stepped back; None for none.
        first_ids: the only tokens with which a draft may begin; probabilities are conditional on them.
        reset_every, seed: section 5.3's resets every s steps, 0 for none; the seed of their draws.
    Raises: InputError for a value out of range, and for one that is set but that nothing here reads.
    """

    READERS: ClassVar[tuple[str, ...]] = ("drafting",)  # the layers whose options it takes

    # In the app's settings these are a switch, and a number in any case.
    ngrams: Store | Sequence[tuple[Store, float]] | Interpolation | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    alpha: float | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    candidates: int | None = None
    penalty: float = 200.0
    rule: Processor | None = None
    stop_ids: frozenset[int] | None = None
    barred: np.ndarray | None = None
    bias: Tensor | None = None
    stepped_back: RemovedTokens | None = None
    first_ids: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_types(self)
        for name, low in (("k", 1), ("length", 1), ("exact_steps", 0), ("forks", 0), ("reset_every", 0)):
            if getattr(self, name) < low:
                raise self._refused(name, f"at least {low}")
        if not self.tau > 0:
            raise self._refused("tau", "a temperature above 0")
        for name in ("end_below", "min_branch"):
            if not 0 <= getattr(self, name) < 1:
                raise self._refused(name, "a probability from 0 to below 1")
        if self.candidates is not None and self.candidates < self.k:
            raise InputError(f"{self.candidates} candidates given for {self.k} drafts; at least as many expected.")
        if self.mixing not in ("linear", "geometric"):
            raise self._refused("mixing", "'linear' or 'geometric'")
        for name, control in OPTIONS.items():
            if control.reader not in self.READERS and (given := getattr(self, name)) != control.default:
                sentence = "{0} {given} given, which changes nothing here; leave it out."
                raise OptionError(sentence, name, given=given)

    def _refused(self, name: str, expected: str) -> OptionError:
        value = getattr(self, name)
        return OptionError("{0} {given!r} given; {expected} expected.", name, given=value, expected=expected)

    @property
    def m(self) -> int:
        """The number of candidates. With forks it is larger than the paper's 3k, because the n-grams' best continuation
        is often not among the model's nine most probable tokens."""
        return self.candidates or max(3 * self.k, WITH_FORKS if self.forks and self.distinct else 0)

    def stops(self, model: LanguageModel) -> frozenset[int]:
        """The tokens that end a draft with this model."""
        return model.tokenizer.eos_ids if self.stop_ids is None else self.stop_ids

    def without(self, removed: RemovedTokens) -> Self:
        """A copy with these tokens as `stepped_back`. The other options are not checked again, which takes longer."""
        options = copy(self)
        object.__setattr__(options, "stepped_back", removed)  # of a frozen object
        return options

    def barred_after(self, context: list[int], size: int, slot: int = 0) -> np.ndarray | None:
        """Which of `size` tokens (V,) may not follow a context of the draft in this slot; None if all may."""
        removed = self.stepped_back.after(context, slot) if self.stepped_back else ()
        if not removed:
            return self.barred
        barred = np.zeros(size, bool) if self.barred is None else self.barred.copy()
        barred[list(removed)] = True
        return barred

    def interpolation(self, text: Sequence[int] | None = None) -> Interpolation | None:
        """The n-gram rule that these options select, for drafts after a text if it is given; None without n-grams."""
        rule = self._rule()
        return rule if rule is None or text is None else rule.after(text)

    def _rule(self) -> Interpolation | None:
        if self.ngrams is None or isinstance(self.ngrams, Interpolation):
            return self.ngrams
        if self.mixing == "linear":
            return Linear(self.ngrams) if self.alpha is None else Linear(self.ngrams, self.alpha)
        if self.alpha is None:
            return Geometric(self.ngrams, penalty=self.penalty)
        return Geometric(self.ngrams, self.alpha, penalty=self.penalty)


@dataclass(frozen=True)
class Kept:
    """A draft that is still shown and agrees with the text, so it keeps its slot.

    Attributes:
        slot: its number, 0 … k-1.
        ids: its tokens after the prefix, including those of a half-typed word.
        grows: whether it is short enough to be continued.
        totals: ln p of the row up to each of its tokens, from the request that drafted it. Only their differences are
            valid, because the text has grown since. [] if they are not known.
        chosen: whether the writer chose its beginning, so that nothing replaces it.
    """

    slot: int
    ids: list[int]
    grows: bool = False
    totals: list[float] = field(default_factory=list)
    chosen: bool = False


@dataclass(eq=False)
class Draft:
    """One draft, in every mode.

    Attributes:
        ids: its tokens after the prefix; an ended draft includes the token that ended it.
        totals: ln p of the draft up to each of its tokens from `start` on.
        slot: its lineage, which is its number among the drafts, 0 … k-1, and constant while it grows.
        start: the number of its tokens that belong to the half-typed word, before its first own token.
        stem: the number of own tokens it had when its growth began.
        p_branch: p up to the token at which it branches from the other drafts.
        own: the number of leading tokens that depend mostly on this draft: exact ones, then superposed ones while the
            draft has most of the mixture's weight or the n-grams contain its last three tokens. Later tokens come from
            a mixture in which other drafts have most of the weight.
        exact: the number of leading tokens computed by separate rows.
        personal: for each token, whether a personal store decided it: without that store the token would differ, or,
            for a first token, the draft would not exist.
        how: for each token, how speculation produced it, and its LTS if it has one; [] without speculation.
        ended: it reached a stop token, or no token was possible.
        rests: it does not grow, because it is a kept row of full length, or its continuation is more likely wrong than
            right.
        chosen: the writer chose its beginning: it has a row of its own to its end, and does not rest.
        sequence: contains the prefix and `ids[:-1]`, if the draft's tokens run through the model separately.
    """

    ids: list[int]
    totals: list[float]
    slot: int
    start: int = 0
    stem: int = 1
    p_branch: float = 1.0
    own: int = 0
    exact: int = 0
    personal: list[bool] = field(default_factory=list)
    how: list[tuple[str, float | None]] = field(default_factory=list)
    ended: bool = False
    rests: bool = False
    chosen: bool = False
    sequence: Cached | None = field(default=None, repr=False)

    @classmethod
    def begun(cls, ids: list[int], logprob: float, slot: int, start: int = 0) -> Draft:
        """A draft with one own token, for the modes in which every draft has a separate row."""
        p, n = float(np.exp(logprob)), len(ids)
        return cls(ids, [logprob], slot, start, p_branch=p, own=n, exact=n, personal=[False] * n)

    @property
    def tokens(self) -> int:
        """The number of its own tokens."""
        return len(self.totals)

    @property
    def logprob(self) -> float:
        return self.totals[-1] if self.totals else 0.0

    @property
    def p_first(self) -> float:
        """p of its first own token."""
        return float(np.exp(self.totals[0])) if self.totals else 1.0

    def child(
        self, token: int, total: float, personal: bool = False, own: bool = True, exact: bool = True, slot: int = -1
    ) -> Draft:
        """A copy of the draft with one more token, without the sequence."""
        return replace(
            self,
            ids=[*self.ids, token],
            totals=[*self.totals, total],
            slot=self.slot if slot < 0 else slot,
            own=self.own + (own and self.own == len(self.ids)),
            exact=self.exact + exact,
            personal=[*self.personal, personal],
            sequence=None,
        )

    def with_own(self, own: int) -> Draft:
        """A copy with another number of leading tokens of its own. `replace` would take five times as long."""
        copied = Draft.__new__(Draft)
        copied.__dict__.update(self.__dict__)
        copied.own = own
        return copied

    def after(self, before: Draft) -> Draft:
        """A copy of the draft with the tokens of another before its own, without the sequence."""
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
        """Closes its sequence, if it has one."""
        if self.sequence is not None:
            self.sequence.close()
        self.sequence = None


def end_stopped(drafts: list[Draft], stop: frozenset[int]) -> list[Draft]:
    """Sorts the drafts by score, ends those that reached a stop token, and returns the others."""
    for draft in drafts:
        draft.ended = draft.ended or draft.ids[-1] in stop
        if draft.ended:
            draft.close()
    drafts.sort(key=lambda draft: -draft.logprob)
    return [draft for draft in drafts if not draft.ended]


def best_of(drafts: Sequence[Draft], k: int) -> list[Draft]:
    """The k drafts with the highest scores, best first."""
    return sorted(drafts, key=lambda draft: -draft.logprob)[:k]


@dataclass(frozen=True)
class Figures:
    """Statistics of speculation so far, which the page shows beside the drafts.

    Attributes:
        accept_length: τ, tokens of a draft per pass over it; 0 before the first pass.
        speedup: the time that the same tokens take one by one, by the machine's cost curve, over the time taken.
        notice: a sentence, if speculation was switched off, or the drafter does not fit the model as it is now.
    """

    accept_length: float
    speedup: float
    notice: str | None


@dataclass(frozen=True)
class Drafts:
    """The drafts after one step.

    Attributes:
        drafts: best first.
        step: 1 after the first pass.
        done: whether this was the last step.
        settled: from now on, or until the next reset, drafts only grow. Before, a row may still be replaced by one that
            branches elsewhere.
        finished: by the paper's rule (distinct=False), the drafts that reached a stop token, best first; in every other
            mode these drafts stay among the others, and `ended` marks them.
        checked: whether a model has checked the drafts; see `core.modes.checked`.
        figures: statistics of speculation, if the mode speculates.
    """

    drafts: list[Draft]
    step: int
    done: bool = False
    settled: bool = True
    finished: Sequence[Draft] = ()
    checked: bool = False
    figures: Figures | None = None

    @classmethod
    def of(cls, drafts: Sequence[Draft], step: int, done: bool = False, figures: Figures | None = None) -> Drafts:
        """Copies of the drafts, without their sequences."""
        return cls([replace(draft, sequence=None) for draft in drafts], step, done, figures=figures)

    @property
    def best(self) -> int | None:
        """The slot of the best draft, the first one; None without drafts."""
        return self.drafts[0].slot if self.drafts else None

    # Each of these properties lists an attribute of all drafts.

    @property
    def ids(self) -> list[list[int]]:
        return [draft.ids for draft in self.drafts]

    @property
    def logprobs(self) -> list[float]:
        return [draft.logprob for draft in self.drafts]

    @property
    def p_first(self) -> list[float]:
        return [draft.p_first for draft in self.drafts]

    @property
    def lineages(self) -> list[int]:
        return [draft.slot for draft in self.drafts]

    @property
    def exact(self) -> list[int]:
        return [draft.exact for draft in self.drafts]
