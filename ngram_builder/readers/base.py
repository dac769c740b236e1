"""What readers of all kinds share: documents, damage, and how much is held at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PIECE = 1 << 20  # bytes read, and at most about as many decompressed, at a time
LONGEST = 1 << 26  # bytes of a line of JSON, a mail, a page or a letter; a longer one is damage, not a document
LONGEST_TEXT = 1 << 21  # characters; a longer document is taken as several


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


def divided(text: str) -> list[str]:
    """A text of at most LONGEST_TEXT characters as it is; a longer one in parts, cut at blank lines where there are."""
    parts = []
    while len(text) > LONGEST_TEXT:
        cut = text.rfind("\n\n", 1, LONGEST_TEXT)
        cut = LONGEST_TEXT if cut < 0 else cut + 2
        parts.append(text[:cut])
        text = text[cut:]
    return [*parts, text]
