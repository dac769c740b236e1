"""What other servers ban: their fields as phrases that no draft contains, and as biases of tokens.

    logit_bias          OpenAI and llama-server: {"5": -100, "text": 2} or [[5, false], ["text", 2]]
    banned_tokens       KoboldCpp: texts, in a list or its JSON; TabbyAPI: ids, in a list or a text
    banned_strings      TabbyAPI, text-generation-webui: texts
    custom_token_bans   text-generation-webui: ids in a text, "5, 7"

KoboldCpp and TabbyAPI find a banned text anywhere, in a word, too; here it is found where whole words stand.
"""

from __future__ import annotations

import json
from typing import Any

from app.wire.bounds import LARGEST, MOST_PHRASES
from app.wire.refused import Refused
from core.errors import InputError
from core.phrases import BANNED, checked, literal

Bias = tuple[int | str, float]


def biases(given: Any) -> Any:
    """The pairs of token and number of a `logit_bias`. Raises ValueError for pydantic."""
    if isinstance(given, dict):
        given = [[int(token) if token.isdecimal() else token, number] for token, number in given.items()]
    if not isinstance(given, list) or len(given) > MOST_PHRASES:
        raise ValueError(f"an object or a list of at most {MOST_PHRASES:,} pairs of a token and a number expected")
    return [_pair(each) for each in given]


def _pair(each: Any) -> Bias:
    token, number = each if isinstance(each, list | tuple) and len(each) == 2 else (None, None)
    if number is False:  # llama-server's ban
        number = BANNED
    if (
        isinstance(token, bool)
        or not isinstance(token, int | str)
        or token == ""
        or (isinstance(token, str) and len(token) > 200)
    ):
        raise ValueError("a pair of a token's id or a short text, and a number expected")
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= LARGEST:
        raise ValueError(f"a number for {token!r} expected")
    return token, float(number)


def with_bans(body: dict[str, Any]) -> dict[str, Any]:
    """A body with `never` and `logit_bias` in place of the other fields. Raises Refused for a value that is none."""
    fields = {name: value for name, value in body.items() if name not in FIELDS}
    phrases, ids = list[str](), list[int]()
    for name in FIELDS:
        texts, tokens = _banned(name, body.get(name))
        phrases, ids = phrases + texts, ids + tokens
    if phrases:
        own = fields.get("never") or []
        fields["never"] = [*own, *phrases] if isinstance(own, list) else own
    if ids:
        fields["logit_bias"] = [*biases(fields.get("logit_bias") or []), *((token, BANNED) for token in ids)]
    return fields


FIELDS = ("banned_tokens", "banned_strings", "custom_token_bans")


def _banned(name: str, value: Any) -> tuple[list[str], list[int]]:
    """The phrases and the ids of a field."""
    if value is None:
        return [], []
    if isinstance(value, str) and value.strip().startswith("[") and isinstance(listed := _from_json(value), list):
        value = listed
    if isinstance(value, str):  # ids, or one text
        parts = [part.strip() for part in value.split(",") if part.strip()]
        numbers = name != "banned_strings" and all(part.isdecimal() for part in parts)
        value = [int(part) for part in parts] if numbers else [value]
    if not isinstance(value, list) or any(isinstance(each, bool) or not isinstance(each, int | str) for each in value):
        raise Refused(422, f"{name} is no list of texts or of tokens.", "docs/clients.md describes it.", name)
    if name == "custom_token_bans" and any(isinstance(each, str) for each in value):
        raise Refused(422, f"{name} names tokens by their numbers.", 'Write "5, 7".', name)
    phrases = [literal(each) for each in value if isinstance(each, str) and each.strip()]
    try:
        checked(phrases)
    except InputError as error:
        raise Refused(422, f"{name}: {error}", "docs/clients.md describes it.", name) from None
    return phrases, [each for each in value if isinstance(each, int)]


def _from_json(text: str) -> Any:
    """The value of a JSON text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
