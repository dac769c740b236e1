"""Where a draft may end: at a place where a writer would accept a stop.

That is after a whole word with its punctuation, never inside a word, a number ("for the 202"), a contraction ("It'")
or a compound ("12-month"), and never after an opening bracket or quotation mark. In code and addresses it may end where
arguments begin ("print(") and after a folder ("docs/images/"). Whether a word is whole is only known from what the
draft has after it, so a draft that is still growing is shown up to its last word that is. Pure functions.
"""

from __future__ import annotations

import unicodedata

import regex

from core.text import UNSPACED

_UNSPACED = regex.compile(rf"[{UNSPACED}]")  # a draft may end after each of these letters
_JOINERS = frozenset("'’-‐‑–._/\\@:,&+=~#%*^|")  # between two letters or digits they are part of one word
# A word with punctuation at the end of all that is known: an abbreviation ("e.g.") or a number may go on, but no year.
_WHOLE_WITH_PUNCTUATION = regex.compile(
    r"(?r)(?:(?:\p{L}{3,}|(?<!\p{N})\p{N}{4})\.|\p{L}[,;:]|[!?…])['\"”’»)\]]*$|[”»)\]]$"
)
_FOLDER = regex.compile(r"(?r)(?:^|\s|[^\s/])\S*[./]\S*[^\W_]/$")  # what ends with a slash and is no "and/or"


def last_end(text: str, most: int, closed: bool) -> int:
    """Returns the last place, at most `most`, at which a draft may end; 0 if there is none.

    Args:
        text: all that is known of the draft; what follows the place decides whether it is an end.
        closed: whether a new word follows the whole text, or nothing.
    """
    at = min(most, len(text))
    while at > 0 and not is_end(text, at, closed):
        at -= 1
    return at


def is_end(text: str, at: int, closed: bool = True) -> bool:
    """Whether a draft may end after `at` > 0 characters of its text; see `last_end`."""
    last = text[at - 1]
    if last.isspace() or _opens(text, at - 1) or (last in "-–—‒•|" and (at == 1 or text[at - 2].isspace())):
        return False
    if _UNSPACED.match(last):
        return True
    if at == len(text):
        goes_on = unicodedata.category(last) == "Ps" or _FOLDER.search(text)
        return closed or bool(goes_on or _WHOLE_WITH_PUNCTUATION.search(text))
    following = text[at]
    if following.isspace() or _UNSPACED.match(following):
        return True
    if _in_word(last):
        if following in _JOINERS:
            beyond = text[at + 1 : at + 2]
            return not _in_word(beyond) if beyond else closed or bool(_WHOLE_WITH_PUNCTUATION.search(text))
        return not _in_word(following)
    if last in _JOINERS | {"—"} and not _FOLDER.search(text, endpos=at):
        return not _in_word(following) or (at > 1 and not _in_word(text[at - 2]))  # typed text may precede the first
    return last not in "\"'`*_" or not _in_word(following)  # a closing bracket, or another sign that joins nothing


def _in_word(letter: str) -> bool:
    return letter.isalnum() or unicodedata.category(letter or " ").startswith("M") or letter == "_"


def _opens(text: str, at: int) -> bool:
    """Whether the character there is an opening bracket or quotation mark; a straight one opens after white space, and
    no bracket after a letter, where the arguments of a call begin."""
    mark = text[at]
    if mark in "\"'`*_":
        return at == 0 or text[at - 1].isspace() or _opens(text, at - 1)
    category = unicodedata.category(mark)
    return category in ("Pi", "Sc") or (category == "Ps" and not (at and _in_word(text[at - 1])))
