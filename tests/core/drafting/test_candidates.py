"""Candidates of drafts that share a distribution."""

from __future__ import annotations

import pytest
import torch

from core.drafting.candidates import Candidates
from core.drafting.drafts import Options
from core.samplers.base import Rule
from core.samplers.chain import Chain
from core.samplers.dry import DRY
from core.samplers.min_p import MinP

REPEATS, OTHER = [1, 2, 3, 9, 1, 2], [1, 2, 4, 9, 5, 6]  # 3 would repeat "1 2 3" after the first alone


@pytest.mark.parametrize("rule", [DRY(2.0), Chain([MinP(), DRY(2.0)])], ids=["rule", "chain"])
@pytest.mark.parametrize("repeating", [0, 1])
def test_a_rule_against_repetition_reads_the_text_of_each_draft(rule: Rule, repeating: int) -> None:
    logits = torch.zeros(12)
    logits[3] = 1.0
    contexts = [OTHER, OTHER]
    contexts[repeating] = REPEATS
    found = Candidates(Options(k=2, candidates=12, rule=rule), []).shared(logits, contexts)
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

    Candidates(Options(k=2, rule=Counted()), []).shared(torch.arange(40.0), [REPEATS, OTHER])
    assert calls == 1
