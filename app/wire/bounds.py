"""The bounds of every field of a request: names, texts, numbers and lists as annotated types.

The models of all routes are made of these types, so that no field of a request keeps a thread busy for long.
`tests/app/wire/test_bounds.py` fails for a field without a bound.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from core.errors import InputError
from core.phrases import LONGEST, checked
from core.phrases import MOST as MOST_PHRASES

MOST_NAMES = 64  # names in a list, and values in an object
MOST_STOPS = 16
MOST_PROMPTS = 16
MOST_AVOIDED = 256  # drafts that were shown
MOST_TOKENS = 1 << 16  # in a text that is given as tokens
MOST_PARTS = 256  # of other files, which editors send with a text
MOST_TEXT = 1 << 18  # characters of written text before the caret
LABEL = 200  # characters
WHOLE = 2**53 - 1  # the largest whole number that JavaScript represents
LARGEST = 1e15  # of other numbers

# Texts, by their largest number of characters
Name = Annotated[str, Field(max_length=64)]  # of a store, a tab, an option
Id = Annotated[str, Field(min_length=1, max_length=64)]
Label = Annotated[str, Field(max_length=LABEL)]  # a title, a model's name, a chain of rules
Line = Annotated[str, Field(min_length=1, max_length=4096)]  # a phrase, a row of drafts
FileName = Annotated[str, Field(max_length=4096)]  # of an upload, as a browser names it
Text = Annotated[str, Field(max_length=MOST_TEXT)]  # written text before the caret
LongText = Annotated[str, Field(max_length=4 << 20)]  # with parts of other files
Document = Annotated[str, Field(max_length=32 << 20)]  # a novel has a million characters

# Numbers
Count = Annotated[int, Field(ge=0, le=WHOLE)]
Token = Annotated[int, Field(ge=0, lt=1 << 31)]  # its id
Whole = Annotated[int, Field(ge=-WHOLE, le=WHOLE)]
Real = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]


def _file_name(path: str) -> str:
    if "\0" in path:
        raise ValueError("a zero character given in the name of a file; no file has such a name")
    return path


def _each_once(names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} given twice; each name once expected")
    return names


def _without_empty(texts: list[str]) -> list[str]:
    """An empty text ends no draft."""
    return [text for text in texts if text]


def _phrases(texts: list[str]) -> list[str]:
    try:
        return [*checked(texts)]
    except InputError as error:
        raise ValueError(str(error)) from None


def _as_list(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


def _texts(given: Any) -> Any:
    first = given[0] if isinstance(given, list) and given else None
    if isinstance(first, int | list):
        raise ValueError("token ids given; a text is expected, which the server splits into tokens itself")
    return _as_list(given)


def _plain(given: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """One sentence in place of one error for each type."""
    try:
        return validate(given)
    except ValidationError:
        raise ValueError("a number, true, false or a short text expected") from None


FilePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_file_name)]
Value = Annotated[bool | Whole | Real | Name, WrapValidator(_plain)]  # of an option

# Lists and objects
Names = Annotated[list[Name], Field(max_length=MOST_NAMES), AfterValidator(_each_once)]
Files = Annotated[list[FilePath], Field(max_length=MOST_NAMES), AfterValidator(_each_once)]
Values = Annotated[dict[Name, Value], Field(max_length=MOST_NAMES)]
Numbers = Annotated[dict[Name, Whole | Real], Field(max_length=MOST_NAMES)]
Counts = Annotated[dict[Name, Whole], Field(max_length=MOST_NAMES)]
Stops = Annotated[
    list[Label], Field(max_length=MOST_STOPS), AfterValidator(_without_empty), BeforeValidator(_as_list)
]  # one may be given without a list
Phrases = Annotated[
    list[Annotated[str, Field(max_length=LONGEST)]], Field(max_length=MOST_PHRASES), AfterValidator(_phrases)
]  # words and phrases that no draft contains
Biases = Annotated[list[tuple[Whole | Label, Real]], Field(max_length=MOST_PHRASES)]  # of tokens
Avoided = Annotated[list[Line], Field(max_length=MOST_AVOIDED)]
Breakers = Annotated[list[Annotated[str, Field(min_length=1, max_length=LABEL)]], Field(max_length=MOST_NAMES)]
LastTokens = Annotated[int, Field(ge=1, le=1024)]  # of those that the model reads
Prompts = Annotated[list[LongText], Field(min_length=1, max_length=MOST_PROMPTS), BeforeValidator(_texts)]
TokenPrompts = Annotated[
    list[Annotated[list[Token], Field(min_length=1, max_length=MOST_TOKENS)]], Field(max_length=MOST_PROMPTS)
]
Range = Annotated[list[Count], Field(min_length=2, max_length=2)]  # start and end
Ranges = Annotated[list[Range], Field(max_length=10_000)]
