"""Phrases that no draft may contain: what is found, what is refused, and at what cost."""

from __future__ import annotations

import random
import re
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from core.phrases import _ASCII, _UNITS, LONGEST, MOST, NOTHING, Phrases, checked, compiled, phrases_of, shipped_slurs


@pytest.mark.parametrize(
    ("phrase", "text", "there"),
    [
        ("in order to", "In  Order\nTO.", True),
        ("in order to", "in order today", False),
        ("to", "today unto", False),
        ("to", "(to-day)", True),
        ("form*", "Forming", True),
        ("form*", "reform", False),
        ("f* off", "fly off", True),
        ("f* off", "fly offer", False),
        ("don't", "He don’t", True),
        ("don't", "don’ts", False),
        ("emphasis", "_emphasis_", True),
        ("straße", "STRASSE", True),
        ("café", "cafe\u0301", True),
        ("!!", "no!!!", True),
        ("a.b", "a. b", False),
        ("天气", "今天天气很好", True),
        ("か\u3099", "ながい", True),
        ("20", "2020", False),
    ],
)
def test_whole_words_in_any_case_across_spaces_and_line_ends(phrase: str, text: str, there: bool) -> None:
    assert Phrases.of([phrase]).within(text) == there


def test_only_what_the_new_text_completes_counts() -> None:
    phrases = Phrases.of(["in order to", "form*"])
    assert phrases.within(" to go", "It is in order")
    assert not phrases.within(" go", "It is in order to")
    assert phrases.within("o", "It is in order t")
    assert phrases.within("s", "the form")
    assert not phrases.within(" is", "the forms")
    assert not phrases.within("form", "uni" * 200)


@given(st.lists(st.sampled_from(["ab", "a", "abc", " ", "\n", "b", "."]), max_size=12).map("".join), st.integers(1, 6))
def test_a_text_that_grows_is_read_as_the_whole_of_it(text: str, step: int) -> None:
    """Each part is read from where the earlier ones left off."""
    listed = {"ab a": r"ab\s+a(?![a-z])", "b*": r"b[a-z]*", "a abc ab": r"a\s+abc\s+ab(?![a-z])"}
    phrases = Phrases.of(listed)
    expected = min((m.end(1) for p in listed.values() for m in re.finditer(f"(?<![a-z])(?=({p}))", text)), default=None)
    found = NOTHING
    for end in [*range(step, len(text), step), len(text)]:
        found = phrases.find(text[:end], closed=end == len(text), earlier=found)
        if found.span is not None:
            break
    if expected is None or found.span is None:
        assert (expected, found.span) == (None, None)
    else:  # of a word with any ending, the text so far may not have all
        assert text[found.span.end : expected].isalpha() or found.span.end == expected


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_text_has_the_same_units_as_any_text(text: str) -> None:
    plain, any_ = ([(found.lastgroup, found[0]) for found in units.finditer(text)] for units in (_ASCII, _UNITS))
    assert plain == any_


PARTS = st.lists(st.sampled_from(["ab", "a", "abc", " ", "\n", "b", ".", "-"]), max_size=16).map("".join)


@given(PARTS, PARTS)
def test_of_the_text_before_only_the_end_is_read(before: str, text: str) -> None:
    """As much as the longest phrase may need."""
    for listed in (["ab a"], ["b*"], ["a abc ab", "b*"], ["ab-a", "a."]):
        phrases = Phrases.of(listed)
        whole = phrases.find(before + text, after=len(before)).span is not None
        assert phrases.within(text, before) == whole
        assert len(phrases.tail("ab a. " * 100 + before)) < 40


@pytest.mark.parametrize("phrase", ["", " \n", "*", "* *", "a * b", "*ing", "co*r", "x" * (LONGEST + 1)])
def test_a_phrase_that_is_none_is_refused_with_a_sentence(phrase: str) -> None:
    with pytest.raises(InputError, match="given"):
        checked(["word", phrase])


def test_too_many_phrases_are_refused() -> None:
    assert len(checked(map(str, range(MOST)))) == MOST
    with pytest.raises(InputError, match=r"10,001 phrases given; at most 10,000"):
        checked(map(str, range(MOST + 1)))


def test_a_list_has_a_phrase_a_line() -> None:
    assert phrases_of("# what I never say\n\n delve \r\nin order to\n") == ["delve", "in order to"]


def test_reading_costs_little_with_ten_thousand_phrases() -> None:
    """A step of nine drafts reads a token each; this is a whole draft of fifty words."""
    random.seed(0)
    words = ["".join(random.choices(string.ascii_lowercase, k=random.randint(3, 9))) for _ in range(4000)]
    phrases = Phrases.of(" ".join(random.choices(words, k=random.randint(2, 4))) for _ in range(MOST))
    text = " ".join(random.choices(words, k=50))
    best = min(_seconds(phrases, text) for _ in range(20))
    assert best < 0.002
    assert compiled(("a", "b")) is compiled(("a", "b"))


def _seconds(phrases: Phrases, text: str) -> float:
    began = time.perf_counter()
    phrases.find(text)
    return time.perf_counter() - began


def test_the_shipped_slurs_can_be_compiled() -> None:
    assert len(checked(shipped_slurs())) > 50
    assert not compiled(shipped_slurs()).within("An assessment of the cocktail in Scunthorpe, Essex")
