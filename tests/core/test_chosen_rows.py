"""Rows that the writer began with a token of the panel: they stay, and grow to the full length."""

from __future__ import annotations

from typing import Any

import pytest

from core.ask import KeptRow
from core.autocomplete import Autocomplete
from core.present import TextDraft
from tests.completing import completed

TEXT = "Thank you for your"
UNLIKELY = " blue"
OPTIONS: dict[str, Any] = {"k": 3, "length": 8, "end_below": 0.3, "min_branch": 0.01, "merge_alike": True}


def rows(autocomplete: Autocomplete, *kept: KeptRow, **options: Any) -> dict[int, TextDraft]:
    return {row.id: row for row in completed(autocomplete, TEXT, kept=kept, **OPTIONS | options).drafts}


@pytest.mark.parametrize("forks", [0, 3])
def test_a_chosen_row_of_an_unlikely_token_stays_and_grows(autocomplete: Autocomplete, forks: int) -> None:
    drafts = rows(autocomplete, KeptRow(1, UNLIKELY, chosen=True), forks=forks)
    assert sorted(drafts) == [0, 1, 2]
    assert drafts[1].text.startswith(UNLIKELY)
    whole = len(drafts[1].path) == OPTIONS["length"] + 1
    assert drafts[1].finished or whole, "it does not end before an unlikely word"
    assert drafts[1].tail == "own"
    assert drafts[1].p_joint < 0.001


@pytest.mark.parametrize("forks", [0, 3])
def test_a_row_of_an_unlikely_token_that_nobody_chose_goes(autocomplete: Autocomplete, forks: int) -> None:
    drafts = rows(autocomplete, KeptRow(1, UNLIKELY), forks=forks)
    assert not any(draft.text.startswith(UNLIKELY) for draft in drafts.values())


def test_a_chosen_row_stays_beside_its_twin_which_makes_room(autocomplete: Autocomplete) -> None:
    """The writer chooses the beginning of a row that is there already."""
    shown = rows(autocomplete, end_below=0.0)
    begun = " ".join(shown[0].text.split(" ")[:2])
    kept = [KeptRow(0, shown[0].text), KeptRow(2, begun, chosen=True)]
    drafts = rows(autocomplete, *kept, end_below=0.0)
    assert drafts[2].text == shown[0].text
    assert len({draft.text for draft in drafts.values()}) == len(drafts) == 3


def test_the_other_rows_do_not_depend_on_a_chosen_one(autocomplete: Autocomplete) -> None:
    """It is in no mixture, so the best draft is the one without it."""
    plain, beside = rows(autocomplete), rows(autocomplete, KeptRow(2, UNLIKELY, chosen=True))
    assert beside[0].ids == plain[0].ids
