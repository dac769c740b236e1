"""Presets of SillyTavern, mikupad and text-generation-webui."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.clients.other_presets import read
from core.controls import Preset, checked_rule
from core.errors import InputError

# As SillyTavern 1.13 writes a Text Completion preset, shortened.
SILLYTAVERN: dict[str, Any] = {
    "temp": 1.25, "temperature_last": True, "top_p": 1, "top_k": 0, "top_a": 0.2, "tfs": 1, "epsilon_cutoff": 0,
    "eta_cutoff": 0, "typical_p": 1, "min_p": 0.05, "rep_pen": 1.1, "rep_pen_range": 2048, "no_repeat_ngram_size": 0,
    "penalty_alpha": 0, "num_beams": 1, "length_penalty": 1, "early_stopping": False, "add_bos_token": True,
    "dynatemp": False, "min_temp": 0, "max_temp": 2, "smoothing_factor": 0, "dry_allowed_length": 3,
    "dry_multiplier": 0.8, "dry_base": 1.75, "dry_sequence_breakers": '["\\n", ":"]', "mirostat_mode": 0,
    "mirostat_tau": 5, "mirostat_eta": 0.1, "guidance_scale": 1, "negative_prompt": "", "banned_tokens": "",
    "sampler_priority": ["dry", "min_p", "temperature"], "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0,
    "genamt": 512, "max_length": 8192,
}  # fmt: skip
MIKUPAD: dict[str, Any] = {
    "session": {
        "name": "Story", "temperature": 0.8, "topK": 40, "topP": 0.95, "minP": 0, "typicalP": 1, "repeatPenalty": 1.0,
        "xtcThreshold": 0.1, "xtcProbability": 0.5, "mirostat": 0, "mirostatTau": 5, "mirostatEta": 0.1,
        "dryMultiplier": 0, "seed": -1, "maxPredictTokens": -1,
        "enabledSamplers": ["xtc", "topP", "topK", "temperature"],
        "prompt": ["Once"],
    }
}  # fmt: skip
TEXTGEN = """temperature: 1.5
min_p: 0.1
top_n_sigma: 0.8
repetition_penalty: 1.15
sampler_priority:
- top_n_sigma
- min_p
"""


def test_a_preset_of_sillytavern_becomes_its_rules_in_their_order_and_the_rest_is_named() -> None:
    preset, left_out = read(json.dumps(SILLYTAVERN), "Cold")
    values = {"min_p": 0.05, "multiplier": 0.8, "base": 1.75, "allowed": 3}
    assert preset == Preset("Cold", "dry+min-p", values, 1.25)
    assert left_out == ["top_a 0.2", "rep_pen 1.1"]


def test_a_session_of_mikupad_keeps_the_order_of_its_samplers() -> None:
    preset, left_out = read(json.dumps(MIKUPAD), "file")
    values = {"top_k": 40, "top_p": 0.95, "threshold": 0.1, "probability": 0.5}
    assert preset == Preset("Story", "xtc+top-p+top-k", values, 0.8)
    assert left_out == []


def test_a_preset_of_text_generation_webui_is_read_as_yaml() -> None:
    preset, left_out = read(TEXTGEN, "Divine")
    assert preset == Preset("Divine", "top-n-sigma+min-p", {"n": 0.8, "min_p": 0.1}, 1.5)
    assert left_out == ["repetition_penalty 1.15"]


def test_mirostat_replaces_the_other_rules_as_it_does_there_and_version_one_is_named() -> None:
    preset, left_out = read(json.dumps({"mirostat_mode": 2, "mirostat_tau": 4, "top_p": 0.9}), "m")
    assert preset == Preset("m", "mirostat", {"tau": 4.0})
    assert left_out == ["top-p, which mirostat replaces"]
    assert read(json.dumps({"temp": 1, "mirostat_mode": 1, "mirostat_tau": 4}), "m")[1] == [
        "mirostat 1, because a preset has version 2 alone"
    ]


@pytest.mark.parametrize(
    "text", ["", "a story", "[1, 2]", "{}", '{"name": "x"}', "- 1\n- 2", "a: *b", "{" * 5000, '{"temp": "x"}']
)
def test_other_files_are_refused_or_say_what_is_left_out(text: str) -> None:
    try:
        preset, left_out = read(text, "n")
    except InputError as error:
        assert "choose" in str(error)
    else:
        assert (preset.rule, len(left_out)) == ("none", 1)


@example({"dry_multiplier": 1.0, "dry_allowed_length": float("inf")})
@given(
    st.dictionaries(
        st.sampled_from([*SILLYTAVERN, "topK"]), st.one_of(st.floats(), st.integers(), st.text(max_size=5), st.none())
    )
)
def test_whatever_the_values_are_the_preset_is_valid_or_refused(fields: dict[str, Any]) -> None:
    try:
        preset, _ = read(json.dumps(fields), "n")
    except InputError:
        return
    checked_rule(preset.rule, preset.values, preset.temperature)
