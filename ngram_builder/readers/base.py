"""What readers of all kinds share: documents, damage, how much is held at a time, and how a library is asked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

PIECE = 1 << 20  # bytes read, and at most about as many decompressed, at a time
LONGEST = 1 << 26  # bytes of a line of JSON, a mail or a page; a longer one is damage, not a document
LONGEST_TEXT = 1 << 21  # characters; a longer document is taken as several
# A packed file may unpack to FREE bytes, and beyond that to so many times its size: text packs to a third or a tenth.
FREE, RATIO = 1 << 26, 100

_SURROGATE = re.compile("[\ud800-\udfff]")

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Document:
    """A text and where it came from: a file or URL, and a line of it (0: the file is the document)."""

    text: str
    path: str
    line: int = 0

    @property
    def origin(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True)
class Damage:
    """Something that could not be read. `line` counts from 1; 0 means the file as a whole."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" if self.line else f"{self.path}: {self.reason}"


Report = Callable[[Damage], None]


@dataclass(frozen=True)
class Source:
    """The file that is read, as the readers of all kinds see it.

    Attributes:
        path: what to call it.
        report: called with what cannot be read.
        going: called every now and then, also within a document; what it raises ends the reading.
    """

    path: str
    report: Report
    going: Callable[[], None] = lambda: None

    def damaged(self, reason: str, line: int = 0) -> None:
        self.report(Damage(self.path, line, reason))


class Unreadable(Exception):
    """A document cannot be read; says why."""


def asked(what: str, library: Callable[..., Answer], *arguments: object) -> Answer:
    """What a library makes of bytes from outside. Whatever it raises costs one document: Unreadable.

    `library` must not call back what others gave us (`Source.going`, `Source.report`): what those raise is no damage.
    """
    try:
        return library(*arguments)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{what}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its name."""
    return sound((str(error).strip().splitlines() or [type(error).__name__])[0]).rstrip(".")


def sound(text: str) -> str:
    """The text with halves of surrogate pairs, which no file can hold, as U+FFFD; whole pairs as their character."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def spelled(path: str) -> str:
    """A file's path for texts and messages: bytes of its name that are not UTF-8 as \\xff."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    return path


def divided(text: str) -> list[str]:
    """A text of at most LONGEST_TEXT characters as it is; a longer one in parts, cut at blank lines where there are,
    at line ends or spaces otherwise."""
    parts, start = list[str](), 0
    while len(text) - start > LONGEST_TEXT:
        end = start + LONGEST_TEXT
        for mark in ("\n\n", "\n", " "):
            if (found := text.rfind(mark, start + 1, end)) >= 0:
                end = found + len(mark)
                break
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def portions(data: bytes | str, size: int) -> Iterator[slice]:
    """Slices of at most `size`, one after the other."""
    for start in range(0, len(data), size):
        yield slice(start, start + size)
