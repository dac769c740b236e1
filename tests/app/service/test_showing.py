"""Which rows an answer shows to a writer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from app.options.settings import DraftSettings
from app.service import showing
from app.service.requests import DraftRequest
from app.service.showing import Showing, chances_of, ink_of
from core.time_saved import END_BELOW, Costs, Cut, RowPath
from tests.fake_autocomplete import FakeAutocomplete
from tests.shared_cases import cases

ROWS = [RowPath(0, " the", (Cut(4, math.log(0.4)),)), RowPath(2, " nevertheless", (Cut(13, math.log(0.2)),))]


def decided(paths: list[RowPath], show: Showing, sure: float) -> dict[str, Any]:
    return showing.decided(paths, chances_of(paths, show), show, sure)


def test_the_rows_that_pay_and_the_ghost_are_sent_with_their_chances() -> None:
    found = decided(ROWS, Showing(), sure=0.3)
    worth = 0.2 * (13 * 157 - 700)
    assert found == {
        "pays": [{"id": 2, "text": " nevertheless", "chance": 0.2, "saved_ms": pytest.approx(worth, abs=0.1)}],
        "ghost": 2,
    }
    assert decided(ROWS[:1], Showing(), sure=0.3) == {"pays": [], "ghost": 0}
    assert decided([], Showing(), sure=0.3) == {"pays": [], "ghost": None}
    assert chances_of(ROWS, Showing()) == {0: 0.4, 2: 0.2}


def test_the_ghost_saves_most_of_the_rows_with_the_darkest_ink() -> None:
    dark, faint = RowPath(1, "ou", (Cut(2, math.log(0.51)),)), RowPath(3, " comprehensively", (Cut(16, math.log(0.1)),))
    assert decided([*ROWS, dark, faint], Showing(), sure=0.3)["ghost"] == 1  # saves nothing, and is likeliest by far
    assert decided([*ROWS, faint], Showing(), sure=0.3)["ghost"] == 2
    assert decided([ROWS[0], faint], Showing(), sure=0.3)["ghost"] == 0


@pytest.mark.parametrize("case", cases("inks"))
def test_the_ink_of_a_row_is_that_of_the_page(case: dict[str, Any]) -> None:
    assert ("faint", "grey", "dark")[ink_of(case["chance"])] == case["ink"]


def test_the_writers_own_offset_moves_every_probability_by_the_same_log_odds() -> None:
    """σ(logit .4 + ln 3) = 2/3 and σ(logit .2 + ln 3) = 3/7."""
    own = Showing(offset=math.log(3))
    assert chances_of(ROWS, own) == {0: 0.6667, 2: 0.4286}
    assert decided(ROWS[1:], own, sure=0.3)["pays"][0]["chance"] == 0.4286
    assert decided(ROWS, Showing(offset=-2), sure=0.3)["pays"] == []


def test_the_page_leaves_out_what_is_published_and_sends_any_offset_that_it_fits() -> None:
    assert Showing().costs == Costs()
    assert {Showing(offset=case["offset"]).offset for case in cases("offsets")} >= {-2.0, 2.0}


def test_the_surer_the_fewer_rows() -> None:
    assert decided(ROWS, Showing(), sure=0.9)["pays"] != []
    slow = Showing(key_ms=240, take_ms=400)
    assert [len(decided(ROWS, slow, sure)["pays"]) for sure in (0.3, 0.9)] == [2, 1]


def test_drafts_grow_farther_where_only_those_that_pay_are_shown() -> None:
    def end_below(show: Showing | None, chosen: float = 0.3) -> float:
        request = DraftRequest(tab="a", n=1, before="", settings=DraftSettings(end_below=chosen), show=show)
        return request.ask(FakeAutocomplete().real(), []).end_below

    assert end_below(None) == end_below(Showing()) == 0.3
    assert end_below(Showing(only=True)) == END_BELOW
    assert end_below(Showing(only=True), chosen=0.0) == 0
