"""Candidates of drafts that share a distribution."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from core.drafting.boundaries import mask_others
from core.drafting.candidates import Candidates, crop_logits
from core.drafting.drafts import Options
from core.samplers.base import Rule
from core.samplers.chain import Chain
from core.samplers.dry import DRY
from core.samplers.min_p import MinP
from core.samplers.temperature import Temperature
from core.samplers.top_k import TopK
from core.samplers.top_n_sigma import TopNSigma
from core.samplers.view import look, sweep
from tests.table_model import Letters

REPEATS, OTHER = [1, 2, 3, 9, 1, 2], [1, 2, 4, 9, 5, 6]  # 3 would repeat "1 2 3" after the first alone


@pytest.mark.parametrize("rule", [DRY(2.0), Chain([MinP(), DRY(2.0)])], ids=["rule", "chain"])
@pytest.mark.parametrize("repeating", [0, 1])
def test_a_rule_against_repetition_reads_the_text_of_each_draft(rule: Rule, repeating: int) -> None:
    logits = torch.zeros(12)
    logits[3] = 1.0
    contexts = [OTHER, OTHER]
    contexts[repeating] = REPEATS
    found = Candidates(Options(k=2, candidates=12, rule=rule), []).score_shared(logits, contexts)
    chances = [dict(zip(each.ids.tolist(), each.scores.tolist(), strict=True)) for each in found]
    assert chances[repeating][3] < chances[repeating][5]
    assert chances[1 - repeating][3] > chances[1 - repeating][5]


def test_a_rule_that_reads_no_text_is_applied_once() -> None:
    calls = 0

    class Counted(MinP):
        def crop(self, *given: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            nonlocal calls
            calls += 1
            return super().crop(*given)

    Candidates(Options(k=2, rule=Counted()), []).score_shared(torch.arange(40.0), [REPEATS, OTHER])
    assert calls == 1


def test_inside_a_word_sigma_is_that_of_the_whole_distribution() -> None:
    """Top-nσ keeps l ≥ M - n·σ: M among the tokens that may follow, σ of all logits."""
    logits = torch.tensor([9.0, 4.0, 3.9, 2.0, -1.0, -6.0, -6.5, -7.0])
    allowed = np.array([1, 2, 3, 4])
    bound = 4.0 - 0.5 * logits.std()
    kept = [i for i in allowed.tolist() if logits[i] >= bound]
    of_some = [i for i in allowed.tolist() if logits[i] >= 4.0 - 0.5 * logits[1:5].std()]
    assert kept != of_some, "so that this can fail"
    for rule in (TopNSigma(0.5), Chain([Temperature(2.0), TopNSigma(0.5)])):
        ids, _, _ = Candidates(Options(k=1, candidates=8, rule=rule), []).select_among(logits, [1], allowed)
        assert sorted(ids.tolist()) == kept
        row = crop_logits(Options(k=1, rule=rule), logits[None], [[1]], allowed)[0]
        assert row.isfinite().nonzero().flatten().tolist() == kept
    view = look(mask_others(logits, allowed), cast(Any, Letters(8)), settings={"top-n-sigma": {"n": 0.5}}, whole=logits)
    assert view.choices[0].count == len(kept)
    counts = sweep(mask_others(logits, allowed), {"top-n-sigma": {"n": 0.5}}, None, (0.5, 2.0), whole=logits)
    assert counts == {"top-n-sigma": [len(kept)] * 2}


def test_in_a_chain_sigma_is_that_of_what_earlier_rules_left_of_the_whole() -> None:
    logits = torch.tensor([9.0, 4.0, 3.9, 2.0, -1.0, -6.0, -6.5, -7.0])
    left = TopK(5)(None, logits[None])[0]
    rule = Chain([TopK(5), TopNSigma(0.5)]).measuring(logits[None])
    found = rule(None, mask_others(logits, np.array([1, 2, 3, 4]))[None])[0]
    bound = 4.0 - 0.5 * left[left.isfinite()].std()
    assert found.isfinite().nonzero().flatten().tolist() == [i for i in (1, 2, 3, 4) if logits[i] >= bound]
