"""The measurements' own arithmetic and their text; no real time is taken here."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError
from research.bench import BENCHES, drafts, healing, keystroke, stillness
from research.cli import module_of
from research.report import BenchOptions, Report, Target, Timings, interleaved, percentile, table
from training import texts as text


def fake_timings() -> Timings:
    names = {drafts.GREEDY, *(n for _, one, other, _ in drafts.TARGETS for n in (one, other))}
    return Timings({name: [0.1, 0.2, 0.4] for name in names})


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [(1.05, "<= 1.05", True), (1.0501, "<= 1.05", False), (65.0, ">= 65", True), (64.9, ">= 65", False)],
)
def test_a_target_is_met_at_its_bound(value: float, target: str, met: bool) -> None:
    assert Target("it", value, target).met is met


@pytest.mark.parametrize("target", ["<= 60", ">= 60"])
def test_what_was_not_measured_is_not_met(target: str) -> None:
    assert not Target("it", math.nan, target).met


def test_the_shape_of_a_report() -> None:
    report = Report("startup", [{"what": "page", "s": 3.14159265}])
    report.target("start, s", 3.14159265, "<= 6")
    report.target("nothing seen", math.nan, "<= 6")
    said = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert said == {
        "name": "startup",
        "rows": [{"what": "page", "s": 3.1416}],
        "targets": [
            {"name": "start, s", "value": 3.1416, "target": "<= 6", "met": True},
            {"name": "nothing seen", "value": None, "target": "<= 6", "met": False},
        ],
    }
    assert len(table(report, Console(width=80))) == 2


def test_a_wide_report_is_shown_whole_in_several_tables() -> None:
    report = Report("wide")
    for method in ("plain", "drafted [1]"):
        report.rows.append({"T": 0.5, "method": method} | {f"figure_number_{n}": 100.0 + n for n in range(20)})
    report.rows[1]["left out"] = "A long sentence that is broken into lines, because nothing else can be. " * 3
    report.rows.append({"method": "cost", "tokens": 4, "ms": 7.25})
    report.rows.append({"method": "a name that fills half of the width", "tokens": 5, "share": 0.5})
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(*table(report, console))
    shown = console.export_text()
    assert "…" not in shown
    for n in range(20):
        assert f"{100 + n}" in shown
    assert "drafted [1]" in shown and "7.25" in shown
    assert max(map(len, shown.splitlines())) <= 80
    columns = [[str(column.header) for column in made.columns] for made in table(report, console)]
    assert all(each[:2] == ["T", "method"] for each in columns[:-1])
    assert columns[-1] == ["method", "tokens", "share", "ms"]


def test_rounds_are_interleaved_and_ratios_paired() -> None:
    now, order = 0.0, []
    load = {-1: 50.0, 0: 1.0, 1: 10.0, 2: 3.0}  # the machine is busier in some rounds
    round_ = -1

    def before(number: int) -> None:
        nonlocal round_
        round_ = number

    def work(name: str, cost: float) -> None:
        nonlocal now
        order.append(name)
        now += cost * load[round_]

    timings = interleaved({"a": lambda: work("a", 1.0), "b": lambda: work("b", 2.0)}, 3, before, clock=lambda: now)
    assert timings.seconds["a"] == pytest.approx([1, 10, 3])
    assert timings.ratio("b", "a") == pytest.approx(2)
    assert timings.median("b") == pytest.approx(6)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"  # the first pair warms up


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(1, 100))
def test_a_percentile_is_a_value_that_enough_do_not_exceed(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(v <= found for v in values) >= percent / 100 * len(values) - 1e-6


def test_no_values_have_no_percentile() -> None:
    assert math.isnan(percentile([], 50))


# ---------------------------------------------------------------- text


def test_the_text_of_our_own() -> None:
    texts = text.load()
    assert 9_000 < sum(len(document) for file in texts for document in file) < 16_000
    places = text.words(texts, 250)
    assert len(places) == 250 == len({(place.document, place.at) for place in places})
    for place in places:
        assert len(place.word) >= 5
        assert place.document[place.at :].startswith(place.word)
        assert place.document[: place.at].endswith(place.before)
    assert places == text.words(texts, 250)


def test_text_out_of_files_and_folders(tmp_path: Path) -> None:
    lines = b"".join(json.dumps({"text": f"document {i}"}).encode() + b"\n" for i in range(2))
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.compress(lines))
    (tmp_path / "a.txt").write_text("plain", "utf-8")
    assert text.load(tmp_path) == [["plain"], ["document 0", "document 1"]]
    assert text.load(tmp_path / "b.jsonl.zst") == [["document 0", "document 1"]]


def test_every_file_has_the_same_say() -> None:
    many, one = ["Now then, " + "short " * 100] * 50, ["Now then, " + "long-lived things " * 500]
    chosen = [place.word for place in text.words([many, one], 40)]
    assert chosen.count("short") == chosen.count("things") == 20


def test_a_missing_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n", "utf-8")
    with pytest.raises(InputError, match="No text in"):
        text.load(tmp_path / "empty.txt")
    with pytest.raises(InputError, match="does not exist"):
        text.load(tmp_path / "nowhere.txt")


def test_passages_can_be_typed_on_every_keyboard() -> None:
    found = keystroke.passages(text.load(), 4)
    assert len(found) == 4
    assert sum(len(typed) for _, typed in found) >= 150
    for before, typed in found:
        assert len(before) == keystroke.CONTEXT
        assert typed.isascii() and typed.isprintable()


# ---------------------------------------------------------------- the measurements


def test_every_measurement_is_there() -> None:
    for name in BENCHES:
        assert callable(module_of("bench", name).measure)


def test_an_unknown_measurement_is_reported() -> None:
    ran = CliRunner().invoke(app, ["bench", "nonsense", "--json"])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "bench 'nonsense' given; one of drafts, keystroke, stillness, startup, healing" in ran.stderr


def test_json_is_one_object_on_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(options: BenchOptions, progress: object) -> Report:
        return Report("drafts", [{"backend": options.backend}])

    monkeypatch.setattr(drafts, "measure", measure)
    ran = CliRunner().invoke(app, ["bench", "drafts", "--json", "--backend", "torch"])
    assert ran.exit_code == 0
    assert json.loads(ran.stdout) == {"name": "drafts", "rows": [{"backend": "torch"}], "targets": []}


def test_rows_of_drafts() -> None:
    timings = fake_timings()
    timings.seconds["superposed r=0 k=3"] = [0.11, 0.21, 0.41]
    rows = {row["method"]: row for row in drafts.rows(timings, "llama.cpp")}
    assert rows[drafts.GREEDY]["ms"] == pytest.approx(200)
    assert rows["superposed r=0 k=3"]["of_one_greedy_draft"] == pytest.approx(1.05)


def test_percentiles_of_keystrokes() -> None:
    times = {
        "firstMs": [20.0] * 9 + [90.0],
        "doneMs": [110.0, 121.0, 112.0],
        "fillMs": [101.0],
        "alongMs": list[float](),
    }
    ours = keystroke.Typing(20, 10.0, 6.0, Counter(requests=10), times)
    report = keystroke.summary(ours, keystroke.Typing(20, 10.0, 2.0, Counter(requests=3)))
    judged = [(t.value, t.met) for t in report.targets]
    assert judged == [(20.0, True), (112.0, True), (101.0, False), (pytest.approx(0.4), True)]
    assert not keystroke.summary(replace(ours, times=times | {"firstMs": []})).targets[0].met


def test_stillness_counts_rows_vanishings_and_movements() -> None:
    def state(
        text: str, shown: int, *, ghost: bool = True, list_at: str = "1", worth: int | None = 3
    ) -> dict[str, Any]:
        there = dict.fromkeys(stillness.PARTS, True) | {"ghost": ghost}
        places = dict.fromkeys(stillness.PLACES, "0") | {"list": list_at}
        rest = {"rows": {}, "ghost": "bcd"[len(text) - 1 :] if ghost else ""}
        return {"text": text, "shown": shown, "worth": worth, "there": there, "places": places} | rest

    states = [
        state("a", 3),
        state("a", 2, list_at="2"),  # moved
        state("ab", 3, list_at="3"),  # the text is another: no movement
        state("ab", 0, ghost=False, list_at="3", worth=None),  # vanished
        state("ab", 1, list_at="3", worth=1),
        state("abx", 0, ghost=False, list_at="3", worth=None),  # contradicted
    ]
    report = stillness.summary({("always", 120.0): [states]})
    assert report.rows[0] | {"all_rows": 0.75, "ghost_vanished": 1, "list_moved": 1, "hints_moved": 0} == report.rows[0]
    assert [t.met for t in report.targets] == [False, False, False]


def test_stillness_counts_what_a_reader_has_to_follow() -> None:
    def state(text: str, ghost: str, **rows: str) -> dict[str, Any]:
        return {"text": text, "ghost": ghost, "rows": rows}

    run = [
        state("a", "bcd", one="bcd", two="xy"),
        state("ab", "cd", one="cd"),  # typed along: nothing new
        state("ab", "cd", one="cd", two="zz"),  # two new characters in an empty row
        state("ab", "zz", one="ce", two="zz"),  # the ghost moved; a row continues otherwise
    ]
    counts = stillness.changes([run])
    assert counts == {"new_rows": 100, "new_characters": 300, "ghost_moves": 100, "replaced_rows": 100}


def test_a_text_without_words_to_heal_is_reported(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("Too short.", "utf-8")
    with pytest.raises(InputError, match="too short to measure on"):
        healing.measure(BenchOptions(text=tmp_path / "short.txt"), lambda _: None)


@pytest.mark.parametrize(
    ("draft", "restored"), [("ting", True), ("ting a letter", True), ("tings", False), ("ten", False)]
)
def test_a_word_is_restored_to_its_end(draft: str, restored: bool) -> None:
    assert healing.restores(draft, "ting") is restored
