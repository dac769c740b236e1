"""`eval repetition`: shares of different n-grams, and drafts with resets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.samplers.catalog import sampler
from core.superposed import superpose
from research.evals import repetition
from research.evals.methods import Method, by_the_paper, sampled, superposed
from tests.table_model import TableModel


def test_a_share_counts_each_n_gram_once() -> None:
    assert repetition.unique([1, 2, 1, 2], 1) == 0.5
    assert repetition.unique([1, 2, 1, 2], 2) == pytest.approx(2 / 3)
    assert repetition.unique([7], 2) == 1


@given(st.lists(st.integers(0, 3), min_size=3, max_size=30), st.integers(1, 3))
def test_a_share_agrees_with_a_count(ids: list[int], n: int) -> None:
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    repeated = sum(gram in grams[:i] for i, gram in enumerate(grams))
    assert repetition.unique(ids, n) == pytest.approx(1 - repeated / len(grams))


def test_drafts_with_resets_are_those_of_the_generator() -> None:
    model = TableModel(vocabulary=8, seed=1)
    drafts = superposed(None, 2, reset_every=4)(model.open(), [0, 1, 2], 3, 12)
    options = {"exact_steps": 2, "forks": 0, "reset_every": 4, "stop_ids": frozenset[int]()}
    *_, last = superpose(model, [0, 1, 2], 3, 12, **options)
    assert drafts == last.ids
    assert {len(ids) for ids in drafts} == {12}
    assert all(ids[:8] == drafts[0][:8] for ids in drafts), "two resets made one text of the first eight tokens"


@pytest.mark.parametrize(
    "method",
    [
        by_the_paper(None),
        superposed(None, 2),
        superposed(None, 2, reset_every=4),
        superposed(None, single=True),
        sampled(sampler("top-n-sigma+dry")),
    ],
)
def test_the_drafts_of_each_length_are_those_made_at_that_length(method: Method) -> None:
    sequence = TableModel(vocabulary=8, seed=1).open()
    lengths = (3, 5, 12)
    found = repetition.at_each_length(method, sequence, [0, 1, 2], lengths)
    for length in lengths:
        sequence.sync([0, 1, 2])
        assert found[length] == method(sequence, [0, 1, 2], repetition.K, length)


def test_sampled_drafts_repeat_less_with_dry() -> None:
    """A vocabulary of eight tokens repeats itself; the penalty of DRY makes repeated pairs rarer."""
    shares = {}
    for rule in ("top-n-sigma", "top-n-sigma+dry"):
        drafts = sampled(sampler(rule, {"n": 2.0}))(TableModel(vocabulary=8, seed=1).open(), [0, 1, 2], 3, 40)
        assert [len(ids) for ids in drafts] == [40] * 3
        shares[rule] = sum(repetition.unique(ids, 3) for ids in drafts) / 3
    assert shares["top-n-sigma+dry"] > shares["top-n-sigma"]
