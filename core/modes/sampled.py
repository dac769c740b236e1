"""The sampled mode: k independent samples from the tokens that the rule keeps, each in a separate row.

N-grams are not used: tokens are drawn from the model's distribution after the rule and τ. The noise of each token is a
hash of seed, draft, position in the text and token (Gumbel-max). So a slider changes a draft only from the first token
whose choice it affects, the first draft is the same for any k, and typing along a draft does not change it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import numpy as np
import torch
from torch import Tensor

from core.drafting.boundaries import Boundaries
from core.drafting.candidates import crop_logits
from core.drafting.drafts import Draft, Drafts, Options, end_stopped
from core.drafting.driver import Drafting
from core.drafting.feeding import prepare_own_row
from core.drafting.record import Record
from core.models.base import Row, Sequence
from core.noise import SeededNoise


def sampled(
    logits: list[Tensor],
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    boundaries: Boundaries,
    record: Record | None = None,
) -> Drafting:
    """k drafts of `length` tokens each. The arguments are those of `core.superposed.superposed`."""
    drafts = first_draws(logits, prefix_ids, options, options.k, boundaries, record)
    try:
        step = yield from draws(drafts, sequence, prefix_ids, options, options.length, record)
        yield [], Drafts.of(drafts, step, done=True)
    finally:
        for draft in drafts:
            draft.close()


def first_draws(
    logits: list[Tensor],
    prefix: list[int],
    o: Options,
    n: int,
    boundaries: Boundaries,
    record: Record | None = None,
) -> list[Draft]:
    """n drafts of one token each, at the most probable place of a half-typed word."""
    at = boundaries.likeliest(logits)
    stem = boundaries.word[:at]
    contexts = [prefix + stem] * n
    if o.stepped_back is None or not o.stepped_back.apart:
        rows = crop_logits(o, logits[at][None], contexts[:1], boundaries.allowed(at)).expand(n, -1)
    else:
        rows = crop_logits(o, logits[at].expand(n, -1), contexts, boundaries.allowed(at), range(n))
    drawn = [_drawn(row, noise_of(o, i), len(prefix) + at) for i, row in enumerate(rows)]
    if record is not None:
        _record(record, o, contexts, [logits[at]] * n, rows, drawn)
    return [Draft.begun([*stem, draw[0]], draw[1], i, at) for i, draw in enumerate(drawn) if draw is not None]


def draws(
    drafts: list[Draft],
    sequence: Sequence,
    prefix: list[int],
    o: Options,
    tokens: int,
    record: Record | None = None,
) -> Generator[tuple[list[Row], Drafts], list[Tensor], int]:
    """Extends the list's drafts until each has `tokens` drawn tokens or has ended; yields them at each step, best
    first. Returns the number of steps; the sequences of the drafts stay open."""
    stop = o.stops(sequence.model)
    step = 1
    while (alive := end_stopped(drafts, stop)) and step < tokens:
        logits = yield [prepare_own_row(draft, sequence, prefix) for draft in alive], Drafts.of(drafts, step)
        step += 1
        contexts = [prefix + draft.ids for draft in alive]
        rows = crop_logits(o, torch.stack(logits), contexts, slots=[draft.slot for draft in alive])
        drawn = [
            _drawn(row, noise_of(o, draft.slot), len(context))
            for draft, context, row in zip(alive, contexts, rows, strict=True)
        ]
        if record is not None:
            _record(record, o, contexts, logits, rows, drawn)
        for draft, draw in zip(alive, drawn, strict=True):
            if draw is None:
                draft.ended = True
                continue
            child = draft.child(draw[0], draft.logprob + draw[1])
            child.sequence, draft.sequence = draft.sequence, None
            drafts[drafts.index(draft)] = child
    return step


def _record(
    record: Record,
    o: Options,
    contexts: list[list[int]],
    logits: list[Tensor],
    rows: Iterable[Tensor],
    drawn: list[tuple[int, float] | None],
) -> None:
    """Records the draws after each context, from logits (V,) and what the rule left of them."""
    for context, x, row, draw in zip(contexts, logits, rows, drawn, strict=True):
        if draw is not None:
            record.see(context, x, None if o.rule is None else row)
            record.choose(context, *draw)
    record.end_pass()


def noise_of(o: Options, slot: int) -> SeededNoise:
    """The noise with which the draft in a slot is drawn."""
    return SeededNoise(o.seed, slot) if o.stepped_back is None else o.stepped_back.noise(o.seed, slot)


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
