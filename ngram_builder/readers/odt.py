"""Documents of LibreOffice: the body, including tables, as a reader of the page sees it; notes, comments, deleted and
hidden text, tables of contents and lists of sources are left out.

An .odt file is a ZIP archive. Only the members with the body and the styles are unpacked, and parsed as streams.
"""

from __future__ import annotations

import re
from typing import Any

from ngram_builder.readers.letters import Body, Letter, UnseenStyles, attribute, local

_UNSEEN = (
    "tracked-changes", "annotation", "note", "ruby-text", "placeholder", "title", "desc", "math",
    "table-of-content", "illustration-index", "table-index", "object-index", "user-index", "alphabetical-index",
    "bibliography",
)  # fmt: skip
_SPACES = 1000  # that one element may stand for
_SPACE = re.compile(r"[ \t\r\n]+")  # is one space


class _Styles(UnseenStyles):
    """Collects the styles of hidden text."""

    def start(self, tag: str, attributes: Any) -> None:
        match local(tag):
            case "style":
                self.id = attribute(attributes, "name")
                if parent := attribute(attributes, "parent-style-name"):
                    self.based_on[self.id] = parent
            case "text-properties" if display := attribute(attributes, "display"):
                (self.unseen if display == "none" else self.shown).add(self.id)


class _Body(Body):
    def __init__(self) -> None:
        super().__init__()
        self.styles = _Styles()  # the named ones; the content begins with further ones
        self._unseen = [False]  # of each open element, whether its text is not on the page
        self._paragraphs = 0  # open ones; a frame within one contains further ones

    def start(self, tag: str, attributes: Any) -> None:
        name = local(tag)
        if not self.begun:
            self.styles.start(tag, attributes)
            if name == "body":
                self.begun = True
                self.styles.close()
        style = attribute(attributes, "style-name")
        hidden = attribute(attributes, "is-hidden") == "true" or attribute(attributes, "display") == "none"
        self._unseen.append(self._unseen[-1] or name in _UNSEEN or hidden or style in self.styles.unseen)
        if name in ("p", "h"):
            self._paragraphs += 1
        elif name == "s":
            count = attribute(attributes, "c")
            self.data(" " * min(int(count) if count.isdecimal() else 1, _SPACES), as_is=True)
        elif name in ("tab", "line-break"):
            self.data("\t" if name == "tab" else "\n", as_is=True)

    def end(self, tag: str) -> None:
        name, unseen = local(tag), self._unseen.pop()
        if name in ("p", "h"):
            self._paragraphs -= 1
        if unseen:
            return
        if name in ("p", "h"):
            self._due += "\n"
        elif name == "table-cell":
            self._end_cell()
        elif name == "table-row":
            self._end_row()

    def data(self, data: str, as_is: bool = False) -> None:
        if self._paragraphs and not self._unseen[-1]:
            self._say(data if as_is else _SPACE.sub(" ", data))


ODT = Letter(
    ".odt", "not an intact document of LibreOffice, or one with a password", re.compile("styles.xml"),
    re.compile("content.xml"), _Body,
)  # fmt: skip
