"""Places where a person begins to write, drawn from texts: documents, paragraphs, items of lists, sentences.

Each place is a caret: the text before it, and the writer's next six words, which stand on one line, except that those
of a document may stand on several. Marks of lists are part of the text before the caret, as are the lines above it, up
to `REACH` characters. Only lines that begin with a letter, or with a letter in quotes, are prose; code, tables and
quoted blocks have no places.

    document        the empty text; the writer's text is the document's first line of prose
    its first word  the same, after its first word and a space
    paragraph       after an empty line
    line            after a line of prose that ends as a sentence does, without an empty line
    item            after the mark of an item of a list: "- ", "* ", "1. ", "- [ ] "
    heading         after "# Title" and an empty line
    salutation      after a line such as "Dear Anna,"
    sentence        inside a paragraph, after a full stop and a space; in every second one after the third word
    inside          for comparison: between words, at least `DEEP` words from the paragraph's beginning

Documents and salutations are drawn from our own letters (`research/letters.jsonl`), too, because corpora have few.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex

from core.errors import InputError
from research.texts import in_turn, load

DOCUMENT, FIRST_WORD, PARAGRAPH, LINE = "document", "its first word", "paragraph", "line"
ITEM, HEADING, SALUTATION, SENTENCE, INSIDE = "item", "heading", "salutation", "sentence", "inside"
KINDS = (DOCUMENT, FIRST_WORD, PARAGRAPH, LINE, ITEM, HEADING, SALUTATION, SENTENCE, INSIDE)
WORDS = 6  # of the writer's text that are written
DEEP = 12  # words of a paragraph before a place inside it
REACH = 800  # characters of the text before a place, at most
LETTERS = Path(__file__).with_name("letters.jsonl")
LETTERS_TOO = (DOCUMENT, FIRST_WORD, SALUTATION)
PROSE, ENDED, OTHER = "prose", "prose that ends as a sentence does", "other"  # forms of lines, beside kinds of places

MARK = regex.compile(r"\s{0,8}(?:[-*+•]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_HEADING = regex.compile(r"#{1,6}[ \t]")
_SALUTATION = regex.compile(r"(?:Dear|Hello|Hi|Hey|Good (?:morning|afternoon|evening))\b[^\n.]{0,40}[,:!]$")
_PROSE = regex.compile(r"[\"“‘']?\p{L}")
_FENCE = regex.compile(r"\s*(?:```|~~~)")
_WORD = regex.compile(r"\S+[^\S\n]+")
_SIX = regex.compile(rf"\S+(?:[^\S\n]+\S+){{{WORDS - 1}}}")
_SIX_ACROSS = regex.compile(rf"\S+(?:\s+\S+){{{WORDS - 1}}}")
_STOP = regex.compile(r"[a-z]{3}[.!?][\"”’]? (?=[\"“‘]?\p{Lu})")  # three small letters: not "Mrs."
_THREE = regex.compile(r"(?:[^\s.!?]+ ){3}")
_ENDED = regex.compile(r"[.!?][\"”’)]?\s*$")


@dataclass(frozen=True)
class Beginning:
    """A place where a person begins, its kind, and the writer's next six words."""

    kind: str
    before: str
    rest: str


@dataclass(frozen=True, slots=True)
class _Caret:
    """A place in a document; what precedes `first` is not part of the text before it."""

    kind: str
    document: str
    at: int
    first: int = 0

    @property
    def words(self) -> str:
        """The writer's next six words; "" if fewer follow. Those of a document may stand on several lines, since the
        first line of a letter is short."""
        found = (_SIX_ACROSS if self.kind in (DOCUMENT, FIRST_WORD) else _SIX).match(self.document, self.at)
        return found[0] if found else ""

    @property
    def before(self) -> str:
        """The text before the place. If it is cut, it begins with a line, or with a word where it is one line."""
        whole = self.document[self.first : self.at]
        if len(whole) <= REACH:
            return whole
        cut = whole[-REACH:]
        lines = cut.partition("\n")[2].lstrip("\n")
        return lines if lines.strip() else cut.partition(" ")[2]


def drawn(by_text: Mapping[str, Sequence[str]], count: int, seed: int = 0) -> list[Beginning]:
    """Returns up to `count` places of each kind of beginning, in the order of `KINDS`: in turn from each kind of text
    that has some, and there from each document. The same seed gives the same places.

    Args:
        by_text: the documents of each kind of text.
    Raises: InputError if the text has no place.
    """
    texts = [_places(documents, f"{name} {seed}") for name, documents in by_text.items()]
    if not any(texts):
        raise InputError("The text has no place where a person begins: no line of prose with six words or more.")
    letters = _places([text for file in load(LETTERS) for text in file], f"letters {seed}")
    chosen: list[Beginning] = []
    for kind in KINDS:
        sources = [*texts, letters] if kind in LETTERS_TOO else texts
        turns = [in_turn([carets.get(kind, []) for carets in documents]) for documents in sources]
        chosen += [Beginning(kind, caret.before, caret.words) for caret in in_turn(turns)[:count]]
    return chosen


def _places(documents: Sequence[str], seed: str) -> list[dict[str, list[_Caret]]]:
    """Returns the places of each document that has some, by kind, all in random order."""
    rng = random.Random(seed)
    every: list[dict[str, list[_Caret]]] = []
    for document in rng.sample(documents, len(documents)):
        by_kind: dict[str, list[_Caret]] = {}
        for caret in _carets(document):
            if caret.words:
                by_kind.setdefault(caret.kind, []).append(caret)
        for carets in by_kind.values():
            rng.shuffle(carets)
        every += [by_kind] if by_kind else []
    return every


def _carets(document: str) -> Iterator[_Caret]:
    """Yields every place of a document, also those that are not followed by six words."""
    above, gap, fenced, begun, offset = "", False, False, False, 0
    for line in document.split("\n"):
        start, offset = offset, offset + len(line) + 1
        if not line.strip():
            gap = True
            continue
        fence = bool(_FENCE.match(line))
        form = OTHER if fenced or fence else _form(line)
        fenced ^= fence
        first = _Caret(DOCUMENT, document, start, start)
        if not begun and form in (PROSE, SALUTATION) and (form == SALUTATION or _SIX.match(line)) and first.words:
            begun = True
            yield first
            yield _Caret(FIRST_WORD, document, _after(_WORD, document, start), start)
        if form == ITEM:
            yield _Caret(ITEM, document, _after(MARK, document, start))
        elif form == PROSE and (kind := _kind(above, gap)):
            yield _Caret(kind, document, start)
        if form == PROSE:
            yield from _within(document, line, start)
        above, gap = ENDED if form == PROSE and _ENDED.search(line) else form, False


def _form(line: str) -> str:
    """The form of a line outside code."""
    forms = {ITEM: MARK, HEADING: _HEADING, SALUTATION: _SALUTATION, PROSE: _PROSE}
    return next((form for form, begins in forms.items() if begins.match(line)), OTHER)


def _kind(above: str, gap: bool) -> str:
    """The kind of a line of prose below a line of this form, directly or after an empty line; "" if it is no place."""
    if above == SALUTATION:
        return SALUTATION
    if not gap:
        return LINE if above == ENDED else ""
    return HEADING if above == HEADING else PARAGRAPH if above else ""


def _within(document: str, line: str, start: int) -> Iterator[_Caret]:
    """Yields the places inside a line of prose, which begins at `start`."""
    for number, stop in enumerate(_STOP.finditer(line)):
        end = stop.end()
        if number % 2 and (three := _THREE.match(line, end)):
            end = three.end()
        yield _Caret(SENTENCE, document, start + end)
    for number, word in enumerate(_WORD.finditer(line), 1):
        if number >= DEEP:
            yield _Caret(INSIDE, document, start + word.end())


def _after(part: regex.Pattern[str], document: str, at: int) -> int:
    """The end of a part of the document that begins there; the same place if there is none."""
    found = part.match(document, at)
    return found.end() if found else at
