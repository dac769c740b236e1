"""The maps from probabilities to shares that come true."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from research.cut_calibration import CutCalibration, fitted


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_calibration_is_monotone_and_passes_its_points(a: float, b: float) -> None:
    points = ((0.0, 0.0), (0.25, 0.3), (0.5, 0.75), (1.0, 1.0))
    calibrated = CutCalibration(points)
    assert all(calibrated(x) == pytest.approx(y) for x, y in points)
    assert 0 <= calibrated(min(a, b)) <= calibrated(max(a, b)) <= 1
    assert CutCalibration()(a) == pytest.approx(a)


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
