"""Web pages and Word documents: their text, a line per paragraph."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

from ngram_builder.readers import base
from ngram_builder.readers.base import Damage, Document, Report
from ngram_builder.readers.packed import whole

_SILENT = {"script", "style", "head", "noscript", "template", "svg", "math", "object", "iframe", "select", "textarea"}
_INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt",
    "u", "var", "wbr",
}  # fmt: skip
_PARAGRAPHS = {
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "blockquote",
    "ul",
    "ol",
    "dl",
    "table",
    "pre",
    "section",
    "article",
    "div",
}


def html_documents(pieces: Iterable[bytes], path: str, report: Report) -> Iterator[Document]:
    data = whole(pieces, path, report)
    if data and (text := text_of_html(data)):
        yield Document(text, path)


def text_of_html(data: bytes, encoding: str | None = None) -> str:
    """What a page shows, however badly it is written: blocks on lines of their own, white space as a browser has it."""
    import lxml.etree
    import lxml.html

    if encoding is None and not data.startswith((b"\xff\xfe", b"\xfe\xff")) and _is_utf8(data):
        encoding = "utf-8"  # what a page says about itself is often wrong, and other encodings are not UTF-8 by chance
    try:
        root = lxml.html.document_fromstring(data, parser=lxml.html.HTMLParser(encoding=encoding, remove_comments=True))
    except lxml.etree.ParserError:
        return ""  # nothing but white space and comments
    out: list[str] = []
    _walk(root, out)
    text = re.sub(r" *\n *", "\n", "".join(out).replace("\xad", ""))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _walk(root: Any, out: list[str]) -> None:
    """Text of an element and all below it. By hand and not by recursion: pages nest thousands of levels deep."""
    stack: list[tuple[Any, bool]] = [(root, True)]
    verbatim = 0
    while stack:
        element, enters = stack.pop()
        tag = element.tag if isinstance(element.tag, str) else ""
        if not enters:
            verbatim -= tag == "pre"
            out.append(_break(tag))
            _say(element.tail, verbatim, out)
            continue
        if tag in _SILENT or not tag:
            _say(element.tail, verbatim, out)
            continue
        verbatim += tag == "pre"
        out.append(_break(tag))
        _say(element.text, verbatim, out)
        stack.append((element, False))
        stack.extend((child, True) for child in reversed(element))


def _break(tag: str) -> str:
    if tag in _INLINE:
        return ""
    return "\n\n" if tag in _PARAGRAPHS else "\t" if tag in ("td", "th") else "\n"


def _say(text: str | None, verbatim: int, out: list[str]) -> None:
    if text:
        out.append(text if verbatim else re.sub(r"[ \t\r\n\f]+", " ", text))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


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
