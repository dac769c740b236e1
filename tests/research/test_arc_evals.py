"""The bounds of ARC's tolerance against the divergence itself, and the agreement of continuations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_model import TableModel

from core.speculative import (
    Calibration,
    NgramDrafter,
    Statistics,
)
from core.speculative.calibration import Constants, fingerprint
from research.drafters import Arc
from research.evals import arc_risk
from research.evals.arc_agreement import rouge
from research.report import number_in

MODEL = TableModel(spread=3)
TEXT = [0, 1, 2]


def audited(calibration: Calibration, seeds: int) -> list[arc_risk.Audited]:
    return [proposal for seed in range(seeds) for proposal in one(calibration, seed).proposals]


def one(calibration: Calibration, seed: int = 0) -> arc_risk.AuditedText:
    lossless = Statistics(cycles=10, tokens=10)
    return arc_risk.audited(MODEL, Arc(calibration, {}), NgramDrafter(), TEXT * 3, seed, lossless)


def test_bounds_are_audited_against_the_divergence_itself() -> None:
    loose = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 1e12))
    tight = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e-9, 1e-9, 1e-3))
    for calibration, covered in ((loose, True), (tight, False)):
        found = audited(calibration, 6)
        others = [a for a in found if not a.best]
        assert others
        assert all(0 <= a.js <= math.log(2) + 1e-9 for a in found)
        assert all((a.js <= a.bound) == covered for a in others if a.js > 1e-6)
        said = arc_risk.summary(found)
        assert (said["not the most probable"], said["accepted"]) == (len(others), len(found))
        for which in ("", "all "):
            low, share, high = (number_in(said, which + name) for name in ("low", "covered", "high"))
            assert low <= share <= high + 1e-9
        assert number_in(said, "covered") <= number_in(said, "all covered"), "the most probable token cannot fail"


IDS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@given(IDS, IDS)
def test_rouge_is_of_the_longest_common_subsequence(one: list[int], other: list[int]) -> None:
    def longest(a: list[int], b: list[int]) -> int:
        if not a or not b:
            return 0
        if a[-1] == b[-1]:
            return 1 + longest(a[:-1], b[:-1])
        return max(longest(a[:-1], b), longest(a, b[:-1]))

    assert rouge(one, other) == pytest.approx(2 * longest(one, other) / (len(one) + len(other)))
    assert rouge(one, one) == 1
    assert rouge(one, []) == 0
