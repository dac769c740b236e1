"""The sampled mode: k independent samples from the tokens that the rule keeps, each in a separate row.

N-grams are not used: tokens are drawn from the model's distribution after the rule and τ. The noise of each token is a
hash of seed, draft, position in the text and token (Gumbel-max). So a slider changes a draft only from the first token
whose choice it affects, the first draft is the same for any k, and typing along a draft does not change it.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor

from core.drafting.boundaries import Boundaries
from core.drafting.candidates import crop_logits
from core.drafting.drafts import Draft, Drafts, Options, end_stopped
from core.drafting.driver import Drafting
from core.drafting.feeding import prepare_own_row
from core.models.base import Row, Sequence
from core.noise import SeededNoise


def sampled(
    logits: list[Tensor], sequence: Sequence, prefix_ids: list[int], options: Options, boundaries: Boundaries
) -> Drafting:
    """k drafts of `length` tokens each. The arguments are those of `core.superposed.superposed`."""
    drafts = first_draws(logits, prefix_ids, options, options.k, boundaries)
    try:
        step = yield from draws(drafts, sequence, prefix_ids, options, options.length)
        yield [], Drafts.of(drafts, step, done=True)
    finally:
        for draft in drafts:
            draft.close()


def first_draws(logits: list[Tensor], prefix: list[int], o: Options, n: int, boundaries: Boundaries) -> list[Draft]:
    """n drafts of one token each, at the most probable place of a half-typed word."""
    at = boundaries.likeliest(logits)
    stem = boundaries.word[:at]
    row = crop_logits(o, logits[at][None], [prefix + stem], boundaries.allowed(at))[0]
    drawn = [_drawn(row, SeededNoise(o.seed, i), len(prefix) + at) for i in range(n)]
    return [Draft.begun([*stem, draw[0]], draw[1], i, at) for i, draw in enumerate(drawn) if draw is not None]


def draws(
    drafts: list[Draft], sequence: Sequence, prefix: list[int], o: Options, tokens: int
) -> Generator[tuple[list[Row], Drafts], list[Tensor], int]:
    """Extends the list's drafts until each has `tokens` drawn tokens or has ended; yields them at each step, best
    first. Returns the number of steps; the sequences of the drafts stay open."""
    stop = o.stops(sequence.model)
    step = 1
    while (alive := end_stopped(drafts, stop)) and step < tokens:
        logits = yield [prepare_own_row(draft, sequence, prefix) for draft in alive], Drafts.of(drafts, step)
        step += 1
        contexts = [prefix + draft.ids for draft in alive]
        for draft, context, row in zip(alive, contexts, crop_logits(o, torch.stack(logits), contexts), strict=True):
            drawn = _drawn(row, SeededNoise(o.seed, draft.slot), len(context))
            if drawn is None:
                draft.ended = True
                continue
            child = draft.child(drawn[0], draft.logprob + drawn[1])
            child.sequence, draft.sequence = draft.sequence, None
            drafts[drafts.index(draft)] = child
    return step


def _drawn(row: Tensor, noise: SeededNoise, position: int) -> tuple[int, float] | None:
    """Draws a token from logits (V,). Returns it and its log-probability among the kept tokens, or None if none is
    kept."""
    x = row.double().numpy()
    kept = np.flatnonzero(x > -np.inf)
    if not len(kept):
        return None
    logq = x[kept] - np.logaddexp.reduce(x[kept])
    best = int(np.argmax(logq + noise.gumbel(position, kept)))
    return int(kept[best]), float(logq[best])
