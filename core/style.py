"""The document's own marks and spelling, which its drafts follow.

A draft with other apostrophes, quotation marks, dashes or spellings than the document's looks wrong, and two drafts
that differ only in them are one. So tokens that have the marks or the spelling that the document does not use are
barred. The last characters of the document decide; where they are silent, quotation marks and apostrophes are straight,
as keys type them. Marks of Markdown and signs that prose lacks are barred until the document has them, except in code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import regex

from core.text import ZERO_WIDTH

READ = 4096  # characters of the document that decide
CLEAR = 3  # times as often one of two forms is used, if it decides

_APOSTROPHES = regex.compile(r"\p{L}'\p{L}"), regex.compile(r"\p{L}’\p{L}")
_QUOTES = regex.compile('"'), regex.compile("[“”„«»]")
_DASHES = {"em": regex.compile("—"), "en": regex.compile(" – "), "hyphens": regex.compile(r" --? |(?<=\w)--(?=\w)")}
_EMPHASIS = "#*`_"  # who uses one of these marks of Markdown may use the others next
_CODE = regex.compile(r"[{};\\]|\(\)|::|(?<=\w)(?:\[| = )|==")
_SIGNS = "[]{}<>|\\=@^~"
_OF_FORM = {  # what tokens of a form contain
    "straight apostrophes": ("'",),
    "curly apostrophes": ("’", "‘"),
    "straight quotes": ('"',),
    "curly quotes": tuple("“”„«»"),
    "em": ("—",),
    "en": ("–",),
    "hyphens": ("--",),
    "emphasis": tuple(_EMPHASIS),
    "zero width": ZERO_WIDTH,
    **{sign: (sign,) for sign in _SIGNS},
}

# Beginnings of words in British and in American spelling.
_BOTH = (
    "colour/color favour/favor honour/honor labour/labor neighbour/neighbor behaviour/behavior flavour/flavor "
    "humour/humor rumour/rumor harbour/harbor endeavour/endeavor centre/center theatre/theater litre/liter "
    "fibre/fiber defence/defense offence/offense organis/organiz realis/realiz recognis/recogniz apologis/apologiz "
    "emphasis/emphasiz summaris/summariz prioritis/prioritiz minimis/minimiz maximis/maximiz optimis/optimiz "
    "customis/customiz analyse/analyze catalogue/catalog travelle/travele travelli/traveli cancelle/cancele "
    "cancelli/canceli labelle/labele labelli/labeli modelle/modele modelli/modeli grey/gray jewellery/jewelry "
    "plough/plow skilful/skillful judgement/judgment ageing/aging"
)
_SPELLINGS = tuple(tuple(pair.split("/")) for pair in _BOTH.split())
# Words of both, or of neither, that begin as one of these.
_SHARED = "realism realist realistic realistically emphasis optimism optimist optimistic minimis analyses"
_AMBIGUOUS = frozenset(_SHARED.split())
# Read at every key, so each side is one pattern.
_SPELT = tuple(re.compile(rf"(?<![^\W\d_])(?:{'|'.join(side)})[^\W\d_]*") for side in zip(*_SPELLINGS, strict=True))


def barred_forms(text: str) -> frozenset[str]:
    """The forms that a document does not use, from its last characters."""
    text = text[-READ:]
    barred: set[str] = {"zero width"}  # also where the document has them, which is by accident
    apostrophes, quotes = (tuple(_count(pattern, text) for pattern in forms) for forms in (_APOSTROPHES, _QUOTES))
    for marks, own, like in (("apostrophes", apostrophes, quotes), ("quotes", quotes, apostrophes)):
        counts = own if any(own) else like if any(like) else (1, 0)
        barred.add(_other(counts, f"straight {marks}", f"curly {marks}"))
    dashes = {form: _count(pattern, text) for form, pattern in _DASHES.items()}
    if used := [form for form, count in dashes.items() if count]:
        barred |= {form for form in dashes if form not in used}
    barred.add(_other(_spellings(text), "British", "American"))
    if not _CODE.search(text):
        barred |= {sign for sign in _SIGNS if sign not in text}
        barred |= {"emphasis"} if not any(mark in text for mark in _EMPHASIS) else set()
    return frozenset(barred - {""})


def _count(pattern: regex.Pattern[str], text: str) -> int:
    return len(pattern.findall(text))


def _other(counts: tuple[int, ...], name: str, other_name: str) -> str:
    """Which of two forms a text does not use, by how often it uses each; "" if it uses both or none."""
    one, other = counts
    if one and one >= CLEAR * other:
        return other_name
    return name if other and other >= CLEAR * one else ""


def _spellings(text: str) -> tuple[int, ...]:
    """How many words of a text are in British and in American spelling."""
    text = text.lower()
    return tuple(sum(word not in _AMBIGUOUS for word in pattern.findall(text)) for pattern in _SPELT)


class Barred:
    """The tokens of one vocabulary that a document's style bars."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._texts = [piece.decode("utf-8", "ignore") for piece in pieces]
        self._of_form: dict[str, np.ndarray] = {}
        self._together: dict[frozenset[str], np.ndarray] = {}

    def of(self, text: str) -> np.ndarray | None:
        """Which tokens (V,) are barred in a document; None if none is."""
        forms = barred_forms(text)
        if not forms:
            return None
        if forms not in self._together:
            self._together[forms] = np.logical_or.reduce([self._tokens(form) for form in forms])
        return self._together[forms]

    def _tokens(self, form: str) -> np.ndarray:
        if form not in self._of_form:
            test = self._spelt(form == "American") if form in ("British", "American") else self._with(_OF_FORM[form])
            self._of_form[form] = np.fromiter(map(test, self._texts), bool, len(self._texts))
        return self._of_form[form]

    @staticmethod
    def _with(marks: tuple[str, ...]) -> Callable[[str], Any]:
        return regex.compile("|".join(map(regex.escape, marks))).search

    @staticmethod
    def _spelt(american: bool) -> Callable[[str], bool]:
        """Whether a token is a word in the spelling, or the beginning of one that the other spelling does not have."""

        def begins(text: str) -> bool:
            word = text.strip().lower()
            if len(word) < 4 or word in _AMBIGUOUS:
                return False
            return any(
                word.startswith(pair[american])
                or (pair[american].startswith(word) and not pair[not american].startswith(word))
                for pair in _SPELLINGS
            )

        return begins
