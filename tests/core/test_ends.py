"""Drafts end where a writer would accept a stop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ends import is_end, last_end


@pytest.mark.parametrize(
    ("known", "most", "shown"),
    [
        (" 12-month release cadence", 20, " 12-month release"),
        (" 12-month", 3, ""),
        (" for the 2024 season", 12, " for the"),
        (" 1,000 of them", 2, ""),
        (" at 10:30 or", 6, " at"),
        (" It's", 4, ""),
        (" It’s late", 3, ""),
        (" It’s late", 5, " It’s"),
        (" your obedient cartographer", 19, " your obedient"),
        (" a word (or two)", 8, " a word"),
        (' he said "no"', 10, " he said"),
        (' he said "no" twice', 13, ' he said "no"'),
        (" see “this” one", 6, " see"),
        (" for example.com now", 13, " for"),
        (" the end. Then", 9, " the end."),
        (" e.g. this", 3, ""),
        (" it cost $20 then", 10, " it cost"),
        (" one – two", 6, " one"),
        (" word—another", 6, " word"),
        (" and/or", 5, ""),
        ("’s a tree", 1, ""),
        (" docs/images/a.png", 6, ""),
        (" docs/images/a.png", 13, " docs/images/"),
        (" example.com/tour", 13, " example.com/"),
        (" print(x)", 7, " print("),
        (' db["t1"]["foo"]', 9, ' db["t1"]'),
        (' "tabSize":4', 11, ' "tabSize":'),
        (" books (and", 8, " books"),
        ("日本語の文", 3, "日本語"),
        (" cafe\u0301s are", 5, ""),
        ("", 0, ""),
    ],
)
def test_a_draft_ends_after_a_whole_word_before_the_place(known: str, most: int, shown: str) -> None:
    assert known[: last_end(known, most, closed=False)] == shown


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (" release cad", " release"),
        (" it is over.", " it is over."),
        (" version 3.", " version"),
        (" since 1790.", " since 1790."),
        (" run(", " run("),
        (" and/", ""),
        (" Handout C:", " Handout C:"),
        (" at 10:", " at"),
        (" www.example.org/", " www.example.org/"),
        (" e.g.", ""),
        (" (as it were)", " (as it were)"),
        (" he asked?”", " he asked?”"),
        (" don'", ""),
    ],
)
def test_the_last_word_is_whole_if_its_punctuation_says_so_or_the_draft_is_closed(known: str, shown: str) -> None:
    assert known[: last_end(known, len(known), closed=False)] == shown
    if known[-1].isalnum():
        assert last_end(known, len(known), closed=True) == len(known)


@given(st.text(alphabet="ab1 .,'-“(\n$é日", max_size=24), st.integers(0, 24), st.booleans())
def test_an_end_is_inside_no_word_and_what_follows_never_moves_it_forward(text: str, most: int, closed: bool) -> None:
    end = last_end(text, most, closed)
    assert 0 <= end <= min(most, len(text))
    if end:
        assert is_end(text, end, closed)
        assert not text[end - 1].isspace()
        assert not (text[end - 1] in "ab1é" and text[end : end + 1] in tuple("ab1é"))
        assert text[end - 1] not in "“$"
        assert text[end - 1] != "(" or text[end - 2 : end - 1].isalnum()
