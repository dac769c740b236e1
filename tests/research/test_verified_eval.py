"""`eval verified`: the figures of its report."""

from __future__ import annotations

import math

import pytest
from table_model import TableModel

from core.speculative.target import softmax
from research.evals.verified import KS, MethodRun, judged, logprobs, methods
from research.scores import Score

MODEL = TableModel(spread=3)
TEXT = [0, 1, 2]


def test_the_evaluation_takes_the_probabilities_of_the_target() -> None:
    sequence = MODEL.open()
    ids = list(TEXT)
    for token, logprob in zip([3, 3, 4], logprobs(sequence, TEXT, [3, 3, 4]), strict=True):
        assert logprob == pytest.approx(math.log(softmax(MODEL.after(ids).numpy())[token]), abs=1e-6)
        ids.append(token)
    assert sequence.inputs == TEXT


def test_the_report_has_the_perplexity_of_the_drafts_tokens() -> None:
    runs = {
        (name, k): MethodRun([Score("text", 1, 1, 0.0, 2.0)], [3], [math.log(0.5), math.log(0.125)])
        for k in KS
        for name in methods(MODEL, MODEL, None, k)
    }
    assert [row["perplexity"] for row in judged(runs).rows] == pytest.approx([4.0] * len(runs))
