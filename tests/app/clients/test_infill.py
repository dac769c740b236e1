"""`/infill` and `/health` as llama.vim and llama.vscode use them, asked byte by byte."""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.service.service import DraftService
from app.web.site import create_service_app
from tests.app.site import Site
from tests.fake_autocomplete import FakeAutocomplete

# What llama.vim sends, without the text.
VIM = {
    "id_slot": 0,
    "n_predict": 128,
    "stop": [],
    "n_indent": 0,
    "top_k": 40,
    "top_p": 0.9,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 250,
    "response_fields": [
        "content",
        "timings/prompt_n",
        "timings/prompt_ms",
        "timings/prompt_per_token_ms",
        "timings/prompt_per_second",
        "timings/predicted_n",
        "timings/predicted_ms",
        "timings/predicted_per_token_ms",
        "timings/predicted_per_second",
        "truncated",
        "tokens_cached",
    ],
}


def post(site: Site, **fields: Any) -> tuple[int, bytes]:
    return site.answer("POST", "/infill", fields)


def infill(site: Site, **fields: Any) -> Any:
    return site.json("/infill", fields)


def test_llama_vim_gets_the_raw_text_that_it_looks_for(site: Site) -> None:
    _, content = post(site, input_prefix="Dear Anna,\n", prompt="Once", input_suffix="\nYours", **VIM)
    text = content.decode()
    assert re.match(r"^\s*{", text)
    assert re.search(r'"content"\s*:"', text)
    answer = json.loads(text)
    assert list(answer) == VIM["response_fields"]
    assert answer["content"] == " one" * 32
    assert answer["timings/predicted_n"] == 32


def test_parts_of_other_files_are_the_background_of_the_text(site: Site) -> None:
    parts = [{"text": "Far", "filename": "a.md", "time": 1}, {"text": "Near\n", "filename": "b.md"}]
    infill(site, input_extra=parts, input_prefix="Dear Anna,\n", prompt="thank")
    assert site.autocomplete.latest.before == "Dear Anna,\nthank"
    assert site.autocomplete.latest.ask.background == "Far\nNear\n"
    infill(site, prompt="thank", background="Notes")
    assert site.autocomplete.latest.ask.background == "Notes"


def test_the_text_after_the_caret_counts(site: Site) -> None:
    infill(site, prompt="Once", input_suffix=" and then", n_predict=2)
    assert site.autocomplete.latest.ask.after == " and then"
    assert infill(site, prompt="Once", input_suffix="and then", n_predict=2)["content"] == " one one "


def test_llama_vscode_gets_an_array_to_cycle_through(site: Site) -> None:
    found = infill(site, prompt="Once", n_cmpl=3, n_predict=2)
    assert [one["content"] for one in found] == [" one one", " two two", " three three"]
    assert [one["index"] for one in found] == [0, 1, 2]
    assert infill(site, prompt="Once", n_cmpl=1, n_predict=2)["content"] == " one one"
    assert len(infill(site, prompt="Once", n_cmpl=9, n_predict=1)) == 9


def test_time_limits_cut_nothing_as_in_llama_server(site: Site) -> None:
    """llama-server applies the second limit after a line break, with which a draft ends, and the first one not at all.
    The editor would cache a text that is cut to nothing."""
    site.autocomplete.model.step_s = 0.01
    answer = infill(site, prompt="Once", **VIM | {"t_max_prompt_ms": 1, "t_max_predict_ms": 20})
    assert answer["content"] == " one" * 32
    assert answer["tokens_cached"] == len("Once") + 1
    assert infill(site, prompt="Once", n_predict=1, t_max_prompt_ms=-1)["content"] == " one"


def test_warming_up_has_no_time_limit(site: Site) -> None:
    """llama.vim a1c8e6e, `s:ring_update`: the parts of other files are read although one millisecond is given."""
    site.autocomplete.model.step_s = 0.02
    passes = len(site.autocomplete.model.passes)
    warm = {
        "id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": [{"text": "Notes", "filename": "a.md"}],
        "prompt": "", "n_predict": 0, "temperature": 0.0, "samplers": [], "stream": False, "cache_prompt": True,
        "t_max_prompt_ms": 1, "t_max_predict_ms": 1, "response_fields": [""],
    }  # fmt: skip
    assert infill(site, **warm) == {}
    assert len(site.autocomplete.model.passes) == passes + 1
    assert site.autocomplete.latest.before == ""
    assert site.autocomplete.latest.ask.background == "Notes\n"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stream": True, "n_cmpl": 2}, "n_cmpl above 1 cannot be streamed."),
        ({"lora": [{"id": 0, "scale": 1}]}, "lora is not supported."),
        ({"samplers": ["wet"]}, "The sampler wet is not known"),
        ({"colour": "x"}, "colour is no field that the server knows."),
        ({"mode": "greedy", "n_cmpl": 2}, "n_cmpl changes nothing in greedy drafts"),
    ],
)
def test_what_cannot_be_had_is_refused_in_words(site: Site, fields: dict[str, Any], words: str) -> None:
    status, content = post(site, **({"prompt": "Once"} | fields))
    assert status in (400, 404)
    assert words in json.loads(content)["error"]["message"]


def test_health_tells_when_the_model_is_there() -> None:
    gate, fake = threading.Event(), FakeAutocomplete()
    service = DraftService(lambda _: (gate.wait(), fake.real())[1], "scripted")
    service.start()
    with TestClient(create_service_app(service), base_url="http://127.0.0.1") as client:
        loading = client.get("/health")
        assert (loading.status_code, loading.json()["error"]["message"]) == (503, "The model is being loaded.")
        gate.set()
        while not service.loaded:
            time.sleep(0.01)
        assert client.get("/health").json()["status"] == "ok"
    service.close()
