"""Requests of other programs that ban words and choose samplers, trimmed, as their sources and issue threads show them,
with what becomes of them here."""

from __future__ import annotations

from typing import Any

import pytest

from app.clients.infill import InfillRequest
from app.clients.openai import CompletionRequest
from core.phrases import BANNED

# SillyTavern, textgen-settings.js, `createTextGenGenerationData`: what it sends to every server.
TAVERN = {
    "prompt": "Once", "max_new_tokens": 8, "max_tokens": 8, "temperature": 1.2, "top_p": 1, "typical_p": 1,
    "typical": 1,
    "min_p": 0.05, "repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0, "top_k": 0, "skew": 0,
    "min_tokens": 0, "add_bos_token": True, "smoothing_factor": 0, "smoothing_curve": 1, "dry_allowed_length": 3,
    "dry_multiplier": 0.8, "dry_base": 1.75, "dry_sequence_breakers": '["\\n", ":", "\\"", "*"]',
    "dry_penalty_last_n": 512, "max_tokens_second": 0, "stopping_strings": ["\nYou:"], "stop": ["\nYou:"],
    "truncation_length": 8192, "ban_eos_token": False, "skip_special_tokens": True, "top_a": 0, "tfs": 1,
    "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "xtc_threshold": 0.1, "xtc_probability": 0.5,
    "nsigma": 0, "top_n_sigma": 0, "custom_token_bans": "", "banned_strings": [], "rep_pen": 1, "rep_pen_range": 0,
    "repetition_penalty_range": 0, "guidance_scale": 1, "negative_prompt": "", "repeat_penalty": 1, "repeat_last_n": 0,
    "n_predict": 8, "num_predict": 8, "num_ctx": 8192, "mirostat": 0, "ignore_eos": False, "rep_pen_slope": 1, "n": 1,
}  # fmt: skip
MARKS = ["\n", ":", '"', "*"]
DRY = {"rule": "min-p+dry+xtc", "dry_last_n": 512, "breakers": MARKS}
MIROSTAT_1 = {"mirostat": 1, "mirostat_mode": 1}
SLOP = ["eyes glint", "her emerald eyes"]


@pytest.mark.parametrize(
    ("body", "never", "bias", "sampling"),
    [
        pytest.param(
            TAVERN | {"banned_strings": ["Mary Jane shoes"], "temperature_last": True, "repetition_decay": 0},
            ["Mary Jane shoes"], [], DRY, id="SillyTavern for TabbyAPI; theroyallab/tabbyAPI issue 145",
        ),
        pytest.param(
            TAVERN | {"custom_token_bans": "13,29871", "sampler_priority": ["temperature", "min_p", "top_p"]},
            [], [(13, BANNED), (29871, BANNED)], DRY, id="SillyTavern for text-generation-webui",
        ),
        pytest.param(
            TAVERN | {"banned_strings": SLOP, "sampler_order": [6, 0, 1, 3, 4, 2, 5]} | MIROSTAT_1,
            SLOP, [], {"rule": "mirostat", "mirostat_version": 1}, id="SillyTavern for KoboldCpp; its issue 1234",
        ),
        pytest.param(
            {"prompt": "Once", "banned_tokens": '["exclude"]'}, ["exclude"], [], {}, id="LostRuins/koboldcpp issue 2333"
        ),
        pytest.param(
            {"prompt": "Once", "logit_bias": {"15043": -100, "29991": 1}}, [], [(15043, BANNED), (29991, 1.0)], {},
            id="lmg-anon/mikupad issue 9",
        ),
        pytest.param(
            {"prompt": "Once", "banned_strings": ["Elara", "send shivers"]}, ["Elara", "send shivers"], [], {},
            id="ikawrakow/ik_llama.cpp pull request 1185",
        ),
    ],
)  # fmt: skip
def test_bodies_for_servers_with_completions(
    body: dict[str, Any], never: list[str], bias: list[Any], sampling: dict[str, Any]
) -> None:
    asked = CompletionRequest.model_validate(body | {"mode": "sampled"})
    assert (asked.never, asked.logit_bias) == (never, bias)
    chosen = asked.settings(1, 8, {}).sampling
    assert {name: getattr(chosen, name) for name in sampling} == sampling


@pytest.mark.parametrize(
    ("body", "bias", "sampling"),
    [
        pytest.param(
            TAVERN | {
                "dry_sequence_breakers": MARKS, "logit_bias": [[29871, 1.5], [13, False]], "cache_prompt": True,
                "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "min_p", "xtc", "temperature"],
            },
            [(29871, 1.5), (13, BANNED)], DRY, id="SillyTavern for llama.cpp",
        ),
        pytest.param(
            {"prompt": "Once", "logit_bias": [["Hello, World!", -0.5]]}, [("Hello, World!", -0.5)], {},
            id="ggml-org/llama.cpp pull request 5003",
        ),
        pytest.param(
            {"prompt": "Once", "n_probs": 10, "post_sampling_probs": True, "mirostat": 1, "mirostat_tau": 4}, [],
            {"rule": "mirostat", "mirostat_version": 1}, id="lmg-anon/mikupad issue 104",
        ),
    ],
)  # fmt: skip
def test_bodies_for_llama_server(body: dict[str, Any], bias: list[Any], sampling: dict[str, Any]) -> None:
    asked = InfillRequest.model_validate(body | {"mode": "sampled"})
    asked.refuse_what_is_missing()
    assert asked.logit_bias == bias
    chosen = asked.drafting().sampling
    assert {name: getattr(chosen, name) for name in sampling} == sampling
