"""research/docs/papers.md has one line for every table and figure of the papers."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.paths import ROOT

TABLES_AND_FIGURES = {"Superposed Decoding": (6, 16), "Top-nσ": (6, 6), "Top-W": (8, 3), "ARC-Decode": (8, 5)}


def named(cell: str) -> list[str]:
    """The tables and figures that a cell names: "Figure 2, Tables 3, 5 to 7" names one and four."""
    found: list[str] = []
    for what, numbers in re.findall(r"(Table|Figure)s? (\d+(?:(?:, | and | to )\d+)*)", cell):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
            found += [f"{what} {n}" for n in range(int(first), int(last or first) + 1)]
    return found


@pytest.mark.parametrize("paper", TABLES_AND_FIGURES)
def test_every_table_and_figure_has_one_line(paper: str) -> None:
    text = (ROOT / "research/docs/papers.md").read_text(encoding="utf-8")
    lines = text.partition(f"\n**{paper}**")[2].partition("\n\n**")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert all(result for _, _, result in rows[1:]), "a result, or why there is none"
    tables, figures = TABLES_AND_FIGURES[paper]
    expected = [f"Table {n}" for n in range(1, tables + 1)] + [f"Figure {n}" for n in range(1, figures + 1)]
    assert Counter(each for what, *_ in rows for each in named(what)) == Counter(expected)
