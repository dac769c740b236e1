"""ARC-Decode: pruning, the two bounds, LTS, calibration; and the tolerant rules beside it."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import TableModel

from core.errors import InputError
from core.models.base import LanguageModel, Sequence, path_to
from core.samplers import Chain, MinP, Temperature, TopK
from core.samplers.greedy import Greedy
from core.speculative import (
    Calibration,
    CalibrationError,
    Drafter,
    Memory,
    ModelDrafter,
    NgramDrafter,
    SuffixDrafter,
    SuperposedDrafter,
    TargetSampling,
    TokenTree,
    generate,
)
from core.speculative import acceptance as rules
from core.speculative.arc import Pruning, kept, local_tolerance_score, risk
from core.speculative.budget import Budget, Estimates, best_size
from core.speculative.calibration import Bucket, Constants, exact_only, fingerprint, for_model, user_file
from core.speculative.drafters import Moment
from core.speculative.drafters.eagle3 import Eagle3Drafter
from core.speculative.options import SpeculationOptions
from tests.paths import ROOT
from training.calibration import Sample, calibrate, collect, corrected_level, fit_constants, wilson

MODEL = TableModel()


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    n = draw(st.integers(1, 14))
    parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    return TokenTree(list(range(n)), parents, [draw(st.floats(0.001, 1)) for _ in range(n)])


# --- trees


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=5))
def test_paths_are_joined_where_they_begin_alike(paths: list[list[int]]) -> None:
    tree = TokenTree.of_paths([(t, 0.5) for t in path] for path in paths)
    found = {tuple(tree.ids[p] for p in path_to(place, tree.parents)) for place in range(len(tree))}
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
            assert max(below, key=lambda p: tree.products()[p]) in places or leaf > 1
    if leaf == 1 and set(range(len(tree))) - places:
        score = tree.products()
        for depth in set(tree.depths):
            at = [p for p in range(len(tree)) if tree.depths[p] == depth and tree.parents[p] in places | {-1}]
            if all(tree.parents[p] in places | {-1} for p in range(len(tree)) if tree.depths[p] == depth):
                least = 1 - Pruning(lam, epsilon).share(depth, h)
                assert sum(score[p] for p in at if p in places) >= least * sum(score[p] for p in at) * (1 - 1e-9)


def test_pruning_by_hand() -> None:
    #        0 .6        1 .3     2 .1
    #      3 .9  4 .05   5 .5
    tree = TokenTree(list(range(6)), [-1, -1, -1, 0, 0, 1], [0.6, 0.3, 0.1, 0.9, 0.05, 0.5])
    assert kept(tree, 0.0, Pruning(epsilon=0.1)) == [0, 1, 3, 5]  # 2 is the tenth that may go; 4: .03 of .72
    assert kept(tree, 0.0, Pruning(epsilon=0.0)) == list(range(6))
    assert kept(tree, 0.0, Pruning(epsilon=0.3)) == [0, 1, 3, 5]  # 5 is under θ, but 1 would lose all its children


def test_uncertainty_prunes_more_the_deeper_a_token_is() -> None:
    """Ours: λ acts on ε_d. At depth 0, at λ = 0 and where the target is sure it changes nothing."""
    level = [0.5, 0.3, 0.2]
    tree = TokenTree(list(range(9)), [-1, -1, -1, 0, 0, 0, 3, 3, 3], level * 3)

    def at_each_depth(lam: float, h: float) -> list[int]:
        return [sum(tree.depths[p] == d for p in kept(tree, h, Pruning(lam, 0.05))) for d in range(3)]

    assert at_each_depth(0.0, 0.5) == at_each_depth(2.0, 0.0) == [3, 3, 3]
    assert at_each_depth(0.5, 0.5) == [3, 2, 2]
    assert at_each_depth(2.0, 0.5) == [3, 1, 1]
    assert Pruning(2.0, 0.05).share(1, 0.5) == pytest.approx(1 - 0.95 * math.exp(-1))


# --- bounds and LTS (eqs. 10, 13-15)


def made(c_s: float = 0.01, alpha_kappa: float = 0.1, tau: float = 0.05, **about) -> Calibration:
    return Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(c_s, alpha_kappa, tau), **about)


def test_lts_by_hand() -> None:
    """The table's logits have nothing to do with its embeddings: the bound follows the latter."""
    p = np.array([0.6, 0.3, 0.1, 0.0, 0.0, 0.0])
    difference = (MODEL.embeddings[1] - MODEL.embeddings[0]).double().numpy()
    distance, margin = (difference**2).sum(), np.log(2) ** 2
    assert risk(p, MODEL, made(), 1, 0).bound == pytest.approx(min(0.01 * distance, 0.1 * margin))
    assert risk(p, MODEL, made(c_s=9), 1, 0).bound == pytest.approx(0.1 * margin)
    assert risk(p, MODEL, made(alpha_kappa=9), 1, 0).bound == pytest.approx(0.01 * distance)
    assert local_tolerance_score(p, MODEL, made(c_s=9), 1, 0) == pytest.approx(1 - 0.1 * margin / 0.05)
    assert local_tolerance_score(p, MODEL, made(), 0, 0) == 1
    whitened = Calibration(fingerprint(MODEL), "table", np.array([2.0, 0, 0, 0]), Constants(1, 1e9, 1))
    assert risk(p, MODEL, whitened, 1, 0).bound == pytest.approx((2 * difference[0]) ** 2, rel=1e-5)
    assert risk(p, MODEL, made(alpha_kappa=np.inf), 1, 0).bound == pytest.approx(0.01 * distance)
    assert risk(p, MODEL, made(c_s=np.inf, alpha_kappa=np.inf), 1, 0).bound == np.inf


def test_the_finest_bucket_that_fits_counts() -> None:
    fine, deep = Constants(1, 1, 1), Constants(2, 2, 2)
    calibration = made(buckets=[Bucket(0.5, 3, fine), Bucket(0.5, 1000, deep)])
    assert calibration.constants(0.2, 0) is fine
    assert calibration.constants(0.2, 3) is deep
    assert calibration.constants(0.7, 0) is calibration.overall


# --- calibration (Algorithm 1)


def samples(n: int, seed: int = 0) -> list[Sample]:
    random = np.random.default_rng(seed)
    drawn = random.exponential((0.05, 2.0, 1.0), (n, 3)).tolist()
    return [Sample(js, emb, logit, float(random.random()), int(random.integers(6))) for js, emb, logit in drawn]


@given(st.integers(20, 300), st.sampled_from([0.05, 0.1, 0.3]))
def test_each_bound_covers_its_share_of_what_it_was_fitted_to(n: int, delta: float) -> None:
    some = samples(n, n)
    c = fit_constants(some, delta)
    for bound in ([c.c_s * s.emb for s in some], [c.alpha_kappa * s.logit for s in some]):
        assert sum(s.js <= u * (1 + 1e-9) for s, u in zip(some, bound, strict=True)) >= (1 - delta) * n
    corrected = fit_constants(some, delta, corrected=True)
    u = [min(corrected.c_s * s.emb, corrected.alpha_kappa * s.logit) for s in some]
    hits = sum(s.js <= bound * (1 + 1e-9) for s, bound in zip(some, u, strict=True))
    assert wilson(hits, n)[0] >= 1 - delta or hits == n


def test_wilson() -> None:
    low, high = wilson(95, 100)
    assert (round(low, 4), round(high, 4)) == (0.8882, 0.9785)
    assert wilson(0, 0) == (0, 1)
    assert corrected_level(1000, 0.05) > 0.96
    assert corrected_level(10, 0.05) == 1


def found_set(found: list[Sample]) -> set[tuple[float, ...]]:
    return {(round(s.js, 9), round(s.emb, 6), round(s.logit, 6), s.depth, s.drawn) for s in found}


def test_tokens_of_digits_and_control_tokens_are_in_no_pair() -> None:
    model = TableModel(vocabulary=8)
    model.tokenizer.pieces = [b"a", b"b", b" 4", b"", b"c", b"d", b"e", b"f"]
    model.tokenizer.special_ids = frozenset({4})
    assert exact_only(model.tokenizer) == {2, 3, 4}
    p = np.array([0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05])
    calibration = Calibration(fingerprint(model), "table", np.ones(4), Constants(1e-9, 1e-9, 1.0))
    assert local_tolerance_score(p, model, calibration, 1, 0) > 0.99
    for never in (2, 3, 4):
        assert local_tolerance_score(p, model, calibration, never, 0) == -math.inf
        assert local_tolerance_score(np.roll(p, never), model, calibration, never, 0) == 1  # the likeliest token itself
        assert local_tolerance_score(np.roll(p, never), model, calibration, 1, 0) == -math.inf


# What is accepted is what counts: constants that hold on the pairs that they let through.


def planted(n: int, seed: int = 0) -> list[Sample]:
    """Pairs of which one in five is near: those differ little, all others much, whatever the margin."""
    random = np.random.default_rng(seed)
    found = []
    for i in range(n):
        near = i % 5 == 0
        emb = random.uniform(50, 200) if near else random.uniform(600, 1800)
        js = min(random.exponential(0.03) if near else random.uniform(0.3, 0.69), 0.69)
        found.append(Sample(js, emb, float(random.exponential(4.0)), 0.3, i % 6, drawn=not near or i % 10 == 0))
    return found


def test_constants_hold_on_the_pairs_that_they_accept() -> None:
    fitted = calibrate(MODEL, planted(6000), budget=0.5, prompts=9)
    tau = 0.5 * np.log(2)
    fresh = planted(6000, seed=1)

    def bound(s: Sample) -> float:
        c = fitted.constants(s.entropy, s.depth, s.emb)
        return min(f * x for f, x in ((c.c_s, s.emb), (c.alpha_kappa, s.logit)) if np.isfinite(f))

    accepted = [s for s in fresh if bound(s) <= tau]
    assert len(accepted) > 400  # most of the near ones
    assert sum(s.js <= bound(s) for s in accepted) / len(accepted) >= 0.94
    assert fitted.overall.alpha_kappa == np.inf  # margins said nothing, and what they accepted was wrong
    paper = calibrate(MODEL, planted(6000), prompts=9).overall
    let_in = [s for s in fresh if min(paper.c_s * s.emb, paper.alpha_kappa * s.logit) <= tau]
    covered = sum(s.js <= min(paper.c_s * s.emb, paper.alpha_kappa * s.logit) for s in let_in)
    assert covered / len(let_in) < 0.9  # the paper's hold on all pairs, not on those that they accept


def test_a_margin_that_says_something_stays() -> None:
    random = np.random.default_rng(0)
    honest = [
        Sample(min(0.05 * m * random.uniform(0.5, 1), 0.69), float(random.uniform(900, 1100)), m, 0.3, 0)
        for m in random.exponential(4.0, 3000).tolist()
    ]
    assert np.isfinite(calibrate(MODEL, honest, budget=0.5).overall.alpha_kappa)


@pytest.mark.parametrize("budget", [0.0, 1.5, -1.0])
def test_a_budget_is_a_share_of_a_bit(budget: float) -> None:
    with pytest.raises(InputError, match="bit"):
        calibrate(MODEL, planted(600), budget=budget)


def test_a_model_is_calibrated_on_its_own_continuations() -> None:
    done: list[int] = []
    found = collect(MODEL, [[0, 1], [2, 3], [4, 5]], per_prompt=10, candidates=4, batch=2, progress=done.append)
    assert done == [2, 3]
    assert sum(s.drawn for s in found) == 30
    assert len(found) > 60
    alone = collect(MODEL, [[0, 1], [2, 3], [4, 5]], per_prompt=10, candidates=4, batch=1)
    assert found_set(alone) == found_set(found)  # who shares a pass changes nothing
    assert all(0 <= s.js <= np.log(2) + 1e-9 and s.emb > 0 and s.logit >= 0 for s in found)
    calibration = calibrate(MODEL, found, prompts=3, buckets=0)
    assert calibration.check(MODEL).overall.tau > 0
    with pytest.raises(InputError, match="samples"):
        fit_constants(found[:5])


class Proposing(Drafter):
    """Proposes every token of the vocabulary at each of so many levels."""

    name = "all"

    def __init__(self, levels: int, tokens: int) -> None:
        self.levels, self.tokens = levels, tokens

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        paths = itertools.product(range(self.tokens), repeat=min(self.levels, depth))
        return TokenTree.of_paths([[(token, 1.0) for token in path] for path in paths])


@pytest.mark.parametrize(("levels", "depths"), [(0, {0}), (1, {0}), (2, {0, 1, 2}), (3, {0, 2})])
def test_a_samples_depth_is_that_in_the_tree(levels: int, depths: set[int]) -> None:
    """With all tokens proposed, a tree of n levels is followed n times; every second position is sampled."""
    found = collect(MODEL, [[0, 1], [2, 3]], drafter=Proposing(levels, MODEL.vocab_size), per_prompt=10)
    assert {s.depth for s in found} == depths


def test_a_calibration_is_refused_for_another_model(tmp_path: Path) -> None:
    calibration = made()
    with pytest.raises(CalibrationError, match="calibrate"):
        calibration.check(TableModel(seed=3))
    with pytest.raises(CalibrationError, match="made for table"):
        generate(TableModel(seed=3), NgramDrafter(), [0, 1], "arc", calibration=calibration)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"temperature": 0.7},
            "at T = 0.7; its constants were measured at T = 1, and hold only there. Sample at T = 1, or",
        ),
        ({"temperature": 0.7}, "run `polydraft calibrate --temperature 0.7`"),
        ({"temperature": 0.5, "rule": Temperature(3.0)}, "at T = 1.5;"),
        ({"rule": Greedy()}, "with the rule greedy;"),
        ({"rule": Chain([Temperature(2.0), MinP(0.1), TopK(3)])}, "with the rule min-p, top-k; its constants were"),
        ({"rule": lambda ids, logits: logits}, "with the rule a rule of your own;"),
    ],
)
def test_arc_is_refused_where_its_constants_do_not_hold(options: dict[str, Any], said: str) -> None:
    """Assumption (iv): calibration and decoding have matched settings."""
    with pytest.raises(CalibrationError, match=re.escape(said)):
        generate(MODEL, NgramDrafter(), [0, 1, 2], "arc", tree_size=4, calibration=made(), **options)


def test_each_temperature_has_a_calibration_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: tmp_path)
    for temperature in (1.0, 0.7):
        file = user_file(MODEL, temperature)
        file.parent.mkdir(exist_ok=True)
        made(tau=temperature / 10, temperature=temperature).save(file)
    assert for_model(MODEL).overall.tau == pytest.approx(0.1)
    hot = TargetSampling(1.4, Temperature(0.5))
    assert for_model(MODEL, hot).overall.tau == pytest.approx(0.07)
    arc = generate(
        MODEL, NgramDrafter(), [0, 1], "arc", tree_size=4, calibration=for_model(MODEL, hot), temperature=0.7
    )
    assert len(list(arc)) == 64
    with pytest.raises(CalibrationError, match=r"not calibrated; run `polydraft calibrate --model … --temperature 2`"):
        for_model(MODEL, TargetSampling(2.0))


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    """A factor of ∞, of a side that is dropped, is null in the file."""
    calibration = calibrate(MODEL, samples(800), prompts=7, buckets=2)
    assert len(calibration.buckets) == 4
    dropped = made(alpha_kappa=np.inf, buckets=[Bucket(2.0, 9, Constants(0.1, np.inf, 0.3), 250.0)], prompts=7)
    for each in (calibration, dropped):
        each.save(tmp_path / "c.json")
        again = Calibration.load(tmp_path / "c.json")
        assert (again.overall, again.buckets) == (each.overall, each.buckets)
        assert np.allclose(again.whitening, each.whitening, atol=1e-5)
        assert again.check(MODEL).prompts == 7
    assert json.loads((tmp_path / "c.json").read_text())["overall"]["alpha_kappa"] is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda said: json.dumps(said | {"version": 9}),
        lambda said: json.dumps(said | {"format": "other"}),
        lambda said: json.dumps(said | {"overall": {"c_s": -1, "alpha_kappa": 1, "tau": 1}}),
        lambda said: json.dumps(said | {"whitening": [[1, 2]]}),
        lambda said: json.dumps(said | {"delta": 2}),
        lambda said: json.dumps(said).replace('"tau": ', '"tau": NaN, "_": ', 1),
    ],
    ids=[
        "another version",
        "another format",
        "a negative constant",
        "whitening of two dimensions",
        "a share above 1",
        "no number",
    ],
)
def test_damaged_calibration_files_are_named(tmp_path: Path, damage) -> None:
    file = tmp_path / "c.json"
    made().save(file)
    file.write_text(damage(json.loads(file.read_text())))
    with pytest.raises(CalibrationError, match="calibrate"):
        Calibration.load(file)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_a_calibration_file_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any one value replaced by anything, and files cut anywhere: no other error, and what is read can be used."""
    file = tmp_path_factory.getbasetemp() / "any.json"
    made(buckets=[Bucket(0.5, 3, Constants(1, np.inf, 1), 250.0)]).save(file)
    said = json.loads(file.read_text())
    at = said
    while isinstance(at, dict | list) and at:
        key = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans(), label="here"):
            at[key] = data.draw(anything)
            break
        at = at[key]
    text = json.dumps(said)
    file.write_text(text[: data.draw(st.integers(0, len(text)))] if data.draw(st.booleans(), label="cut") else text)
    try:
        read = Calibration.load(file)
    except CalibrationError as error:
        assert "calibrate" in str(error)
        return
    if len(read.whitening) == 4:
        score = local_tolerance_score(np.array([0.6, 0.3, 0.1, 0, 0, 0]), MODEL, read, 1, 0)
        assert score <= 1


# --- tolerant rules in the loop


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda w: sum(w) > 0.1))
def test_divergence_is_that_of_jensen_and_shannon(weights: list[float]) -> None:
    p, q = np.array(weights) / sum(weights), np.array([0.25] * 4)
    js = rules.jensen_shannon(p, q)
    assert 0 <= js <= np.log(2) + 1e-12
    assert js == pytest.approx(rules.entropy((p + q) / 2) - (rules.entropy(p) + rules.entropy(q)) / 2, abs=1e-9)


def the_first(
    tree: TokenTree, indices: list[int], p: np.ndarray, drawn: int, depth: int
) -> tuple[int | None, float | None]:
    """Accepts the first proposal that the target's rule keeps."""
    return next((which for which, node in enumerate(indices) if p[tree.ids[node]] > 0), None), None


@pytest.mark.parametrize("tolerance", ["lts", "none", the_first])
def test_tolerance_lets_more_stand_and_never_what_the_rule_dropped(tolerance: Any) -> None:
    rule = None if tolerance == "lts" else TopK(3)
    drafter = NgramDrafter()
    lossless = generate(MODEL, drafter, [0, 1, 2], length=120, rule=rule, tree_size=6)
    list(lossless)
    arc = generate(
        MODEL,
        drafter,
        [0, 1, 2],
        "arc",
        length=120,
        rule=rule,
        tree_size=6,
        tolerance=tolerance,
        calibration=made(tau=1.0),
        prune=False,
    )
    for at, token in enumerate(arc):
        assert rule is None or rule(None, MODEL.after(arc.ids[: 3 + at])[None])[0, token.id].isfinite()
        assert (token.lts is not None) == (token.how == "tolerated" and tolerance == "lts")
        assert token.lts is None or token.lts >= 0.3
    if tolerance == "none":
        assert arc.statistics.tolerated == 0
    else:
        assert arc.statistics.tolerated > 0
        assert arc.statistics.accept_length > lossless.statistics.accept_length


def test_pruning_goes_by_the_noise_of_the_samples_and_the_papers_does_not() -> None:
    """With the noise the third token is the most probable one, by the drafter's own distribution (ℓ of eq. 1) the
    first."""
    tree = TokenTree([0, 1, 2], [-1] * 3, [0.05, 0.05, 0.9], likelihood=[0.9, 0.06, 0.04])
    assert kept(tree, 0.0, Pruning(epsilon=0.1)) == [2]
    assert kept(tree, 0.0, Pruning(epsilon=0.1, noise=False)) == [0]
    assert tree.only([0, 2]).likelihood == [0.9, 0.04]


class Knowing(Drafter):
    """Has the target's own distribution, and knows the noise: its most probable token is always the one drawn."""

    name = "knowing"

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        assert moment.noise is not None
        logq = MODEL.after(moment.ids).log_softmax(0).numpy()
        noisy = logq + moment.noise.gumbel(len(moment.ids), np.arange(len(logq)))
        chance, ids = np.exp(noisy - np.logaddexp.reduce(noisy)), list(range(len(logq)))
        return TokenTree(ids, [-1] * len(ids), chance.tolist(), likelihood=np.exp(logq).tolist())


@pytest.mark.parametrize("epsilon", [0.05, 0.8])
def test_pruning_never_drops_the_token_that_a_knowing_drafter_sees_drawn(epsilon: float) -> None:
    def passes(**how: Any) -> int:
        options = {"length": 200, "tree_size": 6, "tolerance": "none", "epsilon": epsilon, **how}
        made = generate(MODEL, Knowing(), [0, 1, 2], "arc", **options)
        list(made)
        return made.statistics.cycles

    every = passes(prune=False)
    assert passes() == every
    assert passes(prune=lambda tree, p: kept(tree, 0.5, Pruning(0.0, epsilon, noise=False))) > every


# --- cost


def test_proposals_that_are_never_accepted_cost_half_a_percent_in_the_long_run() -> None:
    """Whatever the estimates are: the account of what was lost limits the passes with proposals."""
    memory, drafter = Memory(), NgramDrafter()
    budget = Budget(memory, lambda n: 1.0 + 0.1 * (n - 1), lambda: 1.0)
    for n in range(20_000):
        limits = budget.limits(drafter, 6, 32, 64 - n % 64, 1)
        fed = 1 + (limits is not None and limits[0] > 0 and limits[1] > 0)
        budget.account(1.0 + 0.1 * (fed - 1), 0.0, fed, 1, first=not n)
    assert 0 < memory.lost <= 0.005 * memory.tokens


@given(trees(), st.floats(0.01, 2))
def test_the_chosen_size_has_the_most_expected_tokens_per_millisecond(tree: TokenTree, slope: float) -> None:
    def cost(n: int) -> float:
        return 1 + slope * (n - 1)

    chances = Estimates().p_accepted(tree)
    places, rate = best_size(chances, cost, 32)
    tree.only(places)  # a tree
    best = max((1 + np.sort(chances)[::-1][:n].sum()) / cost(1 + n) for n in range(len(tree) + 1))
    assert rate == pytest.approx(best)
    assert rate == pytest.approx((1 + chances[places].sum()) / cost(1 + len(places)))


def test_the_documentation_names_arguments_that_exist() -> None:
    text = (ROOT / "docs" / "speculative.md").read_text(encoding="utf-8")
    known: list[Any] = [
        NgramDrafter,
        SuffixDrafter,
        ModelDrafter,
        SuperposedDrafter,
        Eagle3Drafter,
        Pruning,
        generate,
    ]
    known += [Sequence.feed_tree, Sequence.keep, LanguageModel.watch, Drafter.draft]
    named = re.findall(r"`[\w.]*?(\w+)\(([^`]*)\)(?: -> \w+)?`", text)
    assert len(named) >= len(known)
    for name, arguments in named:
        (callee,) = [each for each in known if each.__name__ == name]
        given = {part.partition("=")[0].strip() for part in arguments.split(",")} - {"…"}
        taken = inspect.signature(callee).parameters
        if callee is generate:
            taken = {*taken, *SpeculationOptions.__dataclass_fields__}
        assert given <= set(taken), f"{name}({arguments})"
