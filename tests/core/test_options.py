"""The options are defined once: what takes them has their ranges and defaults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from app.cli.flags import sentence_of
from app.clients.choices import only_grows
from app.clients.options import in_fields
from app.options.catalogue import catalogue
from app.options.given import DRAFT_FLAGS, settings_of
from app.options.labels import OF_THE_PAGE
from app.options.settings import DraftSettings, drafting
from app.service.requests import asked
from core.ask import Ask
from core.autocomplete import Autocomplete
from core.controls import CATALOG, MODE_CONTROLS, PRESETS, SPECULATIONS, Preset
from core.drafting.drafts import Options
from core.errors import InputError, OptionError
from core.ngram.counts import Counts
from core.options import BY_FLAG, DRAFTING, LIBRARY, OPTIONS, SEED, Control
from core.superposed import superpose
from core.text import ShownText
from tests.completing import complete
from tests.table_model import TableModel

OTHERS = [
    control
    for controls in (
        *(entry.controls for entry in CATALOG.values()),
        *MODE_CONTROLS.values(),
        *(controls for _, controls in SPECULATIONS.values()),
    )
    for control in controls
]


def test_every_option_is_a_field_and_a_flag_unless_the_page_alone_has_it_and_known_to_the_panel() -> None:
    names = list(DRAFTING)
    assert [*DraftSettings.model_fields] == [*names, "sampling"]
    of_the_page = {BY_FLAG[flag].name for flag in OF_THE_PAGE}
    assert {flag.control.name for flag in DRAFT_FLAGS.values()} == {*names, SEED.name} - of_the_page
    told: Any = catalogue()
    assert told["drafting"] == [control.flag for control in DRAFTING.values()]
    assert told["controls"].keys() == {control.flag for control in (*DRAFTING.values(), SEED, *OTHERS)}


@pytest.mark.parametrize("control", [*DRAFTING.values(), SEED], ids=lambda control: control.name)
def test_a_field_has_the_range_and_the_default_of_its_definition(control: Control) -> None:
    def settings(value: Any) -> Any:
        made = {"sampling": {"seed": value}} if control is SEED else {control.name: value}
        if control.beyond:
            beyond = BY_FLAG[control.beyond]
            made |= {beyond.name: beyond.high}
        found = DraftSettings.model_validate(made, strict=True)
        return getattr(found.sampling if control is SEED else found, control.name)

    usual = DraftSettings()
    assert getattr(usual.sampling if control is SEED else usual, control.name) == control.default
    if control.kind == "bool":
        assert [settings(True), settings(False)] == [True, False]
        return
    if control.kind == "choice":
        assert [settings(choice) for choice in control.choices] == [*control.choices]
        with pytest.raises(ValidationError):
            settings("another")
        return
    assert [settings(control.low), settings(control.high)] == [control.low, control.high]
    for wrong in (control.low - control.step, control.high + control.step):
        with pytest.raises(ValidationError):
            settings(wrong)


def test_a_chosen_rule_mode_and_speculation_arrive_with_all_values() -> None:
    made = DraftSettings.model_validate(
        {
            "sampling": {
                "rule": "top-p",
                "mode": "sampled+superposed",
                "mode_values": {"samples": 3},
                "speculation": {"mode": "lossless"},
            }
        }
    )
    assert made.sampling.values == {"top_p": 0.9}
    assert made.sampling.mode_values == {"samples": 3, "sampled_tokens": 2}
    assert made.sampling.speculation.values == {"tree_size": 0}


def test_a_keystroke_builds_its_options_as_set_and_with_its_stores_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Options] = []
    check = Options.__post_init__
    monkeypatch.setattr(Options, "__post_init__", lambda self: (built.append(self), check(self))[1])
    autocomplete, settings = Autocomplete(TableModel()), DraftSettings(length=4)
    autocomplete.open().complete(asked(autocomplete, settings, before="abc")).finish(autocomplete.model)
    assert [(options.k, options.length, options.exact_steps) for options in built] == [(3, 4, 2), (3, 5, 2)]


def test_options_that_nothing_would_read_are_refused() -> None:
    for options, unread in (
        (Options, {"verify": 4}),
        (Options, {"min_confidence": 0.5}),
        (Ask, {"refill": False}),
    ):
        with pytest.raises(
            InputError, match=f"{next(iter(unread))} .* given, which changes nothing here; leave it out"
        ):
            options(**unread)
    assert Ask(verify=4).verify == 4


@pytest.mark.parametrize(
    ("given", "rule", "option", "plain", "flags", "fields"),
    [
        (
            {"ngrams": False, "personal-weight": 0.5},
            "none",
            "personal-weight",
            "personal-weight changes nothing with ngrams false",
            "--personal-weight changes nothing with --no-ngrams",
            "personal_weight changes nothing with ngrams false",
        ),
        ({"k": 10}, "none", "k", "k 10 given; a whole", "--k 10 given; a whole", "n 10 given; a whole"),
        ({}, "{0} --top-p", "rule", "rule '{0} --top-p'", "--rule '{0} --top-p'", "rule '{0} --top-p'"),
    ],
)
def test_an_error_names_the_option_as_its_reader_does(
    given: dict[str, Any], rule: str, option: str, plain: str, flags: str, fields: str
) -> None:
    with pytest.raises(OptionError) as raised:
        settings_of(given, rule)
    assert raised.value.option == option
    assert str(raised.value).startswith(plain)
    assert sentence_of(raised.value).startswith(flags)
    assert in_fields(raised.value, {"k": "n"})[0].startswith(fields), "what was given is never rewritten"


def test_presets_have_the_ranges_of_the_options() -> None:
    for name in ("k", "length"):
        limit = int(DRAFTING[name].without_beyond.high)
        assert getattr(Preset("a", "none", {}, **{name: limit}), name) == limit
        with pytest.raises(InputError, match=f"{name} {limit + 1} given; a whole number from 1 to {limit}"):
            Preset("a", "none", {}, **{name: limit + 1})
    assert Preset("a", "none", {}, length=256, drafting={"reset_every": 10}).length == 256
    with pytest.raises(InputError, match="length 257 given; a whole number from 1 to 256"):
        Preset("a", "none", {}, length=257, drafting={"reset_every": 10})
    assert {preset.temperature for preset in PRESETS if preset.name == "Balanced"} == {DRAFTING["temperature"].default}


def test_the_papers_preset_is_the_papers_method() -> None:
    """Its drafts are those of the library with the paper's arguments, whatever the settings were before."""
    (paper,) = [preset for preset in PRESETS if preset.name == "Superposed Decoding, the paper's"]
    assert (paper.rule, paper.mode, paper.temperature) == ("none", "superposed", 1.0)
    settings = DraftSettings(k=3, length=6, **paper.drafting)
    store: Any = Counts.of(6, [([0, 1, 2, 3, 4, 5, 0, 2, 4, 1, 3, 5] * 3, 1)])
    autocomplete = Autocomplete(TableModel(seed=2), ngrams=store)
    completion = complete(autocomplete.open(), "abc", drafting(settings, heal=False, one_line=False))
    completion.finish()
    arguments = {"distinct": False, "exact_steps": 0, "forks": 0, "mixing": "geometric", "alpha": 0.54, "tau": 0.06}
    *_, by_hand = superpose(autocomplete.model, [0, 1, 2], 3, 6, ngrams=store, **arguments)
    assert [draft.text for draft in completion.drafts] == [autocomplete.model.tokenizer.decode(i) for i in by_hand.ids]
    *_, linear = superpose(autocomplete.model, [0, 1, 2], 3, 6, ngrams=store, **arguments | {"mixing": "linear"})
    assert by_hand.ids != linear.ids


def test_a_long_text_needs_resets() -> None:
    said = "length 200 given; at most 32 is accepted without reset_every. Add reset_every 10"
    with pytest.raises(ValidationError, match=said):
        DraftSettings(length=200)
    long = drafting(DraftSettings(length=200, reset_every=10))
    assert (long.length, long.reset_every, long.end_below, long.one_line) == (200, 10, 0.0, False)
    assert not drafting(DraftSettings()).reset_every
    words: Any = SimpleNamespace(pieces=[b"one", b"\n", b" two"])
    assert [ShownText(words, lines)([0, 1, 2])[0] for lines in (False, True)] == ["one", "one\n two"]
    assert not only_grows(DraftSettings(length=40, reset_every=10))  # a reset replaces the other drafts
    assert only_grows(DraftSettings())


def test_a_preset_names_options_that_exist_within_their_ranges() -> None:
    for wrong, said in (
        ({"mixing": "cubic"}, "mixing 'cubic' given; one of linear, geometric expected"),
        ({"tau": 9}, "tau 9 given; a number from 0.05 to 2 expected"),
        ({"k": 3}, "drafting 'k' given; one of"),
        ({"colour": 1}, "drafting 'colour' given; one of"),
        ({"reset_every": 33}, "reset-every 33 given; a whole number from 0 to 32 expected"),
    ):
        with pytest.raises(InputError, match=said):
            Preset("a", "none", {}, drafting=wrong)
    kept = Preset("a", "none", {}, drafting={"mixing": "geometric", "distinct": False})
    assert Preset.from_json(kept.as_json()) == kept


def test_the_page_is_told_the_defaults_of_the_settings() -> None:
    told: Any = catalogue()
    sampling = DraftSettings().sampling
    speculation = {"speculate": sampling.speculation.mode, "drafter": sampling.speculation.drafter}
    assert told["usual"] == {"rule": sampling.rule, "mode": sampling.mode, **speculation}
    assert told["controls"]["seed"]["default"] == sampling.seed
    for control in DRAFTING.values():
        assert told["controls"][control.flag]["default"] == getattr(DraftSettings(), control.name)
    assert told["drawn"] == SEED.modes


def test_the_library_has_its_own_defaults_where_the_declaration_says_so() -> None:
    named = {name: control.library for name, control in OPTIONS.items() if control.library is not None}
    assert named == {"exact_steps": 1, "end_below": 0.0, "min_branch": 0.0}
    for made in (LIBRARY, Options(), Ask()):
        assert {name: getattr(made, name) for name in named} == named
    assert [OPTIONS[name].default for name in named] == [2, 0.3, 0.01]
