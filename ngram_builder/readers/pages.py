"""Web pages and Word documents: their text, a line per paragraph."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from typing import Any

from ngram_builder.readers import base
from ngram_builder.readers.base import Damage, Document, Report
from ngram_builder.readers.packed import whole

# What a page does not show, what stands inside a line, and what has space around it; all else is a line of its own.
_SILENT = {
    "script", "style", "title", "noscript", "template", "svg", "math", "object", "iframe", "select", "textarea",
}  # fmt: skip
_INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "input", "ins", "kbd", "label", "mark", "meta", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup",
    "time", "tt", "u", "var", "wbr",
}  # fmt: skip
_PARAGRAPHS = {
    "article", "blockquote", "div", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "section", "table",
    "ul",
}  # fmt: skip
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)


def html_documents(pieces: Iterable[bytes], path: str, report: Report) -> Iterator[Document]:
    data = whole(pieces, path, report)
    if data and (text := text_of_html(data)):
        yield Document(text, path)


def text_of_html(data: bytes | str) -> str:
    """What a page shows, however badly it is written: blocks on lines of their own, white space as a browser has it."""
    page = _Page()
    page.feed(data if isinstance(data, str) else _decoded(data))
    page.close()
    return "".join(page.out).replace("\xad", "").strip()


class _Page(HTMLParser):
    """Collects what is shown. Knows no tree: tags that are never closed, or nest without end, do no harm."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._silent: list[str] = []
        self._verbatim = 0
        self._newlines = 2  # at the end of what was said so far
        self._space = False  # whether a space is due before the next word

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        elif not self._silent:
            self._break(tag)
            self._verbatim += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        elif not self._silent and tag != "br":
            self._verbatim = max(self._verbatim - (tag == "pre"), 0)
            self._break(tag, ends=True)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        if not self._silent and tag not in _SILENT:
            self._break(tag)

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        if self._verbatim:
            self._say(data, len(data) - len(data.rstrip("\n")))
            return
        words = re.split(r"[ \t\r\n\f]+", data)
        self._space = self._space or not words[0]
        if inner := " ".join(word for word in words if word):
            self._say((" " if self._space and not self._newlines else "") + inner, 0)
            self._space = not words[-1]

    def _say(self, text: str, newlines: int) -> None:
        if text:
            self.out.append(text)
            self._newlines, self._space = newlines, False

    def _break(self, tag: str, ends: bool = False) -> None:
        if tag in _INLINE:
            return
        if tag in ("td", "th"):  # cells of a row stay on its line
            if ends and not self._newlines:
                self.out.append("\t")
            self._space = False
            return
        wanted = self._newlines + 1 if tag == "br" else 2 if tag in _PARAGRAPHS else 1
        while self.out and not self.out[-1].strip("\t"):
            self.out.pop()  # tabs behind the last cell of a row
        self._say("\n" * (min(wanted, 2) - self._newlines), max(min(wanted, 2), self._newlines))


def _decoded(data: bytes) -> str:
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    try:
        return data.decode("utf-8")  # other encodings are not UTF-8 by chance, whatever the page says of itself
    except UnicodeDecodeError:
        pass
    found = _CHARSET.search(data[:4096])
    try:
        return data.decode(found[1].decode("ascii") if found else "cp1252", "replace")
    except LookupError:
        return data.decode("cp1252", "replace")


def docx_documents(pieces: Iterable[bytes], path: str, report: Report) -> Iterator[Document]:
    """The body of a Word document, tables included; headers, footers and comments are left out."""
    import docx
    import docx.opc.exceptions
    import lxml.etree

    data = whole(pieces, path, report)
    if not data:
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if (
                size := sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith(".xml"))
            ) > 4 * base.LONGEST:
                report(Damage(path, 0, f"unpacks to {size >> 20} MiB of XML, more than {4 * base.LONGEST >> 20}"))
                return
        found = docx.Document(io.BytesIO(data))
        text = "\n".join(_paragraphs(found))
    except (
        zipfile.BadZipFile,
        docx.opc.exceptions.OpcError,
        lxml.etree.XMLSyntaxError,
        KeyError,
        ValueError,
        NotImplementedError,
    ) as error:
        report(Damage(path, 0, f"no intact Word document: {error}"))
        return
    if text.strip():
        yield Document(text.strip(), path)


def _paragraphs(parent: Any) -> Iterator[str]:
    for block in parent.iter_inner_content():
        if hasattr(block, "rows"):
            for row in block.rows:
                seen: set[Any] = set()  # a merged cell stands in its row several times
                cells = [cell for cell in row.cells if cell._tc not in seen and not seen.add(cell._tc)]
                yield "\t".join("\n".join(_paragraphs(cell)) for cell in cells)
        else:
            yield block.text
