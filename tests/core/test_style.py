"""Drafts have the marks and the spelling of their document."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.ask import Ask
from core.modes.start import Mode
from core.session import Session
from core.style import Barred, barred_forms
from core.text import ShownText
from tests.completing import complete

STRAIGHT = 'She said "no", and I didn\'t ask. '
CURLY = "She said “no”, and I didn’t ask. "


@pytest.mark.parametrize(
    ("text", "barred", "allowed"),
    [
        (
            "",
            {"curly apostrophes", "curly quotes", "emphasis", "["},
            {"straight quotes", "em", "en", "British", "American"},
        ),
        (STRAIGHT, {"curly apostrophes", "curly quotes", "emphasis", "["}, {"straight quotes"}),
        (CURLY, {"straight apostrophes", "straight quotes", "emphasis", "["}, {"curly apostrophes"}),
        (STRAIGHT + CURLY, {"emphasis", "["}, {"straight quotes", "curly quotes", "curly apostrophes"}),
        ("I don't “see” it", {"straight quotes", "curly apostrophes"}, {"curly quotes"}),
        ("He came — late", {"en", "hyphens"}, {"em"}),
        ("He came – late", {"em", "hyphens"}, {"en"}),
        ("He came -- late", {"em", "en"}, {"hyphens"}),
        ("the colour of the centre", {"American"}, {"British"}),
        ("the color of the center", {"British"}, {"American"}),
        ("the colour of the center", set(), {"British", "American"}),
        ("a realistic emphasis", set(), {"British", "American"}),
        ("# Notes", {"["}, {"emphasis"}),
        ("see [the list]", {"emphasis", "{"}, {"[", "]"}),
        ("x = f(1)", set(), {"emphasis", "[", "{"}),
    ],
)
def test_the_forms_that_a_document_does_not_use_are_barred(text: str, barred: set[str], allowed: set[str]) -> None:
    assert barred <= barred_forms(text)
    assert not allowed & barred_forms(text)


def test_a_token_is_barred_by_a_mark_or_a_spelling_in_it() -> None:
    pieces = ["’t", "'t", " color", " colou", " colo", " Centre", " realistic", " cent", "[", " so", " don’"]
    barred = Barred(piece.encode() for piece in pieces)

    def of(text: str) -> set[str]:
        found = barred.of(text)
        return set() if found is None else {piece for piece, out in zip(pieces, found, strict=True) if out}

    assert of(STRAIGHT) == {"’t", " don’", "["}
    assert of(CURLY) == {"'t", "["}
    assert of("# the colour isn't") == {"’t", " don’", " color", "["}
    assert of("# the color isn't") == {"’t", " don’", " colou", " Centre", "["}


@pytest.mark.parametrize("mode", ["superposed", "branching", "greedy", "beam", "sampled", "sampled+superposed"])
def test_no_draft_of_any_method_has_a_barred_mark(session: Session, mode: str) -> None:
    text, other = (CURLY, "'") if mode in ("superposed", "beam", "sampled") else (STRAIGHT, "’")
    rows = complete(session, f"{text}I don", Ask(k=3, length=8, mode=Mode(mode), seed=1)).finish().drafts
    assert rows
    assert all(other not in row.text and "[" not in row.text for row in rows), [row.text for row in rows]


def test_a_draft_ends_before_a_character_without_width_that_several_tokens_make() -> None:
    tokenizer = SimpleNamespace(pieces=[b" re", b"\xe2\x80", b"\x8b", b"tired", b"\x8d", b"\x94"])
    assert ShownText(cast(Any, tokenizer))([0, 1, 2, 3])[0] == " re"
    assert ShownText(cast(Any, tokenizer))([1, 2, 3])[0] == ""
    assert ShownText(cast(Any, tokenizer))([0, 1, 4, 3])[0] == " re\u200dtired"
    assert ShownText(cast(Any, tokenizer))([0, 1, 5, 3])[0] == " re—tired"


@pytest.mark.parametrize("text", ["", "He came.", "word\u200b", "नमस्ते", "می\u200cخواهم"])
def test_no_draft_has_characters_without_width_and_the_joiners_of_scripts_and_emoji_stay(text: str) -> None:
    pieces = ["\u200b", " \u200b", "\ufeff", "\u2060x", "\u200c", "\u200d", "क्\u200dष", "👩\u200d💻", " word"]
    found = Barred(piece.encode() for piece in pieces).of(text)
    assert found is not None
    assert [piece for piece, out in zip(pieces, found, strict=True) if not out] == pieces[4:]
