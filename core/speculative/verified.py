"""Verified superposed drafts: all drafts checked by a target in one tree pass, re-ranked by what the target says of
them, and cut where they stop being its own.

Superposed drafts drift: after a token or two they are no longer what the model would say after their own beginning. The
tree shares their common beginnings; a token is judged by the distribution after its own path. The target is the model
that drafted, or a larger one with the same tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np

from core.errors import InputError
from core.models.base import LanguageModel, Sequence
from core.speculative import arc
from core.speculative.acceptance import typical
from core.speculative.calibration import Calibration
from core.speculative.target import Choice
from core.speculative.tree import TokenTree

THETA = 0.3


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
) -> list[Verified]:
    """Check drafts after a text in one pass, likeliest first.

    Args:
        sequence: of the target; it may hold part of the text, and holds exactly the text afterwards.
        drafts: token ids, none of them empty.
        calibration: of the target: a token stands while LTS ≥ θ. None: while Medusa's typical acceptance passes it.
        theta: θ; None cuts nothing and only looks.
        correct: put the target's likeliest token where a draft was cut.
    The first token of a draft is what makes it another draft: it always stands.

    Raises: InputError for an empty text or draft; CalibrationError; ContextFull.
    """
    if not prefix_ids or not all(drafts):
        raise InputError("An empty text or draft given; at least one token id in each expected.")
    model = sequence.model
    if calibration is not None:
        calibration.check(model)
    tree = TokenTree.of_paths([(int(token), 1.0) for token in ids] for ids in drafts)
    first = sequence.sync(prefix_ids)
    # What follows a draft's last token decides nothing: leaves are not fed.
    inner = sorted(set(tree.parents) - {-1})
    fed = tree.only(inner)
    place = {old: new for new, old in enumerate(inner)}
    logits = sequence.feed_tree(fed.ids, fed.parents) if inner else None
    if inner:
        sequence.keep([])
    choice = Choice(1.0)
    known: dict[int, np.ndarray] = {}

    def after(at: int) -> np.ndarray:
        if at not in known:
            x = first if at < 0 else logits[place[at]]  # pyright: ignore[reportOptionalSubscript]
            known[at] = choice.probabilities(x, prefix_ids)
        return known[at]

    children = tree.children()
    found = []
    for origin, ids in enumerate(drafts):
        at, kept, logprobs, cut = -1, [], [], False
        for depth, token in enumerate(ids):
            p = after(at)
            if depth and theta is not None and not _stands(p, model, int(token), calibration, theta, depth):
                cut = True
                if correct:
                    own = int(p.argmax())
                    kept.append(own)
                    logprobs.append(_log(p[own]))
                break
            kept.append(int(token))
            logprobs.append(_log(p[token]))
            at = next(child for child in children[at] if tree.ids[child] == token)
        found.append(Verified(origin, kept, logprobs, len(kept) - (cut and correct), cut))
    return sorted(found, key=lambda v: -v.score)


def _stands(
    p: np.ndarray, model: LanguageModel, token: int, calibration: Calibration | None, theta: float, depth: int
) -> bool:
    if calibration is None:
        return token == int(p.argmax()) or typical(p, token)
    return arc.local_tolerance_score(p, model.embeddings, calibration, token, depth) >= theta


def _log(p: float) -> float:
    return math.log(max(float(p), 1e-300))
