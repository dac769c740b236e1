"""`eval arc-answers`: correct answers under tolerant rules, beside lossless ones."""

from __future__ import annotations

import pytest

from core.speculative import NgramDrafter, Statistics, generate
from research.evals import arc_answers
from research.evals.templated import Question
from tests.table_model import Letters, TableModel


def test_lossless_answers_are_those_of_plain_decoding() -> None:
    model = TableModel(seed=2)
    seeds = range(8)
    texts = []
    for seed in seeds:
        ids = [token.id for token in generate(model, None, [0, 1, 2], "off", length=arc_answers.LENGTH, seed=seed)]
        texts.append(Letters(6).decode(ids))
    question = Question("facts", "abc", texts[0])
    share, counts = arc_answers.answered(model, NgramDrafter(), question, "lossless", {}, n=len(seeds))
    assert share == texts.count(texts[0]) / len(texts) > 0
    assert len(counts) == len(seeds)


def test_a_difference_is_to_the_lossless_answers_to_the_same_questions() -> None:
    shares = {"lossless": [1.0, 0.5, 0.0], "ARC": [0.75, 0.75, 0.0]}
    found = arc_answers.row("facts", "n-gram", "ARC", shares, [Statistics(cycles=2, tokens=6, tolerated=3)])
    assert (found["exact_match"], found["difference"]) == (0.5, 0)
    assert found["difference_ci"] == pytest.approx(0.283, abs=0.001)
    assert (found["accept_length"], found["tolerated_percent"]) == (3, 50)
