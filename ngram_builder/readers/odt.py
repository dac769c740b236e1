"""Documents of LibreOffice: the body, including tables, as a reader of the page sees it; notes, comments, deleted and
hidden text, tables of contents and lists of sources are left out.

An .odt file is a ZIP archive. Only the members with the body and the styles are unpacked, and parsed as streams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from ngram_builder.readers.archives import archive_of, member
from ngram_builder.readers.base import Document, Source, Unreadable, sound
from ngram_builder.readers.letters import UnseenStyles, attribute, local, parse

_CONTENT, _STYLES = re.compile("content.xml"), re.compile("styles.xml")
_UNSEEN = (
    "tracked-changes", "annotation", "note", "ruby-text", "placeholder", "title", "desc", "math",
    "table-of-content", "illustration-index", "table-index", "object-index", "user-index", "alphabetical-index",
    "bibliography",
)  # fmt: skip
_WRONG = "not an intact document of LibreOffice, or one with a password"
_SPACES = 1000  # that one element may stand for
_SPACE = re.compile(r"[ \t\r\n]+")  # is one space


def odt_documents(file: BinaryIO, source: Source, consumed: Callable[[int], None], size: int) -> Iterator[Document]:
    """The document, as one text."""
    body = _Body()
    try:
        archive = archive_of(file, _WRONG, "save it again as .odt, and add it again")
        if styles := member(archive, _STYLES):
            with suppress(Unreadable):
                parse(archive, styles, body.styles, source, _WRONG)
        if content := member(archive, _CONTENT):
            parse(archive, content, body, source, _WRONG)
        if not body.begun:
            raise Unreadable(f"{_WRONG}: it has no body")
    except Unreadable as error:
        source.damaged(str(error))
        return
    consumed(size)
    if text := sound("".join(body.out)).strip():
        yield Document(text, source.path)


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


class _Body:
    """Collects the text of a body: one line per paragraph; the cells of a row are separated by tabs."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.begun = False
        self.styles = _Styles()  # the named ones; the content begins with further ones
        self._unseen = [False]  # of each open element, whether its text is not on the page
        self._paragraphs = 0  # open ones; a frame within one contains further ones
        self._due = ""  # the separator between the collected text and the next text

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
            self._due = self._due.removesuffix("\n") + "\t"
        elif name == "table-row":
            self._due = self._due.removesuffix("\t") + "\n"

    def data(self, data: str, as_is: bool = False) -> None:
        if self._paragraphs and not self._unseen[-1]:
            self.out += [self._due, data if as_is else _SPACE.sub(" ", data)]
            self._due = ""

    def close(self) -> None:
        pass
