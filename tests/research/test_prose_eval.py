"""`eval prose` pairs every figure with and without the adapter, and resumes; `eval tune-base` finds better weights."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.errors import InputError
from core.models import load_model
from core.models.adapter import save
from core.ngram.counts import Counts
from core.ngram.interpolation import PRUNED
from research.evals import prose, tune_base
from research.evals.tune import Setting, TunedPlace, searched
from research.options import EvalOptions
from research.report import Report
from tests.core.models.test_prose_adapter import some_adapter

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def options(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> EvalOptions:
    """A tiny model, an adapter for it, and two documents of letters."""
    name = str(tiny_folder("long compiled llama"))
    model = load_model(name, "torch")
    save(some_adapter(model, model.fingerprint, seed=1), tmp_path / "adapter")
    model.close()
    chance = random.Random(0)
    lines = [json.dumps({"text": "".join(chance.choices("ab cd ", k=900)), "meta": {"name": f"x/{n}"}}) for n in "ab"]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    (tmp_path / "only.json").write_text(json.dumps({"names": ["x/b"]}))
    return EvalOptions(
        model=name,
        backend="torch",
        text=tmp_path / "text.jsonl",
        adapter=tmp_path / "adapter",
        only=tmp_path / "only.json",
        learned=tmp_path / "kept",
        repetitions=4,
        k="2",
        base_store="none",
    )


def test_a_stopped_run_resumes_and_another_adapter_begins_anew(
    options: EvalOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def stop(*_: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prose, "keys", stop)
        with pytest.raises(KeyboardInterrupt):
            prose.measure(options, said.append)
    before = len(said)
    report = prose.measure(options, said.append)
    assert all("keys of 2" in each for each in said[before:]), "only what was not measured"
    figures = {row["figure"]: row for row in report.rows if row["kind"] == "all"}
    assert set(figures) == {
        "ln p",
        "match of 2, as shipped",
        "match of 2, branching greedy",
        "keys saved in percent, 2",
        prose.BOOKINGS,
        prose.BETRAYS,
    }
    assert {row["kind"] for row in report.rows} == {"x/b", "beginnings", "letters", "all"}
    assert figures["ln p"][prose.MODEL] != figures["ln p"][prose.ADAPTED]
    again = prose.measure(options, said.append)
    assert again.rows == report.rows
    with pytest.raises(InputError, match="another adapter, text, store"):
        prose.measure(replace(options, context=31), said.append)
    with pytest.raises(InputError, match="No adapter"):
        prose.measure(replace(options, adapter=None), said.append)


def test_a_gain_is_that_of_pairs_and_a_loss_on_one_kind_misses_its_target() -> None:
    pair = [{"ln p": -3.0}, {"ln p": -2.8}]
    worse = [{"ln p": -2.0}, {"ln p": -2.5}]
    keys = [{"keys saved in percent, 1": 40.0}, {"keys saved in percent, 1": 42.0}]
    results = {"book: ln p, 0": pair, "book: ln p, 1": pair, "docs: ln p, 0": worse, "docs: ln p, 1": worse}
    report = prose.judged(results | {"book: keys of 1, 0": keys, "book: keys of 1, 1": keys})
    gains = {(row["kind"], row["figure"]): row["gain"] for row in report.rows}
    assert gains["book", "ln p"] == pytest.approx(0.2)
    assert gains["all", "ln p"] == pytest.approx(-0.15)
    met = {target.name.split(",")[0].split(":")[0]: target.met for target in report.targets}
    assert met == {"book": True, "docs": False, "keys saved in percent": True}


def test_drafts_that_betray_their_corpus_miss_their_target() -> None:
    clean, betraying = [{prose.BETRAYS: 0.0}] * 2, [{prose.BETRAYS: 0.0}, {prose.BETRAYS: 100 / 3}]
    for places, met in (([clean, clean], True), ([clean, betraying], False)):
        report = prose.judged({f"beginnings: paragraph, {n}": place for n, place in enumerate(places)})
        (target,) = report.targets
        assert (target.name, target.met) == (f"{prose.BETRAYS}, {prose.ADAPTED}", met)


def test_the_search_gives_a_store_that_is_right_more_weight() -> None:
    ids = [1, 2, 3, 4] * 50
    store = Counts.of(16, [(ids, 1)], 4)
    chosen = [TunedPlace.at(ids[:at], ids[at], torch.zeros(16), None) for at in range(20, 60, 10)]
    shipped = Setting(weight=0.5, trust=PRUNED)
    report = Report("x")
    best, tried = searched(
        shipped,
        tune_base.of_base,
        lambda setting: tune_base.judge(chosen, store, setting),  # pyright: ignore[reportArgumentType]
        report,
        lambda _: None,
    )
    assert best.weight == 1.0
    assert tried[best]["mean_ln_p"] > tried[shipped]["mean_ln_p"] + 0.1
    assert report.rows[0]["setting"] == "shipped"
    assert not any(setting.trust.types_weight for setting in tried)


def test_settings_of_the_typist_differ_from_the_shipped_ones_in_one_value() -> None:
    report = Report("x")
    tune_base.add_keys(report, {"shipped": [50.0, 60.0], "forks 3": [51.0, 61.0]})
    assert [row["gain"] for row in report.rows] == [0.0, 1.0]
    assert not report.targets[0].met
    shipped, *others = tune_base.changed().values()
    for other in others:
        assert sum(getattr(other, name) != value for name, value in shipped) == 1


def test_the_base_store_is_tuned_on_halves_of_a_text(options: EvalOptions) -> None:
    for wrong in (replace(options, part="test"), replace(options, text=None)):
        with pytest.raises(InputError, match="both halves"):
            tune_base.measure(wrong, lambda _: None)
    with pytest.raises(InputError, match="no base store"):
        tune_base.measure(options, lambda _: None)
