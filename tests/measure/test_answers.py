"""`eval answers`: exact match and majority voting."""

from __future__ import annotations

import pytest

from core.controls import CATALOG
from measure.evals import answers
from measure.evals.templated import Question


@pytest.mark.parametrize(("text", "answer"), [(" 77\n12", "77"), (" Lisbon. She", "Lisbon"), (".", ""), ("", "")])
def test_an_answer_is_the_first_word(text: str, answer: str) -> None:
    assert answers.answer_of(text) == answer


def test_the_most_frequent_answer_counts_for_the_majority() -> None:
    asked = [Question("sums", "1 + 1 =", "2"), Question("sums", "2 + 2 =", "4")]
    row = answers.row("sums", "top-p", 1.0, asked, [["2", "2", "3", "2"], ["4", "5", "5", "6"]])
    assert (row["exact_match"], row["majority"]) == (0.5, 0.5)


def test_every_setting_is_one_of_the_catalogue() -> None:
    for rule, values in answers.settings().values():
        assert set(values) <= {control.name for control in CATALOG[rule].controls}
