"""`polydraft complete --speculate`: options, what is said of each token, and what is refused; on a model that is a
table."""

from __future__ import annotations

import json
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from app import speculation
from app.cli import app
from app.settings import DraftSettings
from core.controls import SPECULATIONS
from core.samplers.catalog import sampler
from core.speculative.cost import CostCurve
from tests.table_model import TableModel

TEXT = "abcabcabcabc"


class Loaded:
    """What `load_autocomplete` returns, over the table."""

    def __init__(self) -> None:
        self.model, self.ngrams, self.notice = TableModel(seed=4, spread=3.0), None, None

    def sampler(self, rule: str, values: dict[str, Any], temperature: float) -> Any:
        return sampler(rule, values, temperature)


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    loaded = Loaded()
    monkeypatch.setattr("core.autocomplete.load_autocomplete", lambda *_, **__: loaded)
    generate = import_module("core.speculative.generate")  # by that name the package has the function
    monkeypatch.setattr(generate, "cost_curve", lambda _: CostCurve((1, 48), (1.0, 1.5)))
    return loaded


def complete(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["complete", TEXT, *arguments])


def made(*arguments: str) -> dict[str, Any]:
    result = complete(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("drafter", ["ngram", "superposed"])
def test_lossless_drafts_come_token_by_token_with_how_each_came(drafter: str) -> None:
    found = made("--speculate", "lossless", "--drafter", drafter, "--k", "2", "--length", "20", "--tree-size", "4")
    assert found["speculation"] == "lossless"
    assert len(found["drafts"]) == 2
    for draft in found["drafts"]:
        assert draft["text"] == "".join(token["text"] for token in draft["tokens"])
        assert len(draft["tokens"]) == 20
        assert {token["how"] for token in draft["tokens"]} <= {"plain", "accepted", "corrected", "bonus"}
        assert all(token["lts"] is None for token in draft["tokens"])
    assert found["accept_length"] >= 1


def test_the_likeliest_text_is_the_same_with_speculation_and_without() -> None:
    texts = [
        made("--speculate", how, "--rule", "greedy", "--k", "1", "--length", "24", "--tree-size", "6")["drafts"][0][
            "text"
        ]
        for how in ("off", "lossless")
    ]
    assert texts[0] == texts[1]


def test_a_seed_makes_them_repeatable() -> None:
    runs = [made("--speculate", "lossless", "--seed", seed, "--tree-size", "3")["drafts"] for seed in ("5", "5", "6")]
    assert runs[0] == runs[1] != runs[2]


def test_without_a_tree_there_are_no_proposals() -> None:
    found = made("--speculate", "lossless", "--tree-size", "0")
    assert {token["how"] for draft in found["drafts"] for token in draft["tokens"]} == {"plain"}
    assert found["accept_length"] == 1


def test_plain_output_ends_with_what_it_came_to() -> None:
    lines = complete("--speculate", "lossless", "--k", "2", "--tree-size", "3").stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["1", "2"]
    assert "tokens a pass" in lines[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--speculate", "arc"), "table is not calibrated; run `polydraft calibrate"),
        (("--speculate", "lossless", "--drafter", "oracle"), "oracle"),
        (("--speculate", "best"), "best"),
        (("--speculate", "arc", "--theta", "2"), "less than or equal to 1"),
        (("--speculate", "lossless", "--tree-size", "-1"), "greater than or equal to 0"),
    ],
)
def test_what_is_wrong_is_named(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("core.speculative.calibration.user_file", lambda _: tmp_path / "none.json")
    result = complete(*arguments)
    assert result.exit_code != 0
    assert said in " ".join(result.stderr.split())


# ---------------------------------------------------------------- the page's settings


def test_settings_are_refused_by_name() -> None:
    for speculation_, said in (
        ({"mode": "best"}, "speculation 'best' given; one of off, lossless, arc expected"),
        ({"mode": "arc", "drafter": "oracle"}, "drafter 'oracle' given; one of ngram"),
        ({"mode": "lossless", "values": {"theta": 0.3}}, "theta given for speculation lossless"),
        ({"mode": "arc", "values": {"theta": 3}}, "theta 3 given; a number from -1 to 1 expected"),
        ({"mode": "arc", "values": {"tree_size": 1.5}}, "a whole number"),
    ):
        with pytest.raises(ValueError, match=said):
            DraftSettings.model_validate({"sampling": {"mode": "sampled", "speculation": speculation_}})


def test_what_was_learnt_is_kept_by_setting_and_the_curve_measured_once(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("core.speculative.cost.known_curve", lambda _: asked.append(1) or CostCurve((1,), (1.0,)))

    def chosen(**sampling: Any) -> Any:
        spec = {"mode": "lossless", "values": {"tree_size": 3}}
        settings = DraftSettings.model_validate({"sampling": {"mode": "sampled", "speculation": spec} | sampling})
        return speculation.chosen_by(loaded, settings)  # pyright: ignore[reportArgumentType]

    first, again, other = chosen(), chosen(), chosen(rule="top-p")
    assert first.by is again.by
    assert other.by is not first.by
    assert other.by.drafter is first.by.drafter
    assert (first.tree_size, first.mode, len(asked)) == (3, "lossless", 1)


def test_the_catalogue_of_the_page_names_ways_drafters_and_what_is_missing(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("core.speculative.calibration.user_file", lambda _: tmp_path / "none.json")
    offered = speculation.catalogue(loaded)  # pyright: ignore[reportArgumentType]
    assert [way["name"] for way in offered["ways"]] == list(SPECULATIONS)
    assert [drafter["name"] for drafter in offered["drafters"]] == list(speculation.DRAFTERS)
    assert "polydraft calibrate" in offered["arc_missing"]
    missing = {drafter["name"]: drafter["missing"] for drafter in offered["drafters"]}
    assert not missing["ngram"]
    assert missing["eagle3"]  # its head is for another model
    assert SimpleNamespace(**speculation.catalogue(None)).arc_missing == ""
