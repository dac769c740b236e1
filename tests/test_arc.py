"""ARC-Decode: pruning, the two bounds, LTS, calibration; and the tolerant rules beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import TableModel

from core.errors import InputError
from core.speculative import Calibration, CalibrationError, NgramDrafter, TokenTree, generate
from core.speculative import acceptance as rules
from core.speculative.arc import Pruning, confidence, kept, local_tolerance_score, normalised_entropy, risk
from core.speculative.calibration import (
    Bucket,
    Constants,
    Sample,
    calibrate,
    collect,
    corrected_level,
    fingerprint,
    fit,
    wilson,
)
from core.speculative.cost import CostCurve, Estimates, best_size, cost_curve, measure

MODEL = TableModel()


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    n = draw(st.integers(1, 14))
    parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    return TokenTree(list(range(n)), parents, [draw(st.floats(0.001, 1)) for _ in range(n)])


# --- trees


@given(trees(), st.data())
def test_a_part_of_a_tree_is_a_tree(tree: TokenTree, data: st.DataObject) -> None:
    places = set()
    for place in data.draw(st.lists(st.integers(0, len(tree) - 1))):
        places |= set(tree.path(place))
    part = tree.only(places)
    assert part.ids == [tree.ids[p] for p in sorted(places)]
    for new, old in enumerate(sorted(places)):
        assert [part.ids[p] for p in part.path(new)] == [tree.ids[p] for p in tree.path(old)]
    if places and (inner := {tree.parents[p] for p in places} - {-1}):
        with pytest.raises(InputError, match="parent"):
            tree.only(places - {min(inner)})


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=5))
def test_paths_are_joined_where_they_begin_alike(paths: list[list[int]]) -> None:
    tree = TokenTree.of_paths([(t, 0.5) for t in path] for path in paths)
    found = {tuple(tree.ids[p] for p in tree.path(place)) for place in range(len(tree))}
    assert found == {tuple(path[:n]) for path in paths for n in range(1, len(path) + 1)}
    assert len(found) == len(tree)


# --- pruning (eqs. 1-4)


@given(trees(), st.floats(0, 1), st.floats(0, 3), st.floats(0, 0.9), st.floats(1, 5))
def test_pruning_keeps_paths_whole_and_each_depths_mass(
    tree: TokenTree, h: float, lam: float, epsilon: float, leaf: float
) -> None:
    places = set(kept(tree, h, Pruning(lam, epsilon, leaf)))
    children = tree.children()
    assert all(tree.parents[p] in places | {-1} for p in places)  # prefix closure
    for parent, below in children.items():  # nobody who stays loses all children
        if parent < 0 or parent in places:
            assert places & set(below)
            assert max(below, key=lambda p: confidence(tree, h, lam)[p]) in places or leaf > 1
    if leaf == 1 and set(range(len(tree))) - places:
        score = confidence(tree, h, lam)
        for depth in set(tree.depths):
            at = [p for p in range(len(tree)) if tree.depths[p] == depth and tree.parents[p] in places | {-1}]
            if all(tree.parents[p] in places | {-1} for p in range(len(tree)) if tree.depths[p] == depth):
                assert sum(score[p] for p in at if p in places) >= (1 - epsilon) * sum(score[p] for p in at) * (
                    1 - 1e-9
                )


def test_pruning_by_hand() -> None:
    #        0 .6        1 .3     2 .1
    #      3 .9  4 .05   5 .5
    tree = TokenTree(list(range(6)), [-1, -1, -1, 0, 0, 1], [0.6, 0.3, 0.1, 0.9, 0.05, 0.5])
    assert kept(tree, 0.0, Pruning(epsilon=0.1)) == [0, 1, 3, 5]  # 2 is the tenth that may go; 4: .03 of .72
    assert kept(tree, 0.0, Pruning(epsilon=0.0)) == list(range(6))
    assert kept(tree, 0.0, Pruning(epsilon=0.3)) == [0, 1, 3, 5]  # 5 is under θ, but 1 would lose all its children
    assert confidence(tree, 0.5, 2.0)[3] == pytest.approx(0.54 * np.exp(-1))


# --- bounds and LTS (eqs. 10, 13-15)


def made(c_s: float = 0.01, alpha_kappa: float = 0.1, tau: float = 0.05, **about) -> Calibration:
    return Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(c_s, alpha_kappa, tau), **about)


def test_lts_by_hand() -> None:
    p = np.array([0.6, 0.3, 0.1, 0.0, 0.0, 0.0])
    e = MODEL.embeddings.double().numpy()
    distance = ((e[1] - e[0]) ** 2).sum()
    margin = np.log(2) ** 2
    assert risk(p, MODEL.embeddings, made(), 1) == pytest.approx(min(0.01 * distance, 0.1 * margin))
    assert risk(p, MODEL.embeddings, made(c_s=9), 1) == pytest.approx(0.1 * margin)
    assert risk(p, MODEL.embeddings, made(alpha_kappa=9), 1) == pytest.approx(0.01 * distance)
    score = local_tolerance_score(p, MODEL.embeddings, made(c_s=9), 1)
    assert score == pytest.approx(1 - 0.1 * margin / 0.05)
    assert local_tolerance_score(p, MODEL.embeddings, made(), 0) == 1


def test_whitening_scales_each_dimension() -> None:
    p = np.array([0.6, 0.3, 0.1, 0.0, 0.0, 0.0])
    wide = Calibration(fingerprint(MODEL), "table", np.array([2.0, 0, 0, 0]), Constants(1, 1e9, 1))
    difference = float(MODEL.embeddings[1, 0] - MODEL.embeddings[0, 0])
    assert risk(p, MODEL.embeddings, wide, 1) == pytest.approx((2 * difference) ** 2, rel=1e-5)


def test_the_finest_bucket_that_fits_counts() -> None:
    fine, deep = Constants(1, 1, 1), Constants(2, 2, 2)
    calibration = made(buckets=[Bucket(0.5, 3, fine), Bucket(0.5, 1000, deep)])
    assert calibration.constants(0.2, 0) is fine
    assert calibration.constants(0.2, 3) is deep
    assert calibration.constants(0.7, 0) is calibration.overall


def test_embeddings_that_are_not_tied_to_the_output_are_the_input_ones() -> None:
    """The table's logits have nothing to do with its embeddings: the bound follows the latter."""
    near = TableModel()
    near.embeddings = near.embeddings.clone()
    near.embeddings[1] = near.embeddings[0]
    p = np.array([0.6, 0.3, 0.1, 0.0, 0.0, 0.0])
    assert risk(p, near.embeddings, made(), 1) == 0
    assert risk(p, near.embeddings, made(), 2) > 0


# --- calibration (Algorithm 1)


def samples(n: int, seed: int = 0) -> list[Sample]:
    random = np.random.default_rng(seed)
    return [
        Sample(
            *(float(x) for x in random.exponential((0.05, 2.0, 1.0))), float(random.random()), int(random.integers(6))
        )
        for _ in range(n)
    ]


@settings(deadline=None)
@given(st.integers(20, 300), st.sampled_from([0.05, 0.1, 0.3]))
def test_each_bound_covers_its_share_of_what_it_was_fitted_to(n: int, delta: float) -> None:
    some = samples(n, n)
    c = fit(some, delta)
    for bound in ([c.c_s * s.emb for s in some], [c.alpha_kappa * s.logit for s in some]):
        assert sum(s.js <= u * (1 + 1e-9) for s, u in zip(some, bound, strict=True)) >= (1 - delta) * n
    corrected = fit(some, delta, corrected=True)
    u = [min(corrected.c_s * s.emb, corrected.alpha_kappa * s.logit) for s in some]
    hits = sum(s.js <= bound * (1 + 1e-9) for s, bound in zip(some, u, strict=True))
    assert wilson(hits, n)[0] >= 1 - delta or hits == n


def test_wilson() -> None:
    low, high = wilson(95, 100)
    assert (round(low, 4), round(high, 4)) == (0.8882, 0.9785)
    assert wilson(0, 0) == (0, 1)
    assert corrected_level(1000, 0.05) > 0.96
    assert corrected_level(10, 0.05) == 1


def test_a_model_is_calibrated_on_its_own_continuations() -> None:
    found = collect(MODEL, [[0, 1], [2, 3], [4, 5]], per_prompt=10, candidates=4)
    assert len(found) == 30
    assert all(0 <= s.js <= np.log(2) + 1e-9 and s.emb > 0 and s.logit >= 0 for s in found)
    calibration = calibrate(MODEL, found, prompts=3, buckets=0)
    assert calibration.check(MODEL).overall.tau > 0
    with pytest.raises(InputError, match="samples"):
        fit(found[:5])


def test_a_calibration_is_refused_for_another_model(tmp_path: Path) -> None:
    calibration = made()
    with pytest.raises(CalibrationError, match="calibrate"):
        calibration.check(TableModel(seed=3))
    with pytest.raises(CalibrationError, match="made for table"):
        generate(TableModel(seed=3), NgramDrafter(), [0, 1], "arc", calibration=calibration)


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    calibration = calibrate(MODEL, samples(800), prompts=7, buckets=2)
    assert len(calibration.buckets) == 4
    calibration.save(tmp_path / "c.json")
    again = Calibration.load(tmp_path / "c.json")
    assert again.overall == calibration.overall
    assert again.buckets == calibration.buckets
    assert np.allclose(again.whitening, calibration.whitening, atol=1e-5)
    assert again.check(MODEL).prompts == 7


@pytest.mark.parametrize(
    "damage",
    [
        lambda said: "not json",
        lambda said: "[]",
        lambda said: json.dumps(said | {"version": 9}),
        lambda said: json.dumps(said | {"format": "other"}),
        lambda said: json.dumps({k: v for k, v in said.items() if k != "overall"}),
        lambda said: json.dumps(said | {"overall": {"c_s": -1, "alpha_kappa": 1, "tau": 1}}),
        lambda said: json.dumps(said | {"overall": {"c_s": "x", "alpha_kappa": 1, "tau": 1}}),
        lambda said: json.dumps(said | {"whitening": [[1, 2]]}),
        lambda said: json.dumps(said | {"whitening": "wide"}),
        lambda said: json.dumps(said | {"buckets": [{"entropy": 1}]}),
        lambda said: json.dumps(said).replace('"tau": ', '"tau": NaN, "_": ', 1),
    ],
)
def test_damaged_calibration_files_are_named(tmp_path: Path, damage) -> None:
    file = tmp_path / "c.json"
    made().save(file)
    file.write_text(damage(json.loads(file.read_text())))
    with pytest.raises(CalibrationError, match="calibrate"):
        Calibration.load(file)


def test_a_missing_calibration_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="polydraft calibrate"):
        Calibration.load(tmp_path / "none.json")


# --- tolerant rules in the loop


def test_typical_by_hand() -> None:
    flat = np.full(1000, 1e-3)
    assert rules.typical(flat, 3)  # H = ln 1000: δ·exp(-H) = 0.0003
    sure = np.array([0.95, 0.05])
    assert not rules.typical(sure, 1)  # 0.09 is less than 0.3·exp(-0.2)
    assert rules.typical(sure, 0)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda w: sum(w) > 0.1))
def test_divergence_is_that_of_jensen_and_shannon(weights: list[float]) -> None:
    p, q = np.array(weights) / sum(weights), np.array([0.25] * 4)
    js = rules.jensen_shannon(p, q)
    assert 0 <= js <= np.log(2) + 1e-12
    assert js == pytest.approx(rules.entropy((p + q) / 2) - (rules.entropy(p) + rules.entropy(q)) / 2, abs=1e-9)
    assert rules.fuzzy(p, p, 0)


@pytest.mark.parametrize("tolerance", ["lts", "typical", "fsd", "none"])
def test_tolerance_lets_more_stand_and_never_what_the_rule_dropped(tolerance: str) -> None:
    from core.samplers import TopK

    rule = TopK(3)
    lossless = generate(MODEL, NgramDrafter(), [0, 1, 2], length=300, rule=rule, tree_size=6)
    list(lossless)
    arc = generate(
        MODEL,
        NgramDrafter(),
        [0, 1, 2],
        "arc",
        length=300,
        rule=rule,
        tree_size=6,
        tolerance=tolerance,
        threshold=0.5,
        calibration=made(tau=1.0),
        prune=False,
    )
    for at, token in enumerate(arc):
        assert rule(None, MODEL.after(arc.ids[: 3 + at])[None])[0, token.id].isfinite()
        assert (token.lts is not None) == (token.how == "tolerated" and tolerance == "lts")
        assert token.lts is None or token.lts >= 0.3
    if tolerance == "none":
        assert arc.statistics.tolerated == 0
    else:
        assert arc.statistics.tolerated > 0
        assert arc.statistics.accept_length > lossless.statistics.accept_length


def test_pruning_is_counted() -> None:
    arc = generate(MODEL, NgramDrafter(), [0, 1, 2] * 3, "arc", length=200, tree_size=6, tolerance="none", epsilon=0.3)
    list(arc)
    assert arc.statistics.pruned > 0


# --- cost


def test_a_curve_is_a_straight_line_between_its_points() -> None:
    curve = CostCurve((1, 3, 5), (10, 20, 30))
    assert [curve(n) for n in (1, 2, 4, 10)] == [10, 15, 25, 60]
    for sizes, ms in (((), ()), ((2,), (1,)), ((1, 1), (1, 1)), ((1,), (0,)), ((1, 2), (1,)), ((1,), (float("nan"),))):
        with pytest.raises(InputError, match="curve"):
            CostCurve(sizes, ms)  # type: ignore[arg-type]


def test_a_curve_is_measured_once_and_then_remembered(tmp_path: Path) -> None:
    fed = MODEL.tokens_fed
    first = cost_curve(MODEL, tmp_path)
    assert MODEL.tokens_fed > fed
    fed = MODEL.tokens_fed
    assert cost_curve(MODEL, tmp_path)(16) == pytest.approx(first(16), abs=1e-3)
    assert MODEL.tokens_fed == fed
    (tmp_path / "costs.json").write_text("{}")
    cost_curve(MODEL, tmp_path)
    assert MODEL.tokens_fed > fed
    (tmp_path / "costs.json").write_text("damaged")
    cost_curve(MODEL, tmp_path)
    assert all(a <= b for a, b in zip(first.ms, first.ms[1:], strict=False))


def test_measuring_times_every_size_and_leaves_nothing_in_the_cache() -> None:
    ticks = iter(range(10_000))
    curve = measure(MODEL, sizes=(1, 2, 4), rounds=3, clock=lambda: next(ticks))
    assert curve.sizes == (1, 2, 4)
    assert curve.ms == (1000, 1000, 1000)


@given(trees(), st.floats(0.01, 2))
def test_the_chosen_size_has_the_most_expected_tokens_per_millisecond(tree: TokenTree, slope: float) -> None:
    def cost(n: int) -> float:
        return 1 + slope * (n - 1)

    chances = Estimates().chances(tree)
    places, rate = best_size(chances, cost, 32)
    tree.only(places)  # a tree
    best = max((1 + np.sort(chances)[::-1][:n].sum()) / cost(1 + n) for n in range(len(tree) + 1))
    assert rate == pytest.approx(best)
    assert rate == pytest.approx((1 + chances[places].sum()) / cost(1 + len(places)))


def test_estimates_learn_what_is_accepted() -> None:
    estimates = Estimates()
    before = estimates.chance(0.7, 0)
    for _ in range(300):
        estimates.note(0.7, 0, False)
    assert estimates.chance(0.7, 0) < 0.05 < before
    for _ in range(500):
        estimates.note(0.7, 0, True)
    assert estimates.chance(0.7, 0) > 0.8
    assert estimates.chance(0.7, 3) == before  # depth apart


def test_entropy_is_normalised() -> None:
    assert normalised_entropy(np.full(50, 0.02)) == pytest.approx(1)
    assert normalised_entropy(np.eye(50)[3]) == 0
    assert torch.tensor(normalised_entropy(np.array([0.5, 0.5, 0, 0]))) == pytest.approx(0.5)
