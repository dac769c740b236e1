"""Requests as other programs send them, taken from their sources, with the name and the version of each."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.clients.harmless import HARMLESS, OURS, SAME, SWITCHES, translated
from app.clients.infill import InfillRequest
from app.clients.ollama import GenerateRequest
from app.clients.openai import CompletionRequest
from app.clients.options import FIELDS
from app.clients.prompts import MARKS, around_gap, asked_for
from app.wire.refused import Refused
from core.autocomplete import Autocomplete
from core.models import load_model
from tests.app.clients.test_bodies import TAVERN
from tests.app.site import Site
from tests.table_model import TableModel, words

ONE = " one" * 16


# ---------------------------------------------------------------- fields that change nothing

PLAIN = {"prompt": "Once", "max_tokens": 2}


def test_every_harmless_field_is_no_field_of_ours_and_has_a_reason() -> None:
    known = FIELDS.keys() | InfillRequest.model_fields.keys() | CompletionRequest.model_fields.keys()
    of_llama_server = {"n_probs", "post_sampling_probs"}  # which /v1/completions leaves out
    assert HARMLESS.keys() & known == OURS | of_llama_server
    assert HARMLESS.keys() >= SWITCHES.keys() >= OURS


HARMLESS_BODY = {
    "seed": -1, "stop": "", "stream_options": {"include_obfuscation": False, "include_usage": False}, "store": False,
    "metadata": {"kind": "draft"}, "repetition_penalty": 1, "ignore_eos": False, "cache_prompt": True,
    "truncation_length": 2048, "n_keep": 5, "t_max_prompt_ms": -1, "lora": [], "model": "gpt-4o", "top_k": 0,
    "min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "logit_bias": None, "temperature": 0.01,
}  # fmt: skip


def test_harmless_fields_change_no_draft(site: Site) -> None:
    found = [site.json("/v1/completions", PLAIN | {name: value}) for name, value in HARMLESS_BODY.items()]
    found.append(site.json("/v1/completions", PLAIN | HARMLESS_BODY))
    assert {answer["choices"][0]["text"] for answer in found} == {" one one"}
    # Without stream_options, which is OpenAI's alone, llama-server's interface takes them too.
    rest = {name: value for name, value in HARMLESS_BODY.items() if name != "stream_options"}
    assert site.json("/completion", {"prompt": "Once", "n_predict": 2, **rest})["content"] == " one one"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetition_penalty", 1.1), ("repetition_penalty", True), ("ignore_eos", True), ("frequency_penalty", 0.2),
        ("lora", [{"id": 0, "scale": 1}]), ("grammar", "root ::= x"),
        ("tools", [{"type": "function"}]), ("store", True),
        ("response_format", {"type": "json_object"}), ("min_tokens", 5),
    ],
)  # fmt: skip
def test_what_would_change_the_text_is_refused_by_name(site: Site, name: str, value: Any) -> None:
    for path in ("/v1/completions", "/completion", "/infill"):
        status, content = site.answer("POST", path, {"prompt": "Once", name: value})
        error = json.loads(content)["error"]
        assert (status, error["param"]) == (400, name), content
        assert error["message"] == f"{name} is not supported. Leave it out."


@pytest.mark.parametrize("value", [["a"] * 1000, "a" * 1_000_000, {str(i): i for i in range(1000)}, [["a"]], 1e300])
def test_a_field_that_is_left_out_has_a_bound_too(value: Any) -> None:
    for name in HARMLESS.keys() - {"system", "template"}:  # texts, which the size of a request bounds
        with pytest.raises(Refused):
            translated({name: value}, ())


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"xtc_probability": 0.5, "xtc_threshold": 0.2, "temperature": 1}, None),
        ({"dry_multiplier": 0.8, "dry_sequence_breakers": ["\n"], "dry_penalty_last_n": -1}, None),
        ({"dry_multiplier": 0.8, "dry_sequence_breakers": '["\\n", "Anna:"]', "dry_penalty_last_n": 2048}, None),
        ({"dry_multiplier": 0.8, "dry_sequence_breakers": r'"\n", ":", "\"", "*"'}, None),  # text-generation-webui
        ({"dry_multiplier": 0.8, "dry_sequence_breakers": "[" * 10_000}, "dry_sequence_breakers"),
        ({"dry_multiplier": 0.8, "dry_sequence_breakers": [1]}, "dry_sequence_breakers"),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": 0}, "it switches DRY off in one server"),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": "all"}, "dry_penalty_last_n is no number of tokens."),
        ({"dry_last_n": 64}, "dry_last_n changes nothing without DRY."),
        ({"mirostat_version": 1}, "mirostat_version changes nothing without mirostat."),
        ({"dry_breakers": ["a"]}, "dry_breakers changes nothing without DRY."),
        ({"dry_multiplier": 0.8, "dry_allowed_length": 3}, None),
        ({"dry_multiplier": 0.8, "dry_allowed_length": "3"}, "dry_allowed_length"),
        ({"top_n_sigma": 9}, "n_sigma"),
        ({"typical_p": 0.9, "typ_p": 0.9}, None),
        ({"typical_p": 0.9, "typ_p": 0.8}, "typ_p"),
        ({"mirostat": 2, "mirostat_tau": 4, "mirostat_eta": 0.2, "top_k": 40, "top_p": 0.9, "mode": "sampled"}, None),
        ({"mirostat": 3}, "mirostat 3 is not supported. 1 and 2 are."),
        ({"mirostat_mode": 2, "mirostat": 1}, "two different values"),
        ({"xtc_probability": 2}, "xtc_probability"),
    ],
)
def test_penalties_that_are_on_are_our_rules(site: Site, body: dict[str, Any], refused: str | None) -> None:
    status, content = site.answer("POST", "/v1/completions", PLAIN | body)
    assert status == (400 if refused else 200), content
    assert not refused or refused in content.decode()


def test_rules_of_other_servers_are_ours(site: Site) -> None:
    """With their own names, in the order of the fields; and only those that `samplers` names are applied."""
    rule = {"temperature": 1, "mode": "sampled"}
    body = PLAIN | rule | {"typical_p": 0.8, "min_p": 0.2, "top_n_sigma": 1.5}
    for more, expected in (
        ({}, "typical+min-p+top-n-sigma"),
        ({"samplers": ["top_n_sigma", "temperature"]}, "top-n-sigma"),
        ({"samplers": ["typical_p", "min_p"]}, "typical+min-p"),
        ({"samplers": "mt"}, "min-p"),
        ({"mirostat": 2}, "mirostat"),
    ):
        asked = CompletionRequest.model_validate(body | more, strict=True)
        assert asked.settings(1, 4, {}).sampling.rule == expected
        assert site.answer("POST", "/v1/completions", body | more)[0] == 200


@pytest.mark.parametrize(
    ("body", "last", "version"),
    [
        ({"dry_multiplier": 0.8}, None, 2),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": 64}, 64, 2),  # llama-server, KoboldCpp
        ({"dry_multiplier": 0.8, "dry_range": 320}, 320, 2),  # TabbyAPI
        ({"dry_multiplier": 0.8, "dry_range": 0}, None, 2),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": 64, "samplers": ["top_k"], "top_k": 5}, None, 2),
        ({"mirostat": 1}, None, 1),
        ({"mirostat_mode": 1}, None, 1),  # text-generation-webui
        ({"mirostat": 2, "dry_multiplier": 0.8, "dry_penalty_last_n": 64}, None, 2),
    ],
)
def test_numbers_of_rules_that_are_no_flags_are_taken(body: dict[str, Any], last: int | None, version: int) -> None:
    asked = CompletionRequest.model_validate(PLAIN | {"mode": "sampled"} | body)
    sampling = asked.settings(1, 4, {}).sampling
    assert (sampling.dry_last_n, sampling.mirostat_version) == (last, version)
    assert CompletionRequest.model_validate(asked.model_dump(exclude_unset=True), strict=True) == asked
    rule = Autocomplete(TableModel()).sampler(sampling.rule, sampling.values, more=sampling.more)
    assert getattr(rule, "last", None) == last or last is None
    assert getattr(rule, "version", 2) == version


LATE, EARLY = ["min_p", "top_p", "temperature"], ["temperature", "min_p", "top_p"]


@pytest.mark.parametrize(
    ("more", "select_at"),
    [
        ({}, "temperature"),
        ({"samplers": LATE}, "1"),
        ({"samplers": "mpt"}, "1"),
        ({"samplers": EARLY}, "temperature"),
        ({"sampler_priority": LATE}, "1"),
        ({"sampler_priority": "min_p\ntop_p\ntemperature"}, "1"),
        ({"sampler_order": [6, 0, 1, 2, 3, 4, 5]}, "1"),
        ({"sampler_order": [6, 5, 0, 1, 2, 3, 4]}, "temperature"),
        ({"temperature_last": True}, "1"),
        ({"temperature_last": True, "top_p": 1}, "temperature"),  # no rule is on
    ],
)
def test_a_temperature_after_the_samplers_selects_at_one(more: dict[str, Any], select_at: str) -> None:
    body = PLAIN | {"temperature": 2, "mode": "sampled", "top_p": 0.9} | more
    asked = CompletionRequest.model_validate(body, strict=True)
    assert asked.settings(1, 4, {}).select_at == select_at


def test_a_temperature_between_two_samplers_is_refused(site: Site) -> None:
    body = PLAIN | {"temperature": 2, "mode": "sampled", "top_p": 0.9, "min_p": 0.1}
    status, content = site.answer("POST", "/v1/completions", body | {"samplers": ["min_p", "temperature", "top_p"]})
    assert (status, "between min_p and other samplers" in content.decode()) == (400, True)


@pytest.mark.parametrize("seed", [-1, None, 0, 2**31, 2**32 - 2, 2**32 - 1])
def test_every_seed_of_llama_server_is_accepted(site: Site, seed: int | None) -> None:
    for path in ("/completion", "/v1/completions", "/infill"):
        drawn = {"prompt": "Once", "seed": seed, "mode": "sampled", "temperature": 1}
        assert site.answer("POST", path, drawn)[0] == 200
    assert site.answer("POST", "/v1/completions", PLAIN | {"seed": 2**32, "mode": "sampled"})[0] == 400


def test_null_is_as_if_a_field_was_left_out(site: Site) -> None:
    for path, kind in (("/completion", InfillRequest), ("/v1/completions", CompletionRequest)):
        nothing = dict.fromkeys(kind.model_fields.keys() - {"prompt"}) | {"prompt": "Once"}
        status, content = site.answer("POST", path, nothing)
        assert status == 200, content
    assert site.json("/completion", {"prompt": "Once", "n_predict": None})["content"] == ONE


def test_a_number_of_tokens_has_many_names_and_one_value(site: Site) -> None:
    for name in SAME[0]:
        body = {"prompt": "Once", name: 3}
        assert site.json("/v1/completions", body)["choices"][0]["text"] == " one one one"
        assert site.json("/completion", body)["content"] == " one one one"
    status, content = site.answer("POST", "/v1/completions", PLAIN | {"n_predict": 5})
    assert (status, "two different values" in content.decode()) == (400, True)


@pytest.mark.parametrize(
    "samplers", [["dry", "top_k", "typ_p", "xtc", "penalties", "temperature"], "edskypmxt", [], ["top_k", "top_k"]]
)
def test_samplers_that_are_off_may_be_named(site: Site, samplers: Any) -> None:
    assert site.json("/infill", {"prompt": "Once", "n_predict": 1, "samplers": samplers})["content"] == " one"
    assert site.json("/v1/completions", PLAIN | {"samplers": samplers})["choices"][0]["text"] == " one one"
    status, content = site.answer("POST", "/v1/completions", PLAIN | {"samplers": ["roulette"]})
    assert (status, "The sampler roulette is not known" in content.decode()) == (400, True)


# ---------------------------------------------------------------- Continue d0a3c0b

STOPS = [
    "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<|endoftext|>", "</fim_middle>", "</code>", "/src/",
    "#- coding: utf-8", "```",
]  # fmt: skip
# `stableCodeFimTemplate`, which Continue uses for every model that it does not know
GAP = "<fim_prefix>Dear Anna,\nOnce<fim_suffix>\nYours<fim_middle>"


def latest(site: Site) -> tuple[str, str]:
    return site.autocomplete.latest.before, site.autocomplete.latest.ask.after


def test_continue_with_its_llama_cpp_provider(site: Site) -> None:
    """core/llm/llms/LlamaCpp.ts: JSON.stringify leaves out what is undefined."""
    body = {"model": "polydraft", "prompt": GAP, "stream": True, "n_predict": 4096, "stop": STOPS, "temperature": 0.01}
    *parts, last = site.events("/completion", body)
    assert "".join(part["content"] for part in parts) == " one" * 32
    assert not any(part["stop"] for part in parts)
    assert (last["content"], last["stop"], last["tokens_predicted"]) == ("", True, 32)
    assert latest(site) == ("Dear Anna,\nOnce", "\nYours")


def test_continue_with_its_openai_provider(site: Site) -> None:
    """core/llm/llms/OpenAI.ts: `_legacystreamComplete`, `_streamChat`, and `_streamFim`."""
    common = {"model": "polydraft", "max_tokens": 16, "temperature": 0.01, "stream": True, "stop": STOPS}
    *parts, last = site.events("/v1/completions", common | {"prompt": GAP})
    assert ("".join(part["choices"][0]["text"] for part in parts), last) == (ONE, "[DONE]")
    chat = common | {"messages": [{"role": "user", "content": GAP}]}
    fill = common | {"prompt": "Dear Anna,\nOnce", "suffix": "\nYours"}
    for path, body in (("/v1/chat/completions", chat), ("/v1/fim/completions", fill)):
        *parts, last = site.events(path, body)
        assert latest(site) == ("Dear Anna,\nOnce", "\nYours")
        assert ("".join(part["choices"][0]["delta"]["content"] for part in parts), last) == (ONE, "[DONE]")


def test_continue_with_its_ollama_provider(site: Site) -> None:
    """core/llm/llms/Ollama.ts: `ensureModelInfo`, then `_streamFim`."""
    assert ".Suffix" in site.json("/api/show", {"name": "polydraft"})["template"]
    body = {
        "model": "polydraft", "prompt": "Once", "suffix": "\nYours", "raw": True, "keep_alive": 1800, "stream": True,
        "options": {"temperature": 0.01, "num_predict": 4, "stop": STOPS, "num_ctx": 8192},
    }  # fmt: skip
    status, content = site.answer("POST", "/api/generate", body)
    *parts, last = map(json.loads, content.decode().splitlines())
    assert (status, "".join(part["response"] for part in parts)) == (200, " one" * 4)
    assert (last["done"], last["eval_count"], latest(site)) == (True, 4, ("Once", "\nYours"))


# ---------------------------------------------------------------- other programs


def test_llama_vscode_with_an_openai_client(site: Site) -> None:
    """llama.vscode 3938fb3, src/llama-server.ts, `openai_prompt_template`."""
    prompt = "Context:\n\nA note<|fim_prefix|>Once<|fim_suffix|>\nYours<|fim_middle|>"
    body = {"model": "", "prompt": prompt, "max_tokens": 128, "temperature": 0.1, "top_p": 0.99, "stream": False}
    status, content = site.answer("POST", "/v1/completions", body)
    assert (status, latest(site)) == (200, ("Once", "\nYours")), content


def test_cotabby(site: Site) -> None:
    """Cotabby 67e6d19, OpenAICompatibleAPIClient.swift: both of its modes, and its request that loads the model."""
    common = {"model": "polydraft", "stream": True, "max_tokens": 16, "temperature": 0.1, "top_p": 0.7}
    *parts, last = site.events("/v1/completions", common | {"prompt": "Once"})
    assert ("".join(part["choices"][0]["text"] for part in parts), last) == (ONE, "[DONE]")
    chat = common | {"messages": [{"role": "user", "content": "Once"}], "reasoning_effort": "none"}
    *parts, last = site.events("/v1/chat/completions", chat)
    assert ("".join(part["choices"][0]["delta"]["content"] for part in parts), last) == (ONE, "[DONE]")
    loaded = site.json("/api/generate", {"model": "polydraft", "prompt": "", "stream": False, "keep_alive": -1})
    assert (loaded["done"], loaded["done_reason"]) == (True, "load")
    assert [model["id"] for model in site.json("/v1/models")["data"]] == ["polydraft", "Scripted"]


def test_mikupad(site: Site) -> None:
    """mikupad b2a2a3e, mikupad.html, `llamaCppCompletion` with its sliders at rest."""
    body = {
        "prompt": "Once", "temperature": 1, "dynatemp_range": 0, "dynatemp_exponent": 1, "repeat_penalty": 1,
        "repeat_last_n": 256, "penalize_nl": False, "presence_penalty": 0, "frequency_penalty": 0, "mirostat": 0,
        "mirostat_tau": 5, "mirostat_eta": 0.1, "top_k": 0, "typical_p": 1, "min_p": 0, "tfs_z": 1, "top_p": 1,
        "xtc_threshold": 0.1, "xtc_probability": 0, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2,
        "dry_penalty_last_n": 0, "dry_sequence_breakers": ["\n", ":", '"', "*"], "seed": -1, "n_predict": -1,
        "n_probs": 10, "stream": True, "ignore_eos": False, "logit_bias": [], "grammar": "", "cache_prompt": True,
        "stop": [], "post_sampling_probs": False,
    }  # fmt: skip
    parts = site.events("/completion", body)
    assert "".join(part["content"] for part in parts) == " one" * 32


def test_sillytavern(site: Site) -> None:
    """SillyTavern ba6f7b7, textgen-settings.js, `getTextGenGenerationData` for llama.cpp, with neutral samplers."""
    body = TAVERN | {
        "model": "polydraft", "temperature": 1, "sampler_seed": -1, "seed": -1, "min_p": 0, "dry_allowed_length": 2,
        "dry_multiplier": 0, "dry_sequence_breakers": ["\n", ":", '"', "*"], "dry_penalty_last_n": 0, "tfs_z": 1,
        "samplers": ["top_k", "tfs_z", "typical_p", "top_p", "min_p", "temperature"], "xtc_probability": 0,
        "api_type": "llamacpp", "api_server": "http://127.0.0.1:7893", "legacy_api": False, "grammar_string": "",
        "logit_bias": [], "grammar": "", "cache_prompt": True, "stream": False,
    }  # fmt: skip
    assert site.json("/completion", body)["content"] == " one" * 8


def test_open_webui(site: Site) -> None:
    """Open WebUI 074d488, routers/tasks.py: `generate_autocompletion`, with a template of the administrator's in place
    of the one that asks for JSON, and `generate_emoji`; and a chat, which it streams."""
    common = {"model": "polydraft", "stream": False}
    for content, text in (("Continue the text:\n\nOnce", "Once"), ("Write one.\n<text>\nOnce\n</text>", "Once")):
        body = common | {"messages": [{"role": "user", "content": content}]}
        (choice,) = site.json("/v1/chat/completions", body)["choices"]
        assert (choice["message"]["content"], latest(site)) == (ONE, (text, ""))
    body = common | {"messages": [{"role": "user", "content": "Once"}], "max_completion_tokens": 4}
    assert site.json("/v1/chat/completions", body)["choices"][0]["message"]["content"] == " one" * 4
    *parts, last = site.events("/v1/chat/completions", {**body, "stream": True})
    assert ("".join(part["choices"][0]["delta"]["content"] for part in parts), last) == (" one" * 4, "[DONE]")


def test_the_official_client_chats(site: Site) -> None:
    make = site.client.chat.completions.create
    messages: Any = [
        {"role": "system", "content": "Complete the user's text."},
        {"role": "user", "content": [{"type": "text", "text": "Continue this text:\n\nOnce"}]},
    ]
    found = make(model="gpt-4o", messages=messages, n=2, max_completion_tokens=2)
    assert [choice.message.content for choice in found.choices] == [" one one", " two two"]
    assert (found.choices[0].message.role, found.choices[0].finish_reason, found.model) == (
        "assistant", "stop", "Scripted",
    )  # fmt: skip
    assert site.autocomplete.latest.before == "Once"
    chunks = list(make(model="gpt-4o", messages=messages, stream=True, max_tokens=3))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == " one one one"
    assert [chunk.choices[0].delta.role for chunk in chunks][:2] == ["assistant", None]
    picture: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    with pytest.raises(Exception, match="a part that is no text given"):
        make(model="gpt-4o", messages=picture)


def test_the_other_addresses_of_llama_server_and_ollama(site: Site) -> None:
    assert site.json("/v1/health")["status"] == "ok"
    assert site.json("/props")["default_generation_settings"]["n_ctx"] == 1024
    assert site.json("/props")["model_alias"] == "Scripted"
    assert site.json("/slots") == [{"id": 0, "n_ctx": 1024, "is_processing": False}]
    assert site.json("/models") == site.json("/v1/models")
    assert [model["name"] for model in site.json("/api/tags")["models"]] == ["polydraft", "Scripted"]
    assert site.json("/api/version")["version"]
    found = site.json("/api/generate", {"model": "x", "prompt": "Once", "stream": False, "options": {"num_predict": 2}})
    assert (found["response"], found["model"], found["done"]) == (" one one", "Scripted", True)


def test_tokens_there_and_back(table: Site) -> None:
    tokens = table.json("/tokenize", {"content": "abca"})["tokens"]
    assert table.json("/detokenize", {"tokens": tokens})["content"] == words("abca")
    pieces = table.json("/tokenize", {"content": "abca", "with_pieces": True})["tokens"]
    assert "".join(token["piece"] for token in pieces) == words("abca")
    status, content = table.answer("POST", "/detokenize", {"tokens": [10**6]})
    assert (status, "The token 1000000 given" in content.decode()) == (400, True)


def test_a_part_of_a_character_is_a_list_of_bytes(tiny_file: Path) -> None:
    """As llama-server gives it. Tokens are bytes here, and a character of more has several."""
    model = load_model(str(tiny_file), "torch")
    with closing(model), closing(Site(Autocomplete(model))) as made:
        tokens = made.json("/tokenize", {"content": "a\u00e9", "with_pieces": True})["tokens"]
        assert [token["piece"] for token in tokens] == ["a", [0xC3], [0xA9]]
        found = made.client.completions.create(model="x", prompt="Caf\u00e9 ", n=3, max_tokens=6, logprobs=5)
        for choice in found.choices:
            for name, top in zip(choice.logprobs.tokens, choice.logprobs.top_logprobs, strict=True):
                assert name in top and len(top) in (5, 6) and "\ufffd" not in "".join(top)


def test_llama_servers_probabilities_with_a_part_of_a_character_as_bytes() -> None:
    """In a stream they come with the text."""
    model = TableModel(seed=3)
    model.tokenizer.pieces[5] = b"\xe4\xb8"
    body = {"prompt": "abca", "n_predict": 6, "n_probs": 20, "cache_prompt": True}
    with closing(Site(Autocomplete(model))) as made:
        found = made.json("/completion", body)
        tokens = found["completion_probabilities"]
        assert "".join(token["token"] for token in tokens) == found["content"] != ""
        ids = model.tokenizer.encode("abca")
        for token in tokens:
            logp = torch.log_softmax(model.after(ids), 0)
            for each in [token, *token["top_logprobs"]]:
                assert each["logprob"] == pytest.approx(float(logp[each["id"]]), abs=1e-4)
                assert bytes(each["bytes"]) == model.tokenizer.pieces[each["id"]]
                assert each["token"] == ("" if each["id"] == 5 else bytes(each["bytes"]).decode())
            assert [each["id"] for each in token["top_logprobs"]] == logp.argsort(descending=True).tolist()
            ids.append(token["id"])
        first, last = made.events("/completion", body | {"stream": True})
        assert (first["completion_probabilities"], first["content"]) == (tokens, found["content"])
        assert (last["content"], last["stop"]) == ("", True)
        assert "completion_probabilities" not in made.json("/completion", body | {"n_probs": 0})
        status, content = made.answer("POST", "/completion", body | {"post_sampling_probs": True})
        assert (status, "sampled drafts alone" in content.decode()) == (400, True)
        drawn = body | {"post_sampling_probs": True, "mode": "sampled", "top_k": 3, "temperature": 2, "seed": 1}
        ids = model.tokenizer.encode("abca")
        for token in made.json("/completion", drawn)["completion_probabilities"]:
            p = torch.softmax((left := (model.after(ids) / 2).topk(3)).values, 0)
            expected = zip(left.indices.tolist(), p.tolist(), strict=True)
            assert [(each["id"], pytest.approx(each["prob"])) for each in token["top_probs"]] == [*expected]
            assert token["prob"] in [each["prob"] for each in token["top_probs"]]
            ids.append(token["id"])


def test_lm_evaluation_harness(table: Site) -> None:
    """lm-evaluation-harness 0.4.13, models/openai_completions.py, `LocalCompletionsAPI`: `_create_payload` for a choice
    of texts, whose tokens it sends, and `parse_logprobs`."""
    encode = table.autocomplete.model.tokenizer.encode
    context, ends = encode("abca"), [encode("bc"), encode("d")]
    body = {
        "model": "polydraft", "prompt": [context + end for end in ends], "max_tokens": 1, "logprobs": 1, "seed": 1234,
        "echo": True, "temperature": 0,
    }  # fmt: skip
    outputs = table.json("/v1/completions", body)
    for choice, end in zip(sorted(outputs["choices"], key=lambda choice: choice["index"]), ends, strict=True):
        logprobs = choice["logprobs"]["token_logprobs"][len(context) : -1]
        tops = choice["logprobs"]["top_logprobs"][len(context) : -1]
        assert len(logprobs) == len(tops) == len(end)
        expected, text = 0.0, list(context)
        for token in end:
            expected += float(torch.log_softmax(table.autocomplete.model.after(text), 0)[token])
            text.append(token)
        assert sum(logprobs) == pytest.approx(expected, abs=1e-4)
        assert all(max(top.values()) >= own for own, top in zip(logprobs, tops, strict=True))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/completions/", "/nothing", "/v1/embeddings"])
def test_an_unknown_address_is_an_error_in_openais_form(site: Site, path: str) -> None:
    status, content = site.answer("POST", path, {})
    error = json.loads(content)
    if path.startswith("/v1/"):
        error = error["error"]
        assert error["type"] == "not_found_error"
    assert (status, f"Polydraft serves nothing at {path}." in error["message"]) == (404, True)
    if path.endswith("/"):
        assert "Use /v1/completions." in error["message"]


def test_a_wrong_method_is_an_error_in_words(site: Site) -> None:
    status, content = site.answer("GET", "/v1/completions")
    assert (status, json.loads(content)["error"]["message"].split(".")[0]) == (
        405, "/v1/completions does not take GET",
    )  # fmt: skip


def test_ollamas_errors_are_texts(site: Site) -> None:
    status, content = site.answer("POST", "/api/generate", {"prompt": "Once", "images": ["aGk="]})
    assert (status, json.loads(content)) == (400, {"error": "images is not supported. Leave it out."})
    with pytest.raises(Refused):
        GenerateRequest.model_validate({"format": "json"})


@pytest.mark.parametrize("page", [False, True])
def test_errors_below_api_have_ollamas_form(page: bool) -> None:
    with closing(Site(page=page)) as made:
        for method, path, status in (
            ("POST", "/api/chat", 404), ("GET", "/api/ps", 404), ("POST", "/api/nothing", 404),
            ("GET", "/api/generate", 405), ("POST", "/api/tags", 405), ("POST", "/api/show/", 404),
        ):  # fmt: skip
            body = {} if method == "POST" else None
            found, content = made.answer(method, path, body)
            answer = json.loads(content)
            status = 404 if page else status  # the page's own paths follow those of programs
            assert (found, [*answer]) == (status, ["error"]) and path in answer["error"], (path, content)
        status, content = made.answer("POST", "/api/chat", {}, Authorization="Bearer x")
        assert (status, [*json.loads(content)]) == (401, ["error"])


@pytest.mark.parametrize("page", [False, True])
def test_head_is_answered_where_get_is(page: bool) -> None:
    paths = ["/", "/health", "/v1/health", "/props", "/slots", "/models", "/v1/models", "/v1/models/polydraft"]
    paths += ["/api/tags", "/api/version", "/nothing", "/v1/nothing", "/v1/completions", "/api/chat"]
    paths += ["/api/status", "/api/models", "/manifest.json"] if page else []
    with closing(Site(page=page)) as made:
        for path in paths:
            status, content = made.answer("GET", path)
            assert made.answer("HEAD", path) == (status, b""), (path, status, content)
            assert made.answer("GET", "/health") == made.answer("GET", "/health"), (
                "the connection's next answer is whole"
            )
        for path in ("/health", "/v1/models"):
            assert made.answer("HEAD", path, Authorization="")[0] == made.answer("GET", path, Authorization="")[0]


# ---------------------------------------------------------------- prompts


@pytest.mark.parametrize(("first", "second", "last"), MARKS)
@given(before=st.text("ab \n", max_size=8), after=st.text("ab \n", max_size=8))
def test_a_prompt_with_a_gap_is_taken_apart(first: str, second: str, last: str, before: str, after: str) -> None:
    if last:
        assert around_gap(f"other file{first}{before}{second}{after}{last}") == (before, after)
    assert around_gap(f"{second}{after}{first}{before}{last}") == (before, after)
    assert around_gap(before + after) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Dear Anna,\nthank you", ("Dear Anna,\nthank you", "")),
        ("Continue the following text:\n\nDear Anna", ("Dear Anna", "")),
        ("Please complete this: Dear Anna", ("Dear Anna", "")),
        ("Complete the text.\n```markdown\nDear\nAnna\n```", ("Dear\nAnna", "")),
        ("Complete the text.\n<text>\nDear Anna\n</text>", ("Dear Anna", "")),
        ("Dear <b>Anna</b>", ("Dear <b>Anna</b>", "")),
        ("Two points: milk and bread", ("Two points: milk and bread", "")),
        ("Dear <mask/>,\nYours", ("Dear ", ",\nYours")),  # obsidian-copilot-auto-completion
        (  # Continue d0a3c0b, `holeFillerTemplate`
            "Rules {{FILL_HERE}}\n\n<QUERY>\nDear {{FILL_HERE}}\nYours\n</QUERY>\nTASK: Fill the {{FILL_HERE}} hole. "
            "Answer only with the CORRECT completion, and NOTHING ELSE. Do it now.\n<COMPLETION>",
            ("Dear ", "\nYours"),
        ),
    ],
)
def test_an_instruction_around_a_text_is_left_out(message: str, expected: tuple[str, str]) -> None:
    assert asked_for(message) == expected
