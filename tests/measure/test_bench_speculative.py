"""`bench speculative`: rows, phases and costs of its report."""

from __future__ import annotations

import pytest
from table_model import TableModel

from core.speculative import (
    Drafter,
    Memory,
    Statistics,
    SuperposedDrafter,
    TokenTree,
    generate,
)
from core.speculative.cost import CostCurve
from core.speculative.drafters import Moment
from measure.bench.speculative import BY_DEPTH, SpeculativeMethod, by_the_model, costs, off_cost, phases, row, table

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
    statistics = Statistics(cycles=10, tokens=25, proposed=40, seconds=1)
    found = row(
        "some", SpeculativeMethod("a", None, "lossless", {}, Memory(), {"some": [statistics]}, {"some": [0.0]}), plain
    )
    assert (found["accept_length"], found["proposals"], found["per_proposal"]) == (2.5, 4, 0.5)


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
    assert min(found["alpha_t_ms"] for found in costs(CostCurve((1, 2), (1.0, 3.0)))) == 0


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
