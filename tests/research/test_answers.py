"""`eval answers`: exact match and majority voting, on questions of the program and of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.controls import CATALOG
from core.errors import InputError
from core.models import chat
from research.evals import answers, coverage
from research.questions import Question, read
from tests.table_model import Letters


class Codes(Letters):
    """The codes of characters as tokens."""

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))


@pytest.mark.parametrize(
    ("text", "answer"), [(" 77\n12", "77"), (" lisbon. She", "Lisbon"), (" 778", "778"), (".", "")]
)
def test_an_answer_is_the_first_word(text: str, answer: str) -> None:
    assert Question("x", "", answer or "Lisbon").answer_in(text) == answer


def test_a_reply_answers_by_its_last_number() -> None:
    ages = Question("gsm8k", "How old is Allen?", "1234", asked=True)
    assert ages.answer_in("Half of 18 is 9, so Allen is 1,234.00 years old.\n\nQuestion: 5?") == "1234"
    assert ages.answer_in("1234 - 1 = 1233") == "1233"
    assert ages.answer_in("#### 1234") == "1234"
    assert ages.answer_in("I do not know.") == ""


def test_a_reply_answers_by_its_first_line() -> None:
    emma = Question("trivia", "Who wrote Emma?", "Jane Austen", ("Austen",), asked=True)
    for reply in ("Jane Austen", "\n It was by jane austen in 1815.", "Austen did.\nOr not."):
        assert emma.answer_in(reply) == "Jane Austen"
    assert emma.answer_in("Austenites\nJane Austen") == "austenites"


def test_the_most_frequent_answer_counts_for_the_majority() -> None:
    asked = [Question("sums", "1 + 1 =", "2"), Question("sums", "2 + 2 =", "4")]
    row = answers.row("sums", "top-p", 1.0, asked, [["2", "2", "3", "2"], ["4", "5", "5", "6"]])
    assert (row["exact_match"], row["majority"]) == (0.5, 0.5)
    assert "difference" not in row


def test_the_difference_is_by_question() -> None:
    """Two rules that are right in other answers to the same questions do not differ."""
    asked = [Question("sums", "1 + 1 =", "2"), Question("sums", "2 + 2 =", "4")]
    row = answers.row("sums", "top-p", 1.0, asked, [["2", "3"], ["4", "4"]], [["3", "2"], ["4", "4"]])
    assert (row["difference"], row["difference_ci"]) == (0.0, 0.0)


def test_every_setting_is_one_of_the_catalogue() -> None:
    for rule, values in answers.settings().values():
        assert set(values) <= {control.name for control in CATALOG[rule].controls}


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


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no questions"):
        read(written(tmp_path))
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.jsonl")


def test_the_questions_of_a_file_are_answered(
    tmp_path: Path, tiny_default: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "BUDGETS", (1, 2))
    monkeypatch.setattr(chat, "chat_template", lambda model: None)  # it imports transformers, which takes seconds
    file, plot = written(tmp_path, *LINES), tmp_path / "answers.svg"
    given = ["--votes", "3", "--length", "3", "--rules", "top-p,top-n-sigma", "--temperatures", "1,2"]
    for name, more in (("answers", given), ("coverage", [])):
        called = ["eval", name, "--text", str(file), "--model", str(tiny_default), "--json", "--plot", str(plot), *more]
        result = CliRunner().invoke(app, called)
        assert result.exit_code == 0, result.output
        rows = json.loads(result.stdout)["rows"]
        assert {row["kind"]: row["questions"] for row in rows} == {"mine": 2, "gsm8k": 1}
        assert len(rows) == 2 * (1 + 2 * 2 if name == "answers" else 7)
        assert plot.read_text().startswith("<svg")
    called = [
        "eval",
        "answers",
        "--exact",
        "--model",
        str(tiny_default),
        "--prefixes",
        "2",
        "--json",
        "--plot",
        str(plot),
    ]
    result = CliRunner().invoke(app, [*called, "--rules", "top-p,top-n-sigma,n = 2", "--temperatures", "1"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [row["rule"] for row in rows] == 2 * ["greedy", "top-p", "top-n-sigma", "n = 2"]
    assert all(0 <= row["exact_match"] <= 1 and "majority" not in row for row in rows)
    refused = CliRunner().invoke(app, [*called, "--votes", "8"])
    assert "--votes and --length change nothing with --exact" in refused.stderr
    refused = CliRunner().invoke(app, ["eval", "answers", "--rules", "top-q"])
    assert "rules: 'top-q' given; none, top-p" in refused.stderr
    refused = CliRunner().invoke(app, ["eval", "answers", "--temperatures", "0,x"])
    assert "temperatures '0,x' given; numbers from 0.05 to 10" in refused.stderr
