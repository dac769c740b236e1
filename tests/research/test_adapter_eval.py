"""`eval adapter`: an adapter is trained on a writer's earlier text and tested on later text; and the adapter that any
evaluation may be given."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from core.models import load_model
from core.models.adapter import save
from research.evals import adapter as adapter_evaluation
from research.evals.personal import newest
from research.options import EvalOptions, loaded
from tests.core.models.test_adapter import adapter_for
from training import personal
from training.adapter import AdapterRecipe

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = AdapterRecipe(length=256, batch=1, epochs=4, rate=1e-2)


def letters(count: int, seed: int = 0) -> str:
    chance = random.Random(seed)
    return "".join(chance.choice("abcd ") for _ in range(count))


def test_the_evaluation_trains_on_one_text_and_tests_on_another(
    tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(personal, "AdapterRecipe", lambda: RECIPE)
    (tmp_path / "past.txt").write_text(letters(5000))
    (tmp_path / "next.txt").write_text(letters(600, seed=8))
    monkeypatch.setattr(adapter_evaluation, "TYPED", 1)
    monkeypatch.setattr(adapter_evaluation, "DRAFTED", 6)
    monkeypatch.setattr(adapter_evaluation, "PASSES", 4)
    monkeypatch.setattr("training.held_out.MOST_WINDOWS", 8)
    options = EvalOptions(
        model=str(tiny_folder("long compiled llama")),
        text=tmp_path / "next.txt",
        past=tmp_path / "past.txt",
        share=90,
        learned=tmp_path / "kept",
        repetitions=64,
        k="2",
    )
    report = adapter_evaluation.measure(options, lambda _: None)
    rows = {row["with"]: row for row in report.rows}
    assert [row["places"] for row in report.rows] == [64] * 6
    assert rows["model, adapter"]["ln_p"] > rows["model"]["ln_p"] + 1
    assert rows["model, adapter"]["first_three"] > rows["model"]["first_three"]
    assert rows["model, adapter"]["match_2"] > rows["model"]["match_2"]
    assert rows["base store"]["match_2_gain_ci"] == 0
    assert rows["model, adapter"]["trained_tokens"] > 4 * 0.8 * 0.9 * 5000, "four times what is not held out"
    assert 0 < rows["model, adapter"]["tokens_per_s"] < rows["model, adapter"]["floor_tokens_per_s"]
    assert all(row["keys_saved_percent"] >= 0 for row in report.rows)
    assert rows["base and personal stores, adapter"]["gain"] > 0
    assert report.targets[0].met
    assert len(report.targets) == 4

    again: list[str] = []
    few = adapter_evaluation.measure(replace(options, repetitions=2), again.append)
    assert few.rows[3]["tokens"] == report.rows[3]["tokens"]
    assert not any(phase.startswith("Training") for phase in again), "the folder keeps the adapter"


def test_a_share_of_the_earlier_text_is_the_newest() -> None:
    assert newest(["one", "two", "three"], 1.0) == ["one", "two", "three"]
    assert newest(["aaaa", "bbbb", "cc"], 0.5) == ["bbb", "cc"]
    assert newest(["aaaa", "bbbb"], 0.5) == ["bbbb"]


def test_an_evaluation_drafts_with_the_adapter_that_it_is_given(
    tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    name = str(tiny_folder("compiled llama"))
    with closing(load_model(name, "torch")) as model:
        made = adapter_for(model.layers.projections, ["q_proj"])  # pyright: ignore[reportAttributeAccessIssue]
        save(replace(made, model=model.fingerprint), tmp_path / "adapter")
    given, plain = (loaded(EvalOptions(model=name, adapter=each)) for each in (tmp_path / "adapter", None))
    with closing(given), closing(plain):
        changed, before = (each.model.open().feed([3, 4, 5]) for each in (given, plain))
    assert (changed - before).abs().max() > 0.1
