"""`bench speculative`: rows, phases and costs of its report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table_model import TableModel

from core.errors import InputError
from core.speculative import (
    Calibration,
    Drafter,
    Memory,
    NgramDrafter,
    Statistics,
    SuperposedDrafter,
    TargetSampling,
    TokenTree,
    generate,
)
from core.speculative.calibration import Constants, fingerprint
from core.speculative.cost import CostCurve
from core.speculative.drafters import Moment
from research import drafters
from research.bench import speculative
from research.bench.speculative import BY_DEPTH, SpeculativeMethod, by_the_model, costs, off_cost, phases, row, table
from research.report import BenchOptions, number_in
from research.scores import half_interval, ratio_interval

MODEL = TableModel()


def test_the_table_has_the_best_weight_of_the_depth() -> None:
    def method(name: str, tokens: int) -> SpeculativeMethod:
        statistics = Statistics(cycles=10, tokens=tokens, seconds=1.0)
        return SpeculativeMethod(name, None, "arc", statistics={"some": [statistics]}, logprobs={"some": [0.0]})

    tried = [method(f"EAGLE-3, {BY_DEPTH}, α = {alpha}", tokens) for alpha, tokens in ((0.5, 14), (1, 17), (2, 16))]
    *rows, best = table(["some"], [method("plain", 10), *tried])
    assert len(rows) == 2 * 4
    assert best["method"] == f"EAGLE-3, {BY_DEPTH}, α = 1, the best α"
    assert best["accept_length"] == 1.7


def test_the_phases_of_a_cycle_share_the_whole_time() -> None:
    model = TableModel(seed=4)
    made = generate(model, SuperposedDrafter(model, 2), [1, 2, 3], length=12, tree_size=4)
    list(made)
    shares = phases([made.statistics])
    assert list(shares) == ["prefill_percent", "drafting_percent", "verification_percent", "rejection_percent"]
    assert sum(shares.values()) == pytest.approx(100)
    assert all(share > 0 for share in shares.values())


def test_a_row_has_the_share_of_verified_tokens_that_become_text() -> None:
    plain = SpeculativeMethod("plain", None, "off", statistics={"some": [Statistics(cycles=30, tokens=30, seconds=3)]})
    statistics = Statistics(cycles=10, tokens=25, proposed=40, seconds=1, drafting=0.002)
    found = row(
        "some", SpeculativeMethod("a", None, "lossless", {}, Memory(), {"some": [statistics]}, {"some": [0.0]}), plain
    )
    assert (found["accept_length"], found["proposals"], found["per_proposal"]) == (2.5, 4, 0.5)
    assert found["drafting_us"] == pytest.approx(200)


def test_what_slows_a_prompt_for_both_methods_is_no_doubt_about_the_speed_up() -> None:
    def method(*seconds: float) -> SpeculativeMethod:
        statistics = [Statistics(cycles=10, tokens=20, seconds=s) for s in seconds]
        return SpeculativeMethod("a", None, "lossless", statistics={"some": statistics}, logprobs={"some": [0.0]})

    plain = method(1.0, 2.0, 4.0)
    alike, apart = row("some", method(0.5, 1.0, 2.0), plain), row("some", method(2.0, 1.0, 0.5), plain)
    for found in (alike, apart):
        assert found["speed_up"] == pytest.approx(2)
        assert found["tokens_per_s_ci"] == pytest.approx(
            number_in(found, "tokens_per_s") * half_interval([3 / 7, 6 / 7, 12 / 7])  # seconds divided by their mean
        )
        assert found["accept_length_ci"] == pytest.approx(0)
    assert alike["speed_up_ci"] == pytest.approx(0, abs=1e-9)
    assert number_in(apart, "speed_up_ci") > number_in(apart, "tokens_per_s_ci") / 20
    assert row("some", plain, plain)["speed_up_ci"] is None


def test_the_interval_of_a_ratio_is_the_bootstraps() -> None:
    random = np.random.default_rng(0)
    cycles = random.integers(10, 60, 80)
    tokens = cycles * random.uniform(1, 3, 80)
    again = random.integers(80, size=(4000, 80))
    ratios = tokens[again].sum(1) / cycles[again].sum(1)
    assert ratio_interval([tokens.tolist()], [cycles.tolist()]) == pytest.approx(1.96 * ratios.std(), rel=0.05)


def test_the_cost_of_being_off_is_that_of_the_prompts_where_a_method_gave_up() -> None:
    def method(*runs: Statistics) -> SpeculativeMethod:
        return SpeculativeMethod("a", None, "lossless", statistics={"some": list(runs)})

    plain = method(*(Statistics(tokens=50, seconds=1.0) for _ in range(4)))
    gone = [Statistics(tokens=50, seconds=s, proposed=2) for s in (1.01, 1.02, 1.03)]
    assert off_cost(method(*gone, Statistics(tokens=50, seconds=0.5, proposed=100)), plain) == pytest.approx(2)
    assert off_cost(method(*(Statistics(tokens=50, seconds=0.5, proposed=100) for _ in range(4))), plain) is None


def test_the_cost_curve_is_a_fixed_part_and_one_for_each_token() -> None:
    exact = costs(CostCurve((1, 2, 8), (5.0, 6.0, 12.0)))
    assert [found["alpha_t_ms"] for found in exact] == pytest.approx([4, 4, 4])
    assert [found["beta_t_ms"] for found in exact] == pytest.approx([1, 1, 1])
    assert costs(CostCurve((1,), (5.0,)))[0]["beta_t_ms"] == 5, "one size has no fixed part"
    assert min(number_in(found, "alpha_t_ms") for found in costs(CostCurve((1, 2), (1.0, 3.0)))) == 0


def test_the_pruned_share_does_not_count_what_the_size_of_the_tree_left_out() -> None:
    """ρ of Table 4: of 4 proposals pruning drops one; of the other three one is verified."""
    tree = TokenTree([0, 1, 2, 3], [-1] * 4, [0.4, 0.3, 0.26, 0.04])

    class Four(Drafter):
        name = "four"

        def draft(self, moment: Moment, depth: int) -> TokenTree:
            return tree

    made = generate(MODEL, Four(), [0, 1, 2], "arc", length=30, tree_size=1, tolerance="none", lam=0.0)
    list(made)
    s = made.statistics
    assert (s.drafted, s.pruned) == (4 * s.proposed, s.proposed)
    method = SpeculativeMethod("four", None, "arc", statistics={"some": [s]}, logprobs={"some": [0.0]})
    assert row("some", method, method)["pruned_percent"] == 25


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_perplexity_is_that_of_the_model_and_not_of_the_tempered_distribution(temperature: float) -> None:
    tokens = list(generate(MODEL, None, [0, 1], "off", length=20, temperature=temperature))
    found = by_the_model(MODEL, [0, 1], tokens, temperature)
    ids = [0, 1] + [token.id for token in tokens]
    expected = [float(MODEL.after(ids[:at]).log_softmax(0)[ids[at]]) for at in range(2, len(ids))]
    assert found == pytest.approx(expected, abs=1e-5)
    assert (found == pytest.approx([token.logprob for token in tokens], abs=1e-5)) == (temperature == 1)


TEXTS = {"letters": [[0, 1, 2] * 3, [3, 4, 5] * 3]}


def measured(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[dict[str, Any]]:
    """The rows with n-gram trees, on a model that is calibrated at T = 1 in both ways."""

    def calibrated(_: object, sampling: TargetSampling) -> Calibration:
        constants = Constants(1e-30, 1e-30, 1.0)
        made = Calibration(fingerprint(MODEL), "table", np.ones(4), constants)
        return made.check(MODEL, sampling)

    for name, found in (
        ("load_model", MODEL),
        ("base_stores", []),
        ("eagle3", None),
        ("chat_template", None),
        ("prompts", TEXTS),
        ("measure_curve", CostCurve((1, 8), (1.0, 2.0))),
    ):
        monkeypatch.setattr(speculative, name, lambda *_, found=found: found)
    monkeypatch.setattr(drafters, "for_model", calibrated)
    monkeypatch.setattr(drafters, "published", lambda *at: {"as published": calibrated(*at)})
    monkeypatch.setattr(speculative, "LENGTH", 12)
    monkeypatch.setattr(NgramDrafter, "most", 4)
    report = speculative.measure(BenchOptions(prompts=1, tree_size=4, **options), lambda _: None)
    return [found for found in report.rows if found["prompts" if "left out" not in found else "method"] != "cost curve"]


def test_the_papers_rows_stand_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {found["method"]: found for found in measured(monkeypatch, pruning=True) if found["prompts"] == "all"}
    ways = ["ARC prune-only", "pruned by depth, α = 1", "pruned by probability", "ARC LTS-only"]
    for lossless in ("n-gram", "as published: n-gram"):
        assert {lossless, f"{lossless} + ARC", *(f"{lossless}, {way}" for way in ways)} <= set(rows)
        assert rows[lossless]["to_lossless"] is None
        gain = rows[f"{lossless}, ARC LTS-only"]
        assert gain["to_lossless"] == pytest.approx(gain["accept_length"] - rows[lossless]["accept_length"])
        assert gain["tolerated_percent"] > 0


def test_only_the_named_rows_are_measured_beside_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured(monkeypatch, methods="n-gram, ARC LTS-only,suffix automaton")
    names = [found["method"] for found in rows if found["prompts"] == "all"]
    assert names == ["plain", "suffix automaton", "n-gram, ARC LTS-only"]
    with pytest.raises(InputError, match="--methods: 'beam' given; plain, n-gram, suffix automaton, "):
        measured(monkeypatch, methods="n-gram,beam")


def test_arc_is_measured_at_calibrated_temperatures_and_over_theta(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured(monkeypatch, sweep=True, temperatures="0.5,1")
    left_out = [found for found in rows if "left out" in found]
    assert [found["temperature"] for found in left_out] == [0.5, 0.5], "ours and the paper's"
    both = ["n-gram + ARC", "as published: n-gram + ARC"]
    methods = {
        at: [
            found["method"]
            for found in rows
            if found.get("prompts") == "all" and (found["temperature"], found.get("theta")) == at
        ]
        for at in ((0.5, None), (1.0, None), (1.0, 0.9))
    }
    assert methods[0.5, None] == ["plain", "n-gram"]
    assert methods[1.0, None] == ["plain", "n-gram", both[0], "as published: n-gram", both[1]]
    assert methods[1.0, 0.9] == ["plain", *both]


def test_warming_up_learns_from_whole_trees_and_counts_nothing() -> None:
    """A method whose estimates are too low verifies no proposals, and would never learn that they are accepted."""
    pessimist = SpeculativeMethod("n-gram", NgramDrafter(), "lossless")
    confidences = [n / 20 for n in range(1, 21)]
    for confidence in confidences * 50:
        pessimist.memory.learn(TokenTree([0], [-1], [confidence]), [0], None, 0)
    estimates = pessimist.memory.estimates
    before = [estimates.chance(confidence, 0) for confidence in confidences]
    fixed = SpeculativeMethod("n-gram, 4", NgramDrafter(), "lossless", {"tree_size": 4})
    speculative.warm_up(MODEL, TEXTS, [pessimist, fixed], 0.1)
    assert any(estimates.chance(c, 0) > chance for c, chance in zip(confidences, before, strict=True))
    assert fixed.memory.estimates.chance(1.0, 0) == Memory().estimates.chance(1.0, 0)
    assert not pessimist.statistics
