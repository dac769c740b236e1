"""Selecting at T = 1, with the temperature last: T_sel of arXiv 2602.10346, Algorithm 1."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.samplers.catalog import sampler
from core.samplers.geometry import Geometry
from core.samplers.view import look, sweep
from tests.fake_sampling import Tokenizer, logits_after

RULES = ("top-k", "top-p", "min-p", "p-less", "top-n-sigma", "top-h", "typical", "eta", "mirostat", "min-p+top-p")
EMBEDDINGS = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
GEOMETRIES = {"l2": Geometry(EMBEDDINGS, "l2")}


def kept(rows: torch.Tensor) -> torch.Tensor:
    return rows > -float("inf")


@pytest.mark.parametrize("rule", [*RULES, "top-w"])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), temperature=st.floats(0.2, 8))
def test_the_rule_keeps_what_it_keeps_at_one_and_the_temperature_weighs_that(
    rule: str, seed: int, temperature: float
) -> None:
    logits = 3 * torch.randn(1, 40, generator=torch.Generator().manual_seed(seed))
    at_one = sampler(rule, {}, 1.0, GEOMETRIES)(None, logits)
    last = sampler(rule, {}, temperature, GEOMETRIES, select_at="1")(None, logits)
    assert torch.equal(kept(last), kept(at_one))
    wanted = (logits / temperature).masked_fill(~kept(at_one), -float("inf")).softmax(-1)
    assert torch.allclose(last.softmax(-1), wanted, atol=1e-6)


def test_only_a_rule_that_divides_by_the_temperature_is_indifferent_to_the_order() -> None:
    logits = 3 * torch.randn(1, 40, generator=torch.Generator().manual_seed(3))
    for rule in RULES:
        orders = [sampler(rule, {}, 4.0, None, select_at=order)(None, logits) for order in ("temperature", "1")]
        assert torch.equal(*map(kept, orders)) == (rule in ("top-k", "top-n-sigma")), rule


def test_the_charts_show_the_same_order() -> None:
    logits, names = logits_after("Yesterday she went"), {"min-p": {}, "top-p": {}}
    first, last = (look(logits, Tokenizer(), 4.0, names, select_at=order) for order in ("temperature", "1"))
    at_one = look(logits, Tokenizer(), 1.0, names)
    assert [c.count for c in last.choices] == [c.count for c in at_one.choices]
    assert [c.count for c in last.choices] != [c.count for c in first.choices]
    assert last.tokens == first.tokens  # the bars are at the temperature
    counts = sweep(logits, names, select_at="1")
    assert all(len(set(each)) == 1 for each in counts.values())
