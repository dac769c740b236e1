"""`eval coverage`: questions whose answers can be checked, and the two tables."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from core.models import Sequence
from research.evals import coverage
from research.evals.methods import Wanted, always
from research.evals.templated import KINDS, Question, questions
from research.report import Report
from tests.table_model import TableModel, words


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_follows_from_the_prompt(kind: str) -> None:
    asked = questions(kind, 30)
    assert len({question.prompt for question in asked}) == 30
    assert asked == questions(kind, 30) != questions(kind, 30, seed=1)
    for question in asked:
        if kind == "sums":
            a, b = map(int, re.findall(r"(\d+) \+ (\d+) =$", question.prompt)[0])
            assert question.answer == str(a + b)
        else:
            stated, again = question.prompt.split("The same list in another order:\n")
            (person,) = re.findall(r"\n(\w+) -$", again)
            facts = dict(re.findall(r"(\w+) - (\w+)\n", stated))
            assert facts[person] == question.answer not in again, "the answer is stated once"
            assert set(re.findall(r"(\w+) - (\w+)\n", again)) < facts.items(), "the copy agrees with the list"


@pytest.mark.parametrize(
    ("text", "right"), [(" 77\n12", True), ("77", True), (" 778", False), (" 7", False), (" is 77", False)]
)
def test_only_the_whole_answer_counts(text: str, right: bool) -> None:
    assert Question("sums", "51 + 26 =", "77").is_answered_by(text) is right


def test_both_tables_are_drawn_for_each_kind() -> None:
    rows = [
        {"kind": kind, "method": method} | dict.fromkeys(columns, 0.5)
        for kind in KINDS
        for method, columns in (("beam", ("P@1", "P@2")), ("NS", ("n=1", "n=20")), ("NS_SPD2", ("n=1", "n=20")))
    ]
    drawn = ElementTree.fromstring(coverage.plots(Report("eval coverage", rows)))
    curves = [e for e in drawn.iter() if e.get("stroke-width")]
    assert len(curves) == len(rows)


def test_every_nucleus_draft_is_continued_from_its_first_tokens() -> None:
    model = TableModel(seed=3)
    drafts = [[1, 0, 0, 0, 0, 0], [2, 5, 5, 5, 5, 5]] * 10

    def sampled(sequence: Sequence, prefix: list[int], k: int, length: int, wanted: Wanted = always) -> list[list[int]]:
        return drafts

    for first, answer in enumerate((words("baaaaa"), words("cfffff"))):
        figures = coverage.spread_out(Question("x", "a", answer), model.open(), [0, 1], sampled)
        assert figures["NS"] == [n % 2 == first for n in range(20)]
        for name in coverage.PAPER.values():
            assert not any(figures[name][1 - first :: 2]), "drafts with other first tokens cannot have the answer"
