"""Text as stores hold it and as it is looked up: one form of each letter and space, whatever form a document has."""

from __future__ import annotations

import re
import unicodedata

import regex

# Layout makes spaces of many widths, and characters without width. The joiners U+200C and U+200D stay: scripts and
# emoji need them.
_SPACES = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f"
_LINES = "\u0085\u2028\u2029"
_NOTHING = "\u00ad\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff" + "".join(
    map(chr, (*range(9), 11, *range(14, 32), 127))
)
_PLAIN = str.maketrans(dict.fromkeys(_SPACES, " ") | dict.fromkeys(_LINES, "\n") | dict.fromkeys(_NOTHING, ""))
_OTHER = re.compile(f"[{''.join(map(re.escape, map(chr, _PLAIN)))}]")
_MANY_MARKS = regex.compile(r"\p{M}{31}")  # the time of composing grows with the square of the marks on one letter


def plain(text: str) -> str:
    """A text with composed letters (NFC), spaces of one width, and no characters without width nor controls."""
    if _OTHER.search(text):
        text = text.translate(_PLAIN)
    if unicodedata.is_normalized("NFC", text) or _MANY_MARKS.search(text):
        return text
    return unicodedata.normalize("NFC", text)
