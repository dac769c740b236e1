"""Verified drafts: a target checks drafts in one tree pass, cuts each where a token fails, and ranks them.

The tree shares the common beginnings of the drafts. A token is judged by the distribution after its own path, with the
n-grams mixed in by the rule that made the drafts. The target is the model that drafted, or a larger one with the same
tokenizer. `core.drafting.checked` corrects drafts and superposes them anew from there.

Shapes: V vocabulary, m candidates.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from core.controls import THETA
from core.drafting.candidates import PROPOSALS, likeliest, log_total
from core.errors import InputError
from core.models.base import LanguageModel, Sequence
from core.ngram.interpolation import Interpolation
from core.speculative import arc
from core.speculative.acceptance import typical
from core.speculative.calibration import Calibration
from core.speculative.target import softmax
from core.speculative.tree import TokenTree


@dataclass(frozen=True)
class Judge:
    """Computes the next token of a target, n-grams included: the n-grams rescore the target's likeliest candidates.

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
        if self.ngrams is not None:  # personal stores propose candidates
            more = self.ngrams.proposals(contexts, PROPOSALS)
            listed = [np.array(list(dict.fromkeys([*a.tolist(), *b]))) for a, b in zip(listed, more, strict=True)]
        widest = max(map(len, listed))
        ids = np.zeros((len(listed), widest + 1), dtype=np.int64)
        for row, found, token in zip(ids, listed, tokens, strict=True):
            row[: len(found)], row[len(found) : -1], row[-1] = found, found[0], token  # shorter ones repeat their first
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
        ids: the tokens that stand, and the target's own token where it was cut.
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
        judge: computes the next token and its probability; None is the target alone. Its own token always stands.
    The first token of a draft always stands: it makes the draft another one.

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
    contexts = [[*prefix_ids, *drafts[i][:at]] for i, at in places]
    after = judge(logits, contexts, [int(drafts[i][at]) for i, at in places])
    judged = dict(zip(places, zip(logits, after, strict=True), strict=True))
    found = []
    for origin, ids in enumerate(drafts):
        kept, logprobs, cut = [], [], False
        for at, token in enumerate(map(int, ids)):
            after, (own, own_logprob, logprob) = judged[origin, at]
            if at and theta is not None and token != own and not stands(after, model, token, calibration, theta, at):
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


def stands(
    after: Tensor, model: LanguageModel, token: int, calibration: Calibration | None, theta: float, depth: int
) -> bool:
    """Whether the target accepts a token at a depth, given its logits (V,) there: LTS ≥ θ with a calibration, Medusa's
    typical acceptance without one."""
    p = softmax(after.numpy())
    if calibration is None:
        return token == int(p.argmax()) or typical(p, token)
    return arc.local_tolerance_score(p, model, calibration, token, depth) >= theta
