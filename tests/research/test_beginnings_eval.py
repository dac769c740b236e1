"""`eval beginnings`: what counts as a hit, as an odd start and as lower case, and the figures made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from research.beginnings import DOCUMENT, HEADING, INSIDE, PARAGRAPH, SENTENCE, Beginning
from research.evals.beginnings import Begun, hits, is_odd, is_small, judge, ratio_of_means, rows, share_of_drafts
from research.report import Report


def after(before: str, rest: str = "The writer went on like this") -> Beginning:
    return Beginning("any", before, rest)


def test_a_hit_is_the_writers_whole_next_word() -> None:
    assert hits("The end", "The boat is old")
    assert hits("don't know", "don't, she said")
    assert not hits("Then", "The boat")
    assert not hits(" The boat", "The boat")
    assert not hits("", "The boat")


ODD = [" The", "\tThe", "(see", "[1]", "“The", '"The', "'t know", "- the", "1. The", "> a", "| a"]


@pytest.mark.parametrize("draft", ODD)
def test_a_start_that_the_writer_does_not_have_is_odd(draft: str) -> None:
    for before in ("", "Some prose.\n\n", "# Title\n\n", "Some prose. ", "- "):
        assert is_odd(draft, after(before))


@pytest.mark.parametrize("draft", ["The", "the", "2022 was", "`code`", "*emphasis*", "-5 degrees", "1.5 metres"])
def test_letters_numbers_and_emphasis_are_not_odd(draft: str) -> None:
    assert not is_odd(draft, after("Some prose.\n\n"))


def test_a_start_like_the_writers_own_is_not_odd() -> None:
    assert not is_odd('"Yes', after("Some prose.\n\n", "“No,” she said and went to bed"))
    assert is_odd(" Yes", after("Some prose.\n\n", " No"))


def test_a_start_like_the_last_lines_is_not_odd_at_the_beginning_of_a_line() -> None:
    assert not is_odd("“Yes", after("“No,” he said.\n\nNobody spoke.\n\n"))
    assert is_odd("“Yes", after("“No,” he said.\n" + "\n\nNobody spoke." * 4 + "\n\n"))
    assert is_odd("“Yes", after("“No,” he said.\n\nNobody "))
    assert not is_odd("- two", after("- one\n\n"))
    assert not is_odd("## Two", after("## One\n\nProse.\n\n"))
    assert not is_odd("[Two]", after("- [One] is a link\n- "))


def test_lower_case_counts_where_a_sentence_begins() -> None:
    for before in ("", "A sentence. ", "A paragraph\n\n", "He said: “No.” ", "Items:\n- "):
        assert is_small("the end", after(before))
        assert not is_small("The end", after(before))
        assert not is_small("the end", after(before, "the writer began in lower case"))
    assert not is_small("the end", after("In the middle of "))


def test_shares_are_of_all_drafts_and_intervals_are_over_places() -> None:
    places = [Begun(True, 50.0, 3, 3, 0), Begun(False, 30.0, 1, 0, 0)]
    share, interval = share_of_drafts(places, [place.odd for place in places])
    assert share == 3 / 4
    assert interval == pytest.approx(1.96 * 0.75 / 2)  # 3 - 3 · 3/4 and 0 - 1 · 3/4, over a mean of two drafts


def test_a_ratio_of_means_is_as_uncertain_as_both() -> None:
    ratio, interval = ratio_of_means([30.0, 50.0], [80.0, 80.0])
    assert (ratio, interval) == (0.5, pytest.approx(1.96 * 10 / 80))
    assert ratio_of_means([1.0], [])[0] != ratio_of_means([1.0], [])[0], "nan without a base"


def test_beginnings_are_judged_beside_places_inside_paragraphs() -> None:
    good, odd = Begun(True, 60.0, 3, 0, 0), Begun(False, 45.0, 3, 1, 0)
    by_kind = {PARAGRAPH: [good, odd], INSIDE: [good, good]}
    report = Report("eval beginnings", rows(3, by_kind))
    judge(report, by_kind)
    assert [row["kind"] for row in report.rows] == [PARAGRAPH, INSIDE, "all but inside"]
    assert [target.value for target in report.targets] == [52.5 / 60, 1 / 6]
    assert [target.met for target in report.targets] == [True, False]


def test_it_runs(tiny_default: Path, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# Title\n\n" + "A paragraph of this text has many words. " * 4 + "\n\n- an item")
    given = ["--text", str(tmp_path), "--model", str(tiny_default), "--count", "2", "--k", "2,3", "--json"]
    result = CliRunner().invoke(app, ["eval", "beginnings", *given])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {row["k"] for row in found["rows"]} == {2, 3}
    assert {DOCUMENT, HEADING, SENTENCE, "all but inside"} <= {row["kind"] for row in found["rows"]}
    assert found["targets"]
