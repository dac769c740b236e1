"""The documents of an editor, kept as lines, so that a change costs the same in a short text and in a long one.

pygls' own documents split at more line ends than the protocol, and split the whole text at every change.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

from lsprotocol import types
from pygls.workspace import PositionCodec, TextDocument, Workspace


def lines_of(text: str) -> list[str]:
    """The lines with their ends; the last one has none, and may be empty."""
    lines = list(io.StringIO(text, newline=""))  # splits at the three line ends of the protocol, and keeps them
    return lines if lines and not lines[-1].endswith(("\r", "\n")) else [*lines, ""]


class EditedDocument(TextDocument):
    """One document. A position after the end of its line counts as its end, and one after the last line as the end of
    the text."""

    def __init__(
        self, uri: str, source: str, version: int | None, language_id: str | None, codec: PositionCodec
    ) -> None:
        super().__init__(uri, source, version, language_id, position_codec=codec)
        self._lines = lines_of(source)

    @property
    def source(self) -> str:
        if self._source is None:
            self._source = "".join(self._lines)
        return self._source

    def apply_change(self, change: types.TextDocumentContentChangeEvent) -> None:
        """Replaces a range, or the whole text."""
        if not isinstance(change, types.TextDocumentContentChangePartial):
            self._lines, self._source = lines_of(change.text), change.text
            return
        (first, start), (last, end) = sorted((self._place(change.range.start), self._place(change.range.end)))
        text = self._lines[first][:start] + change.text + self._lines[last][end:]
        if first and text.startswith("\n") and self._lines[first - 1].endswith("\r"):  # they become one line end
            first, text = first - 1, self._lines[first - 1] + text
        lines = lines_of(text)
        if last < len(self._lines) - 1 and not lines[-1]:
            lines.pop()
        self._lines[first : last + 1] = lines
        self._source = None

    def offset(self, position: types.Position) -> int:
        """Returns the number of characters before a position."""
        line, character = self._place(position)
        return sum(map(len, self._lines[:line])) + character

    def _place(self, position: types.Position) -> tuple[int, int]:
        """The index of a position's line, and the number of characters before it in the line."""
        if position.line >= len(self._lines):
            return len(self._lines) - 1, len(self._lines[-1])
        line, units = self._lines[position.line].rstrip("\r\n"), position.character
        if line.isascii():
            return position.line, min(max(units, 0), len(line))
        for at, char in enumerate(line):
            if units <= 0:
                return position.line, at
            units -= self.position_codec.client_num_units(char)
        return position.line, len(line)


class Documents(Workspace):
    """The open documents of an editor."""

    def _create_text_document(
        self, doc_uri: str, source: str | None = None, version: int | None = None, language_id: str | None = None
    ) -> TextDocument:
        return EditedDocument(doc_uri, source or "", version, language_id, self.position_codec)

    def open_document(self, uri: str) -> EditedDocument | None:
        """The document; None if the editor has not opened it."""
        document: Any = self.text_documents.get(unquote(uri))
        return document

    def matching(self, patterns: Iterable[str], but: TextDocument) -> list[str]:
        """The texts of the other open documents whose path ends in one of the patterns, in the order of the patterns,
        each once."""
        others = {uri: document for uri, document in self.text_documents.items() if document is not but}
        chosen = [
            uri for each in patterns for uri, document in others.items() if PurePath(document.path or uri).match(each)
        ]
        return [others[uri].source for uri in dict.fromkeys(chosen)]
