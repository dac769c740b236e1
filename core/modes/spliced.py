"""Sampled + superposed (the paper's section 4.5, NS_SPD): n beginnings of a few sampled tokens, then k superposed
drafts on each.

All n·k drafts are returned, as in the paper. They are numbered by their scores at the first superposed step. The page
shows the first k of them, so no row appears or disappears while the user reads.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from core.drafting.boundaries import Boundaries
from core.drafting.drafts import Draft, Drafts, Options
from core.drafting.driver import Drafting, Driven, advance_all
from core.drafting.feeding import prepare_own_row
from core.drafting.record import Record
from core.models.base import Sequence
from core.modes.sampled import draws, first_draws
from core.superposed import superposed


def spliced(
    logits: list[Tensor],
    sequence: Sequence,
    prefix_ids: list[int],
    options: Options,
    boundaries: Boundaries,
    samples: int,
    sampled_tokens: int,
    record: Record | None = None,
) -> Drafting:
    """n·k drafts of `length` tokens each, fewer where a beginning has ended. The arguments are those of
    `core.superposed.superposed`, and:

    Args:
        samples: number of beginnings (n).
        sampled_tokens: sampled tokens of each (m).
    """
    o, prefix = options, list(prefix_ids)
    stems = first_draws(logits, prefix, o, samples, boundaries, record)
    running: dict[Draft, Driven[Drafts]] = {}  # the superposed drafts of each stem
    numbers: dict[tuple[Draft, int], int] = {}  # the row of (stem, lineage)

    def superposing(stem: Draft, sequence: Sequence, logits: Tensor) -> Drafting:
        rest = replace(o, length=o.length - sampled_tokens, first_ids=None, forks=0, reset_every=0)
        return superposed([logits], sequence, prefix + stem.ids, rest, record=record)

    def so_far(done: bool) -> Drafts:
        ended = [Draft([], [], 0, ended=True)]
        grown = [
            # By the paper's rule several drafts can have one lineage; they are numbered by their order instead.
            ((stem, draft.slot if o.distinct else n), replace(draft.after(stem), p_branch=stem.p_branch))
            for stem in stems
            for n, draft in enumerate(running[stem].latest.drafts if stem in running else ended)
        ]
        grown.sort(key=lambda numbered: -numbered[1].logprob)
        if not numbers:  # a beginning that was drawn twice has the same drafts, so its second ones come last
            again = [stem for n, stem in enumerate(stems) if any(stem.ids == other.ids for other in stems[:n])]
            numbers.update(
                {key: n for n, (key, _) in enumerate(sorted(grown, key=lambda numbered: numbered[0][0] in again))}
            )
        return Drafts([replace(draft, slot=numbers.setdefault(key, len(numbers))) for key, draft in grown], step, done)

    try:
        step = yield from draws(stems, sequence, prefix, o, min(sampled_tokens, o.length), record)
        alive = [stem for stem in stems if not stem.ended]
        if step == o.length or not alive:
            yield [], Drafts.of([replace(stem, slot=n) for n, stem in enumerate(stems)], step, done=True)
            return
        own_rows = [prepare_own_row(stem, sequence, prefix) for stem in alive]
        logits = yield own_rows, Drafts.of(stems, step)
        for stem, row, after in zip(alive, own_rows, logits, strict=True):
            running[stem] = Driven(superposing(stem, row.sequence, after))
        step += 1
        while rows := [row for part in running.values() for row in part.rows()]:
            logits = yield rows, so_far(done=False)
            advance_all(running.values(), logits)
            step += 1
        yield [], so_far(done=True)
    finally:
        for part in running.values():
            part.close()
        for stem in stems:
            stem.close()
