"""Answers to questions of the program and of files: which are right, and how rules differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.drafting.drafts import Draft, Drafts
from core.errors import InputError
from research.evals import answers
from research.questions import Question, read
from tests.table_model import Letters


class Codes(Letters):
    """The codes of characters as tokens."""

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))


def test_the_difference_is_by_question() -> None:
    """Two rules that are right in other answers to the same questions do not differ."""
    asked = [Question("sums", "1 + 1 =", "2"), Question("sums", "2 + 2 =", "4")]
    row = answers.row("sums", "top-p", 1.0, asked, [["2", "3"], ["4", "4"]], [["3", "2"], ["4", "4"]])
    assert (row["difference"], row["difference_ci"]) == (0.0, 0.0)


def test_the_first_answers_are_the_first_draws_and_not_the_most_probable() -> None:
    listed = [Draft.begun([slot], logprob, slot) for slot, logprob in ((2, -1.0), (0, -2.0), (1, -3.0))]
    assert answers.as_drawn(Drafts(listed, 1)) == [[0], [1], [2]]


def test_the_majority_of_the_first_answers_is_a_curve() -> None:
    asked = [Question("sums", "1 + 1 =", "2"), Question("sums", "2 + 2 =", "4")]
    row = answers.row("sums", "top-p", 1.0, asked, [["2", "3", "3", "3", "2"], ["5", "4", "4", "4", "4"]])
    curve = {name: share for name, share in row.items() if name.startswith("majority") and name != "majority_ci"}
    assert curve == {"majority_1": 0.5, "majority_2": 0.5, "majority_4": 0.5, "majority": 0.5}
    assert row["exact_match"] == pytest.approx(0.6)
    other = answers.row("sums", "top-p", 1.0, asked[:1], [["3", "2", "2"]])
    assert (other["majority_1"], other["majority_2"], other["majority"]) == (0.0, 0.0, 1.0)


LINES = [
    {"prompt": "1 + 1 =", "answer": 2},
    {"question": "How many?", "answer": "3 - 1 = <<3-1=2>>2\n#### 2", "kind": "gsm8k"},
    {"turns": ["Who?"], "answer": ["Ann", "Anna"]},
]


def written(folder: Path, *lines: object) -> Path:
    file = folder / "mine.jsonl"
    file.write_text("\n\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return file


def test_a_file_holds_both_kinds_of_questions(tmp_path: Path) -> None:
    found = read(written(tmp_path, *LINES))
    assert found == {
        "mine": [Question("mine", "1 + 1 =", "2"), Question("mine", "Who?", "Ann", ("Anna",), asked=True)],
        "gsm8k": [Question("gsm8k", "How many?", "2", asked=True)],
    }
    assert {kind: len(of_kind) for kind, of_kind in read(tmp_path / "mine.jsonl", 1).items()} == {"mine": 1, "gsm8k": 1}
    asked = Question("x", "ab", "c", asked=True)
    assert "".join(map(chr, asked.ids(Codes(128)))).split() == ["Question:", "ab", "Answer:"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", r"is not JSON"),
        ("[1]", r"is not an object; \{\"prompt\""),
        ({"answer": "x"}, "has no prompt and no question"),
        ({"prompt": "a", "question": "b", "answer": "x"}, "has prompt and question;"),
        ({"turns": ["a"]}, "has no answer; a text, a number or a list of them expected"),
        ({"prompt": "a", "answer": []}, "has no answer;"),
        ({"prompt": "a", "answer": {"b": 1}}, "has the answer {'b': 1};"),
        ({"prompt": "a", "answer": ["x", ""]}, r"has the answer \['x', ''\];"),
        ({"prompt": "a", "answer": "x", "kind": 3}, "has the kind 3;"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, fault: str) -> None:
    file = written(tmp_path, LINES[0], line)
    with pytest.raises(InputError, match=f"^Line 3 of .*mine.jsonl {fault}"):
        read(file)


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("I think a tower is seen. The answer is B.", "B"),
        ("A tower. The final answer is (C), not A.", "C"),
        ("First A, then B; the answer is: **D**", "D"),
        ("The answer is A. No, the answer is B", "B"),
        ("B", "B"),
        ("(c) a boat", ""),
        ("A boat is a B-movie's", ""),
        ("Option C\nbecause A fails", "C"),
    ],
)
def test_of_several_to_choose_from_the_last_stated_letter_counts(reply: str, letter: str) -> None:
    assert Question("x", "Which?", "B", asked=True).answer_in(reply) == letter
    assert (Question("x", "Which?", "A", asked=True).answer_in(reply) == "A") == (letter == "A")
