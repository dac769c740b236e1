"""Drafts that say the same count as one: another draft grows in the place of each twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.drafting.drafts import Draft, Drafts, Kept
from core.drafting.driver import Drafting
from core.drafting.twins import replace_twins

A, TWIN, B, OTHER = [1, 2], [1, 3], [4, 5], [6, 7]


def drafts_of(*listed: list[int], step: int = 2, done: bool = True) -> Drafts:
    return Drafts([Draft(ids, [-1.0] * len(ids), n) for n, ids in enumerate(listed)], step, done=done)


def running(*states: Drafts) -> Drafting:
    a_pass: list[Any] = [None]
    for state in states:
        yield [] if state is states[-1] else a_pass, state


def test_another_draft_grows_in_the_place_of_a_twin_and_a_shown_row_stays() -> None:
    for shown, expected in (([], [A, OTHER, B]), ([Kept(1, TWIN)], [OTHER, TWIN, B])):
        asked: list[tuple[int, list[list[int]]]] = []

        def again(n: int, kept: Sequence[Kept], asked: list[Any] = asked) -> Drafting:
            asked.append((n, [row.ids for row in kept]))
            begun = drafts_of(A, TWIN, B, OTHER[:1], step=1, done=False)
            return running(begun, drafts_of(A, TWIN, B, OTHER))

        steps = replace_twins(running(drafts_of(A, TWIN, B)), again, lambda one, other: one[0] == other[0], shown)
        _, begun = next(steps)
        rows, last = steps.send([])
        assert asked == [(1, [A, TWIN, B])]
        assert not begun.done and last.done and not rows
        assert {draft.slot: draft.ids for draft in last.drafts} == dict(enumerate(expected))
