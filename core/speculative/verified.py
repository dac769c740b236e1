"""Verified superposed drafts: drafts checked by a target in one tree pass, corrected where they stop being its own, and
superposed anew from there.

Superposed drafts drift: after a token or two they are no longer what the model would say after their own beginning. The
tree shares their common beginnings; a token is judged by the distribution after its own path, with the n-grams mixed
in by the rule that made the drafts. The target is the model that drafted, or a larger one with the same tokenizer.

`verify` looks, cuts and ranks. `refine` makes drafts better where they stand: which places are worth looking at, one
pass, the target's own token where one fails, a new superposed stretch from there, all of it in the order of the rows.

Shapes: V vocabulary, D width, m candidates, n tokens of a tree.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.controls import THETA
from core.drafting.candidates import PROPOSALS, likeliest, log_total
from core.drafting.drafts import Drafts
from core.errors import InputError
from core.models.base import LanguageModel, Row, Sequence
from core.ngram.interpolation import Interpolation
from core.speculative import arc
from core.speculative.acceptance import typical
from core.speculative.calibration import Calibration
from core.speculative.target import softmax
from core.speculative.tree import TokenTree
from core.superposed import superpose

NODES = 16  # tokens of the tree that `refine` has looked at


@dataclass(frozen=True)
class Judge:
    """What a target says next, n-grams included: its likeliest candidates, weighed again by the n-grams.

    Attributes:
        ngrams: as for drafting; None for the target alone.
        candidates: m, how many of the target's likeliest tokens the n-grams choose among.
    """

    ngrams: Interpolation | None = None
    candidates: int = 9

    def __call__(
        self, logits: list[Tensor], contexts: list[list[int]], tokens: list[int]
    ) -> list[tuple[int, float, float]]:
        """At each of some positions, given logits (V,), the text before it and a token in question: the token that
        comes next, its log-probability, and that of the token in question."""
        if not logits:
            return []
        listed = [likeliest(after.numpy(), self.candidates) for after in logits]
        if self.ngrams is not None:  # what personal stores propose
            more = self.ngrams.proposals(contexts, PROPOSALS)
            listed = [np.array(list(dict.fromkeys([*a.tolist(), *b]))) for a, b in zip(listed, more, strict=True)]
        widest = max(map(len, listed))
        ids = np.zeros((len(listed), widest + 1), dtype=np.int64)
        for row, found, token in zip(ids, listed, tokens, strict=True):
            row[: len(found)], row[len(found) : -1], row[-1] = found, found[0], token  # shorter ones say one twice
        scores = np.stack(
            [x.numpy()[row].astype(np.float64) - log_total(x.numpy(), 1.0) for x, row in zip(logits, ids, strict=True)]
        )
        if self.ngrams is not None:
            scores = self.ngrams.scores(scores, contexts, ids)
        best = scores[:, :-1].argmax(1)
        return [(int(ids[i, best[i]]), float(scores[i, best[i]]), float(scores[i, -1])) for i in range(len(listed))]


@dataclass(frozen=True)
class Verified:
    """One draft after it was checked.

    Attributes:
        origin: its place among the drafts that were given.
        ids: what stands of it, and the target's own token where it was cut.
        logprobs: ln p of each of these, under the target.
        stands: how many leading tokens are the draft's own.
        cut: whether a token of it failed.
    """

    origin: int
    ids: list[int]
    logprobs: list[float]
    stands: int
    cut: bool

    @property
    def score(self) -> float:
        """Mean ln p: drafts of different lengths compare."""
        return sum(self.logprobs) / max(len(self.logprobs), 1)


def verify(
    sequence: Sequence,
    prefix_ids: list[int],
    drafts: Ids[Ids[int]],
    *,
    calibration: Calibration | None = None,
    theta: float | None = THETA,
    correct: bool = True,
    judge: Judge | None = None,
) -> list[Verified]:
    """Check drafts after a text in one pass, likeliest first.

    Args:
        sequence: of the target; it may hold part of the text, and holds exactly the text afterwards.
        drafts: token ids, none of them empty.
        calibration: of the target: a token stands while LTS ≥ θ. None: while Medusa's typical acceptance passes it.
        theta: θ; None cuts nothing and only looks.
        correct: put the token that comes next in the target's place where a draft was cut.
        judge: what comes next, and how likely it is; None is the target alone. Its own token always stands.
    The first token of a draft is what makes it another draft: it always stands.

    Raises: InputError for an empty text or draft; CalibrationError; ContextFull.
    """
    if not prefix_ids or not all(drafts):
        raise InputError("An empty text or draft given; at least one token id in each expected.")
    model, judge = sequence.model, judge or Judge()
    if calibration is not None:
        calibration.check(model)
    looked = _look(sequence, prefix_ids, [list(ids) for ids in drafts], [len(ids) - 1 for ids in drafts])
    places = [(i, at) for i, ids in enumerate(drafts) for at in range(len(ids))]
    logits = [looked[tuple(drafts[i][:at])] for i, at in places]
    said = judge(logits, [[*prefix_ids, *drafts[i][:at]] for i, at in places], [int(drafts[i][at]) for i, at in places])
    judged = dict(zip(places, zip(logits, said, strict=True), strict=True))
    found = []
    for origin, ids in enumerate(drafts):
        kept, logprobs, cut = [], [], False
        for at, token in enumerate(map(int, ids)):
            after, (own, own_logprob, logprob) = judged[origin, at]
            if at and theta is not None and token != own and not _stands(after, model, token, calibration, theta, at):
                cut = True
                if correct:
                    kept.append(own)
                    logprobs.append(own_logprob)
                break
            kept.append(token)
            logprobs.append(logprob)
        found.append(Verified(origin, kept, logprobs, len(kept) - (cut and correct), cut))
    return sorted(found, key=lambda v: -v.score)


def _look(
    sequence: Sequence, prefix_ids: list[int], drafts: list[list[int]], deep: list[int]
) -> dict[tuple[int, ...], Tensor]:
    """One pass over the first `deep[i]` tokens of each draft, as a tree: logits (V,) after each beginning, and ()."""
    found: dict[tuple[int, ...], Tensor] = {(): sequence.sync(prefix_ids)}
    tree = TokenTree.of_paths([(int(token), 1.0) for token in ids[:n]] for ids, n in zip(drafts, deep, strict=True))
    if len(tree):
        after = sequence.feed_tree(tree.ids, tree.parents)
        sequence.keep([])
        for place in range(len(tree)):
            found[tuple(tree.ids[p] for p in tree.path(place))] = after[place]
    return found


def _stands(
    after: Tensor, model: LanguageModel, token: int, calibration: Calibration | None, theta: float, depth: int
) -> bool:
    p = softmax(after.numpy())
    if calibration is None:
        return token == int(p.argmax()) or typical(p, token)
    return arc.local_tolerance_score(p, model, calibration, token, depth) >= theta


# --- refining


@dataclass(frozen=True)
class Refined:
    """Drafts in the order of their rows, which stays.

    Attributes:
        ids: of each draft.
        logprobs: Σ ln p of each draft's tokens, as far as they are known: the target's where it looked, the drafter's
            elsewhere.
        sure: how many leading tokens of each are the target's own, n-grams mixed in.
        changed: the first token of each that is not what was shown before; its length where nothing is new.
        ranking: the rows by logprobs, best first, for those who do want to move them.
        checked: whether the target has looked at these drafts; False while they are superposed.
        looked: tokens of the tree that it was fed for it.
    """

    ids: list[list[int]]
    logprobs: list[float]
    sure: list[int]
    changed: list[int]
    checked: bool
    looked: int = 0

    @property
    def ranking(self) -> list[int]:
        return sorted(range(len(self.ids)), key=lambda row: -self.logprobs[row])


@dataclass
class _Row:
    """A draft while it is refined: its tokens, ln p of each, how many of them are sure, how many there are to be."""

    ids: list[int]
    logprobs: list[float]
    sure: int
    length: int
    shown: list[int] = field(default_factory=list)

    def reach(self, at: int) -> float:
        """How likely the text goes through token `at`."""
        return math.exp(min(sum(self.logprobs[: at + 1]), 0.0))


class Refinement:
    """One round, without the models: `rows` says what the next pass needs, `advance` takes its logits, so that it can
    share passes with others. First the tree, where anything is worth looking at; then the new stretch, if there is one.

    Attributes:
        done: nothing follows; `result` has the drafts.
        stop: tokens that end a draft.
    """

    def __init__(
        self,
        sequence: Sequence,
        prefix_ids: list[int],
        drafts: Drafts | Refined,
        length: int | None = None,
        *,
        target: Sequence | None = None,
        judge: Judge | None = None,
        nodes: int = NODES,
        sure: Ids[int] | None = None,
        calibration: Calibration | None = None,
        theta: float = THETA,
        stop_ids: frozenset[int] | None = None,
    ) -> None:
        """For the arguments see `refine`."""
        if not prefix_ids or not drafts.ids:
            raise InputError("An empty text or no drafts given; at least one token id and one draft expected.")
        self._sequence, self._checker = sequence, target or sequence
        if self._checker.model.tokenizer.fingerprint != sequence.model.tokenizer.fingerprint:
            raise InputError(
                f"{self._checker.model.name} and {sequence.model.name} have different tokenizers; a model that checks "
                "drafts must share theirs."
            )
        if calibration is not None:
            calibration.check(self._checker.model)
        self._prefix, self._judge = list(prefix_ids), judge or Judge()
        self._calibration, self._theta = calibration, theta
        self.stop = sequence.model.tokenizer.eos_ids if stop_ids is None else stop_ids
        for held in {id(s): s for s in (sequence, self._checker)}.values():
            held.rewind(held.common_prefix(self._prefix))
            if held.length < len(self._prefix):
                held.feed(self._prefix[held.length :])
        self._rows = _rows(drafts, length, sure)
        self._deep = _worth_looking(self._rows, nodes)
        self._tree = TokenTree.of_paths(
            [(token, 1.0) for token in row.ids[:n]] for row, n in zip(self._rows, self._deep, strict=True)
        )
        self._looking = len(self._tree) > 0
        self._at = 0  # the token that the stretch comes to next
        self.done = False
        if not self._looking:
            self._begin_stretch()

    def rows(self) -> list[Row]:
        """What the next pass of `rows()[0].sequence.model` needs; [] when done."""
        if self.done:
            return []
        if self._looking:
            return [Row(self._checker, self._tree.ids, parents=self._tree.parents)]
        held = self._sequence.length - len(self._prefix)  # mixtures of this stretch so far
        return [Row(self._sequence, torch.cat([self._mixture(at) for at in range(held, self._at)]))]

    def advance(self, logits: list[Tensor]) -> None:
        """Take the logits of `rows()`."""
        if self._looking:
            self._checker.keep([])
            self._looking = False
            self._check(logits[0])
            self._begin_stretch()
        else:
            self._grow(logits[0])

    def close(self) -> None:
        """Stop between any two passes: the sequence holds the text and nothing else."""
        self.done = True
        if self._sequence.length > len(self._prefix):
            self._sequence.rewind(len(self._prefix))

    @property
    def result(self) -> Refined:
        rows = self._rows
        return Refined(
            [list(row.ids) for row in rows],
            [sum(row.logprobs) for row in rows],
            [row.sure for row in rows],
            [_first_difference(row.ids, row.shown) for row in rows],
            True,
            len(self._tree),
        )

    def _check(self, after: Tensor) -> None:
        """What the target says at each place that it has looked at, (n, V)."""
        known = {tuple(self._tree.ids[p] for p in self._tree.path(place)): place for place in range(len(self._tree))}
        rows = self._rows
        ends = [min(n + 1, len(row.ids)) for row, n in zip(rows, self._deep, strict=True)]
        places = [(i, at) for i, row in enumerate(rows) for at in range(row.sure, ends[i])]
        logits = [after[known[tuple(rows[i].ids[:at])]] for i, at in places]
        contexts = [[*self._prefix, *rows[i].ids[:at]] for i, at in places]
        said = self._judge(logits, contexts, [rows[i].ids[at] for i, at in places])
        failed: set[int] = set()
        for (i, at), there, (own, own_logprob, logprob) in zip(places, logits, said, strict=True):
            row = rows[i]
            if i in failed:
                continue
            row.sure = at + 1
            if row.ids[at] == own or (
                self._calibration is not None
                and _stands(there, self._checker.model, row.ids[at], self._calibration, self._theta, at)
            ):
                row.logprobs[at] = logprob
                continue
            failed.add(i)
            row.ids[at:], row.logprobs[at:] = [own], [own_logprob]
        for row in rows:  # what stands after an end is not text
            if end := next((at + 1 for at, token in enumerate(row.ids) if token in self.stop), 0):
                del row.ids[end:], row.logprobs[end:]

    # One mixture of all rows at each position, their own tokens where they have some. Positions at which nobody needs
    # an answer share one pass.

    def _wanting(self) -> list[_Row]:
        return [row for row in self._rows if len(row.ids) < row.length and row.ids[-1] not in self.stop]

    def _begin_stretch(self) -> None:
        wanting = self._wanting()
        if not wanting:
            self.close()
            return
        self._at = min(len(row.ids) for row in wanting)

    def _grow(self, logits: Tensor) -> None:
        wanting = [row for row in self._wanting() if len(row.ids) == self._at]
        said = self._judge(
            [logits] * len(wanting),
            [[*self._prefix, *row.ids] for row in wanting],
            [row.ids[-1] for row in wanting],
        )
        for row, (token, logprob, _) in zip(wanting, said, strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
        self._begin_stretch()

    def _mixture(self, at: int) -> Tensor:
        """The mixed embedding (1, D) of the rows' tokens there (eqs. 3-4)."""
        some = [row for row in self._rows if len(row.ids) > at]
        standing = np.array([sum(row.logprobs[: at + 1]) for row in some])
        gamma = np.exp(standing - np.logaddexp.reduce(standing))
        z = self._sequence.model.embeddings.numpy()[[row.ids[at] for row in some]]
        return torch.from_numpy(gamma.astype(np.float32)[None] @ z)


class Refining:
    """A `Refinement` that speaks as what makes drafts does: `advance` returns `Drafts`, the old ones until done."""

    def __init__(self, drafts: Drafts, refinement: Refinement) -> None:
        self._drafts, self._refinement = drafts, refinement
        self.done = refinement.done

    @property
    def latest(self) -> Drafts:
        """The drafts now; rows in their order."""
        old = self._drafts
        if not self._refinement.done:
            return replace(old, done=False)
        new = self._refinement.result
        stop = self._refinement.stop
        return replace(
            old,
            ids=new.ids,
            logprobs=new.logprobs,
            own=[
                max(sure, min(own, changed)) for sure, own, changed in zip(new.sure, old.own, new.changed, strict=True)
            ],
            personal=[
                marks[:changed] + [False] * (len(ids) - changed)
                for ids, marks, changed in zip(new.ids, old.personal, new.changed, strict=True)
            ],
            ended=[ids[-1] in stop for ids in new.ids],
            finished=[(ids, p) for ids, p in zip(new.ids, new.logprobs, strict=True) if ids[-1] in stop],
            done=True,
        )

    def rows(self) -> list[Row]:
        return self._refinement.rows()

    def advance(self, logits: list[Tensor]) -> Drafts:
        self._refinement.advance(logits)
        self.done = self._refinement.done
        return self.latest

    def close(self) -> None:
        self.done = True
        self._refinement.close()


def refine(
    sequence: Sequence, prefix_ids: list[int], drafts: Drafts | Refined, length: int | None = None, **options: Any
) -> Refined:
    """One round: look where it is worth looking, put the target's own token where a draft fails, superpose anew.

    Args:
        sequence: of the model that drafts; it holds exactly the text afterwards.
        drafts: of `superpose`, or what the last round made of them. Rows keep their order.
        length: tokens that every draft has afterwards, unless it has ended; None: as many as it had.
        target: a sequence of the model that checks; None is the one that drafts.
        judge: what comes next.
        nodes: n, tokens of the tree at most. Those are looked at through which the text is likeliest to go.
        sure: leading tokens of each draft that need no look: the first, or the first r + 1 of exact ones. None: one.
        calibration, theta: of the target: a token that is not the judge's own stands all the same while LTS ≥ θ; None:
            it does not.
        stop_ids: tokens that end a draft; None for the tokenizer's.
    Raises: InputError for an empty text, models with different tokenizers; CalibrationError; ContextFull.
    """
    round_ = Refinement(sequence, prefix_ids, drafts, length, **options)
    try:
        while rows := round_.rows():
            round_.advance(rows[0].sequence.model.forward(rows))
    finally:
        round_.close()
    return round_.result


def verified(
    model: LanguageModel,
    prefix_ids: list[int],
    k: int = 3,
    length: int = 10,
    *,
    sequence: Sequence | None = None,
    target: Sequence | None = None,
    first: int | None = None,
    rounds: int = 1,
    nodes: int = NODES,
    calibration: Calibration | None = None,
    theta: float = THETA,
    **options: Any,
) -> Generator[Refined, None, None]:
    """Superposed drafts at once, refined a moment later: yields after every step of the first stretch, then after every
    round. Rows keep the order that the last step of the first stretch gave them.

    Args:
        k, length, options: as for `superpose`.
        sequence: one that may hold part of the text; it holds exactly the text afterwards.
        target: a sequence of the model that checks; None is `model`.
        first: tokens of the first stretch; None for `length`. Shorter ones are checked earlier, for less.
        rounds: how often they are checked. nodes, calibration, theta: see `refine`.
    Raises: as `superpose` and `refine`.
    """
    options = {"forks": 0, **options}  # the first stretch is short, and its drafts are checked anyway
    own = sequence is None
    held = model.open() if sequence is None else sequence
    ngrams, m = options.get("ngrams"), options.get("candidates") or 3 * k
    exact = options.get("exact_steps", 1)
    latest: Refined | None = None
    try:
        for drafts in superpose(model, prefix_ids, k, min(first or length, length), sequence=held, **options):
            sure = [min(exact + 1, len(ids)) for ids in drafts.ids]
            changed = [len(ids) - 1 for ids in drafts.ids]
            latest = Refined(drafts.ids, drafts.logprobs, sure, changed, False)
            if not drafts.done:
                yield latest
        assert latest is not None
        yield latest
        for _ in range(rounds):
            latest = refine(
                held,
                prefix_ids,
                latest,
                length,
                target=target,
                judge=Judge(ngrams, m),
                nodes=nodes,
                sure=latest.sure,
                calibration=calibration,
                theta=theta,
                stop_ids=options.get("stop_ids"),
            )
            yield latest
    finally:
        if own:
            held.close()


def _rows(drafts: Drafts | Refined, length: int | None, sure: Ids[int] | None) -> list[_Row]:
    """What is known of a draft's score, spread evenly over its tokens but the first."""
    rows = []
    for i, ids in enumerate(drafts.ids):
        total = min(drafts.logprobs[i], 0.0)
        first = math.log(max(drafts.beginnings[i], 1e-30)) if isinstance(drafts, Drafts) else total / len(ids)
        first = min(max(first, total), 0.0)
        later = (total - first) / max(len(ids) - 1, 1)
        logprobs = [first] + [later] * (len(ids) - 1)
        certain = max(1, min(sure[i] if sure else 1, len(ids)))
        rows.append(_Row(list(ids), logprobs, certain, length or len(ids), list(ids)))
    return rows


def _worth_looking(rows: list[_Row], nodes: int) -> list[int]:
    """How many leading tokens of each draft to feed, `nodes` in all: next the one that is likeliest to matter for each
    token that it takes. To judge token `at`, all before it are fed."""
    deep = [0] * len(rows)
    left = nodes
    while True:
        best, gain, costs = -1, 0.0, 0
        for i, row in enumerate(rows):
            at = max(deep[i] + 1, row.sure)  # the next token that would be judged
            cost = at - deep[i]
            if at < len(row.ids) and cost <= left and (worth := row.reach(at - 1) / cost) > gain:
                best, gain, costs = i, worth, cost
        if best < 0:
            return deep
        deep[best] += costs
        left -= costs


def _first_difference(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
