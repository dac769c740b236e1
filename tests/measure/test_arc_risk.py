"""`eval arc-risk`: bounds and the divergence itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from table_model import TableModel

from core.speculative import Calibration, CalibrationError, NgramDrafter, TargetSampling, Token
from core.speculative.calibration import Bucket, Constants, fingerprint
from core.speculative.generate import How
from measure.evals import arc_risk
from measure.options import EvalOptions

MODEL = TableModel(spread=3)
TEXT = [0, 1, 2]


def audited(calibration: Calibration, seeds: int) -> list[arc_risk.Audited]:
    every = (arc_risk.audited(MODEL, calibration, NgramDrafter(), TEXT * 3, seed) for seed in range(seeds))
    return [proposal for proposals, _ in every for proposal in proposals]


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
        assert said["accepted"] == len(found)
        assert said["low"] <= said["coverage"] <= said["high"] + 1e-9


def test_each_proposal_is_audited_with_the_constants_of_its_depth() -> None:
    """With `calibrate --buckets` constants differ by depth: 1 at the first token of a tree, 2 at the second, else 3."""
    by_depth = [Bucket(2.0, depth, Constants(1e9, 1e9, depth), 1e9) for depth in (1, 2)]
    calibration = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 3.0), by_depth)
    found = audited(calibration, 9)
    others = [a for a in found if not a.best]
    assert {0, 2} <= {a.depth for a in others}
    assert all(a.tolerance == min(a.depth + 1, 3) for a in others)


def test_bounds_are_audited_at_each_temperature_that_is_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(1e9, 1e9, 1e12), temperature=1.5)

    def calibrated(model: object, sampling: TargetSampling) -> Calibration:
        if sampling.overall_temperature != 1.5:
            raise CalibrationError(f"not at T = {sampling.overall_temperature:g}")
        return warm

    class Kept(TableModel):
        """Stays open, because other tests use it."""

        def close(self) -> None: ...

    for name, found in (
        ("load_model", Kept()),
        ("base_stores", []),
        ("chat_template", None),
        ("prompts", {"letters": [TEXT * 3]}),
    ):
        monkeypatch.setattr(arc_risk, name, lambda *_, found=found: found)
    monkeypatch.setattr(arc_risk, "for_model", calibrated)
    rows = arc_risk.measure(EvalOptions(), lambda _: None).rows
    assert [(row["T"], row.get("left out")) for row in rows] == [
        (0.5, "not at T = 0.5"),
        (1.0, "not at T = 1"),
        (1.5, None),
    ]
    assert rows[-1]["coverage"] == 1.0
    with pytest.raises(CalibrationError, match=r"at T = 0\.5"):
        arc_risk.audited(MODEL, warm, NgramDrafter(), TEXT, 0, temperature=0.5)


def test_the_depth_of_a_token_is_counted_from_the_pass_that_gave_it() -> None:
    hows: list[How] = ["plain", "accepted", "tolerated", "bonus", "corrected", "accepted", "corrected", "accepted"]
    tokens = [Token(0, how, 0.0) for how in hows]
    assert arc_risk.depths(tokens) == {1: 0, 2: 1, 5: 0, 7: 0}
