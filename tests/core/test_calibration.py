"""The maps from probabilities to shares that come true."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.calibration import FITTED, UNCHANGED, CutCalibration, Making, calibration_of, fitted, with_offset
from core.errors import InputError
from tests.shared_cases import cases


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_calibration_is_monotone_and_passes_its_points(a: float, b: float) -> None:
    points = ((0.0, 0.0), (0.25, 0.3), (0.5, 0.75), (1.0, 1.0))
    calibrated = CutCalibration(points)
    assert all(calibrated(x) == pytest.approx(y) for x, y in points)
    assert 0 <= calibrated(min(a, b)) <= calibrated(max(a, b)) <= 1
    assert CutCalibration()(a) == pytest.approx(a)


@given(st.floats(-40, 0, exclude_max=True), st.floats(-2, 2))
def test_an_offset_is_added_to_the_log_odds_and_taken_off_again(logprob: float, offset: float) -> None:
    moved = with_offset(logprob, offset)
    assert (moved > logprob) == (offset > 0) or abs(offset) < 1e-6 or moved == pytest.approx(logprob)
    assert with_offset(moved, -offset) == pytest.approx(logprob, rel=1e-6, abs=1e-9)
    assert [with_offset(fixed, offset) for fixed in (0.0, -math.inf)] == [0.0, -math.inf]


@pytest.mark.parametrize("case", cases("offsets"))
def test_an_offset_corrects_a_chance(case: dict[str, float]) -> None:
    chance = case["chance"]
    moved = with_offset(math.log(chance) if chance else -math.inf, case["offset"])
    assert math.exp(moved) == pytest.approx(case["corrected"])


@pytest.mark.parametrize("points", [((0, 0), (0.5, 0.6), (0.4, 0.7), (1, 1)), ((0.1, 0), (1, 1)), ((0, 0),)])
def test_points_that_do_not_ascend_are_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(InputError, match="ascending pairs from"):
        CutCalibration(points)


def test_what_is_fitted_gives_the_shares_that_came_true() -> None:
    chance = random.Random(1)
    cuts = [(p, chance.random() < p**0.5) for p in (chance.random() for _ in range(20_000))]
    calibrated = fitted(cuts)
    for p in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert calibrated(p) == pytest.approx(p**0.5, abs=0.03)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=400))
def test_whatever_is_fitted_ascends(cuts: list[tuple[float, bool]]) -> None:
    calibrated = fitted(cuts, least=5)
    assert (calibrated(0), calibrated(1)) == (0, pytest.approx(1))
    assert all(calibrated(n / 50) <= calibrated((n + 1) / 50) + 1e-12 for n in range(50))


def test_each_way_has_its_own_map_or_none() -> None:
    unknown = Making(inside=True, ngrams=False, mixed=True)
    assert all(calibration_of(way) is FITTED[way] for way in FITTED)
    assert unknown in FITTED or calibration_of(unknown) is UNCHANGED
