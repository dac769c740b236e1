"""`bench lsp` on a short document: what it sends, and what it reports."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from research.bench import lsp
from research.report import BenchOptions, number_in


def test_changes_are_sent_beside_whole_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lsp, "LINES", 2_000)
    report = lsp.measure(BenchOptions(repetitions=1), lambda _: None)
    opened, changes, whole = report.rows
    assert all(number_in(row, "s") > 0 for row in (opened, changes, whole))
    assert number_in(whole, "MB") > 20 * 2_000 * len(lsp.LINE) / 1e6 > 100 * number_in(changes, "MB")
    assert [target.target for target in report.targets] == ["<= 0.1"] * 3


def test_a_flag_that_changes_nothing_is_refused() -> None:
    ran = CliRunner().invoke(app, ["bench", "lsp", "--backend", "torch"])
    assert (ran.exit_code, "--backend changes nothing in lsp" in ran.stderr) == (1, True)
