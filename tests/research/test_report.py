"""The report of every measurement, interleaved timing, and what the measurements of the page count."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from research.bench import stillness
from research.report import Report, Target, interleaved, percentile, table


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
    for value, target, met in ((1.05, "<= 1.05", True), (1.0501, "<= 1.05", False), (64.9, ">= 65", False)):
        assert Target("at its bound", value, target).met is met


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
