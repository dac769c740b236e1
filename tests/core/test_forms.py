"""Drafts at the beginning of a paragraph follow the document's own form."""

from __future__ import annotations

import pytest

from core.forms import BLANKS, begins_paragraph, odd_beginnings, suits

PROSE = "It rained all day.\n\nThe keeper sat down by the window.\n\n"
DIALOGUE = "“Come in,” she said.\n\n“Why should I?”\n\n"
LIST = "- eggs\n- milk\n"
NUMBERED = "1. Open the box.\n2. Read the letter.\n"
TABLE = "| year | ships |\n| 1990 | 12 |\n"


@pytest.mark.parametrize(
    ("before", "draft", "is_shown"),
    [
        (PROSE, "He read it twice", True),
        (PROSE, "2. **The Lost City of Eldarath", False),
        (PROSE, "1.00 | .95 | .", False),
        (PROSE, "- eggs", False),
        (PROSE, "“Come in,”", False),
        (PROSE, "# Chapter", False),
        (PROSE, "and so on", False),
        (DIALOGUE, "2. **The Lost City of Eldarath", False),
        (DIALOGUE, "“Because", True),
        (DIALOGUE, "She opened the door", True),
        (LIST, "- bread", True),
        (LIST, "* bread", False),
        (LIST, "Bread", False),
        (LIST + "\n", "Bread", False),
        (NUMBERED, "3. Answer it.", True),
        (NUMBERED, "3", True),
        (NUMBERED, "2. Answer it.", False),
        (NUMBERED, "3) Answer it.", False),
        (TABLE, "| 1991 | 14 |", True),
        (TABLE, "In 1991", False),
        ("roses are red\nviolets are blue\n", "sugar is sweet", True),
        ("# One\n\nThe first.\n\n", "# Two", True),
        ("# One\n\n", "The first", True),
        ("# One\n\n", "- eggs", False),
    ],
)
def test_a_draft_is_shown_where_its_form_is_the_documents(before: str, draft: str, is_shown: bool) -> None:
    assert begins_paragraph(before)
    assert suits(draft, before) is is_shown


def test_what_is_said_of_a_draft_never_changes_while_it_grows_from_what_was_shown() -> None:
    """A row that is shown stays; so its beginning must be as unsuitable as the whole."""
    for before in (PROSE, DIALOGUE, LIST):
        for draft in ("2. **The Lost City", "1.00 | .95", "* bread", "“Come in,” he said"):
            shown = [suits(draft[:n], before) for n in range(1, len(draft) + 1)]
            assert shown == sorted(shown), (before, draft, shown)


@pytest.mark.parametrize(
    ("text", "begins"),
    [("One.\n", True), ("One.\n  ", True), ("One.", False), ("", False), ("\n\n", False), ("One.\nTwo", False)],
)
def test_a_paragraph_begins_after_a_line_end(text: str, begins: bool) -> None:
    assert begins_paragraph(text) is begins


@pytest.mark.parametrize("before", ["", "It rained. ", PROSE, "# One\n\n", "We need:\n\n- ", 'He said "Yes" and '])
def test_after_white_space_no_draft_begins_with_more_of_it_or_with_a_mark_that_the_document_does_not_use_there(
    before: str,
) -> None:
    odd = odd_beginnings(before)
    assert set(BLANKS + "([{*,.") <= set(odd)
    assert not any(letter.isalpha() for letter in odd)
    assert ("1" in odd) is (not before.rpartition("\n")[2].strip())


@pytest.mark.parametrize(
    ("before", "mark"),
    [
        (DIALOGUE, "“"),
        (LIST, "-"),
        ("> So be it.\n\n", ">"),
        ('He said "Yes" and ', '"'),
        ("One (or two) and ", "("),
        (NUMBERED, "3"),
        ("def f(x):\n", " "),
        ("- a\n  - b\n", " "),
        ("x = ", "["),
    ],
)
def test_a_draft_may_begin_with_a_mark_that_the_document_uses_there(before: str, mark: str) -> None:
    assert mark not in odd_beginnings(before)


@pytest.mark.parametrize("before", ["It rained", "It rained.", "He said (", "He said “"])
def test_elsewhere_a_draft_may_begin_with_anything(before: str) -> None:
    assert odd_beginnings(before) == ""
