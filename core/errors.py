"""Errors for the user: each message states the given value, the expected one and a remedy."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class PolydraftError(Exception):
    """The base of every error we raise on purpose; its text is one sentence for the user."""


class ModelNotFound(PolydraftError):
    """No model has this name, or no file exists at this path."""


class NoConnection(PolydraftError):
    """Another machine cannot be reached, or does not answer as it should; later it may."""


class ModelFileError(PolydraftError):
    """The file is not a model that we can read: truncated, not GGUF, or of an unsupported kind."""


class BackendUnavailable(PolydraftError):
    """The requested backend, or every backend, cannot run on this machine."""


class ContextFull(PolydraftError):
    """The sequence would exceed the model's cache."""


class InputError(PolydraftError):
    """An argument is outside the accepted values."""


class NotFinite(PolydraftError):
    """A model computed infinity, or no number at all, with its weights or its adapters."""


@dataclass(frozen=True)
class Mention:
    """An option that an error names, with a value if the sentence is about that value."""

    name: str
    value: bool | int | float | str | None = None


def plainly(mention: Mention) -> str:
    """An option as text names it: "end-below", "mixing geometric", "distinct false"."""
    value = mention.value
    written = "" if value is None else f" {str(value).lower()}" if isinstance(value, bool) else f" {value}"
    return f"{mention.name}{written}"


class OptionError(InputError):
    """An option has a value that is not accepted, or that changes nothing.

    Attributes:
        template: the sentence, with {0}, {1} … for `mentions`, {given}, {expected} and others for `values`.
        mentions: the options that it names; the first one is refused.
        values: the other data: "given" and "expected", and what else the sentence needs.
    """

    def __init__(self, template: str, *mentions: Mention | str, **values: object) -> None:
        self.template, self.values = template, values
        self.mentions = tuple(Mention(mention) if isinstance(mention, str) else mention for mention in mentions)
        super().__init__(self.written(plainly))

    @property
    def option(self) -> str:
        return self.mentions[0].name

    def written(self, name: Callable[[Mention], str]) -> str:
        """The sentence, with the names that the user knows: flags, or the fields of a request."""
        return self.template.format(*map(name, self.mentions), **self.values)


def first_line(error: BaseException) -> str:
    """The first line of another library's error, or its type, for use in one of our sentences."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".")
    return line if len(line) <= 200 else line[:199] + "…"


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong in the contents of a file: where, what it is, and what is expected."""
    fault = error.errors()[0]
    return f"{'.'.join(map(str, fault['loc']))} {fault['input']!r:.40}: {fault['msg']}"


def traced(error: BaseException) -> str:
    """The types of an error and of those that led to it, and the lines of code, for a log. Their messages are omitted,
    because they may repeat the user's text."""
    parts: list[str] = []
    seen: set[int] = set()
    before: BaseException | None = error
    while before is not None and id(before) not in seen:
        seen.add(id(before))
        parts.insert(0, "".join(traceback.format_tb(before.__traceback__)) + type(before).__name__)
        before = before.__cause__ or before.__context__
    return "\n".join(parts)


def last_line(output: str) -> str:
    """The last line of a program's output that is not empty."""
    return (output.strip().splitlines() or ["no output"])[-1].strip()
