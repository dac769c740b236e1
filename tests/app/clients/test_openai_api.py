"""OpenAI's completion interface, asked by the official client: what it answers, streams and refuses."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from app.clients.choices import Choices
from app.clients.options import FIELDS, in_fields
from app.options.given import ALL_FLAGS
from core.errors import Mention, OptionError
from tests.app.site import Site
from tests.table_model import FIRST
from tests.waiting import until


def complete(site: Site, prompt: Any = "Once", **fields: Any) -> Any:
    ours = {"rule", "mode", "never", "avoid", "custom_token_bans"}
    named = {name: value for name, value in fields.items() if name not in FIELDS.keys() | ours}
    extra = {name: value for name, value in fields.items() if name not in named}
    return site.client.completions.create(model="polydraft", prompt=prompt, **named, extra_body=extra)


def refused(site: Site, **fields: Any) -> Any:
    from openai import APIStatusError

    with pytest.raises(APIStatusError) as found:
        complete(site, **fields)
    return found.value


@pytest.fixture
def openai() -> Any:
    """The official client, whose import takes half a second that a process without these tests saves."""
    import openai

    return openai


def texts(completion: Any) -> list[str]:
    return [choice.text for choice in completion.choices]


def test_n_drafts_are_the_choices_best_first(site: Site) -> None:
    found = complete(site, n=3, max_tokens=4)
    assert texts(found) == [" one" * 4, " two" * 4, " three" * 4]
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    assert (found.object, found.model) == ("text_completion", "polydraft")
    assert found.usage.completion_tokens == 12
    assert found.usage.total_tokens == found.usage.prompt_tokens + 12


def test_a_stream_grows_all_choices_by_turns_to_the_same_texts(site: Site) -> None:
    site.autocomplete.model.step_s = 0.005
    found, order, reasons = ["", "", ""], [], {}
    for chunk in complete(site, n=3, max_tokens=5, stream=True):
        (choice,) = chunk.choices
        found[choice.index] += choice.text
        order.append(choice.index)
        if choice.finish_reason:
            reasons[choice.index] = choice.finish_reason
    assert found == texts(complete(site, n=3, max_tokens=5))
    assert reasons == dict.fromkeys(range(3), "stop")
    assert order[:6] == [0, 1, 2, 0, 1, 2]


def test_a_stream_ends_with_the_usage_where_that_is_wanted(site: Site) -> None:
    *_, last = complete(site, n=2, max_tokens=3, stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage.completion_tokens == 6


def test_several_prompts_are_answered_in_their_order(site: Site) -> None:
    found = complete(site, ["Once", "Twice"], n=2, max_tokens=1, echo=True)
    assert texts(found) == ["Once one", "Once two", "Twice one", "Twice two"]
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_ends_before_the_first_stop(site: Site, stream: bool) -> None:
    found = complete(site, max_tokens=6, n=2, stop=["ne on", "wo two"], stream=stream)
    if stream:
        parts = [(chunk.choices[0].index, chunk.choices[0].text) for chunk in found]
        assert ["".join(text for at, text in parts if at == index) for index in (0, 1)] == [" o", " t"]
        return
    assert texts(found) == [" o", " t"]
    assert [choice.finish_reason for choice in found.choices] == ["stop", "stop"]


def test_more_tokens_than_a_draft_can_have_give_the_longest(site: Site) -> None:
    assert len(complete(site, max_tokens=500).choices[0].text.split()) == 32


def test_logprobs_are_those_of_the_model(table: Site) -> None:
    import torch

    found = complete(table, "abca", n=3, max_tokens=4, logprobs=2, extra_headers={})
    for choice in found.choices:
        at = choice.logprobs
        assert "".join(at.tokens) == choice.text
        assert at.text_offset == list(range(4, 4 + len(choice.text)))
        for top, token in zip(at.top_logprobs, at.tokens, strict=True):
            assert token in top
            assert len(top) in (2, 3)
        model, text = table.autocomplete.model, "abca"
        for token, logprob in zip(at.tokens, at.token_logprobs, strict=True):
            exact = torch.log_softmax(model.after(model.tokenizer.encode(text)), 0)[ord(token) - FIRST]
            assert logprob == pytest.approx(float(exact), abs=1e-4)
            text += token


def test_an_echoed_prompt_is_scored(table: Site) -> None:
    import torch

    model = table.autocomplete.model
    ids = model.tokenizer.encode("abcab")
    for prompt, most in (("abcab", 0), ("abcab", 1), ([ids, ids[:3]], 1)):
        found = complete(table, prompt, max_tokens=most, echo=True, logprobs=2)
        for choice, length in zip(found.choices, (5, 3), strict=False):
            at = choice.logprobs
            assert "".join(at.tokens) == choice.text
            assert len(at.tokens) == length + most
            assert at.text_offset == list(range(length + most))
            assert (at.token_logprobs[0], at.top_logprobs[0]) == (None, None)
            for n in range(1, length + most):
                logp = torch.log_softmax(model.after(ids[:n]), 0)
                token = ids[n] if n < length else int(logp.argmax())
                assert at.token_logprobs[n] == pytest.approx(float(logp[token]), abs=1e-4)
                assert max(at.top_logprobs[n].values()) == pytest.approx(float(logp.max()), abs=1e-4)
        assert [choice.index for choice in found.choices] == list(range(len(found.choices)))
    engine = table.service._engine
    assert engine is not None
    until(lambda: not any(tab.name.startswith("score") for tab in engine._tabs))  # the place in the cache is free again


def test_drawn_drafts_repeat_with_their_seed_alone(table: Site) -> None:
    drawn = {"n": 3, "mode": "sampled", "temperature": 1.5, "max_tokens": 12}
    assert texts(complete(table, "abca", seed=7, **drawn)) == texts(complete(table, "abca", seed=7, **drawn))
    assert len({tuple(texts(complete(table, "abca", **drawn))) for _ in range(5)}) > 1


def test_top_p_is_the_rule_and_zero_temperature_leaves_nothing_to_chance(table: Site) -> None:
    narrow = {"n": 3, "mode": "sampled", "top_p": 0.0, "max_tokens": 8, "temperature": 2}
    assert len(set(texts(complete(table, "abca", **narrow)))) == 1
    plain = texts(complete(table, "abca", n=3))
    assert texts(complete(table, "abca", n=3, temperature=0, top_p=1)) == plain
    assert "allows no sampling" in refused(table, mode="sampled", temperature=0).message


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"n": 10}, "n", "n is 10; at most 9 is accepted."),
        ({"exact_steps": 99}, "exact_steps", "exact_steps 99 given; a whole number from 0 to 31 expected."),
        ({"exact_steps": 3, "mode": "sampled"}, "exact_steps", "exact_steps changes nothing in sampled drafts"),
        ({"top_p": 0.5, "rule": "min-p"}, "top_p", "top_p is a flag of top-p, and the rule is min-p"),
        ({"n": 2, "mode": "greedy"}, "n", "n changes nothing in greedy drafts"),
        ({"temperature": 3.0, "seed": -2}, "seed", "seed -2 given"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "frequency_penalty is not supported."),
        ({"logit_bias": {"5": "x"}}, "logit_bias", "logit_bias: a number for 5 expected."),
        ({"never": ["*"]}, "never", "never: '*' given; * stands for any ending of a word"),
        ({"never": ["a"] * 10_001}, "never", "never has 10001 entries; at most 10000 are accepted."),
        ({"custom_token_bans": ["x"]}, "custom_token_bans", "custom_token_bans names tokens by their numbers."),
        ({"echo": True, "logprobs": 1, "max_tokens": 2}, "max_tokens", "max_tokens 2 is not supported where echo"),
        ({"echo": True, "logprobs": 1, "max_tokens": 1, "stream": True}, "stream", "stream is not supported"),
        ({"echo": True, "logprobs": 1, "max_tokens": 1, "prompt": "a" * 300_000}, None, "at most 262,144 can be"),
        ({"echo": True, "logprobs": 1, "max_tokens": 1, "prompt": [[1, -1]]}, "prompt", "lists of token ids"),
        ({"logprobs": 21}, "logprobs", "logprobs is 21; at most 20 is accepted."),
        ({"prompt": []}, "prompt", "prompt has 0 entries; at least 1 are accepted."),
        ({"prompt": [1, 2]}, "prompt", "prompt: token ids given; a text is expected"),
        ({"mode": "sampled", "temperature": 0.01}, "temperature", "temperature 0.01 allows no sampling."),
        ({"prompt": ["a", "b"], "user": "me"}, "user", "user names one session"),
        ({"n": 1, "best_of": 2, "stream": True}, "best_of", "best_of cannot be streamed."),
    ],
)
def test_what_cannot_be_had_is_refused_in_words(
    site: Site, fields: dict[str, Any], param: str | None, words: str
) -> None:
    error = refused(site, **fields)
    assert error.status_code == 400
    assert (error.body["type"], error.body["param"]) == ("invalid_request_error", param)
    assert words in error.message


def test_the_suffix_is_the_text_after_the_caret(site: Site) -> None:
    complete(site, suffix=" and so on", max_tokens=1)
    assert site.autocomplete.latest.ask.after == " and so on"
    chunks = list(complete(site, suffix=" and so on", max_tokens=4, n=2, stream=True))
    assert [chunk.choices[0].text for chunk in chunks] == [" one" * 4, " two" * 4], "ranked before they are sent"
    assert len(list(complete(site, suffix="\nAnd so on", max_tokens=4, n=2, stream=True))) > 2


def test_no_row_of_a_program_replaces_letters(site: Site, openai: Any) -> None:
    complete(site, "I saw teh", max_tokens=1)
    assert site.autocomplete.latest.ask.corrects is False
    site.client.chat.completions.create(
        model="polydraft", messages=[{"role": "assistant", "content": "I say teh"}], max_tokens=1
    )
    assert site.autocomplete.latest.before == "I say teh"
    assert site.autocomplete.latest.ask.corrects is False
    with pytest.raises(openai.BadRequestError, match="corrects is no field that the server knows"):
        site.client.completions.create(model="polydraft", prompt="I saw teh", extra_body={"corrects": True})


def test_every_flag_of_drafting_is_a_field(site: Site) -> None:
    assert {flag.replace("-", "_") for flag in ALL_FLAGS} - set(FIELDS) == {"k", "length", "temperature", "seed"}
    complete(site, forks=1, exact_steps=4, end_below=0.5, min_branch=0.2, ngrams=False, max_tokens=1)
    options = vars(site.autocomplete.latest.ask)
    assert (options["forks"], options["exact_steps"], options["end_below"]) == (1, 4, 0.5)
    assert (options["min_branch"], options["alpha"]) == (0.2, 0)


def test_an_error_about_options_names_fields() -> None:
    error = OptionError("{0} and {1} {given}", Mention("ngrams", False), "min-branch", given="--k")
    assert in_fields(error, {}) == ("ngrams false and min_branch --k", "ngrams")


def test_other_models_are_not_found(site: Site, openai: Any) -> None:
    assert [model.id for model in site.client.models.list()] == ["polydraft", "Scripted"]
    assert site.client.models.retrieve("Scripted").id == "Scripted"
    with pytest.raises(openai.NotFoundError, match=r"The model gpt-4 is not loaded\. Use polydraft or Scripted"):
        site.client.models.retrieve("gpt-4")


def test_a_response_names_the_model_that_drafted(site: Site) -> None:
    make = site.client.completions.with_raw_response.create
    for name, shown in (("gpt-4", "Scripted"), ("polydraft", "polydraft"), ("Scripted", "Scripted")):
        for stream in (False, True):
            raw = make(model=name, prompt="Once", max_tokens=1, stream=stream)
            assert raw.headers["x-polydraft-model"] == "Scripted"
            found = raw.parse()
            assert {part.model for part in found} == {shown} if stream else found.model == shown


def test_no_tokens_cache_the_text_and_any_number_is_the_most(site: Site) -> None:
    none = complete(site, max_tokens=0, echo=True, n=2)
    assert texts(none) == ["Once", "Once"]
    assert (none.usage.completion_tokens, none.usage.prompt_tokens) == (0, len("Once") + 1)
    assert {choice.finish_reason for choice in none.choices} == {"length"}
    assert len(texts(complete(site, max_tokens=-1))[0].split()) == 32


def test_the_token_is_the_api_key(site: Site, openai: Any) -> None:
    other = openai.OpenAI(base_url=site.base, api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="Polydraft requires its token"):
        other.models.list()


def test_a_newer_request_of_a_user_stops_the_older_one(site: Site, openai: Any) -> None:
    """The older one is told so, and the official client does not send it again."""
    site.autocomplete.model.step_s = 0.02
    before = len(site.autocomplete.sessions)

    async def both() -> None:
        async with openai.AsyncOpenAI(base_url=site.base, api_key=site.access.token) as client:
            make = client.completions.create
            old = asyncio.create_task(make(model="polydraft", prompt="Old text", max_tokens=32, user="me"))
            await asyncio.sleep(0.1)
            new = await make(model="polydraft", prompt="Old text and", max_tokens=2, user="me")
            assert new.choices[0].text == " one one"
            with pytest.raises(openai.ConflictError, match="A newer request of the same user") as found:
                await old
            assert found.value.body["code"] == "superseded"

    asyncio.run(both())
    assert len(site.autocomplete.sessions) == before + 1  # the cache of the user is kept


def test_a_closed_connection_stops_its_request_within_a_pass(site: Site, openai: Any) -> None:
    site.autocomplete.model.step_s = 0.01

    async def leave(stream: bool) -> None:
        async with openai.AsyncOpenAI(base_url=site.base, api_key=site.access.token) as client:
            task = asyncio.create_task(
                client.completions.create(model="polydraft", prompt="Leaving", max_tokens=32, stream=stream)
            )
            await asyncio.sleep(0.08)
            if stream:
                await (await task).close()
            task.cancel()

    for stream in (False, True):
        asyncio.run(leave(stream))
        time.sleep(0.05)
        passes = len(site.autocomplete.model.passes)
        time.sleep(0.1)
        assert len(site.autocomplete.model.passes) == passes


def test_an_error_of_the_model_has_openais_form(site: Site, openai: Any) -> None:
    site.autocomplete.model.broken["Broken"] = RuntimeError("a wire is loose")
    no_retries = site.client.with_options(max_retries=0)
    with pytest.raises(openai.InternalServerError, match="a wire is loose"):
        no_retries.completions.create(model="polydraft", prompt="Broken")
    with pytest.raises(openai.APIError, match="a wire is loose"):
        list(no_retries.completions.create(model="polydraft", prompt="Broken", stream=True))


def test_a_stream_takes_nothing_back() -> None:
    """What may still change is held back: the last word, words that drafts do not end in, the beginning of a stop."""
    choices = Choices(1, 10, ["and so on"], growing=True)
    sent = ""
    for step, text in enumerate((" a c", " a cat an", " a cat and s", " a cat and so w", " a cat and so we")):
        drafts = [{"id": 0, "text": text, "probability": 1, "finished": False, "tokens": []}]
        choices.take({"drafts": drafts, "best": 0, "settled": True, "done": step == 4})
        now = choices.all[0].text[: choices.all[0].sure]
        assert now.startswith(sent)
        sent = now
        assert sent == ["", " a cat", " a cat", " a cat", text][step]
