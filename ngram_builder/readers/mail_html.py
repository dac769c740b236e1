"""The HTML of a mail without the elements in which mail programs put quotations, signatures and the preview line
(preheader). One pass over the tags, so the time is linear."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ngram_builder.readers.pages import ATTRIBUTE, RAW, VOID, elements, text_of_html
from ngram_builder.readers.quotes import attributed

_LONG = 4096  # characters of a tag that are read
_MARK = "<p>&gt; </p>"  # stands for a quotation: a quoted line in the text
_BEFORE = 1000  # characters before a <blockquote> in which its attribution is

# By class, id or name; programs put prefixes of their own before those of others (x_, ydp123).
_QUOTED = re.compile(
    r"yahoo_quoted|zmail_extra|tutanota_quote|moz-cite-prefix|moz-forward-container|moz-email-headers-table|gmail_attr"
    r"|gmail_quote_attribution|olk_src_body_section|reference-message|ios-reference|__quoted_text__|__headers__|isreplycontent"
    r"|reply-intro|quoted-content|messagereplysection|includetail|(?<![a-z])quote(?:d|s|[-_]?text|[-_]?header)?(?![a-z])"
)
_REST = re.compile(r"divrplyfwdmsg|appendonsend|zwchr|stopspelling|__divider__")  # all that follows is another mail
_OUTLOOK_RULE = re.compile(r"border-top:\s*solid\s*#(?:e1e1e1|b5c4df)", re.I)
_SIGNATURE = re.compile(r"pre-?header|preview-?text|signature|(?<![a-z])(?:sig|sgn)(?![a-z])|__sig_")
# These also contain the answers between the quotations, which are in <blockquote>, except in forwarded mail.
_AROUND_QUOTES = re.compile(r"(?:gmail|protonmail)_quote")
_FORWARDED = re.compile(r"(?:\s|<[^>]{0,200}>){0,8}\s*-{4,}")


@dataclass
class _Around:
    """An element around quotations: where it begins in what is kept, and how many quotations it contains."""

    tag: str
    begin: int
    depth: int = 1
    quotations: int = 0


def own_html(page: str, check_cancelled: Callable[[], None]) -> tuple[str, bool]:
    """The HTML that the writer of a mail wrote, with a line "> " for each quotation; and whether there was any."""
    kept, at, marked = list[str](), 0, False  # `at`: everything before it is kept, or left out
    left_out, depth, put = "", 0, ""  # the element that is left out, and what replaces it
    around: _Around | None = None
    checked = 0  # the end of the last <blockquote> whose preceding text was read
    for start, end, tag, closes in elements(page, check_cancelled):
        if left_out:
            depth += (tag == left_out) * (-1 if closes else 1)
            if depth == 0:
                left_out, at = "", end
                kept.append(put)
            continue
        if around and tag == around.tag:
            around.depth += -1 if closes else 1
            if around.depth == 0:
                if not around.quotations:
                    kept[around.begin :] = [_MARK]
                    at, marked = end, True
                around = None
        if closes or not tag or tag in RAW:
            continue
        kind = _kind(tag, page[start : min(end, start + _LONG)])
        if kind == "blockquote":
            before = text_of_html(page[max(start - _BEFORE, at, checked) : start])
            follows = not before and at > 0 and kept[-1] == _MARK  # an attribution that was left out
            kind, checked = "quote" if around or follows or attributed(before) else "", end
        elif kind == "around":
            kind = "quote" if _FORWARDED.match(page, end) else "" if around else kind
        if kind:
            kept.append(page[at:start])
            at = start
        if kind == "around":
            around = _Around(tag, len(kept))
        elif kind == "rest":
            at, marked = len(page), True
            break
        elif kind == "signature line":
            kept.append("<p>-- </p>")
            at = end
        elif kind:
            left_out, depth, put = tag, 1, _MARK if kind == "quote" else " "
            if kind == "quote":
                marked = True
                if around:
                    around.quotations += tag == "blockquote"
    if around and not around.quotations:
        del kept[around.begin :]
        return "".join(kept), True
    return "".join(kept) + ("" if left_out else page[at:]), marked


def _kind(tag: str, markup: str) -> str:
    """What an element is: "quote", "around" quotes, "rest", "signature", "signature line", "blockquote" (a quotation,
    if an attribution is before it), or "" (the writer's own)."""
    if "=" not in markup and tag not in ("blockquote", "signature"):
        return ""
    names, style, cites = "", "", False
    for match in ATTRIBUTE.finditer(markup, len(tag) + 1):
        name, value = match[1].lower(), (match[2] or "").strip("\"'").lower()
        if name == "style":
            style = re.sub(r"\s+", "", value[:1000])
        elif name in ("class", "id", "name") or name.startswith("data-"):
            names += f" {value[:200]}"
        elif tag == "blockquote" and (name == "cite" or (name == "type" and value == "cite")):
            cites = True
    if _REST.search(names) or (style and _OUTLOOK_RULE.search(style)):
        return "rest"
    bordered = re.search(r"border-left:(?!none|0)", style) is not None
    if tag == "blockquote":
        indented = re.search(r"border(?:-left)?:(?:none|0)", style)  # a paragraph, by the writer
        if cites or bordered or _QUOTED.search(names) or "quote" in names:
            return "quote"
        return "" if indented else "blockquote"
    if _AROUND_QUOTES.search(names) and "attr" not in names:
        return "around"
    if _QUOTED.search(names) or (bordered and tag == "div"):
        return "" if tag in VOID else "quote"
    if tag == "signature" or _SIGNATURE.search(names):
        return "signature line" if tag in VOID else "signature"
    return ""
