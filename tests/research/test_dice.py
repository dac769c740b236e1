"""`eval dice`: the shares of draws in which a proposal is accepted."""

from __future__ import annotations

import numpy as np
import pytest

from core.speculative import ModelDrafter
from research.evals import dice
from tests.table_model import TableModel


def test_a_drafter_with_the_targets_distribution_is_accepted_at_once_unless_it_ignores_the_noise() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(12))
    found = [dice.shares(p, p, place) for place in range(30)]
    first = {method: np.mean([each[method][0] for each in found]) for method in found[0]}
    assert first[dice.REJECTION] == first[dice.COUPLED] == 1
    assert first[dice.LIKELIEST] == pytest.approx(p.max(), abs=0.05)


def test_each_method_is_accepted_as_often_as_its_theory_says() -> None:
    """One sampled proposal: Σ min(p, q)."""
    random = np.random.default_rng(1)
    p, q = random.dirichlet(np.ones(8)), random.dirichlet(np.ones(8))
    found = [dice.shares(p, q, place) for place in range(60)]
    assert np.mean([each[dice.REJECTION][0] for each in found]) == pytest.approx(np.minimum(p, q).sum(), abs=0.05)
    for each in found:
        assert all(shares == sorted(shares) for shares in each.values())
        assert each[dice.LIKELIEST][-1] == 1  # all eight tokens are proposed


def test_intervals_are_over_prompts_and_not_over_their_places() -> None:
    def place(share: float) -> dict[str, list[float]]:
        return {dice.COUPLED: [share] * len(dice.COUNTS)}

    # Places of one prompt are alike: five of each are not more evidence than one.
    for places in (1, 5):
        (row,) = dice.table([[place(share)] * places for share in (0.2, 0.5, 0.6, 0.9)] + [[]])
        assert (row["prompts"], row["places"]) == (4, 4 * places)
        assert row["8"] == pytest.approx(0.55)
        assert row["8_ci"] == pytest.approx(1.96 * (0.25 / 3) ** 0.5 / 2)  # squares of the deviations have the sum 0.25


def test_places_are_those_of_a_continuation() -> None:
    model, other = TableModel(), TableModel(seed=1)
    found = list(dice.places(model, ModelDrafter(other, model), [0, 1, 2]))
    assert [n for n, _, _ in found] == [4 + dice.EVERY * i for i in range(dice.PLACES)]
    for _, p, q in found:
        assert any(np.allclose(p, row) for row in model.table.double().softmax(-1).reshape(-1, 6).numpy())
        assert any(np.allclose(q, row) for row in other.table.double().softmax(-1).reshape(-1, 6).numpy())
