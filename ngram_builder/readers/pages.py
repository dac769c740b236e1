"""Web pages: what they show, a line per paragraph.

A page is cut into tags and text by one regular expression that never goes back over what it has read, and no tree is
built: time and memory grow with the length of a page, whatever stands in it. (lxml takes 30 s for 560 KB of `<b>` and
`</i>`, the standard library 7.5 s for 40 KB of `<a x=`.)
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Callable, Iterable, Iterator

from ngram_builder.readers.base import Document, Source, sound
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
# A comment, a tag (its slash, its name), or a declaration; one that is not closed goes on to the end of the page.
# Every repetition is possessive: no part of the page is matched twice.
_MARKUP = re.compile(
    r"<(?:!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|(/?)([a-zA-Z][^\s/>]*+)(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?+)*+(?:>|\Z)"
    r"|[!?/][^>]*+(?:>|\Z))",
    re.DOTALL,
)
# Where what stands in these ends; in between, nothing is markup.
_RAW = {tag: re.compile(rf"</{tag}(?![^\s/>])", re.IGNORECASE) for tag in ("script", "style", "title", "textarea")}
_SPACE = re.compile(r"[ \t\r\n\f]+")
_NO_CHARACTER = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_OFTEN = 1 << 10  # tags between two calls of `going`


def html_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    data = whole(pieces, source)
    if data and (text := text_of_html(data, source.going)):
        yield Document(text, source.path)


def text_of_html(data: bytes | str, going: Callable[[], None] = lambda: None) -> str:
    """What a page shows, however badly it is written: blocks on lines of their own, white space as a browser has it.

    `going` is called now and then; what it raises ends the work.
    """
    text = data if isinstance(data, str) else decoded(data)
    page, at, tags = _Page(), 0, 0
    while found := _MARKUP.search(text, at):
        page.text(text[at : found.start()])
        at = found.end()
        if tag := (found[2] or "").lower():
            page.tag(tag, bool(found[1]))
            if tag in _RAW and not found[1]:
                end = _RAW[tag].search(text, at)
                at = end.start() if end else len(text)
        tags += 1
        if tags % _OFTEN == 0:
            going()
    page.text(text[at:])
    return sound("".join(page.out).replace("\xad", "").strip())


class _Page:
    """Collects what is shown. Knows no tree: tags that are never closed, or nest without end, do no harm."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self._silent, self._within = "", 0  # the outermost tag that silences, and how many of its name are open
        self._verbatim = 0
        self._newlines = 2  # at the end of what was said so far
        self._space = False  # whether a space is due before the next word

    def tag(self, tag: str, ends: bool) -> None:
        if self._silent:
            if tag == self._silent:
                self._within += -1 if ends else 1
                self._silent = tag if self._within else ""
        elif tag in _SILENT:
            if not ends:
                self._silent, self._within = tag, 1
        elif not (ends and tag == "br"):
            if tag == "pre":
                self._verbatim = max(self._verbatim + (-1 if ends else 1), 0)
            self._break(tag, ends)

    def text(self, data: str) -> None:
        if self._silent or not data:
            return
        if "&" in data:
            # Numbers beyond all characters; Python refuses to read thousands of digits.
            data = html.unescape(_NO_CHARACTER.sub("\ufffd", data))
        if self._verbatim:
            self._say(data, len(data) - len(data.rstrip("\n")))
            return
        words = _SPACE.split(data)
        self._space = self._space or not words[0]
        if inner := " ".join(word for word in words if word):
            self._say((" " if self._space and not self._newlines else "") + inner, 0)
            self._space = not words[-1]

    def _say(self, text: str, newlines: int) -> None:
        if text:
            self.out.append(text)
            self._newlines, self._space = newlines, False

    def _break(self, tag: str, ends: bool) -> None:
        if tag in _INLINE:
            return
        if tag in ("td", "th"):  # cells of a row stay on its line
            if ends and not self._newlines:
                self.out.append("\t")
            self._space = False
            return
        wanted = self._newlines + 1 if tag == "br" else 2 if tag in _PARAGRAPHS else 1
        while self.out and self.out[-1] == "\t":
            self.out.pop()  # tabs behind the last cell of a row
        self._say("\n" * (min(wanted, 2) - self._newlines), max(min(wanted, 2), self._newlines))


def decoded(data: bytes) -> str:
    """The text of a page or a mail that may not say how it is encoded, or say it wrongly."""
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
    return data.decode(charset(found[1].decode("ascii", "replace") if found else "") or "cp1252", "replace")


def charset(name: str) -> str | None:
    """The codec that a page or a mail names, or None where that is no encoding of text.

    Python knows codecs that are none: `unicode_escape` and `idna` read programs and host names, others unpack.
    """
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):  # a zero byte in the name is a ValueError
        return None
    named = codec.name.replace("-", "_")
    no_text = named in ("unicode_escape", "raw_unicode_escape", "idna", "punycode", "undefined")
    return None if no_text or not codec._is_text_encoding else codec.name
