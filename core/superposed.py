"""Superposed Decoding: k drafts out of one forward pass per token (Shen et al., arXiv 2405.18400).

The model is fed one mixed embedding per step, the average of the drafts' latest tokens weighted by the drafts'
probabilities (eqs. 3-4), and the k drafts are read out of the one distribution it returns. Two things are ours
and can be switched off: *distinct beginnings* (the drafts start with k different tokens and each lineage is
kept alive) and *exact steps* (for the first r steps after the first, each draft's own token runs beside the
superposed row, in one batch). `distinct=False, exact_steps=0, mixing="geometric"` is the paper's method.

Knows ids and logits; nothing of text, files or widgets. Shapes: V vocabulary, D width, d drafts, m candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from core.errors import InputError
from core.models.base import LanguageModel, Row, Sequence
from core.ngram.interpolation import Geometric, Interpolation, Linear

LEAST = -103.0  # log-probability below which float32 knows no probability any more
GROUP = 64  # logits of which only the largest is looked at first
PROPOSALS = 3  # candidates per draft that a personal store may add to those of the model
MAJORITY = 0.5  # of the mixture's weight: what is read out of it is then mostly this draft's

Rule = Callable[[Tensor, Tensor], Tensor]  # (input_ids (1, n), logits (1, V)) -> logits (1, V), as in transformers


@dataclass(frozen=True)
class Drafts:
    """The drafts after one step, best first.

    Attributes:
        ids: token ids of each draft, without the prefix; an ended draft includes the token that ended it.
        logprobs: natural logarithm of each draft's score: Σ over its tokens, at τ, n-grams mixed in.
        beginnings: probability of each draft's first token.
        lineages: which beginning each draft grew from, 0 … k-1; a draft keeps its number while it grows.
        own: how many leading tokens of each draft rest on the draft itself: exact ones, then superposed ones for
            as long as the draft carries most of the mixture or the n-grams know its last three tokens. What
            follows was read out of a mixture that mostly belongs to other drafts.
        personal: for each draft and token, whether a personal store decided on it: without that store another token
            would stand there, or, for a first token, the draft would not.
        ended: whether each draft has met a stop token. Only with distinct beginnings: else see `finished`.
        finished: drafts that met a stop token and their scores, best first.
        step: 1 after the first token.
        done: nothing follows.
        how: for each draft and token, how it came and its LTS where it has one; [] without speculation.
        figures: what speculation came to, see `core.speculated.Figures`.
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


@dataclass
class _Draft:
    ids: list[int]
    logprob: float
    beginning: float
    lineage: int
    own: int = 1
    personal: list[bool] = field(default_factory=list)  # one per token
    ended: bool = False
    sequence: Sequence | None = field(default=None, repr=False)  # its own, during exact steps


@dataclass(frozen=True)
class Options:
    """How drafts are made; the defaults are the product's. See `superpose` for what each one means."""

    k: int = 3
    length: int = 10
    ngrams: Any = None
    alpha: float | None = None
    tau: float = 1.0
    candidates: int | None = None
    penalty: float = 200.0
    rule: Rule | None = None
    distinct: bool = True
    exact_steps: int = 1
    mixing: Literal["linear", "geometric"] = "linear"
    stop_ids: frozenset[int] | None = None
    first_ids: np.ndarray | None = None
    reset_every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("k", 1), ("length", 1), ("exact_steps", 0)):
            if getattr(self, name) < low:
                raise InputError(f"{name} {getattr(self, name)} given; at least {low} expected.")
        if not self.tau > 0:
            raise InputError(f"tau {self.tau} given; a temperature above 0 expected.")
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


class Superposition:
    """The drafts of one prefix while they grow, without the model: `rows` says what the next pass needs,
    `advance` takes its logits. So the passes of many prefixes can be joined into one.

    Where a word is half typed, drafts may begin at several places inside it: after `prefix_ids` and the first n of
    `word_ids`, with a token of `starts[n]`. The likeliest beginnings of all places are taken.

    `sequence` holds `prefix_ids` and those of `word_ids` whose logits come first; after `close` it holds nothing
    but tokens of the two.
    """

    def __init__(
        self,
        sequence: Sequence,
        prefix_ids: list[int],
        options: Options,
        word_ids: Iterable[int] = (),
        starts: list[np.ndarray] | None = None,
    ) -> None:
        self.options = options
        self._sequence, self._prefix = sequence, list(prefix_ids)
        self._word = list(word_ids)
        self._starts = starts if starts or options.first_ids is None else [np.asarray(options.first_ids)]
        self._floor = len(prefix_ids)  # positions that stay
        self._m = options.candidates or 3 * options.k
        self._ngrams = options.interpolation()
        eos = sequence.model.tokenizer.eos_ids
        self._stop = eos if options.stop_ids is None else options.stop_ids
        self._drafts: list[_Draft] = []  # alive, best first
        self._finished: list[_Draft] = []
        self._stem = _Draft([], 0.0, 1.0, 0)  # what a reset has settled on
        self._since_reset = 0
        self._random = np.random.default_rng(options.seed)
        self._step = 0
        self.done = False

    def advance(self, logits: list[Tensor]) -> Drafts:
        """One step: logits (V,) of each of `rows()`; at the very start those after the prefix, then after each of the
        first tokens of the word, as many as are known."""
        o = self.options
        if not self._drafts:
            self._begin(logits)
        else:
            # Exact rows follow the superposed row, if there is one, in the order of the drafts.
            exact = sum(draft.sequence is not None for draft in self._drafts)
            self._grow(logits[len(logits) - exact :] if exact else logits, shared=not exact)
        self._step += 1
        self._since_reset += 1
        alive = [draft for draft in self._drafts if not draft.ended]
        self.done = self._step >= o.length or not alive
        drafts = self._snapshot()
        if not self.done and o.reset_every and self._since_reset == o.reset_every:
            self._reset(alive)
        if self.done:
            self.close()
        return drafts

    def rows(self) -> list[Row]:
        """What the next pass needs: the superposed row, and during exact steps one row per draft."""
        if self.done:
            return []
        if not self._drafts:  # just reset: the settled draft's own tokens
            return [Row(self._sequence, self._prefix[self._sequence.length :])]
        alive = [draft for draft in self._drafts if not draft.ended]
        rows = []
        exact = self._since_reset <= self.options.exact_steps
        if self._since_reset < self.options.length and self.options.exact_steps < self.options.length - 1:
            rows.append(Row(self._sequence, self._superpose(alive), silent=exact))
        if exact:
            self._give_sequences(alive)
            rows += [Row(d.sequence, d.ids[-1:]) for d in alive if d.sequence is not None]
        else:
            self._close_sequences()
        return rows

    def close(self) -> None:
        """Stop here: drop what is no real token from the cache. Safe at any step, and twice."""
        self.done = True
        self._close_sequences()
        if self._sequence.length > self._floor:
            self._sequence.rewind(self._floor)

    def _superpose(self, alive: list[_Draft]) -> Tensor:
        """The mixed embedding (1, D) of the drafts' latest tokens (eqs. 3-4)."""
        gamma = _normalised(np.array([draft.logprob for draft in alive]))  # p_i / Σ p_j, eq. 4
        z = self._sequence.model.embeddings.numpy()[[draft.ids[-1] for draft in alive]]  # (d, D)
        return torch.from_numpy(gamma.astype(np.float32)[None] @ z)  # eq. 3

    def _begin(self, logits: list[Tensor]) -> None:
        """The first token: the best k beginnings, each a draft of its own (eq. 1)."""
        o = self.options
        found = self._beginnings(logits)
        by_others = sorted(found, key=lambda f: -f[2])[: o.k]  # what would be chosen without personal stores
        anyway = {tuple(ids) for ids, _, _ in by_others}
        for ids, score, _ in found if o.distinct else found[: 2 * o.k]:
            personal = [False] * (len(ids) - 1) + [tuple(ids) not in anyway]
            draft = _Draft(ids, score, float(np.exp(score)), len(self._drafts), own=len(ids), personal=personal)
            if ids[-1] in self._stop and not o.distinct:
                self._finish(draft)
            elif len(self._drafts) < o.k:
                draft.ended = ids[-1] in self._stop
                if draft.ended:
                    self._finish(draft)
                self._drafts.append(draft)
        if len(logits) > 1:  # beginnings at several places: each draft's own sequence stands at its own
            prefix = len(self._prefix)
            for draft in self._drafts if o.exact_steps else []:
                draft.sequence = self._sequence.fork()
                draft.sequence.rewind(prefix + len(draft.ids) - 1)
            # The superposed row goes on from where the best draft begins.
            self._floor = prefix + (len(self._drafts[0].ids) - 1 if self._drafts else 0)
            self._sequence.rewind(self._floor)

    def _beginnings(self, logits: list[Tensor]) -> list[tuple[list[int], float, float]]:
        """Tokens after the prefix, their scores, and what those would be without personal stores; best first."""
        if self._starts is None or self._stem.ids:
            candidates, logq = self._candidates(logits[0], [self._prefix])
            scores, without = (s[0].tolist() for s in self._mix(logq[None], [self._prefix], candidates))
            found = [([token], s, w) for token, s, w in zip(candidates.tolist(), scores, without, strict=True)]
            return sorted((f for f in found if np.isfinite(f[1])), key=lambda f: -f[1])
        path, total = 0.0, 0.0  # log-probability of the word's tokens so far; probability of all beginnings
        places: list[list[tuple[list[int], float, float]]] = []
        for n, (after, allowed) in enumerate(zip(logits, self._starts, strict=False)):
            stem = self._word[:n]
            candidates, logq, mass = self._candidates_among(after, self._prefix + stem, allowed)
            onward = self._word[n : n + 1] if n + 1 < len(logits) else []
            weighed = np.append(logq, [_logprob(after, token, self.options.tau) for token in onward])
            tokens = np.append(candidates, onward).astype(np.int64)
            scores, without = (s[0] for s in self._mix(weighed[None], [self._prefix + stem], tokens))
            m = len(candidates)
            places.append(
                [
                    ([*stem, int(token)], path + float(score), path + float(other))
                    for token, score, other in zip(candidates, scores[:m], without[:m], strict=True)
                ]
            )
            total += np.exp(path) * max(mass + float(np.exp(scores[:m]).sum() - np.exp(logq).sum()), 0.0)
            path += float(scores[m]) if onward else 0.0
        if not self.options.distinct:  # the paper's drafts have one history: the likeliest place is theirs
            places = [max(places, key=lambda place: sum(np.exp(score) for _, score, _ in place))]
        pieces = self._sequence.model.tokenizer.pieces
        best: dict[bytes, tuple[list[int], float, float]] = {}
        for ids, score, other in (beginning for place in places for beginning in place):
            text = b"".join(pieces[i] for i in ids)  # the same text at two places is one draft
            if np.isfinite(score) and (text not in best or score > best[text][1]):
                best[text] = ids, score, other
        share = float(np.log(total)) if total > 0 else 0.0
        return sorted(((ids, s - share, w - share) for ids, s, w in best.values()), key=lambda f: -f[1])

    def _grow(self, logits: list[Tensor], shared: bool) -> None:
        """One more token: d × m hypotheses (eq. 2), of which k are kept."""
        o = self.options
        alive = [draft for draft in self._drafts if not draft.ended]
        contexts = [self._prefix + draft.ids for draft in alive]
        if shared:
            candidates, logq = self._candidates(logits[0], contexts)
            scores, without = self._mix(np.repeat(logq[None], len(alive), 0), contexts, candidates)
            table = np.repeat(candidates[None], len(alive), 0)
        else:
            pairs = [self._candidates(x, [c]) for x, c in zip(logits, contexts, strict=True)]
            table, logq = _stacked(pairs)
            scores, without = self._mix(logq, contexts, table)
            if (empty := np.isneginf(logq)).any():
                scores, without = (np.where(empty, -np.inf, s) for s in (scores, without))
        standing = np.array([draft.logprob for draft in alive])
        gamma = _normalised(standing)
        totals = scores + standing[:, None]  # (d, m)
        if o.distinct:  # each lineage goes on with its own best token
            picks = list(enumerate(totals.argmax(1).tolist())) if totals.size else []
        else:  # the best 2k of all, so that k remain when some of them end
            flat = np.argsort(-totals, axis=None, kind="stable")[: 2 * o.k]
            picks = [divmod(int(i), totals.shape[1]) for i in flat]
        grown: list[_Draft] = []
        for d, c in picks:
            score = float(totals[d, c])
            if not np.isfinite(score):
                continue
            parent, token = alive[d], int(table[d, c])
            child = _Draft([*parent.ids, token], score, parent.beginning, parent.lineage, parent.own)
            # Only where each lineage takes its own best is there one token that would stand here otherwise.
            decided = o.distinct and int(np.argmax(without[d])) != c
            child.personal = [*parent.personal, decided]
            if parent.own == len(parent.ids) and (
                not shared or gamma[d] >= MAJORITY or self._known([*contexts[d][-2:], token])
            ):
                child.own += 1
            if token in self._stop:
                child.ended = True
                self._finish(child)
                if o.distinct:
                    grown.append(child)
            elif len(grown) < o.k:
                # A parent's own sequence goes to its first child; later children make theirs anew.
                child.sequence, parent.sequence = parent.sequence, None
                grown.append(child)
        if not grown:  # everything was ruled out: what stood stays, and the drafts end here
            for draft in alive:
                draft.ended = True
            return
        self._close_sequences()
        self._drafts = [draft for draft in self._drafts if draft.ended] + grown
        self._drafts.sort(key=lambda draft: -draft.logprob)

    def scored(self, logits: Tensor, context: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """What one draft may go on with after `context`: ids (m,), and log-probabilities with the n-grams mixed in."""
        candidates, logq = self._candidates(logits, [context])
        return candidates, self._mix(logq[None], [context], candidates)[0][0]

    def _candidates(self, logits: Tensor, contexts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """The m likeliest tokens at τ, best first, then what a personal store proposes after any of the contexts:
        ids (m,) and log-probabilities (m,)."""
        o = self.options
        if o.rule is not None:
            logits = o.rule(torch.tensor([contexts[0]]), logits[None])[0]
        x = logits.numpy()
        best = likeliest(x, self._m)
        if len(more := self._proposed(contexts, best)):
            best = np.append(best, more)
        # The paper's method shares its probability among the candidates; with distinct beginnings it stays the
        # model's own, so that n-grams can be mixed in and a beginning's probability means what it says.
        q = x[best].astype(np.float64) / o.tau - log_total(x, o.tau)
        keep = q > LEAST
        tokens, q = best[keep], q[keep]
        if not o.distinct and len(q):
            q = q - np.logaddexp.reduce(q)
        return tokens, q

    def _candidates_among(
        self, logits: Tensor, context: list[int], allowed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """The m likeliest of some tokens, then what of them a personal store proposes: ids (m,), log-probabilities (m,)
        among all tokens, and the probability of everything allowed. A rule crops what is allowed."""
        o = self.options
        if len(allowed) == 0:
            return allowed, np.zeros(0), 0.0
        some = logits.numpy()[allowed]
        mass = log_total(some, o.tau) - log_total(logits.numpy(), o.tau)
        if o.rule is not None:
            masked = torch.full_like(logits, -torch.inf)
            masked[torch.from_numpy(allowed)] = torch.from_numpy(some)
            some = o.rule(torch.tensor([context]), masked[None])[0].numpy()[allowed]
        best = likeliest(some, self._m)
        if len(more := self._proposed([context], allowed[best])):
            best = np.append(best, np.flatnonzero(np.isin(allowed, more)))
        q = some[best].astype(np.float64) / o.tau - log_total(some, o.tau) + mass
        keep = np.isfinite(q)
        return allowed[best[keep]], q[keep], float(np.exp(mass))

    def _proposed(self, contexts: list[list[int]], have: np.ndarray) -> np.ndarray:
        """What the n-grams propose after these contexts and is no candidate yet."""
        if self._ngrams is None:
            return np.zeros(0, dtype=np.int64)
        found = {i for ids in self._ngrams.proposals(contexts, PROPOSALS) for i in ids}
        return np.array(sorted(found - set(have.tolist())) if found else [], dtype=np.int64)

    def _mix(
        self, logq: np.ndarray, contexts: list[list[int]], candidates: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores (d, m) of the candidates: the model's, with each draft's n-grams mixed in (eqs. 5-7); and what they
        would be without personal stores, the same array where there are none."""
        return (logq, logq) if self._ngrams is None else self._ngrams.scores_without(logq, contexts, candidates)

    def _known(self, ids: list[int]) -> bool:
        return self._ngrams is not None and self._ngrams.knows(ids)

    def _finish(self, draft: _Draft) -> None:
        self._finished.append(draft)
        self._finished.sort(key=lambda d: -d.logprob)
        del self._finished[self.options.k :]

    def _snapshot(self) -> Drafts:
        stem = self._stem
        return Drafts(
            ids=[stem.ids + d.ids for d in self._drafts],
            logprobs=[stem.logprob + d.logprob for d in self._drafts],
            beginnings=[d.beginning for d in self._drafts],
            lineages=[d.lineage for d in self._drafts],
            own=[len(stem.ids) + d.own for d in self._drafts],
            personal=[stem.personal + d.personal for d in self._drafts],
            ended=[d.ended for d in self._drafts],
            finished=[(stem.ids + d.ids, stem.logprob + d.logprob) for d in self._finished],
            step=self._step,
            done=self.done,
        )

    def _reset(self, alive: list[_Draft]) -> None:
        """Section 5.3: one draft, drawn by its probability, becomes text, and drafts start anew from it."""
        weights = np.exp([d.logprob - max(x.logprob for x in alive) for d in alive])
        drawn = alive[self._random.choice(len(alive), p=weights / weights.sum())]
        self._close_sequences()
        self._sequence.rewind(len(self._prefix))
        self._prefix += drawn.ids
        self._stem = _Draft(
            self._stem.ids + drawn.ids,
            self._stem.logprob + drawn.logprob,
            drawn.beginning,
            0,
            personal=self._stem.personal + drawn.personal,
        )
        self._drafts, self._since_reset = [], 0

    def _give_sequences(self, alive: list[_Draft]) -> None:
        for draft in alive:
            if draft.sequence is None:
                base = self._sequence.fork()
                base.rewind(len(self._prefix))
                if len(draft.ids) > 1:  # a second child of one parent: its path so far, again
                    base.feed(draft.ids[:-1])
                draft.sequence = base

    def _close_sequences(self) -> None:
        for draft in self._drafts:
            if draft.sequence is not None:
                draft.sequence.close()
            draft.sequence = None


def _normalised(logprobs: np.ndarray) -> np.ndarray:
    return np.exp(logprobs - np.logaddexp.reduce(logprobs))


# NumPy and one thread for what is done once per step: torch's second thread would wait for a core on which one of
# llama.cpp's still spins.


def log_total(logits: np.ndarray, tau: float) -> float:
    """Logarithm of the normaliser at τ."""
    x = logits / tau if tau != 1 else logits
    peak = x.max(initial=-np.inf)
    if not np.isfinite(peak):
        return float(peak)
    shifted = x - peak
    np.exp(shifted, out=shifted)
    return float(peak + np.log(shifted.sum()))


def likeliest(x: np.ndarray, m: int) -> np.ndarray:
    """Where the m largest are, largest first; equals in the order of their index.

    The m-th largest of some maxima of disjoint groups is a bound from below, which few elements reach.
    """
    m = min(m, len(x))
    groups = len(x) // GROUP
    if groups > m:
        maxima = x[: groups * GROUP].reshape(GROUP, groups).max(0)
        bound = np.partition(maxima, groups - m)[groups - m]
        found = np.flatnonzero(x >= bound)
    else:
        found = np.arange(len(x))
    return found[np.argsort(-x[found], kind="stable")[:m]]


def _logprob(logits: Tensor, token: int, tau: float) -> float:
    return float(logits[token]) / tau - log_total(logits.numpy(), tau)


def _stacked(rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Candidates and log-probabilities of d drafts as tables (d, m); a shorter row ends in places of no probability."""
    m = max(len(ids) for ids, _ in rows)
    table = np.zeros((len(rows), m), dtype=np.int64)
    logq = np.full((len(rows), m), -np.inf)
    for row, (ids, q) in enumerate(rows):
        table[row, : len(ids)], logq[row, : len(q)] = ids, q
    return table, logq


def superpose(
    model: LanguageModel,
    prefix_ids: list[int],
    k: int = 3,
    length: int = 10,
    *,
    sequence: Sequence | None = None,
    **options: Any,
) -> Generator[Drafts, None, None]:
    """Grow k drafts after `prefix_ids`; yields all of them after every step and may be stopped at any.

    Args:
        k, length: number of drafts, tokens per draft.
        sequence: one that may hold part of the prefix already; it holds the prefix, and nothing else, afterwards.
        ngrams: a store, several as [(store, factor), …], or an `Interpolation`; None for the model alone.
        mixing, alpha, penalty: how a store is mixed in: "linear" (ours) or "geometric" (eqs. 5-7, δ = e^-penalty).
        tau: temperature τ, divides the logits before everything else but `rule`.
        candidates: tokens considered per step, the same for all drafts; None means 3k, as the authors have it.
        rule: crops the logits, as a transformers LogitsProcessor.
        distinct: different first tokens, each lineage kept alive. False: the paper's top k of d × m.
        exact_steps: r steps after the first in which each draft's own token runs through the model as well.
        stop_ids: tokens that end a draft; None means the tokenizer's ends of text.
        first_ids: the only tokens a draft may begin with (token healing); probabilities are given that.
        reset_every, seed: section 5.3's resets every s steps; the draw is seeded.
    Raises: InputError for an empty prefix or a value out of range; ContextFull.
    """
    batch = [prefix_ids]
    for drafts in superpose_batch(
        model, batch, k, length, sequences=None if sequence is None else [sequence], **options
    ):
        yield drafts[0]


def superpose_batch(
    model: LanguageModel,
    prefixes: Iterable[list[int]],
    k: int = 3,
    length: int = 10,
    *,
    sequences: list[Sequence] | None = None,
    **options: Any,
) -> Iterator[list[Drafts]]:
    """`superpose` for several prefixes, all of them in one pass per step; yields the drafts of each."""
    return grown(model, prefixes, Options(k=k, length=length, **options), sequences)


def grown(
    model: LanguageModel,
    prefixes: Iterable[list[int]],
    options: Options,
    sequences: list[Sequence] | None = None,
    superposition: type[Superposition] = Superposition,
    step: Callable[[list[Row]], list[Tensor]] | None = None,
) -> Iterator[list[Drafts]]:
    """The drafts of each prefix, step by step.

    Args:
        superposition: what keeps the drafts of a prefix.
        step: what its rows are answered with after the first step; None is the model's pass.
    """
    prefixes = [list(prefix) for prefix in prefixes]
    if not all(prefixes):
        raise InputError("An empty prefix given; at least one token id expected.")
    own = sequences is None
    held: list[Sequence] = [model.open() for _ in prefixes] if sequences is None else sequences
    states: list[Superposition] = []
    try:
        known = [s.resume(ids) for s, ids in zip(held, prefixes, strict=True)]
        feeding = [Row(s, p[s.length :]) for s, p, x in zip(held, prefixes, known, strict=True) if x is None]
        fed = iter(model.forward(feeding) if feeding else [])
        first = [next(fed) if x is None else x for x in known]
        states = [superposition(s, ids, options) for s, ids in zip(held, prefixes, strict=True)]
        latest = [state.advance([x]) for state, x in zip(states, first, strict=True)]
        yield latest
        while any(not state.done for state in states):
            rows = [state.rows() for state in states]
            found = iter((step or model.forward)([row for part in rows for row in part]))
            latest = [
                state.advance([next(found) for _ in part]) if part else before
                for state, part, before in zip(states, rows, latest, strict=True)
            ]
            yield latest
    finally:
        for made in states:
            made.close()
        if own:
            for s in held:
                s.close()
