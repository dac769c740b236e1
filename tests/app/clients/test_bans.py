"""What other servers ban, as phrases and biases here."""

from __future__ import annotations

from typing import Any

import pytest
from table_model import TableModel, words

from app.clients.bans import with_bans
from app.clients.openai import CompletionRequest
from app.wire.refused import Refused
from core.ask import Ask
from core.autocomplete import Autocomplete
from core.drafting.biased import bias_of
from core.errors import InputError
from core.modes.start import Mode
from core.phrases import BANNED, Phrases


@pytest.mark.parametrize(
    ("body", "never", "bias"),
    [
        ({"logit_bias": {"5": -100, "7": 2.5}}, [], [(5, BANNED), (7, 2.5)]),  # OpenAI
        ({"logit_bias": [[5, False], [7, 1], [" text", -3]]}, [], [(5, BANNED), (7, 1.0), (" text", -3.0)]),
        ({"logit_bias": {"word": -100}}, [], [("word", BANNED)]),  # llama-server
        ({"banned_tokens": ["delve", "a * b"]}, ["delve", r"a \* b"], []),  # KoboldCpp
        ({"banned_strings": ["in order to", ""]}, ["in order to"], []),  # TabbyAPI
        ({"banned_strings": "tapestry"}, ["tapestry"], []),
        ({"banned_tokens": [5, 7]}, [], [(5, BANNED), (7, BANNED)]),  # TabbyAPI
        ({"custom_token_bans": "5, 7"}, [], [(5, BANNED), (7, BANNED)]),  # text-generation-webui
        ({"banned_tokens": "", "banned_strings": [], "custom_token_bans": "", "logit_bias": []}, [], []),
        ({"never": ["one"], "banned_strings": ["two"]}, ["one", "two"], []),
    ],
)
def test_each_servers_fields_are_phrases_or_biases(body: dict[str, Any], never: list[str], bias: list[Any]) -> None:
    request = CompletionRequest.model_validate({"prompt": "Once", **body})
    assert request.never == never
    assert request.logit_bias == bias
    Phrases.of(never)
    assert CompletionRequest.model_validate(request.model_dump(exclude_unset=True), strict=True) == request
    assert with_bans({"prompt": "Once"}) == {"prompt": "Once"}


def drafts(mode: str, bias: list[tuple[int | str, float]]) -> list[str]:
    autocomplete = Autocomplete(TableModel(seed=2))
    ask = Ask(before=words("abc"), k=3, length=4, mode=Mode(mode), forks=0, token_bias=bias, heal=False)
    return [row.text for row in autocomplete.open().complete(ask).finish(autocomplete.model).drafts]


@pytest.mark.parametrize("mode", ["superposed", "branching", "greedy", "beam", "sampled", "sampled+superposed"])
def test_a_bias_changes_the_drafts_of_every_method(mode: str) -> None:
    letter = words("b")
    plain = drafts(mode, [])
    assert plain
    assert not any(letter in row for row in drafts(mode, [(1, BANNED)]))
    assert not any(letter in row for row in drafts(mode, [(letter, -1000)]))
    assert drafts(mode, [(1, 50)])[0][0] == letter
    assert drafts(mode, [(1, 0.0)]) == plain


def test_a_bias_of_no_token_is_refused() -> None:
    with pytest.raises(InputError, match="token 6 given; the model's tokens are 0 to 5"):
        bias_of([(6, 1)], TableModel().tokenizer)


def test_a_text_that_is_too_long_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(Refused, match="banned_strings: A phrase of 201 characters given; at most 200 expected"):
        with_bans({"banned_strings": ["x" * 201]})
