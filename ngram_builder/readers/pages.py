"""Web pages: their visible text, one line per paragraph.

One regular expression that never backtracks divides a page into tags and text, and no tree is built: time and memory
are linear in the length of a page, whatever it contains. (lxml takes 30 s for 560 KB of `<b>` and `</i>`, the standard
library 7.5 s for 40 KB of `<a x=`. The time of selectolax 1.0 grows with the square of the number of nested `<div>`, or
of a tag's attributes, and nothing can stop it meanwhile.)
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ngram_builder.readers import charsets
from ngram_builder.readers.base import Document, Source, Unreadable, sound
from ngram_builder.readers.charsets import charset
from ngram_builder.readers.packed import whole

# Tags with invisible content, tags without content, tags inside a line, and tags with space around them; all others
# begin a new line. The readings of ruby (`rt`) repeat its base.
_SILENT = {
    "script", "style", "title", "noscript", "template", "svg", "math", "object", "iframe", "select", "textarea",
    "datalist", "audio", "video", "canvas", "noframes", "noembed", "rt", "rp", "rtc",
}  # fmt: skip
VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip
_INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "input", "ins", "kbd", "label", "mark", "meta", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup",
    "time", "tt", "u", "var", "wbr", "ruby", "rb",
}  # fmt: skip
_PARAGRAPHS = {
    "article", "blockquote", "div", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "section", "table",
    "ul",
}  # fmt: skip
# The tags that end an element whose own end is left out, and the elements that one may leave open.
_ENDED_BY = {
    "p": _PARAGRAPHS | {"li", "hr", "form", "address", "main", "header", "footer", "nav", "aside", "figure"},
    "li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "tr": {"tr", "tbody", "tfoot"},
    "td": {"td", "th", "tr", "tbody", "tfoot"}, "th": {"td", "th", "tr", "tbody", "tfoot"},
    "rt": {"rt", "rp", "rb", "rtc"}, "rp": {"rt", "rp", "rb", "rtc"}, "rtc": {"rb", "rtc"},
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
RAW = {tag: re.compile(rf"</{tag}(?![^\s/>])", re.IGNORECASE) for tag in ("script", "style", "title", "textarea")}
ATTRIBUTE = re.compile(r"([^\s=\"'>/]++)(?:\s*+=\s*+(\"[^\"]*+|'[^']*+|[^\s>]*+))?")
# Styles with which nothing is seen. `max-height: 0` and `mso-hide` hide the preview line of mails.
_UNSEEN = re.compile(
    r"(?:^|[;\s{])(?:display\s*+:\s*+none|visibility\s*+:\s*+(?:hidden|collapse)|mso-hide\s*+:\s*+all"
    r"|(?:opacity|max-height)\s*+:\s*+0(?:\.0*+)?(?:px|pt|r?em|%)?\s*+(?:!important\s*+)?(?:$|;))",
    re.IGNORECASE,
)
_SEEN = re.compile(r"(?:^|[;\s{])(?:display|visibility)\s*+:", re.IGNORECASE)
_BRACE = re.compile(r"([{}])")
_CSS_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SELECTOR = re.compile(r"[a-z][a-z0-9]*|[a-z0-9]*[.#][\w-]+", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\r\n\f]+")
_NO_CHARACTER = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{7,});?")
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_OFTEN = 1 << 10  # tags between two calls of `check_cancelled`


def html_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    data = whole(pieces, source)
    try:
        if data and (text := text_of_html(data, source.check_cancelled)):
            yield Document(text, source.path)
    except Unreadable as error:
        source.damaged(str(error))


def text_of_html(data: bytes | str, check_cancelled: Callable[[], None] = lambda: None) -> str:
    """The visible text of a page, however malformed: blocks on separate lines, white space as in a browser.

    What a screen reader alone leaves out (`aria-hidden`) is visible.

    Args:
        check_cancelled: called repeatedly; if it raises, the work ends.
    Raises: Unreadable for bytes that are no text.
    """
    text = data if isinstance(data, str) else _decoded(data)
    page, at, in_style = _Page(), 0, False
    for start, end, tag, ends in elements(text, check_cancelled):
        if in_style:
            page.style(text[at:start])
        page.text(text[at:start])
        at = end
        if tag:
            page.tag(tag, ends, text[start:end])
            in_style = tag == "style" and not ends
    page.text(text[at:])
    return sound("".join(page.out).replace("\xad", "").strip())


def _decoded(data: bytes) -> str:
    """Decodes a page whose declared encoding may be missing or wrong. Raises Unreadable for what is no text."""
    match = _CHARSET.search(data[:4096])
    text = charsets.decoded(data, charset(match[1].decode("ascii", "replace")) if match else None)
    if text is None:
        raise Unreadable(charsets.NO_TEXT)
    return text


def elements(page: str, check_cancelled: Callable[[], None]) -> Iterator[tuple[int, int, str, bool]]:
    """Yields the tags of a page: start, end, name ("" for a comment), and whether it is an end tag. Of scripts, styles
    and other elements without markup it yields the start and the end."""
    at, tags = 0, 0
    while match := _MARKUP.search(page, at):
        at = match.end()
        tag = (match[2] or "").lower()
        yield match.start(), at, tag, bool(match[1])
        if tag in RAW and not match[1]:
            end = RAW[tag].search(page, at)
            at = end.start() if end else len(page)
        tags += 1
        if tags % _OFTEN == 0:
            check_cancelled()


class _Page:
    """Collects the visible text. It builds no tree, so tags that are never closed, or nest without end, do no harm.

    Inside an element that is not shown it knows which elements are open there, and so where that one ends.
    """

    def __init__(self) -> None:
        self.out: list[str] = []
        self._open = Counter[str]()  # the elements around, by tag
        self._hidden: list[str] = []  # the element that is not shown, and the open ones within it
        self._within = Counter[str]()  # those, by tag
        self._unseen: dict[str, bool] = {}  # whether a selector of the page's own style hides
        self._verbatim = 0
        self._newlines = 2  # at the end of the text so far
        self._space = False  # whether a space is due before the next word

    def tag(self, tag: str, ends: bool, markup: str) -> None:
        if self._hidden and self._stays_hidden(tag, ends, markup):
            return
        if ends:
            self._open[tag] = max(self._open[tag] - 1, 0)
        elif tag not in VOID and not (tag in ("svg", "math") and markup.endswith("/>")):
            if tag in _SILENT or self._is_hidden(tag, markup):
                self._hidden, self._within = [tag], Counter((tag,))
                if tag in _PARAGRAPHS:
                    self._break(tag, ends)
                return
            self._open[tag] += 1
        if not (ends and tag == "br") and tag not in _SILENT:
            if tag == "pre":
                self._verbatim = max(self._verbatim + (-1 if ends else 1), 0)
            self._break(tag, ends)

    def style(self, css: str) -> None:
        """Reads the rules of a page's own style that hide elements by one class, id or tag, outside conditions."""
        depth, selectors = 0, ""
        parts = _BRACE.split(_CSS_COMMENT.sub("", css))
        for before, brace in zip(parts[::2], parts[1::2], strict=False):
            if brace == "{":
                depth += 1
                selectors = before.rpartition(";")[2] if depth == 1 else ""
            else:
                depth = max(depth - 1, 0)
                if not depth and (hides := bool(_UNSEEN.search(before))) | bool(_SEEN.search(before)):
                    for selector in map(str.strip, selectors.split(",")):
                        if _SELECTOR.fullmatch(selector):
                            self._unseen[selector] = hides

    def _stays_hidden(self, tag: str, ends: bool, markup: str) -> bool:
        """Whether the element that is not shown is still open before this tag, which is part of it then."""
        hidden, within = self._hidden, self._within
        if ends:
            if within[tag]:
                while (last := hidden.pop()) != tag:
                    within[last] -= 1
                within[tag] -= 1
                return True
            if not self._open[tag]:
                return True
            hidden.clear()  # an element around ends, and with it those within that were left open
            return False
        if tag in VOID or markup.endswith("/>"):
            return True
        while hidden and tag in _ENDED_BY.get(hidden[-1], ()):
            within[hidden.pop()] -= 1
        if hidden:
            hidden.append(tag)
            within[tag] += 1
        return bool(hidden)

    def _is_hidden(self, tag: str, markup: str) -> bool:
        if tag == "dialog":
            return not any(name[1].lower() == "open" for name in ATTRIBUTE.finditer(markup, len(tag) + 1))
        if self._unseen.get(tag):
            return True
        if not self._unseen and "hidden" not in (lower := markup.lower()) and "style" not in lower:
            return False
        for match in ATTRIBUTE.finditer(markup, len(tag) + 1):
            name, value = match[1].lower(), (match[2] or "").strip("\"'")
            if name == "hidden" or (name == "style" and _UNSEEN.search(html.unescape(value))):
                return True
            if name in ("class", "id") and self._unseen:
                mark = "." if name == "class" else "#"
                if any(self._unseen.get(f"{of}{mark}{each}") for each in value.split() for of in ("", tag)):
                    return True
        return False

    def text(self, data: str) -> None:
        if self._hidden or not data:
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
