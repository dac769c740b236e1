"""Definitions shared by all readers: documents, damage, size limits, and calling a library with untrusted bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ngram_builder.readers.senders import Senders

PIECE = 1 << 20  # bytes read, and at most about as many decompressed, at once
LONGEST = 1 << 26  # bytes of a line of JSON, a mail or a page; a longer one is damage, not a document
LONGEST_TEXT = 1 << 21  # characters; a longer document is split into several
# A packed file may unpack to FREE bytes, and beyond that to RATIO times its size: text packs to a third or a tenth.
FREE, RATIO = 1 << 26, 100

_BROKEN = re.compile(r" ?(?<!\S)[^\s\ufffd]*+\ufffd\S*+")  # a word that has lost a character
_SURROGATE = re.compile("[\ud800-\udfff]")

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Document:
    """A text and its origin: a file or URL, and a line of it (0: the file is the document).

    Attributes:
        name: what a line of JSON states as `meta.name`, for example the author and the book; "" if it states none.
    """

    text: str
    path: str
    line: int = 0
    name: str = ""

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


ReportDamage = Callable[[Damage], None]


@dataclass(frozen=True)
class Source:
    """The file being read, as the readers of all kinds use it.

    Attributes:
        path: its name in messages.
        report: called with each place that cannot be read.
        check_cancelled: called repeatedly, also within a document; if it raises, reading ends.
        note: called with each document that is sound and contains nothing to read.
        senders: those whose mails and messages are read.
    """

    path: str
    report: ReportDamage
    check_cancelled: Callable[[], None] = lambda: None
    note: ReportDamage = lambda _: None
    senders: Senders = field(default_factory=Senders)

    def damaged(self, reason: str, line: int = 0) -> None:
        self.report(Damage(self.path, line, reason))


class Unreadable(Exception):
    """A document cannot be read; the message gives the reason."""


def guarded(what: str, library: Callable[..., Answer], *arguments: object) -> Answer:
    """Calls a library with bytes from outside. Any exception of the library becomes Unreadable and affects one
    document.

    `library` must not call the caller's functions (`Source.check_cancelled`, `Source.report`): their exceptions are not
    damage.
    """
    try:
        return library(*arguments)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{what}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class name."""
    return sound((str(error).strip().splitlines() or [type(error).__name__])[0]).rstrip(".")


def sound(text: str) -> str:
    """Replaces halves of surrogate pairs, which no file can hold, by U+FFFD, and whole pairs by their character."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def whole_words(text: str) -> tuple[str, int]:
    """A text without the words that have lost a character (U+FFFD), and their number."""
    return _BROKEN.subn("", text) if "\ufffd" in text else (text, 0)


def spelled(path: str) -> str:
    """A file's path for texts and messages: bytes of its name that are not UTF-8 as \\xff."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    return path


def divided(text: str) -> list[str]:
    """Splits a text of more than LONGEST_TEXT characters at blank lines, else at line ends or spaces; a shorter
    text is the only part."""
    parts, start = list[str](), 0
    while len(text) - start > LONGEST_TEXT:
        end = start + LONGEST_TEXT
        for mark in ("\n\n", "\n", " "):
            if (at := text.rfind(mark, start + 1, end)) >= 0:
                end = at + len(mark)
                break
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def portions(data: bytes | str, size: int) -> Iterator[slice]:
    """Slices of at most `size`, one after the other."""
    for start in range(0, len(data), size):
        yield slice(start, start + size)
