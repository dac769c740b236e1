"""Adapters are compared on text that they were not trained on, in pairs, and a stopped run resumes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.errors import InputError
from research.evals import tune_adapter
from research.evals.tune_adapter import (
    SHIPPED,
    AdapterSetting,
    FoldResult,
    TuneAdapterOptions,
    folds_of,
    general_of,
    report_of,
    settings,
)
from training.adapter import AdapterRecipe

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = AdapterRecipe(length=32, rate=1e-2, epochs=2)
SOME = ("rate 0.004", "general text 0.5")


def letters(count: int, alphabet: str) -> str:
    chance = random.Random(alphabet)
    return "".join(chance.choice(alphabet) for _ in range(count))


@pytest.fixture
def options(tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> TuneAdapterOptions:
    """A tiny study: some settings, a writer with another alphabet than the general text."""
    every = settings
    monkeypatch.setattr(
        tune_adapter, "settings", lambda pieces: [each for each in every(pieces) if each.name in (SHIPPED, *SOME)]
    )
    (tmp_path / "past.txt").write_text(letters(3000, "abcd "))
    (tmp_path / "general.txt").write_text(letters(3000, "wxyz "))
    return TuneAdapterOptions(
        model=str(tiny_folder("long compiled llama")),
        past=tmp_path / "past.txt",
        text=tmp_path / "general.txt",
        learned=tmp_path / "kept",
        repetitions=200,
        base_store="none",
    )


def test_no_token_is_both_trained_and_evaluated() -> None:
    ids = list(range(5000))
    folds = folds_of(ids, 64, 10**6)
    evaluated_ids: set[int] = set()
    for fold in folds:
        seen = {token for part in fold.rest for token in part}
        held = {token for window in fold.windows for token in window.tolist()}
        assert set(fold.pieces.flatten().tolist()) <= seen
        assert not seen & held
        assert len(fold.pieces) >= len(seen) // 64 - 1
        evaluated_ids |= held
    assert len(evaluated_ids) > 0.95 * len(ids), "every part is evaluated once"
    assert len(folds_of(ids, 64, 192)[0].windows) == 1
    general = general_of([[list(range(1000))], [list(range(1000, 2000))]], 64)
    measured = {token for window in general.windows for token in window.tolist()}
    assert not measured & set(general.pieces.flatten().tolist())
    assert {max(ids) < 1000 for ids in general.pieces.tolist()} == {True, False}, "pieces of both kinds"
    with pytest.raises(InputError, match="400 tokens of training text given; at least 1024 expected"):
        folds_of(ids[:400], 256, 100)
    with pytest.raises(InputError, match="less than 512 tokens of any kind; give a longer --text"):
        general_of([[ids[:300]]], 256)


def test_the_command_compares_settings_and_a_later_run_resumes(
    options: TuneAdapterOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--model", options.model, "--past", str(options.past), "--text", str(options.text)]
    flags += ["--learned", str(options.learned), "--prefixes", "200", "--base-store", "none", "--json"]

    def run(*more: str) -> dict[str, dict[str, float]]:
        result = CliRunner().invoke(app, ["eval", "tune-adapter", *flags, *more])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["name"] == "eval tune-adapter"
        return {row["setting"]: row for row in found["rows"]}

    rows = run()
    assert [*rows] == [SHIPPED, *SOME]
    assert {row["folds"] for row in rows.values()} == {2}
    faster, mixed = rows["rate 0.004"], rows["general text 0.5"]
    assert faster["ln_p_more"] == pytest.approx(faster["ln_p"] - rows[SHIPPED]["ln_p"], abs=2e-4)
    assert faster["ln_p_more"] > 2 * faster["ln_p_error"] > 0
    assert mixed["general"] > 2 * max(rows[SHIPPED]["general"], 0), (
        "general text is predicted better after training on it"
    )
    assert mixed["trained_tokens"] > 1.3 * rows[SHIPPED]["trained_tokens"]

    monkeypatch.setattr(tune_adapter, "trained", lambda *_: pytest.fail("this was trained before"))
    assert run() == rows
    refused = CliRunner().invoke(app, ["eval", "tune-adapter", *flags, "--share", "90"])
    assert refused.exit_code == 1
    assert "has results of another model or text; give another folder" in refused.stderr


def test_differences_are_paired_and_many_comparisons_need_a_larger_one() -> None:
    every = [
        AdapterSetting(SHIPPED, QUICK),
        AdapterSetting("better", QUICK),
        AdapterSetting("noisy", QUICK),
        AdapterSetting("missing", QUICK),
    ]
    base = [-5.0, -1.0, -3.0, -2.0]

    def of(gains: list[float], strength: float = 1.0) -> FoldResult:
        return FoldResult([gain - 4 for gain in gains], gains, -0.01, strength, 100, 1.0)

    results = {
        (every[0], 0): of(base),
        (every[0], 1): of(base),
        (every[1], 0): of([gain + more for gain, more in zip(base, (0.10, 0.12, 0.08, 0.10), strict=True)], 0.5),
        (every[2], 0): of([gain + more for gain, more in zip(base, (1.0, -0.9, 0.9, -0.2), strict=True)]),
    }
    report = report_of(results, every)
    shipped, better, noisy, missing = report.rows
    assert "beside" not in shipped
    assert [better["gain_more"], better["ln_p_more"]] == pytest.approx([0.1, 0.1])
    assert better["gain_error"] == pytest.approx(0.00816, abs=1e-4), "of the differences, not of the values"
    assert noisy["gain_more"] == pytest.approx(0.2)
    assert missing == {"setting": "missing", "folds": 0}
    (target,) = report.targets
    assert target.name.startswith("gain with better less")
    assert (target.value, target.met) == (pytest.approx(0.1 / 0.00816, rel=0.01), False)
    assert target.target == "<= 1.96", "5 % for two comparisons, on one side"


pytestmark = pytest.mark.usefixtures("one_thread")
