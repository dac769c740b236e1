"""Drafts that say the same count as one: the free slot goes to another fork.

Which drafts say the same is only known once they are complete. So a second round begins at the same forks with all of
the drafts as kept rows, and finds as many others as there are twins. Its forks need no pass where their logits are
cached; the new drafts are grown as the first ones were.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import replace

from core.drafting.drafts import Draft, Drafts, Kept
from core.drafting.driver import Drafting, finish

Same = Callable[[list[int], list[int]], bool]  # whether two drafts, by their tokens, say the same
Again = Callable[[int, Ids[Kept]], Drafting]


def replace_twins(first: Drafting, again: Again, same: Same, kept: Ids[Kept]) -> Drafting:
    """Runs `first` to its end, then `again(n, rows)` for n further drafts beside rows, if n of the drafts are twins.

    Args:
        again: starts drafts of n more than the first ones, with all of these as kept rows.
        kept: rows that are twins only of one that the writer chose, because the page shows them already.
    """
    drafts = yield from finish(first)
    visible = {row.slot for row in kept}
    different: list[Draft] = []
    for draft in sorted(drafts.drafts, key=lambda draft: (not draft.chosen, draft.slot not in visible)):
        others = [other for other in different if other.chosen or draft.slot not in visible]
        if draft.chosen or not any(same(draft.ids, other.ids) for other in others):
            different.append(draft)
    twins = [draft.slot for draft in drafts.drafts if draft not in different]
    if not twins:
        yield [], drafts
        return
    # Of the tokens of a half-typed word, the probability is not known one by one.
    totals = {draft.slot: [draft.totals[0]] * draft.start + draft.totals for draft in drafts.drafts if draft.totals}
    known = [Kept(d.slot, d.ids, totals=totals[d.slot], chosen=d.chosen) for d in drafts.drafts if d.totals]
    beside = again(len(twins), known)
    found = yield from finish(beside, lambda found: _join(drafts, different, twins, found, done=False))
    yield [], _join(drafts, different, twins, found, done=True)


def _join(drafts: Drafts, different: list[Draft], twins: list[int], found: Drafts, done: bool) -> Drafts:
    """The first drafts without twins, and the found ones in the twins' slots."""
    had = [draft.ids for draft in drafts.drafts]
    new = [draft for draft in found.drafts if draft.ids not in had]
    others = [replace(draft, slot=slot, sequence=None) for draft, slot in zip(new, twins, strict=False)]
    step = drafts.step + found.step - 1
    return replace(drafts, drafts=[*(d for d in drafts.drafts if d in different), *others], step=step, done=done)
