"""`eval judge`: blinded drafts, a person or a server as judge, and the exact sign test."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from research.evals import judge
from research.evals.judge import JudgedPlace, decided, question, sign_test
from research.judge_server import JudgeServer
from tests.research.loopback_judge import serving

PLACE: JudgedPlace = {"text": "Once", "first": [" a", " b", " both"], "second": [" c", " both"], "winner": None}


def test_the_sign_test_is_exact() -> None:
    assert sign_test(9, 1) == pytest.approx(22 / 1024)  # two-sided: 0, 1, 9 and 10 wins
    assert sign_test(5, 5) == sign_test(0, 0) == 1
    # Three drafts beside one: 8 of 8 wins have .75^8 = .100; as rare or rarer are 0 to 3 wins.
    rare = [math.comb(8, k) * 0.75**k * 0.25 ** (8 - k) for k in (0, 1, 2, 3)]
    assert sign_test(8, 0, 0.75) == pytest.approx(0.75**8 + sum(rare) + math.comb(8, 4) * 0.75**4 * 0.25**4)


def test_the_judge_sees_no_method_and_no_order() -> None:
    """Over many places the first method's draft stands at every position, and each draft is shown once."""
    seen: list[list[str]] = []

    def choose(text: str, drafts: list[str]) -> int:
        seen.append(drafts)
        return 1

    for number in range(60):
        decided(PLACE, number, choose, twice=False)
    assert {len(drafts) for drafts in seen} == {4}
    assert {drafts.index(" a") for drafts in seen} == {0, 1, 2, 3}
    again: list[list[str]] = seen[:]
    seen.clear()
    decided(PLACE, 7, choose, twice=False)
    assert seen == [again[7]], "the order of a place is the same when the evaluation goes on"
    assert "first" not in question("Once", seen[0]) and "nucleus" not in question("Once", seen[0])


def test_wins_count_by_the_draft_that_won_if_both_answers_name_it() -> None:
    place: JudgedPlace = {"text": "Once", "first": [" a", " b"], "second": [" c"], "winner": None}

    def names(*wanted: str) -> Callable[[str, list[str]], int]:
        answers = iter(wanted)
        return lambda text, drafts: drafts.index(next(answers)) + 1

    assert decided(place, 0, names(" b"), twice=False) == ("first", 2)
    assert decided(place, 0, names(" b", " b"), twice=True) == ("first", 2)
    assert decided(place, 0, names(" a", " b"), twice=True) == ("first", None)
    assert decided(place, 0, names(" c", " c"), twice=True) == ("second", None)
    assert decided(place, 0, names(" a", " c"), twice=True) == ("tie", None)
    judged: list[JudgedPlace] = [{**place, "winner": "first", "rank": rank} for rank in (1, 2, 2, None)]
    counted = judge.row(("superposed", "nucleus"), (2, 1), "a person", judged)
    assert (counted["wins"], counted["wins_1"], counted["wins_2"]) == (4, 1, 2)


@pytest.mark.parametrize(
    ("reply", "best"),
    [("2", 2), ("**Number 1.**", 1), ("0", 0), ("1 or 2", None), ("2 of 3", None), ("3", None), ("Neither.", None)],
)
def test_a_reply_counts_if_it_has_one_number_and_that_of_a_draft(reply: str, best: int | None) -> None:
    with serving(lambda _: reply) as (url, _), closing(JudgeServer(url)) as server:
        assert judge.by_server(server)("Once", [" a", " b"]) == best


@pytest.fixture
def called(tiny_default: Path, tmp_path: Path) -> Callable[..., Any]:
    shape = ["--model", str(tiny_default), "--base-store", "none", "--prefixes", "2", "--length", "3"]
    shape += ["--learned", str(tmp_path), "--context", "8", "--versus", "1v1", "--json"]

    def run(*arguments: str, typed: str = "") -> Any:
        return CliRunner().invoke(app, ["eval", "judge", *shape, *arguments], input=typed)

    return run


def result_of(done: Any) -> dict[str, Any]:
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["rows"][0]


def test_a_server_judges_every_place_twice_and_is_not_asked_again(called: Callable[..., Any]) -> None:
    def first_by_the_alphabet(text: str) -> str:
        drafts = re.findall(r"^\d+\. …(.*)$", text, re.MULTILINE)
        return f"Number {drafts.index(min(drafts)) + 1}."

    with serving(first_by_the_alphabet) as (url, asked):
        result = result_of(called("--server", url))
        assert result["judge"] == "judge-7b"
        assert result["wins"] + result["losses"] + result["ties"] == result["places"] > 0 == result["not_judged"]
        assert len(asked) == 2 * (result["wins"] + result["losses"]), "the same draft won in both orders"
        assert {path for path, _ in asked} == {"/v1/chat/completions"}
        assert {body["model"] for _, body in asked} == {"judge-7b"}
        before = len(asked)
        assert result_of(called("--server", f"{url}/v1/")) == result
        assert len(asked) == before


def test_a_sampling_rule_is_judged_beside_greedy_drafts(called: Callable[..., Any], tmp_path: Path) -> None:
    result = result_of(called("--method", "top-n-sigma, T = 10", "--beside", "greedy", typed="q\n"))
    assert (result["method"], result["beside"]) == ("top-n-sigma, T = 10", "greedy")
    kept = json.loads((tmp_path / judge.RESULTS).read_text())["results"]
    assert {len(place["first"]) for place in kept} == {1} and any(place["first"] != place["second"] for place in kept)


def test_a_person_stops_and_goes_on(called: Callable[..., Any], tmp_path: Path) -> None:
    one = result_of(called(typed="7\n1\nq\n"))
    assert one["places"] - one["not_judged"] - one["ties"] == one["wins"] + one["losses"] == 1
    kept = json.loads((tmp_path / judge.RESULTS).read_text())["results"]
    assert {place["winner"] for place in kept} <= {"first", "second", "tie", None}
    every = result_of(called(typed="0\n" * one["not_judged"]))
    assert every["not_judged"] == 0 and every["wins"] + every["losses"] == 1
    other = called("--versus", "2v1", typed="q\n")
    assert other.exit_code == 1 and "has results of another text, model, methods or judge" in other.stderr
