"""Which drafts suit the beginning of a paragraph: those in the form that the document has there already.

A language model guesses wildly where a paragraph begins, and a writer's Tab is near. The last paragraphs show what the
document consists of: lists, dialogue, prose, headings, tables, verses that begin in lower case. A draft in one of these
forms suits; any other draft is noise. Pure functions on text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import regex

Kind = Literal["bullet", "number", "heading", "quote", "table", "dialogue", "prose", "lower", "other"]

LAST = 4  # paragraphs that show the form of a document
_READ = 4096  # characters before the caret in which these are

_BULLET = regex.compile(r"([-*+•–—])\s+(?=\S)|([-*+•])$")
_NUMBER = regex.compile(r"(\d{1,3})([.)])(?:\s|$)|(\d{1,3})$")
_OPENING = regex.compile(r"[\"“„«»‘'’‚「『—–]")
_MARKED: dict[str, Kind] = {"#": "heading", ">": "quote", "|": "table"}
_LETTER = regex.compile(r"\p{L}")


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
    """Whether a draft at the beginning of a paragraph has the form of one of the last paragraphs. Directly below an
    item of a list, only the next item suits."""
    above, _, _ = before.rpartition("\n")
    lines = [form_of(line) for line in above[-_READ:].split("\n")[-2 * LAST :] if line.strip()][-LAST:]
    if not lines:
        return False
    form, last = form_of(draft), lines[-1]
    directly_below = bool(above.rpartition("\n")[2].strip())
    if directly_below and last.kind in ("bullet", "number", "table"):
        return _follows(form, last)
    if form.kind in ("prose", "lower"):
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
