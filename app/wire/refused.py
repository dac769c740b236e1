"""The error that a route raises for a request, and pydantic's errors in words. `refusals.py` makes them responses; the
language server, a client, imports them without a web framework."""

from __future__ import annotations

import json
from typing import Any

EXPECTED = {  # by pydantic's name of the error
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "model_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "finite_number": "a finite number",
}


class Refused(Exception):
    """An error response: a sentence and a remedy. `param` names the invalid field, and `code` the kind of error, for
    programs."""

    def __init__(self, status: int, message: str, fix: str = "", param: str | None = None, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.fix, self.param, self.code = status, message, fix, param, code


def in_words(detail: dict[str, Any], whole: str = "The request") -> str:
    """One of pydantic's errors as a sentence that names the field, or `whole` if it is about no single field."""
    place = detail["loc"]
    name = ".".join(map(str, place[1:] if len(place) > 1 and place[0] == "settings" else place)) or whole
    limits, given = detail.get("ctx", {}), detail.get("input")
    shown = json.dumps(given) if isinstance(given, int | float | bool | None) else f"a {type(given).__name__}"
    match detail["type"]:
        case "less_than_equal":
            return f"{name} is {shown}; at most {limits['le']:g} is accepted."
        case "greater_than_equal":
            return f"{name} is {shown}; at least {limits['ge']:g} is accepted."
        case "extra_forbidden":
            return f"{name} is no field that the server knows."
        case "missing":
            return f"{name} is missing."
        case "string_too_long":
            return f"{name} is longer than {limits['max_length']} characters."
        case "string_too_short":
            return f"{name} is empty."
        case "too_long" if limits["max_length"] == 0:
            return f"{name} is not supported. Leave it out."
        case "too_long" | "too_short":
            few, many = ("at most", "max_length") if detail["type"] == "too_long" else ("at least", "min_length")
            return f"{name} has {limits['actual_length']} entries; {few} {limits[many]} are accepted."
        case "value_error":
            return f"{name}: {str(limits['error']).removesuffix('.')}."
        case kind if kind in EXPECTED:
            return f"{name} is {shown}; {EXPECTED[kind]} is expected."
    return f"{name}: {detail['msg']}."


def without_surrogates(data: Any) -> Any:
    """The same data without halves of surrogate pairs, which have no UTF-8 form. JSON can contain them, and they stand
    for the bytes of a file's name that is not UTF-8."""
    if isinstance(data, str):
        return data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(data, list):
        return [without_surrogates(value) for value in data]
    return {name: without_surrogates(value) for name, value in data.items()} if isinstance(data, dict) else data
