"""Words and phrases that no draft may contain, compiled into one tree; pure functions on text.

A text is read in units: a word, one mark, one letter of a script without spaces, or white space of any length and kind,
line ends included. A phrase is found where its units follow each other, so a word is found only whole. Case counts as
little as the form of an apostrophe. A `*` after a word stands for any ending of it, and `\\*` for the mark itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import regex

from core.errors import InputError
from core.text import UNSPACED

BANNED = -100.0  # what programs add to the logit of a token that no draft contains, at most
MOST, LONGEST = 10_000, 200  # phrases of a list, and characters of one
SLURS = Path(__file__).resolve().parents[1] / "assets" / "slurs.txt"  # its source is in assets/README.md

_UNIT = rf"(?V1)(?P<space>\s+)|(?P<word>[\w--[_{UNSPACED}]]+)|."
_ASCII = re.compile(r"(?P<space>\s+)|(?P<word>[^\W_]+)|.", re.S | re.A)  # the same units, in less time
_UNITS, _FROM_END = regex.compile(_UNIT, regex.S), regex.compile(_UNIT, regex.S | regex.REVERSE)
_BREAK = regex.compile(r"\W|_")
_SAME = str.maketrans("’ʼ‘‐‑", "'''--")
_SPACE, _ANY = " ", "*"
_END, _LENGTHS = "", "**"  # at a node at which a phrase ends: true; at one with such keys: the lengths of their words

# The nodes after each unit; a key like "word*" stands for all words that begin so.
_Node = dict[str, Any]
_Beginning = tuple[int, _Node]  # of a phrase: where it stands, and the node after its units so far


class Span(NamedTuple):
    """Where a phrase stands in a text."""

    start: int
    end: int


class Found(NamedTuple):
    """What was found in a text.

    Attributes:
        span: of the phrase that is complete first, of several the one that begins last; None without one.
        open: where a phrase, or a word, may begin that the end of the text leaves incomplete; at most its length.
        begun: whether words of a phrase stand there already.
        read: the end of the text, or where its last unit begins if more text may lengthen it.
        before: the beginnings of phrases up to there.
    """

    span: Span | None = None
    open: int = 0
    begun: bool = False
    read: int = 0
    before: Ids[_Beginning] = ()


NOTHING = Found()


@dataclass(frozen=True, eq=False)
class Phrases:
    """Compiled phrases.

    Attributes:
        reach: the characters before a text in which a phrase may begin that the text completes, with single spaces.
        units: those of the longest phrase.
    """

    _root: _Node
    reach: int
    units: int

    @classmethod
    def of(cls, phrases: Iterable[str]) -> Phrases:
        """Compiles phrases. Raises InputError for a phrase that could never be found, or would always be."""
        root: _Node = {}
        reach = most = 0
        for phrase in phrases:
            node = root
            for unit in (units := _units(phrase)):
                if unit[0] != _ANY and unit[-1] == _ANY:
                    node.setdefault(_LENGTHS, set()).add(len(unit) - 1)
                node = node.setdefault(unit, {})
            node[_END] = True
            reach, most = max(reach, len(phrase)), max(most, len(units))
        return cls(root, reach, most)

    def __bool__(self) -> bool:
        return self.reach > 0

    def find(self, text: str, after: int = 0, closed: bool = True, earlier: Found = NOTHING) -> Found:
        """Looks for phrases in a text.

        Args:
            after: phrases that end at or before this place do not count.
            closed: whether a last word is whole, because the text ends.
            earlier: what was found in the beginning of the text, which was not closed: no phrase.
        """
        root, begun, size, plain = self._root, earlier.before, len(text), text.isascii()
        for match in (_ASCII if plain else _UNITS).finditer(text, earlier.read):
            (at, end), kind = match.span(), match.lastgroup
            if kind == "space":
                before, begun = begun, [(begin, node[_SPACE]) for begin, node in begun if _SPACE in node]
                if end == size:  # the space may go on
                    return Found(None, begun[0][0] if begun else end, bool(begun), at, before)
                continue
            unit = match[0].lower() if plain else _folded(match[0])
            whole = closed or end < size or kind != "word"
            grown: list[_Beginning] = []
            for begin, node in (*begun, (at, root)):
                if whole and (longer := node.get(unit)) is not None:
                    grown.append((begin, longer))
                if kind == "word" and (lengths := node.get(_LENGTHS)):
                    beginnings = [unit[:n] + _ANY for n in lengths if n <= len(unit)]
                    grown += [(begin, node[beginning]) for beginning in beginnings if beginning in node]
            if grown and end > after and (complete := [begin for begin, node in grown if _END in node]):
                return Found(Span(max(complete), end), at, begun=True)
            if not whole:
                return Found(None, begun[0][0] if begun else at, bool(begun), at, begun)
            begun = grown
        return Found(None, begun[0][0] if begun else size, bool(begun), size, begun)

    def within(self, text: str, before: str = "") -> bool:
        """Whether a text contains a phrase, or completes one that begins in the text before it."""
        before = self.tail(before)
        return self.find(before + text, after=len(before)).span is not None

    def tail(self, before: str) -> str:
        """The end of a text, from a whole word on, as far as phrases that begin there may go on after it."""
        tail = before[-2 * self.reach - LONGEST :]  # there may be more spaces than in the phrase
        first = _BREAK.search(tail)
        tail = tail[first.start() :] if first and len(tail) < len(before) else tail
        *_, begins = (0, *(match.start() for match in islice(_FROM_END.finditer(tail), self.units)))
        return tail[begins:]


def _units(phrase: str) -> list[str]:
    """The units of a phrase, as keys of the tree. Raises InputError."""
    if len(phrase) > LONGEST:
        raise InputError(f"A phrase of {len(phrase)} characters given; at most {LONGEST} expected.")
    if not (text := unicodedata.normalize("NFC", phrase).strip()):  # decomposed, が would be two units
        raise InputError("An empty phrase given; a word or a phrase expected.")
    units: list[str] = []
    kind = ""  # of the unit before
    for match in _UNITS.finditer(text):
        if match[0] == _ANY and units[-1:] == ["\\"]:
            units[-1], kind = _ANY, ""
        elif match[0] == _ANY and kind == "word":
            units[-1] += _ANY
            kind = _ANY
        elif match[0] == _ANY or (kind == _ANY and match.lastgroup == "word"):
            raise InputError(f"{phrase!r} given; * stands for any ending of a word, so it must end one, as in form*.")
        else:
            units.append(_SPACE if match.lastgroup == "space" else _folded(match[0]))
            kind = match.lastgroup or ""
    return units


def _folded(unit: str) -> str:
    if unit.isascii():
        return unit.lower()  # the same, in a tenth of the time
    return unicodedata.normalize("NFC", unit).casefold().translate(_SAME)


def opening(text: str, closed: bool = True) -> str | None:
    """The first word or mark of a text with the white space before it, as texts are compared by it; None without one.

    Args:
        closed: whether a last word is whole, because the text ends. Otherwise it has none that is known.
    """
    space = ""
    for match in _UNITS.finditer(text):
        if match.lastgroup == "space":
            space = _SPACE
            continue
        whole = closed or match.lastgroup != "word" or match.end() < len(text)
        return space + _folded(match[0]) if whole else None
    return None


def checked(phrases: Iterable[str]) -> tuple[str, ...]:
    """The phrases, each once. Raises InputError for too many, and for one that cannot be compiled."""
    return _checked(tuple(dict.fromkeys(phrases)))


@lru_cache(maxsize=4)  # programs send the same list with every request
def _checked(phrases: tuple[str, ...]) -> tuple[str, ...]:
    if len(phrases) > MOST:
        raise InputError(f"{len(phrases):,} phrases given; at most {MOST:,} expected.")
    for phrase in phrases:
        _units(phrase)
    return phrases


def literal(text: str) -> str:
    """A text as a phrase in which no mark has a meaning."""
    return text.replace(_ANY, "\\*")


def phrases_of(text: str) -> list[str]:
    """The phrases of a list in a file or a field: one a line; empty lines, and those that begin with #, do not
    count."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@lru_cache(maxsize=4)
def compiled(phrases: tuple[str, ...], slurs: bool = False) -> Phrases:
    """The phrases, with the slurs that come with the app if `slurs`, compiled once for all requests with this list."""
    return Phrases.of((*phrases, *(shipped_slurs() if slurs else ())))


@lru_cache(maxsize=1)
def shipped_slurs() -> tuple[str, ...]:
    """The slurs that come with the app."""
    return tuple(phrases_of(SLURS.read_text(encoding="utf-8")))
