"""`eval rubric`: a judge that favours a place, replies that are hard to read, and judgements that are kept."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError
from research import judge_server
from research.evals import rubric
from research.evals.rubric import Judgement, ratings_in
from research.judge_server import JudgeServer
from tests.research.loopback_judge import serving

CLEAR = "Response 1: 7, 6, 8, 5, 7\nResponse 2: 1, 2, 3, 4, 10\nWinner: 2"
WORTH = {"good": 5, "fair": 4, "poor": 2}  # the ratings that the fake judge gives to the stories of three rules


def by_place_and_worth(text: str) -> str:
    """Rates the story at the first place four points higher than it is worth, and that at the second two points."""
    stories = re.findall(r"^Response \d+:\nA (\w+) story", text, re.MULTILINE)
    ratings = [WORTH[story] + bonus for story, bonus in zip(stories, (4, 2, 0), strict=True)]
    lines = [f"Response {at}: {', '.join([str(rating)] * 5)}" for at, rating in enumerate(ratings, 1)]
    return "\n".join([*lines, f"Winner: {ratings.index(max(ratings)) + 1}"])


def test_a_judge_that_favours_a_place_does_not_favour_a_rule() -> None:
    stories = {worth: f"A {worth} story." for worth in ("poor", "fair", "good")}
    judgements: list[Judgement] = [
        {"temperature": 1.0, "prompt": "Write.", "stories": stories, "reply": "", "ratings": None, "winner": None}
        for _ in range(9)
    ]
    with serving(by_place_and_worth) as (url, asked), closing(JudgeServer(url)) as server:
        for number, judgement in enumerate(judgements):
            rubric.judge(judgement, number, server)
    rows = {worth: rubric.row(worth, "fair", 1.0, "judge-7b", judgements) for worth in stories}
    assert {worth: row["average"] for worth, row in rows.items()} == {"poor": 4, "fair": 6, "good": 7}
    assert [rows[worth]["difference"] for worth in ("poor", "fair", "good")] == [-2, 0, 1]
    assert {row["imagery"] for row in rows.values()} == {4, 6, 7} and rows["fair"]["difference_ci"] == 0
    seen = [body["messages"][-1]["content"] for _, body in asked]
    assert len(set(seen)) > 3, "the blocks differ"
    assert by_place_and_worth(seen[0]) != by_place_and_worth(seen[1])


@pytest.mark.parametrize(
    "reply",
    [
        "**Response 1:** 7, 6, 8, 5, 7\n\n**Response 2:** 1, 2, 3, 4, 10\n\n**Overall winner:** Response 2.",
        "The ratings are these.\n- 1: 7/10, 6/10, 8/10, 5/10, 7/10\n- 2: 1 2 3 4 10\n> winner : 2",
        "Winner: 2\n2) 1; 2; 3; 4; 10.0\n1) 7; 6; 8; 5.0; 7.",
    ],
)
def test_a_reply_in_another_form_is_read(reply: str) -> None:
    assert ratings_in(reply, 2) == ratings_in(CLEAR, 2) == ([[7, 6, 8, 5, 7], [1, 2, 3, 4, 10]], 2)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot rate these stories.",
        CLEAR.replace("Winner: 2", ""),
        CLEAR.replace("Winner: 2", "Winner: 3"),
        CLEAR.replace("Winner: 2", "Winner: 1 or 2"),
        CLEAR + "\nWinner: 1",
        CLEAR.replace("Response 2", "Response 3"),
        CLEAR.replace("Response 2", "Response 1"),
        CLEAR + "\nResponse 2: 1, 2, 3, 4, 10",
        CLEAR + "\nResponse 3: 1, 2, 3, 4, 5",
        CLEAR + "\nOn second thought, 2 deserves a 9.",
        CLEAR.replace("7, 6, 8, 5, 7", "7, 6, 8, 5"),
        CLEAR.replace("7, 6, 8, 5, 7", "7, 6, 8, 5, 7, 7"),
        CLEAR.replace("7, 6, 8, 5, 7", "7, 6, 8, 5, 11"),
        CLEAR.replace("7, 6, 8, 5, 7", "7, 6, 8, 5, 0"),
        CLEAR.replace("7, 6, 8, 5, 7", "7, 6, 8, 5, high"),
        CLEAR.replace("7, 6, 8, 5, 7", "7, 6, 8, 5, 7-8"),
        CLEAR.replace("7, 6, 8, 5, 7", "7,5, 6, 8, 5, 7"),
        "Response 1: 7, 6, 8, 5, 7 Response 2: 1, 2, 3, 4, 10 Winner: 2",
    ],
)
def test_an_unclear_reply_is_not_guessed_at(reply: str) -> None:
    assert ratings_in(reply, 2) is None


def test_unclear_replies_are_counted_and_asked_about_again(
    tiny_default: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("research.chat.chat_template", lambda _: None)  # reading one takes a second
    shape = ["--model", str(tiny_default), "--length", "4", "--repetitions", "2", "--temperatures", "10", "--json"]
    shape += ["--rules", "top-w (the paper's),min-p", "--learned", str(tmp_path)]

    def result_of(url: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(app, ["eval", "rubric", *shape, "--server", url])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["rows"]

    replies = iter([CLEAR, "Both are good.", *[CLEAR] * 4])
    with serving(lambda _: next(replies)) as (url, asked):
        top_w, min_p = result_of(url)
        assert (top_w["judge"], top_w["stories"], top_w["unclear"]) == ("judge-7b", 5, 1)
        assert top_w["wins"] + min_p["wins"] == 5 and min_p["difference"] == 0
        assert {path for path, _ in asked} == {"/v1/chat/completions"}
        kept = json.loads((tmp_path / rubric.RESULTS).read_text())["results"]
        assert [each["reply"] for each in kept if each["ratings"] is None] == ["Both are good."]
        assert {each["prompt"] for each in kept} == set(rubric.PROMPTS)
        replies = iter([CLEAR])
        assert [row["unclear"] for row in result_of(url)] == [0, 0]
        assert len(asked) == 7 and asked[1][1] == asked[6][1], "the same stories in the same order"


def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_server, "MOST", 1000)
    with (
        serving(lambda _: "5, " * 400) as (url, _),
        closing(JudgeServer(url)) as server,
        pytest.raises(InputError, match="answers with more than 1000 bytes"),
    ):
        server.reply("Rate.", "A story.", tokens=8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "give --server URL --learned FOLDER"),
        ("--learned {kept} --server 127.0.0.1:8", "an address as http://127.0.0.1:8080 expected"),
        ("--learned {kept} --server http://127.0.0.1:9", "does not answer"),
        ("--learned {kept} --server http://127.0.0.1:9 --rules top-p", "beside 'min-p' given; one of top-p expected"),
    ],
)
def test_what_cannot_be_judged_is_refused(arguments: str, said: str, tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["eval", "rubric", *arguments.format(kept=tmp_path).split()])
    assert refused.exit_code == 1 and said in refused.stderr
