"""`eval arc-risk`: bounds and the divergence itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from table_model import TableModel

from core.speculative import Calibration, CalibrationError, NgramDrafter, Statistics, TargetSampling, Token
from core.speculative.calibration import Bucket, Constants, fingerprint
from core.speculative.cycles import How
from research import drafters
from research.drafters import Arc
from research.evals import arc_risk
from research.options import EvalOptions
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


def test_texts_beyond_the_tolerance_are_counted_beside_the_bound_of_corollary_ii() -> None:
    """A text counts once, however many of its tokens exceed τ_δ; a union bound over its positions covers it."""
    for tau, share in ((1e-12, 1.0), (math.log(2), 0.0)):
        constants = Constants(1e-30, 1e-30, tau)  # everything is near: all proposals are accepted
        calibration = Calibration(fingerprint(MODEL), "table", np.ones(4), constants, delta=0.01, positions=64)
        texts = [one(calibration, seed) for seed in range(4)]
        assert all(any(a.tolerated and a.js > 0 for a in text.proposals) for text in texts)
        found = arc_risk.row(calibration, texts)
        assert (found["texts"], found["texts beyond tau"]) == (4, share)
        assert found["corollary ii"] == pytest.approx(arc_risk.LENGTH / 64 * 0.01)
        apart = [text.statistics.accept_length - 1 for text in texts]
        assert found["to lossless"] == pytest.approx(sum(apart) / 4)


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

    def calibrated(_: object, sampling: TargetSampling) -> Calibration:
        if sampling.overall_temperature != 1.5:
            raise CalibrationError(f"not at T = {sampling.overall_temperature:g}")
        return warm

    for name, found in (
        ("load_model", MODEL),
        ("best_drafter", NgramDrafter()),
        ("base_stores", []),
        ("chat_template", None),
        ("prompts", {"letters": [TEXT * 3]}),
    ):
        monkeypatch.setattr(arc_risk, name, lambda *_, found=found: found)
    monkeypatch.setattr(drafters, "for_model", calibrated)
    monkeypatch.setattr(drafters, "published", lambda *at: {"as published": calibrated(*at)})
    rows = arc_risk.measure(EvalOptions(), lambda _: None).rows
    left_out = [(row["T"], row["left out"]) for row in rows if "left out" in row]
    assert left_out == [(0.5, "not at T = 0.5")] * 2 + [(1.0, "not at T = 1")] * 2
    measured = [row for row in rows if "left out" not in row]
    assert [(row["T"], row["method"]) for row in measured] == [(1.5, "ARC"), (1.5, "ARC as published")] * 2
    assert [row["prompts"] for row in measured] == ["letters", "letters", "all", "all"]
    assert all(row["covered"] == row["all covered"] == 1.0 for row in measured)
    assert len(arc_risk.measure(EvalOptions(temperatures="1.5"), lambda _: None).rows) == 4
    with pytest.raises(CalibrationError, match=r"at T = 0\.5"):
        arc_risk.audited(MODEL, Arc(warm, {}), NgramDrafter(), TEXT, 0, Statistics(), temperature=0.5)


def test_the_depth_of_a_token_is_counted_from_the_pass_that_gave_it() -> None:
    hows: list[How] = ["plain", "accepted", "tolerated", "bonus", "corrected", "accepted", "corrected", "accepted"]
    tokens = [Token(0, how, 0.0) for how in hows]
    assert arc_risk.depths(tokens) == {1: 0, 2: 1, 5: 0, 7: 0}
