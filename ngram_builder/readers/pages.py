"""Web pages: their visible text, one line per paragraph.

One regular expression that never backtracks divides a page into tags and text, and no tree is built: time and memory
are linear in the length of a page, whatever it contains. (lxml takes 30 s for 560 KB of `<b>` and `</i>`, the standard
library 7.5 s for 40 KB of `<a x=`. The time of selectolax 1.0 grows with the square of the number of nested `<div>`, or
of a tag's attributes, and nothing can stop it meanwhile.)
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Callable, Iterable, Iterator

from ngram_builder.readers.base import Document, Source, sound
from ngram_builder.readers.packed import whole

# Tags with invisible content, tags inside a line, and tags with space around them; all others begin a new line.
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
# A comment, a tag (its slash, its name), or a declaration; an unclosed one extends to the end of the page. Every
# repetition is possessive: no part of the page is matched twice.
_MARKUP = re.compile(
    r"<(?:!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|(/?)([a-zA-Z][^\s/>]*+)(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?+)*+(?:>|\Z)"
    r"|[!?/][^>]*+(?:>|\Z))",
    re.DOTALL,
)
# The ends of these elements; their content contains no markup.
_RAW = {tag: re.compile(rf"</{tag}(?![^\s/>])", re.IGNORECASE) for tag in ("script", "style", "title", "textarea")}
_SPACE = re.compile(r"[ \t\r\n\f]+")
_NO_CHARACTER = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_OFTEN = 1 << 10  # tags between two calls of `check_cancelled`


def html_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    data = whole(pieces, source)
    if data and (text := text_of_html(data, source.check_cancelled)):
        yield Document(text, source.path)


def text_of_html(data: bytes | str, check_cancelled: Callable[[], None] = lambda: None) -> str:
    """The visible text of a page, however malformed: blocks on separate lines, white space as in a browser.

    `check_cancelled` is called repeatedly; if it raises, the work ends.
    """
    text = data if isinstance(data, str) else decoded(data)
    page, at, tags = _Page(), 0, 0
    while match := _MARKUP.search(text, at):
        page.text(text[at : match.start()])
        at = match.end()
        if tag := (match[2] or "").lower():
            page.tag(tag, bool(match[1]))
            if tag in _RAW and not match[1]:
                end = _RAW[tag].search(text, at)
                at = end.start() if end else len(text)
        tags += 1
        if tags % _OFTEN == 0:
            check_cancelled()
    page.text(text[at:])
    return sound("".join(page.out).replace("\xad", "").strip())


class _Page:
    """Collects the visible text. It builds no tree, so tags that are never closed, or nest without end, do no harm."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self._silent = ""  # the outermost tag with invisible content
        self._within = 0  # how many tags of its name are open
        self._verbatim = 0
        self._newlines = 2  # at the end of the text so far
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
            # Numbers beyond all characters; Python refuses to convert thousands of digits.
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
        if tag in ("td", "th"):  # the cells of a row stay on one line
            if ends and not self._newlines:
                self.out.append("\t")
            self._space = False
            return
        wanted = self._newlines + 1 if tag == "br" else 2 if tag in _PARAGRAPHS else 1
        while self.out and self.out[-1] == "\t":
            self.out.pop()  # tabs after the last cell of a row
        self._say("\n" * (min(wanted, 2) - self._newlines), max(min(wanted, 2), self._newlines))


def decoded(data: bytes) -> str:
    """Decodes a page or a mail whose declared encoding may be missing or wrong."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    try:
        return data.decode("utf-8")  # text in another encoding is practically never valid UTF-8
    except UnicodeDecodeError:
        pass
    match = _CHARSET.search(data[:4096])
    return data.decode(charset(match[1].decode("ascii", "replace") if match else "") or "cp1252", "replace")


def charset(name: str) -> str | None:
    """The codec that a page or a mail names, or None if it is not a text encoding.

    Python also has codecs that are not: `unicode_escape` and `idna` decode programs and host names, others unpack.
    """
    try:
        "".encode(name)  # refuses codecs that are no text encodings
        codec = codecs.lookup(name)
    except (LookupError, ValueError):  # a zero byte in the name is a ValueError
        return None
    named = codec.name.replace("-", "_")
    no_text = named in ("unicode_escape", "raw_unicode_escape", "idna", "punycode", "undefined")
    return None if no_text else codec.name


RAW_ELEMENTS = frozenset(_RAW)


def elements(page: str, check_cancelled: Callable[[], None]) -> Iterator[tuple[int, int, str, bool]]:
    """Yields the tags of a page: start, end, name, and whether it is an end tag. Nothing inside scripts."""
    at, tags = 0, 0
    while match := _MARKUP.search(page, at):
        at = match.end()
        if tag := (match[2] or "").lower():
            yield match.start(), at, tag, bool(match[1])
            if tag in _RAW and not match[1]:
                end = _RAW[tag].search(page, at)
                at = end.start() if end else len(page)
        tags += 1
        if tags % _OFTEN == 0:
            check_cancelled()
