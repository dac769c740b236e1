"""The ways to make drafts, all with the steps of `core.drafting.driver.Driven`: rows, advance, close, Drafts.

    superposed           one row for all drafts, and exact steps
    branching            the k likeliest first tokens, each continued greedily in a row of its own
    greedy               the likeliest token each time: one draft
    beam                 beam search: the k likeliest texts that k rows lead to
    sampled              k independent draws from what the rule keeps, a row each
    sampled+superposed   a few tokens drawn, then drafts superposed on each (section 4.5, NS_SPD)

Knows ids and logits. Shapes: V vocabulary, d drafts, m candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from core.controls import DEFAULT_MODE, DRAWN, SPECULATING, checked_mode
from core.dice import Dice
from core.drafting.candidates import Candidates
from core.drafting.drafts import Drafts, Kept, Options
from core.drafting.driver import Driven
from core.errors import InputError
from core.models.base import LanguageModel, Row, Sequence
from core.places import likeliest_place, only
from core.superposed import superposed

if TYPE_CHECKING:
    from core.speculated import Speculated, Speculation


_DRAWN = checked_mode("sampled+superposed", {})


@dataclass(frozen=True)
class Mode:
    """Which way, and what sampled+superposed needs besides.

    Attributes:
        name: one of `core.controls.MODES`.
        samples: beginnings that are drawn (n); each gets k drafts, and the k best of all are kept.
        sampled_tokens: tokens drawn for each (m), before superposing.
        speculation: how greedy and sampled drafts are made several tokens per pass; None: one.
    """

    name: str = DEFAULT_MODE
    samples: int = _DRAWN["samples"]
    sampled_tokens: int = _DRAWN["sampled_tokens"]
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        checked_mode(self.name, {})
        for name in ("samples", "sampled_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} given; at least 1 expected.")

    @property
    def drawn(self) -> bool:
        """Whether chance decides on tokens."""
        return self.name in DRAWN

    def most(self, k: int) -> int:
        """How many drafts come of it."""
        return 1 if self.name == "greedy" else k


class Drafting(Protocol):
    """Drafts of one prefix while they grow; see `core.drafting.driver.Driven`."""

    done: bool

    def rows(self) -> list[Row]: ...
    def advance(self, logits: list[Tensor]) -> Drafts: ...
    def close(self) -> None: ...


def begin(
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    mode: Mode | None = None,
    word_ids: Iterable[int] = (),
    starts: list[np.ndarray] | None = None,
    kept: Ids[Kept] = (),
) -> Drafting:
    """Drafts after `prefix_ids`, which `sequence` holds; advance with the logits after the prefix first.

    `word_ids` and `starts` are those of `superposed`: places where a half-typed word may be gone on with. The modes
    with rows of their own begin at the likeliest of these places alone. `kept` are rows that stay where they are, of
    superposed drafts.
    """
    mode = mode or Mode()
    o = options
    place = _Places(list(word_ids), starts if starts or o.first_ids is None else [np.asarray(o.first_ids)])
    if mode.speculation is not None and mode.name in SPECULATING:
        return _Speculating(sequence, prefix_ids, o, mode, place)
    if mode.name == "sampled":
        return Sampled(sequence, prefix_ids, o, place)
    if mode.name == "beam":
        return Beam(sequence, prefix_ids, o, place)
    if mode.name == "sampled+superposed":
        return Spliced(sequence, prefix_ids, o, mode, place)
    if mode.name == "greedy":  # one draft: what is superposed is its own token
        o = _greedy(o)
    elif mode.name == "branching":  # exact to the end
        o = replace(o, distinct=True, exact_steps=max(o.length - 1, 0), forks=0, reset_every=None)
    return Driven(lambda logits: superposed(logits, sequence, prefix_ids, o, place.word, starts, kept))


def draft(
    model: LanguageModel, prefix_ids: list[int], mode: str | Mode = "superposed", **options: Any
) -> Iterator[Drafts]:
    """Drafts after `prefix_ids` in any mode, after every step; the options are those of `superpose`."""
    if not prefix_ids:
        raise InputError("An empty prefix given; at least one token id expected.")
    held: Sequence | None = options.pop("sequence", None)
    made = Options(**options)
    own, sequence = held is None, held or model.open()
    state = begin(sequence, prefix_ids, made, mode if isinstance(mode, Mode) else Mode(mode))
    try:
        drafts = state.advance([sequence.sync(prefix_ids)])
        yield drafts
        while not state.done:
            drafts = state.advance(model.forward(state.rows()))
            yield drafts
    finally:
        state.close()
        if own:
            sequence.close()


def cropped(o: Options, logits: Tensor, contexts: list[list[int]], allowed: np.ndarray | None = None) -> Tensor:
    """Logits (B, V) as the options' rule and τ leave them, after contexts of equal length.

    `allowed` are the only tokens there are: what the rule keeps, it keeps among them.
    """
    if allowed is not None:
        logits = only(logits, allowed)
    if o.rule is not None:
        logits = o.rule(torch.tensor(contexts), logits)
    return logits if o.tau == 1 else logits / o.tau


@dataclass(frozen=True)
class _Places:
    """Where drafts may begin: after the first n tokens of `word`, with a token of `starts[n]`; None is anywhere."""

    word: list[int]
    starts: list[np.ndarray] | None


@dataclass
class _Draft:
    ids: list[int]
    logprob: float
    beginning: float
    lineage: int
    ended: bool = False
    sequence: Sequence | None = field(default=None, repr=False)  # holds the prefix and ids[:-1]


class _OwnRows:
    """Drafts with a row each. Subclasses say how the first tokens are found and how drafts grow."""

    def __init__(self, sequence: Sequence, prefix_ids: list[int], options: Options, places: _Places) -> None:
        self.options = options
        self._sequence, self._prefix, self._places = sequence, list(prefix_ids), places
        self._stem: list[int] = []  # tokens of the half-typed word that all drafts begin with
        eos = sequence.model.tokenizer.eos_ids
        self._stop = eos if options.stop_ids is None else options.stop_ids
        self.drafts: list[_Draft] = []  # best first
        self._step = 0
        self.done = False

    def rows(self) -> list[Row]:
        if self.done:
            return []
        for draft in self._alive():
            if draft.sequence is None:
                draft.sequence = self._sequence.fork()
                draft.sequence.rewind(len(self._prefix) + len(self._stem))
        return [Row(d.sequence, d.ids[-1:]) for d in self._alive() if d.sequence is not None]

    def advance(self, logits: list[Tensor]) -> Drafts:
        if not self._step:
            word, starts = self._places.word, self._places.starts
            at = likeliest_place(logits, word, starts)
            self._stem = word[:at]
            self._begin(logits[at], self._prefix + self._stem, starts[at] if starts else None)
        else:
            self._grow(self._alive(), torch.stack(logits))
        self._step += 1
        for draft in self.drafts:
            draft.ended = draft.ended or draft.ids[-1] in self._stop
            if draft.ended and draft.sequence is not None:
                draft.sequence.close()
                draft.sequence = None
        self.drafts.sort(key=lambda draft: -draft.logprob)
        self.done = self._step >= self.options.length or not self._alive()
        if self.done:
            self.close()
        return self._snapshot()

    def close(self) -> None:
        self.done = True
        for draft in self.drafts:
            if draft.sequence is not None:
                draft.sequence.close()
            draft.sequence = None

    def _alive(self) -> list[_Draft]:
        return [draft for draft in self.drafts if not draft.ended]

    def _begin(self, logits: Tensor, context: list[int], allowed: np.ndarray | None) -> None:
        raise NotImplementedError

    def _grow(self, alive: list[_Draft], logits: Tensor) -> None:
        raise NotImplementedError

    def _snapshot(self) -> Drafts:
        return Drafts(
            ids=[list(d.ids) for d in self.drafts],
            logprobs=[d.logprob for d in self.drafts],
            beginnings=[d.beginning for d in self.drafts],
            lineages=[d.lineage for d in self.drafts],
            own=[len(d.ids) for d in self.drafts],
            personal=[[False] * len(d.ids) for d in self.drafts],
            ended=[d.ended for d in self.drafts],
            finished=[(list(d.ids), d.logprob) for d in self.drafts if d.ended],
            step=self._step,
            done=self.done,
        )


class Sampled(_OwnRows):
    """k independent draws. N-grams are left out: what the rule and τ leave is what is drawn from.

    Every token has its own chance, fixed by seed, draft, position in the text and token (Gumbel-max), not a place in
    one list of chances. So a draft changes with a slider only from where its token is dropped or outbid, the
    first draft is the same for any k, and typing along a draft leaves it as it was.
    """

    def _begin(self, logits: Tensor, context: list[int], allowed: np.ndarray | None) -> None:
        row = cropped(self.options, logits[None], [context], allowed)[0]
        for n in range(self.options.k):
            found = self._draw(row, n, len(context))
            if found is not None:
                token, logprob = found
                self.drafts.append(_Draft([*self._stem, token], logprob, float(np.exp(logprob)), n))

    def _grow(self, alive: list[_Draft], logits: Tensor) -> None:
        contexts = [self._prefix + draft.ids for draft in alive]
        for draft, row in zip(alive, cropped(self.options, logits, contexts), strict=True):
            found = self._draw(row, draft.lineage, len(self._prefix) + len(draft.ids))
            if found is None:
                draft.ended = True
                continue
            draft.ids.append(found[0])
            draft.logprob += found[1]

    def _draw(self, row: Tensor, lineage: int, position: int) -> tuple[int, float] | None:
        """A token and its log-probability among what is kept; None where nothing is."""
        x = row.double().numpy()
        kept = np.flatnonzero(x > -np.inf)
        if not len(kept):
            return None
        logq = x[kept] - np.logaddexp.reduce(x[kept])
        chance = Dice(self.options.seed, lineage).gumbel(position, kept)
        best = int(np.argmax(logq + chance))
        return int(kept[best]), float(logq[best])


class Beam(_OwnRows):
    """The k texts of highest Σ log-probability, n-grams mixed in; an ended text stays for as long as it is among them.

    A text keeps its lineage as long as it is continued; where two grow from one, the likelier keeps it.
    """

    def _begin(self, logits: Tensor, context: list[int], allowed: np.ndarray | None) -> None:
        tokens, scores = self._scored(logits, context, allowed)
        for n, i in enumerate(np.argsort(-scores, kind="stable")[: self.options.k]):
            ids = [*self._stem, int(tokens[i])]
            self.drafts.append(_Draft(ids, float(scores[i]), float(np.exp(scores[i])), n))

    def _grow(self, alive: list[_Draft], logits: Tensor) -> None:
        # (score, parent, token); an ended text is its own continuation
        found: list[tuple[float, _Draft, int | None]] = [(d.logprob, d, None) for d in self.drafts if d.ended]
        for draft, row in zip(alive, logits, strict=True):
            context = self._prefix + draft.ids
            tokens, scores = self._scored(row, context)
            found += [(draft.logprob + float(s), draft, int(t)) for s, t in zip(scores, tokens, strict=True)]
        found.sort(key=lambda one: -one[0])
        del found[self.options.k :]
        if not any(token is not None for _, _, token in found):
            for draft in alive:  # everything was ruled out, or the ended texts are likelier
                draft.ended = True
            return
        taken = {id(parent): parent.lineage for _, parent, _ in found}
        free = [n for n in range(self.options.k) if n not in set(taken.values())]
        grown = []
        for score, parent, token in found:
            if token is None:
                grown.append(parent)
                continue
            first = id(parent) in taken
            lineage = taken.pop(id(parent)) if first else free.pop(0)
            # A parent's own row goes to its likeliest child; the others share what it holds.
            sequence = parent.sequence if first or parent.sequence is None else parent.sequence.fork()
            grown.append(_Draft([*parent.ids, token], score, parent.beginning, lineage, sequence=sequence))
        kept = {id(draft.sequence) for draft in grown}
        for draft in alive:
            if draft.sequence is not None and id(draft.sequence) not in kept:
                draft.sequence.close()
        self.drafts = grown

    def _scored(
        self, logits: Tensor, context: list[int], allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest candidates (m,) and their log-probabilities (m,), n-grams mixed in; only possible ones."""
        o = self.options
        row = cropped(o, logits[None], [context], allowed)[0]
        top, tokens = torch.topk(row, min(o.candidates or 3 * o.k, len(row)))
        alive = (top > -torch.inf).numpy()
        tokens = tokens.numpy()[alive]
        scores = (top - torch.logsumexp(row, 0)).double().numpy()[alive]
        ngrams = o.interpolation()
        if ngrams is not None and len(tokens):
            scores = ngrams.scores(scores[None], [context], tokens)[0]
        return tokens[np.isfinite(scores)], scores[np.isfinite(scores)]


class Spliced:
    """NS_SPD: m tokens are drawn for each of n beginnings, then k drafts superposed on each of those.

    The paper shows all n·k drafts. Here the k best at the first superposed step stay, in that order: as many rows as in
    every other mode, and none comes or goes while it is read.
    """

    def __init__(
        self, sequence: Sequence, prefix_ids: list[int], options: Options, mode: Mode, places: _Places
    ) -> None:
        self.options = options
        self._prefix = list(prefix_ids)
        self._tokens = mode.sampled_tokens
        # It stops one step before its end, so that its rows stay open: the drafts go on in them.
        length = min(mode.sampled_tokens + 1, options.length)
        self._sampled = Sampled(sequence, prefix_ids, replace(options, k=mode.samples, length=length), places)
        self._parts: list[_Part] = []  # one for each beginning, once it is drawn
        self._kept: dict[tuple[int, int], int] = {}  # (part, lineage in it): place among the k best
        self._step = 0
        self.done = False

    def rows(self) -> list[Row]:
        if self.done:
            return []
        return [row for part in self._parts for row in part.rows()] if self._parts else self._sampled.rows()

    def advance(self, logits: list[Tensor]) -> Drafts:
        self._step += 1
        if not self._parts:
            drafts = self._sampled.advance(logits)
            self.done = self._sampled.done
            if not self.done and self._step == self._tokens:
                self._sampled.rows()  # gives a row to drafts that have none yet
                after = replace(self.options, length=self.options.length - self._tokens, first_ids=None, forks=0)
                self._parts = [_Part(stem, self._prefix, after) for stem in self._sampled.drafts]
            return _first(drafts, self.options.k)
        rest = iter(logits)
        for part in self._parts:
            part.advance([next(rest) for _ in part.rows()])
        self.done = all(part.done for part in self._parts)
        drafts = self._snapshot()
        if self.done:
            self.close()
        return drafts

    def close(self) -> None:
        self.done = True
        for part in self._parts:
            part.close()
        self._sampled.close()

    def _snapshot(self) -> Drafts:
        found = []
        for n, part in enumerate(self._parts):
            stem, d = part.stem, part.latest
            if d is None:  # it ended while it was drawn
                found.append(
                    (stem.logprob, stem.ids, stem.beginning, 0, n, len(stem.ids), True, [False] * len(stem.ids))
                )
                continue
            for i, ids in enumerate(d.ids):
                logprob, own = stem.logprob + d.logprobs[i], len(stem.ids) + d.own[i]
                marks = [False] * len(stem.ids) + d.personal[i]
                found.append((logprob, stem.ids + ids, stem.beginning, d.lineages[i], n, own, d.ended[i], marks))
        found.sort(key=lambda one: -one[0])
        k = self.options.k
        self._kept = self._kept or {(one[4], one[3]): place for place, one in enumerate(found[:k])}
        found = [one for one in found if (one[4], one[3]) in self._kept][:k]
        return Drafts(
            ids=[list(one[1]) for one in found],
            logprobs=[one[0] for one in found],
            beginnings=[one[2] for one in found],
            lineages=[self._kept[one[4], one[3]] for one in found],
            own=[one[5] for one in found],
            personal=[one[7] for one in found],
            ended=[one[6] for one in found],
            finished=[(list(one[1]), one[0]) for one in found if one[6]],
            step=self._step,
            done=self.done,
        )


def _first(drafts: Drafts, k: int) -> Drafts:
    """The k best."""
    rows = ("ids", "logprobs", "beginnings", "lineages", "own", "personal", "ended")
    return replace(drafts, **{name: getattr(drafts, name)[:k] for name in rows})


class _Part:
    """A drawn beginning and the drafts superposed on it."""

    def __init__(self, stem: _Draft, prefix: list[int], options: Options) -> None:
        self.stem, self._prefix, self._options = stem, prefix, options
        self._superposition: Driven | None = None
        self._rows: list[Row] | None = None
        self.latest: Drafts | None = None

    @property
    def done(self) -> bool:
        return self.stem.ended or (self._superposition is not None and self._superposition.done)

    def rows(self) -> list[Row]:
        """The same until they are advanced: superposing has its side effects once."""
        if self._rows is None:
            if self.done:
                self._rows = []
            elif self._superposition is not None:
                self._rows = self._superposition.rows()
            else:  # the last drawn token itself
                assert self.stem.sequence is not None
                self._rows = [Row(self.stem.sequence, self.stem.ids[-1:])]
        return self._rows

    def advance(self, logits: list[Tensor]) -> None:
        self._rows = None
        if self.done:
            return
        if self._superposition is None:
            sequence, prefix, o = self.stem.sequence, self._prefix + self.stem.ids, self._options
            assert sequence is not None
            self._superposition = Driven(lambda logits: superposed(logits, sequence, prefix, o))
        self.latest = self._superposition.advance(logits)

    def close(self) -> None:
        if self._superposition is not None:
            self._superposition.close()


def _greedy(o: Options) -> Options:
    return replace(o, k=1, distinct=True, exact_steps=0, forks=0, reset_every=None)


class _Speculating:
    """The first tokens as the mode has them, at whatever place of a half-typed word; then several per pass."""

    def __init__(
        self, sequence: Sequence, prefix_ids: list[int], options: Options, mode: Mode, places: _Places
    ) -> None:
        self._sequence, self._prefix, self._options = sequence, list(prefix_ids), options
        self._mode, self._places = mode, places
        self._going: Speculated | None = None
        self.done = False

    def rows(self) -> list[Row]:
        return [] if self.done or self._going is None else self._going.rows()

    def advance(self, logits: list[Tensor]) -> Drafts:
        if self._going is not None:
            drafts = self._going.advance(logits)
        else:
            self._going = self._sampled(logits) if self._mode.name == "sampled" else self._greedy(logits)
            drafts = self._going.snapshot()
        self.done = self._going.done
        return drafts

    def close(self) -> None:
        self.done = True
        if self._going is not None:
            self._going.close()

    def _sampled(self, logits: list[Tensor]) -> Speculated:
        from core.speculated import Speculated

        o = self._options
        # It stops one step before its end, so that its rows stay open: the drafts go on in them.
        sampled = Sampled(self._sequence, self._prefix, replace(o, length=min(2, o.length)), self._places)
        first = sampled.advance(logits)
        sampled.rows()
        assert self._mode.speculation is not None
        return Speculated(
            self._prefix,
            o,
            self._mode.speculation,
            first,
            [draft.sequence for draft in sampled.drafts],
            logits[len(sampled._stem)],
            lambda ids, x: cropped(o, x, ids.tolist()),
            [Dice(o.seed, lineage) for lineage in first.lineages],
        )

    def _greedy(self, logits: list[Tensor]) -> Speculated:
        from core.speculated import Greedily, Speculated

        o, places = _greedy(self._options), self._places
        state = Driven(lambda x: superposed(x, self._sequence, self._prefix, o, places.word, places.starts))
        first = state.advance(logits)
        at = len(first.ids[0]) - 1 if first.ids else 0
        rows: list[Sequence | None] = [None] * len(first.ids)
        if rows and o.length > 1:
            rows[0] = row = self._sequence.fork()
            row.rewind(len(self._prefix) + at)
        state.close()
        greedily = Greedily(lambda x, context: Candidates(o).scored(x, context)[:2])
        assert self._mode.speculation is not None
        return Speculated(
            self._prefix,
            o,
            self._mode.speculation,
            first,
            rows,
            logits[at],
            greedily.rule,
            [None] * len(rows),
            greedily.mass,
        )
