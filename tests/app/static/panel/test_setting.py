"""The settings of the panel, in node: for settings at random they say what the core says, and a link, the next visit
and a preset carry them."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

from app.options.catalogue import catalogue
from app.options.settings import DraftSettings
from core.chains import joined
from core.controls import (
    CATALOG,
    DRAFTERS,
    MODE_CONTROLS,
    MODES,
    PRESETS,
    SPECULATING,
    SPECULATIONS,
    Preset,
    entries_of,
)
from core.errors import InputError, OptionError
from core.options import DRAFTING, SEED, Control, Value
from tests.app.static.test_scripts import NODE

OWNED = [control for entry in CATALOG.values() for control in entry.controls]
OWNED += [control for controls in MODE_CONTROLS.values() for control in controls]
OWNED += [control for _, controls in SPECULATIONS.values() for control in controls]
CONTROLS: dict[str, Control] = {control.flag: control for control in [*DRAFTING.values(), SEED, *OWNED]}
CHOICES = {"rule": "none", "mode": "superposed", "speculate": "off", "drafter": "ngram"}
STATES = 400

BAD_LINKS = [
    ("rule=top-q", "rule top-q given; one of none, greedy"),
    ("rule=top-p&rule=top-p", "every rule at most once expected."),
    ("rule=top-p&rule=top-q", "rule top-p, top-q given; one of none, greedy"),
    ("rule=top-p&rule=greedy", "rule top-p, greedy given; greedy cannot be combined with other rules."),
    ("rule=top-p&rule=min-p&beta=3", "beta given for top-p, min-p and superposed, which have no control of that name."),
    ("rule=top-p&top-p=3", "top-p 3 given; a number from 0 to 1 expected."),
    ("rule=top-p&beta=3", "beta given for top-p and superposed, which have no control of that name."),
    ("mode=sampled&samples=3", "samples given for none and sampled, which have no control of that name."),
    ("mode=sampled%2Bsuperposed&samples=9", "samples 9 given; a whole number from 1 to 4 expected."),
    ("rule=none&k=99", "k 99 given; a whole number from 1 to 9 expected."),
    ("rule=none&k=", "a whole number from 1 to 9 expected."),
    ("rule=none&length=200", "length 200 given; at most 32 expected without reset-every."),
    ("rule=none&distinct=maybe", "distinct maybe given; true or false expected."),
    ("rule=none&mixing=cubic", "mixing cubic given; one of linear, geometric expected."),
    ("rule=top-k&top-k=2.5", "top-k 2.5 given; a whole number from 1 to 1000 expected."),
    ("rule=top-w&metric=taxi", "metric taxi given; one of l2, whitened, cosine, uniform expected."),
    ("temperature=99", "temperature 99 given; a number from 0.05 to 10 expected."),
    ("temperature=warm", "temperature warm given; a number from 0.05 to 10 expected."),
    ("mode=best", "mode best given; one of superposed"),
    ("mode=sampled&speculate=wild", "speculate wild given; one of off, lossless, arc expected."),
    ("rule=none&seed=-1", "seed -1 given; a whole number"),
    ("rule=none&colour=red", "colour given, which is no option."),
    ("rule=none&constructor=1", "constructor given, which is no option."),
]

# What a browser has kept, by this version, an earlier one or a damaged disk; and what is still valid of it.
KEPT: list[tuple[Any, dict[str, Value]]] = [
    ({"mode": "beam", "top-p": 0.5, "distinct": False}, {"mode": "beam", "top-p": 0.5, "distinct": False}),
    ({"k": 99, "temperature": "warm", "mixing": "cubic", "distinct": 1, "seed": 0.5, "mode": "beam"}, {"mode": "beam"}),
    ({"rule": "top-p+greedy", "mode": "best", "speculate": None, "drafter": "me", "k": 4}, {"k": 4}),
    ({"colour": "red", "constructor": 1, "k": 4}, {"k": 4}),
    ({"length": 200, "k": 4}, {}),  # which needs resets
    ({"length": 200, "reset-every": 10}, {"length": 200, "reset-every": 10}),
    ([1, "k"], {}),
    ("text", {}),
    (5, {}),
]


def some_value(control: Control, chance: random.Random) -> Value:
    if control.kind == "bool":
        return chance.random() < 0.5
    if control.kind == "choice":
        return chance.choice(control.choices)
    high = control.without_beyond.high
    if control.kind == "int":
        return chance.choice([int(control.low), int(high), chance.randint(int(control.low), int(high))])
    return chance.choice([control.low, high, max(control.low, round(chance.uniform(control.low, high), 4))])


def some_state(chance: random.Random) -> dict[str, Value]:
    """Values by flag; half of the options have others than their defaults."""
    names = [name for name, entry in CATALOG.items() if not entry.alone]
    chain = chance.sample(names, chance.choice([2, 3])) if chance.random() < 0.3 else [chance.choice([*CATALOG])]
    chosen: dict[str, Value] = {"rule": joined(chain)}
    for name, known in (("mode", MODES), ("speculate", SPECULATIONS), ("drafter", DRAFTERS)):
        chosen[name] = chance.choice([*known])
    for flag, control in CONTROLS.items():
        chosen[flag] = some_value(control, chance) if chance.random() < 0.5 else control.default
    if chosen["reset-every"] and chance.random() < 0.5:
        chosen["length"] = chance.randint(33, 256)
    return chosen


SOME = [some_state(random.Random(n)) for n in range(STATES)]
CHAINS = [*CATALOG, *map(joined, product(CATALOG, repeat=2)), *map(joined, permutations(["dry", "top-p", "xtc"]))]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the scripts answer, all in one process of node."""
    asked = tmp_path_factory.mktemp("asked") / "asked.json"
    links, kept = [link for link, _ in BAD_LINKS], [kept for kept, _ in KEPT]
    known = {**catalogue(), "fields": []}
    asked.write_text(
        json.dumps({"catalogue": known, "states": SOME, "links": links, "chains": CHAINS, "kept": kept}), "utf-8"
    )
    script = Path(__file__).with_name("setting_answers.mjs")
    done = subprocess.run([*NODE, script, asked], capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_option_changes_nothing_exactly_where_the_core_refuses_it(said: dict[str, Any]) -> None:
    used, unused = set(), set()
    for state, answer in zip(SOME, said["states"], strict=True):
        chosen = state if state["mode"] in SPECULATING else {**state, "speculate": "off"}
        for flag, control in CONTROLS.items():
            try:
                replace(control, beyond="", below="").refuse_without_effect(state[flag], chosen)
                refused = False
            except OptionError:
                refused = True
            assert bool(answer["idle"][flag]) is refused, (flag, answer["idle"][flag], chosen)
            (unused if refused else used).add(flag)
    assert used == CONTROLS.keys()
    assert unused == {flag for flag, control in CONTROLS.items() if control.modes or control.no_effect}


def test_the_server_accepts_every_request_and_makes_drafts_with_exactly_these_values(said: dict[str, Any]) -> None:
    for state, answer in zip(SOME, said["states"], strict=True):
        assert answer["values"] == state
        settings = DraftSettings.model_validate(answer["request"])
        for name, control in DRAFTING.items():
            assert getattr(settings, name) == state[control.flag]
        sampling = settings.sampling
        assert (sampling.rule, sampling.mode) == (state["rule"], state["mode"])
        own = [control for entry in entries_of(sampling.rule) for control in entry.controls]
        assert sampling.values == {control.name: state[control.flag] for control in own}
        assert sampling.speculation.mode == (state["speculate"] if sampling.mode in SPECULATING else "off")
        if sampling.speculation.mode != "off":
            _, controls = SPECULATIONS[sampling.speculation.mode]
            assert sampling.speculation.values == {control.name: state[control.flag] for control in controls}
        if sampling.mode in SEED.modes:
            assert sampling.seed == state["seed"]


def test_a_link_carries_all_that_is_shown_and_the_next_visit_and_a_preset_all_that_decides_the_drafts(
    said: dict[str, Any],
) -> None:
    usual = CHOICES | {flag: control.default for flag, control in CONTROLS.items()}
    for state, answer in zip(SOME, said["states"], strict=True):
        assert answer["wrong"] == ""
        carried = {*answer["shown"], "rule", "mode"}
        if state["mode"] in SPECULATING and state["speculate"] != "off":
            carried |= {"speculate", "drafter"}
        assert answer["followed"] == {flag: (state if flag in carried else usual)[flag] for flag in usual}
        assert answer["recalled"] == state
        preset = Preset.from_dict(answer["preset"])
        assert answer["at"]
        expected = DraftSettings.model_validate(answer["request"]).model_dump()
        taken = DraftSettings.model_validate(answer["taken"]).model_dump()
        for settings in (expected, taken):  # a preset has no speculation, and a seed only for what is drawn
            del settings["sampling"]["speculation"]
            if preset.mode not in SEED.modes:
                del settings["sampling"]["seed"]
        assert taken == expected


def test_a_bad_link_is_refused_by_name_and_changes_nothing(said: dict[str, Any]) -> None:
    for (link, sentence), answer in zip(BAD_LINKS, said["links"], strict=True):
        assert sentence in answer["wrong"], link
        assert answer["unchanged"], link


def test_a_chain_is_refused_exactly_where_the_core_refuses_it(said: dict[str, Any]) -> None:
    for chain, wrong in zip(CHAINS, said["chains"], strict=True):
        try:
            entries_of(chain)
            refused = False
        except InputError:
            refused = True
        assert bool(wrong) is refused, (chain, wrong)


def test_a_preset_is_exactly_its_values_whichever_was_chosen_before_it(said: dict[str, Any]) -> None:
    """A paper's preset leaves none of its options behind."""
    presets = {preset.name: preset for preset in PRESETS}
    usual = DraftSettings()
    assert len(said["presets"]) == len(PRESETS) ** 2
    for answer in said["presets"]:
        before, preset = (presets[name] for name in answer["names"])
        assert preset.name in answer["at"], answer["names"]
        settings = DraftSettings.model_validate(answer["request"])
        assert (settings.sampling.rule, settings.temperature) == (preset.rule, preset.temperature)
        assert settings.sampling.mode == (preset.mode or before.mode or usual.sampling.mode)
        defaults = {control.name: control.default for control in CATALOG[preset.rule].controls}
        assert settings.sampling.values == defaults | dict(preset.values)
        for name in DRAFTING:
            if name != "temperature":
                assert getattr(settings, name) == preset.drafting.get(name, getattr(usual, name)), answer["names"]
        saved = Preset.from_dict(answer["preset"])
        assert (saved.rule, saved.values) == (preset.rule, settings.sampling.values)
        assert saved.drafting == {name: v for name, v in preset.drafting.items() if v != getattr(usual, name)}


def test_the_next_visit_ignores_what_is_invalid(said: dict[str, Any]) -> None:
    assert said["visits"] == [valid for _, valid in KEPT]
