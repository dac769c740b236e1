"""Which drafts suit the beginning of a paragraph: those in the form that the document has there already.

A language model guesses wildly where a paragraph begins, and a writer's Tab is near. The last paragraphs show what the
document consists of: lists, dialogue, prose, headings, tables, verses that begin in lower case. A draft in one of these
forms suits; any other draft is noise. Pure functions on text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import regex

from core.slips import CODE

Kind = Literal["bullet", "number", "heading", "quote", "table", "dialogue", "prose", "lower", "other"]

LAST = 4  # paragraphs that show the form of a document
_READ = 4096  # characters before the caret in which these are

_BULLET = regex.compile(r"([-*+•–—])\s+(?=\S)|([-*+•])$")
_NUMBER = regex.compile(r"(\d{1,3})([.)])(?:\s|$)|(\d{1,3})$")
_OPENING = regex.compile(r"[\"“„«»‘'’‚「『—–]")
_MARKED: dict[str, Kind] = {"#": "heading", ">": "quote", "|": "table"}
_LETTER = regex.compile(r"\p{L}")
BLANKS = " \t\u00a0\u200b\u2009\u202f\u2060\u3000\ufeff"
# What a word does not begin with: brackets, quotation marks, marks of lists and of emphasis, closing punctuation.
_MARKS = "\"'“”„‟«»‹›‘’‚「」『』()[]{}<>*+-–—‒•·#|~=_`^/\\.,;:!?…"
_AFTER_SPACE = regex.compile(r"(?<=\s)[^\w\s]")
_FIRST_ON_LINE = regex.compile(r"(?<=^[^\S\n]*)(?:[^\w\s]|\d)", regex.M)
_DIGITS = "0123456789"
_INDENTED = regex.compile(r"^[^\S\n]+\S|[:({\[]\n\s*\Z", regex.M)


@dataclass(frozen=True)
class ParagraphForm:
    """The form of a paragraph: its kind, and what distinguishes lists: the bullet, or the number with its mark."""

    kind: Kind
    mark: str = ""
    number: int = 0


def begins_paragraph(before: str) -> bool:
    """Whether only white space is before the caret on its line, and text on a line above."""
    line = before.rpartition("\n")[2]
    return "\n" in before and not line.strip() and bool(before.strip())


def odd_beginnings(before: str) -> str:
    """The characters with which no draft begins after this text: after white space, or in an empty document, more white
    space, and marks and numbers that the last characters of the document do not use in such a place, unless the line is
    code. "" elsewhere."""
    if before and not before[-1].isspace():
        return ""
    recent = before[-_READ:]
    line = recent.rpartition("\n")[2]
    if CODE.search(line):
        return BLANKS
    used = set((_AFTER_SPACE if line.strip() else _FIRST_ON_LINE).findall(recent))
    numbered = line.strip() or used & set(_DIGITS)  # a number first on a line is that of a list
    indents = not line and bool(_INDENTED.search(recent))
    marks = ("" if indents else BLANKS) + ("" if numbered else _DIGITS) + _MARKS
    return "".join(mark for mark in marks if mark not in used)


def form_of(paragraph: str) -> ParagraphForm:
    """The form of a paragraph, or of a draft's beginning."""
    text = paragraph.strip()
    if bullet := _BULLET.match(text):
        return ParagraphForm("bullet", bullet[1] or bullet[2])
    if number := _NUMBER.match(text):
        return ParagraphForm("number", number[2] or "", int(number[1] or number[3]))
    if kind := _MARKED.get(text[:1]):
        return ParagraphForm(kind)
    if " | " in text or "\t" in text:
        return ParagraphForm("table")
    if _OPENING.match(text):
        return ParagraphForm("dialogue")
    if _LETTER.match(text):
        return ParagraphForm("lower" if text[0].islower() else "prose")
    return ParagraphForm("other")


def suits(draft: str, before: str) -> bool:
    """Whether a draft at the beginning of a paragraph has the form of one of the last paragraphs, or is prose below a
    heading. Directly below an item of a list, only the next item suits."""
    above, _, _ = before.rpartition("\n")
    lines = [form_of(line) for line in above[-_READ:].split("\n")[-2 * LAST :] if line.strip()][-LAST:]
    if not lines:
        return False
    form, last = form_of(draft), lines[-1]
    directly_below = bool(above.rpartition("\n")[2].strip())
    if directly_below and last.kind in ("bullet", "number", "table"):
        return _follows(form, last)
    if form.kind in ("prose", "lower"):
        if form.kind == "prose" and last.kind == "heading":
            return True
        spoken = any(line.kind == "dialogue" for line in lines)
        return any(line.kind == form.kind for line in lines) or (form.kind == "prose" and spoken)
    return any(_follows(form, line) for line in lines)


def _follows(form: ParagraphForm, earlier: ParagraphForm) -> bool:
    """Whether a paragraph may go on with an earlier one's form: a list with the same bullet, or the next number."""
    if form.kind != earlier.kind or form.kind == "other":
        return False
    if form.kind == "number":
        return form.number == earlier.number + 1 and form.mark in ("", earlier.mark)
    return form.mark == earlier.mark
