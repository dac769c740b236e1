"""Rules in a chain: by name, on the command line, in fields, presets and views; and controls that follow the
temperature."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from typer.testing import CliRunner

from app.cli.main import app
from app.clients.options import ClientOptions
from app.options.given import settings_of
from app.options.settings import DraftSettings
from core.autocomplete import Autocomplete
from core.chains import joined, names_of
from core.controls import CATALOG, TIED, Preset, title_of
from core.errors import InputError
from core.samplers import Chain, MinP, Temperature, TopK, TopNSigma, TopP, TopW
from core.samplers.catalog import cuts, sampler
from core.samplers.view import look, sweep
from tests.table_model import TableModel

LOGITS = torch.randn(3, 50, generator=torch.Generator().manual_seed(2)) * 3
BOTH = "top-n-sigma+top-p"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments])


def kept(rule: Any) -> list[list[bool]]:
    return rule(None, LOGITS).isfinite().tolist()


def test_a_chain_is_its_rules_one_after_the_other() -> None:
    named = sampler(BOTH, {"n": 1.5, "top_p": 0.6}, 1.4)
    assert kept(named) == kept(Chain([Temperature(1.4), TopNSigma(1.5), TopP(0.6)]))
    assert kept(sampler("top-k+top-p", {"top_k": 2, "top_p": 0.5})) == kept(Chain([TopK(2), TopP(0.5)]))
    assert kept(sampler("top-k+top-p", {"top_k": 2, "top_p": 0.5})) != kept(Chain([TopP(0.5), TopK(2)]))
    three = sampler("min-p+top-k+top-p", {"top_k": 9})
    assert isinstance(three, Chain)
    assert [type(rule) for rule in three.rules] == [MinP, TopK, TopP]
    assert title_of(BOTH) == "top-nσ, then top-p"
    assert joined(names_of(BOTH)) == BOTH


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("top-p+best", "rule 'best' given; one of none"),
        ("top-p+top-p", "top-p given twice"),
        ("top-p+none", "rule none given with other rules"),
        ("greedy+top-p", "give greedy alone"),
        ("top-k+mirostat", "mirostat given with top-k"),
    ],
)
def test_a_chain_without_a_meaning_is_refused_everywhere(rule: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sampler(rule)
    with pytest.raises(InputError, match=said):
        Preset("a", rule, {})
    with pytest.raises(ValidationError, match=said):
        DraftSettings.model_validate({"sampling": {"rule": rule}})
    refused = run("complete", "abc", *(word for name in rule.split("+") for word in ("--rule", name)))
    assert refused.exit_code == 1
    assert said in refused.stderr


def test_every_rule_that_may_be_combined_combines_with_every_other() -> None:
    several = [name for name, entry in CATALOG.items() if not entry.alone]
    assert set(CATALOG) - set(several) == {"none", "greedy", "mirostat"}
    for first in several:
        for then in several:
            if first != then:
                values = {"metric": "uniform"} if "top-w" in (first, then) else {}
                assert all(any(row) for row in kept(sampler(f"{first}+{then}", values)))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Autocomplete:
    loaded = Autocomplete(TableModel(seed=4, spread=3.0))
    monkeypatch.setattr("core.autocomplete.load_autocomplete", lambda *_, **__: loaded)
    return loaded


def test_the_command_line_composes_rules_in_the_order_given(
    loaded: Autocomplete, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    make = loaded.sampler
    monkeypatch.setattr(loaded, "sampler", lambda *a: (made.append(make(*a)), made[-1])[1])
    chain = ("--rule", "top-k", "--rule", "top-p", "--top-k", "4", "--top-p", "0.7")
    shown = run("complete", "abcabc", "--mode", "sampled", *chain)
    assert shown.exit_code == 0, shown.output
    assert [type(rule) for rule in made[-1].rules] == [TopK, TopP]
    assert (made[-1].rules[0].top_k, made[-1].rules[1].top_p) == (4, 0.7)
    assert "put top-p first" in shown.stderr  # the note on this order
    other = run("complete", "abcabc", "--mode", "sampled", "--rule", "top-p", "--rule", "top-k")
    assert [type(rule) for rule in made[-1].rules] == [TopP, TopK]
    assert other.stderr == ""
    refused = run("complete", "abcabc", "--rule", "top-k", "--rule", "top-p", "--beta", "3")
    assert "--beta is a flag of top-w, and the rule is top-k, then top-p; add --rule top-w." in refused.stderr


def test_sample_view_prints_a_chain_beside_its_rules(loaded: Autocomplete) -> None:
    chain = ("--rule", "top-n-sigma", "--rule", "top-p", "--top-p", "0.5")
    choices = json.loads(run("sample-view", "abcabc", *chain, "--json").stdout)["choices"]
    assert [choice["rule"] for choice in choices] == [*CATALOG, BOTH]
    assert choices[-1]["title"] == "top-nσ, then top-p"
    by_rule = {choice["rule"]: choice["kept"] for choice in choices}
    assert sum(by_rule[BOTH]) <= min(sum(by_rule["top-n-sigma"]), sum(by_rule["top-p"]))
    assert "give a chain of two or more" in run("sample-view", "abcabc", "--rule", "top-p").stderr


def test_fields_of_several_rules_are_a_chain_in_their_order() -> None:
    body = ClientOptions.model_validate({"top_k": 40, "top_p": 0.9})
    chosen = body.settings(3, 10, {}).sampling
    assert (chosen.rule, chosen.values) == ("top-k+top-p", {"top_k": 40, "top_p": 0.9})
    body = ClientOptions.model_validate({"top_p": 0.9, "min_p": 0.1})
    assert body.settings(3, 10, {}).sampling.rule == "top-p+min-p"
    named = ClientOptions.model_validate({"rule": "min-p+top-p", "top_p": 0.8})
    assert named.settings(3, 10, {}).sampling.values == {"min_p": 0.1, "top_p": 0.8}


def test_a_preset_carries_a_chain() -> None:
    preset = Preset("mine", BOTH, {"n": 1.3, "top_p": 0.95}, 2.0)
    assert Preset.from_json(preset.as_json()) == preset
    settings = DraftSettings.model_validate({"sampling": {"rule": preset.rule, "values": preset.values}})
    assert settings.sampling.values == {"n": 1.3, "top_p": 0.95}


def test_views_and_sweeps_show_a_chain() -> None:
    tokenizer: Any = TableModel().tokenizer
    row = torch.randn(len(tokenizer.pieces), generator=torch.Generator().manual_seed(3))
    (choice,) = look(row, tokenizer, 1.5, {BOTH: {"n": 1.0}}).choices
    assert choice.count == int(sampler(BOTH, {"n": 1.0}, 1.5)(None, row[None]).isfinite().sum())
    tied, temperatures = {"beta_by": TIED, "metric": "uniform", "lam": 0.5}, (0.5, 1.0, 2.0, 4.0)
    for name, values in ((BOTH, {}), ("top-w", tied)):
        counts = sweep(LOGITS[0], {name: values}, {}, temperatures)[name]
        assert counts == [int(sampler(name, values, t)(None, LOGITS[:1]).isfinite().sum()) for t in temperatures]


# --- a control that follows the temperature ------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5, 10.0])
def test_top_ws_beta_follows_the_temperature(temperature: float) -> None:
    values = {"beta_by": TIED, "metric": "uniform"}
    (rule,) = cuts("top-w", values, temperature)
    assert isinstance(rule, TopW)
    assert rule.beta == 1.5 + 1.5 * temperature
    by_hand = sampler("top-w", {"beta": min(1.5 + 1.5 * temperature, 10), "metric": "uniform"}, temperature)
    if temperature < 5:  # the slider ends at 10
        assert kept(sampler("top-w", values, temperature)) == kept(by_hand)


def test_a_beta_beside_the_tie_is_refused() -> None:
    with pytest.raises(InputError, match="beta changes nothing with beta-by temperature; leave one of them out"):
        settings_of({"beta": 3.0, "beta-by": TIED}, "top-w")
    assert settings_of({"beta-by": TIED}, "top-w").sampling.values["beta_by"] == TIED
