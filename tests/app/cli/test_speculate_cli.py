"""`polydraft complete --speculate`, the flags that would change nothing, and the settings of speculation; on a model
that is a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli.main import app
from app.options import speculation
from app.options.settings import DraftSettings
from core.autocomplete import Autocomplete
from core.controls import DRAFTERS, WITH_DRAFT_MODEL
from core.models import costs
from core.models.costs import CostCurve
from core.speculative.calibration import Calibration, Constants, fingerprint
from tests.table_model import TableModel

TEXT = "abcabcabcabc"


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> Autocomplete:
    loaded = Autocomplete(TableModel(seed=4, spread=3.0))
    monkeypatch.setattr("core.autocomplete.load_autocomplete", lambda *_, **__: loaded)
    monkeypatch.setattr(costs, "known", lambda *_: CostCurve((1, 48), (1.0, 1.5)))
    return loaded


def complete(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["complete", TEXT, *arguments])


def made(*arguments: str) -> dict[str, Any]:
    result = complete(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def texts(*arguments: str) -> list[str]:
    return [draft["text"] for draft in made(*arguments)["drafts"]]


@pytest.fixture
def smaller(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Draft models that --draft-model loads: "other" has another tokenizer."""
    loaded: list[Any] = []

    def load(name: str, *_: str) -> TableModel:
        loaded.append(TableModel(5 if name == "other" else 6, seed=4, spread=2.5))
        return loaded[-1]

    monkeypatch.setattr("core.models.load_model", load)
    return loaded


@pytest.mark.parametrize("drafter", WITH_DRAFT_MODEL)
def test_a_draft_model_proposes_and_the_drafts_stay_the_same(drafter: str, smaller: list[Any]) -> None:
    plain = texts("--mode", "sampled", "--length", "20")
    way = ("--speculate", "lossless", "--length", "20", "--tree-size", "4")
    found = made(*way, "--drafter", drafter, "--draft-model", "small.gguf")
    assert [draft["text"] for draft in found["drafts"]] == plain
    assert found["accept_length"] > 1.5  # it guesses the draws: a model that ignores them is right half as often
    assert smaller[0].tokens_fed > 0


def test_a_draft_model_is_the_users_and_fits_the_model(smaller: list[Any]) -> None:
    way = ("--speculate", "lossless", "--drafter", "model")
    without = complete(*way)
    assert without.exit_code == 1
    assert "--drafter model needs --draft-model FILE, a smaller model with the same tokenizer" in without.stderr
    foreign = complete(*way, "--draft-model", "other")
    assert foreign.exit_code == 1
    assert "different tokenizers; a draft model must share its target's. Choose a smaller model" in foreign.stderr
    for idle in ((), ("--speculate", "lossless"), ("--speculate", "off", "--mode", "sampled")):
        useless = complete(*idle, "--draft-model", "small.gguf")
        assert "--draft-model changes nothing without --speculate and --drafter model; add them." in useless.stderr


def test_a_draft_model_that_does_not_fit_the_apps_model_is_a_notice(loaded: Autocomplete, smaller: list[Any]) -> None:
    speculation.offer_draft_model(loaded, "other")
    loaded.adapt()  # computes the notice again
    assert loaded.draft_model is None
    assert "The draft model is not used: table and table have different tokenizers" in (loaded.notice or "")


@pytest.mark.parametrize("drafter", sorted(DRAFTERS.keys() - {"eagle3", "model"}))
def test_lossless_drafts_come_token_by_token_with_how_each_came(drafter: str) -> None:
    found = made("--speculate", "lossless", "--drafter", drafter, "--k", "2", "--length", "20", "--tree-size", "4")
    assert found["speculation"] == "lossless"
    assert len(found["drafts"]) == 2
    for draft in found["drafts"]:
        assert draft["text"] == "".join(token["text"] for token in draft["tokens"])
        assert {token["how"] for token in draft["tokens"]} <= {"plain", "accepted", "corrected", "bonus"}
        assert all(token["lts"] is None for token in draft["tokens"])
    assert found["accept_length"] > 1


def test_a_long_text_comes_in_stretches_between_resets() -> None:
    """The drafts share everything before the last reset, differ after it, and may end there."""
    found = texts("--length", "60", "--reset-every", "10", "--k", "3", "--seed", "1")
    assert max(len(text) for text in found) > 48 + 10 - 1  # 60 less the letters of the half-typed word
    assert len({text[:48] for text in found}) == 1
    assert len(set(found)) == 3
    assert found == texts("--length", "60", "--reset-every", "10", "--k", "3", "--seed", "1")


def test_costs_that_are_not_known_are_measured_first(loaded: Autocomplete, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[CostCurve] = []
    monkeypatch.setattr(costs, "known", lambda *_: None)
    monkeypatch.setattr(costs, "keep", lambda *kept: measured.append(kept[-1]))
    assert made("--speculate", "lossless")["accept_length"] >= 1
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--speculate arc", "table is not calibrated; run `polydraft calibrate"),
        ("--speculate arc --temperature 0.7", "not calibrated; run `polydraft calibrate --model … --temperature 0.7`"),
        ("--speculate lossless --drafter oracle", "drafter 'oracle' given; one of ngram"),
    ],
)
def test_what_is_wrong_is_named(arguments: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("core.speculative.calibration.user_file", lambda *_: tmp_path / "none.json")
    result = complete(*arguments.split())
    assert result.exit_code == 1
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "--speculate lossless --mode superposed",
            "--speculate changes nothing in superposed drafts; leave it out, or",
        ),
        (
            "--speculate lossless --verify 4",
            "--verify changes nothing in sampled drafts; leave it out, or choose --mode",
        ),
        ("--speculate lossless --no-distinct", "--distinct changes nothing in sampled drafts"),
        ("--speculate lossless --store me", "--store changes nothing in sampled drafts"),
        ("--speculate lossless --mode greedy --end-below 0.1", "--end-below changes nothing with --speculate"),
        ("--speculate lossless --theta 0.5", "--theta is a flag of arc, and --speculate is lossless; add --speculate"),
        ("--tree-size 4", "--tree-size is a flag of lossless or arc, and there is no --speculate; add --speculate"),
        ("--speculate off --drafter ngram", "--drafter changes nothing without --speculate lossless"),
        ("--speculate lossless --head folder", "--head changes nothing without --speculate and --drafter eagle3; add"),
        ("--seed 4", "--seed changes nothing in superposed drafts; leave it out, or choose --mode sampled or --mode"),
        ("--mode greedy --k 3", "--k changes nothing in greedy drafts, because there is only one; leave it out."),
        ("--no-distinct --forks 2", "--forks changes nothing with --no-distinct; leave one of them out."),
        ("--no-ngrams --alpha 0.5", "--alpha changes nothing with --no-ngrams; leave one of them out."),
        ("--no-ngrams --base-store none", "--base-store changes nothing with --no-ngrams; leave one of them out."),
        ("--mixing geometric --personal-weight 1", "--personal-weight changes nothing with --mixing geometric"),
        ("--personal-weight 0 --store me", "--store changes nothing with --personal-weight 0; leave one of them out."),
        ("--rule greedy --temperature 2", "--temperature changes nothing with --rule greedy; leave one of them out."),
        ("--beta 3", "--beta is a flag of top-w, and the rule is none; add --rule top-w."),
        ("--samples 3", "--samples is a flag of sampled+superposed, and the mode is superposed; add --mode"),
        ("--length 200", "--length 200 given; at most 32 is accepted without --reset-every. Add --reset-every 10."),
        ("--reset-every 10", "--reset-every changes nothing in drafts that are not longer; raise --length or lower"),
        ("--length 40 --reset-every 10 --verify 3", "--verify changes nothing with --reset-every; leave one of them"),
    ],
)
def test_a_flag_that_would_change_nothing_is_refused(arguments: str, said: str) -> None:
    result = complete(*arguments.split())
    assert (result.exit_code, result.stdout) == (1, "")
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


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--temperature 1.4 --tau 0.5", "ARC given at T = 0.7; its constants were measured at T = 1"),
        ("--rule min-p", "ARC given with the rule min-p; its constants were measured without a rule"),
        ("--rule greedy", "ARC given with the rule greedy;"),
        ("--mode greedy --temperature 2", "ARC given at T = 2;"),
    ],
)
def test_arc_is_refused_at_settings_for_which_it_was_not_calibrated(
    flags: str, said: str, loaded: Autocomplete, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calibration = Calibration(fingerprint(loaded.model), "table", np.ones(4), Constants(0.01, 0.1, 0.05))
    calibration.save(tmp_path / "made.json")
    monkeypatch.setattr("core.speculative.calibration.user_file", lambda *_: tmp_path / "made.json")
    assert made("--speculate", "arc", "--tree-size", "4")["drafts"]
    result = complete("--speculate", "arc", *flags.split())
    assert result.exit_code == 1
    assert said in " ".join(result.stderr.split())


def test_the_page_is_told_what_a_model_lacks(
    loaded: Autocomplete, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("core.speculative.calibration.user_file", lambda *_: tmp_path / "none.json")
    missing: Any = speculation.missing(loaded)
    assert list(missing["drafters"]) == list(DRAFTERS)
    assert "polydraft calibrate" in missing["arc"]
    assert not missing["drafters"]["ngram"]
    assert missing["drafters"]["eagle3"]  # its head is for another model
    assert speculation.missing(None) == {"drafters": dict.fromkeys(DRAFTERS, ""), "arc": ""}
