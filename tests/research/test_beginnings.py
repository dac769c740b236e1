"""Places where a person begins: where they stand in a text, and that every kind of text has its turn."""

from __future__ import annotations

import pytest

from core.errors import InputError
from research.beginnings import (
    DEEP,
    DOCUMENT,
    FIRST_WORD,
    HEADING,
    INSIDE,
    ITEM,
    KINDS,
    LINE,
    PARAGRAPH,
    REACH,
    SALUTATION,
    SENTENCE,
    WORDS,
    drawn,
)
from research.places import texts

NOTE = """# The boat

The boat has been in the shed since the last autumn. It needs new paint before the water is warm. We begin on Sunday.

> Nobody has ever quoted this line of text here.

What we have to buy for the work:

- two tins of the blue paint, one brush
1. [ ] three new ropes for the old mast

```
print this is code and it has many words
```

Afterwards we will put the boat into the lake again.
The first trip of the summer is always the best.
"""
LETTER = "Dear Anna,\n\nthank you very much for your letter of May."


def at(kind: str, text: str = NOTE) -> list[tuple[str, str]]:
    """Returns the ends of the texts before the places of one kind in a text, and the writer's words there."""
    places = [place for place in drawn({"text": [text]}, 1000) if place.kind == kind]
    return [(place.before, place.rest) for place in places if place.rest in text]


def test_the_writer_goes_on_with_six_words() -> None:
    places = drawn({"text": [NOTE]}, 1000)
    assert {len(place.rest.split()) for place in places} == {WORDS}
    assert {place.kind for place in places} == {*KINDS}
    for place in places:
        if place.rest in NOTE and place.kind not in (DOCUMENT, FIRST_WORD):
            assert NOTE.startswith(place.before + place.rest)


def test_a_document_begins_with_its_first_prose_and_nothing_before_it() -> None:
    assert at(DOCUMENT) == [("", "The boat has been in the")]
    assert at(FIRST_WORD) == [("The ", "boat has been in the shed")]
    assert at(DOCUMENT, LETTER) == [("", "Dear Anna,\n\nthank you very much")]
    assert at(FIRST_WORD, LETTER) == [("Dear ", "Anna,\n\nthank you very much for")]


def test_lines_are_told_apart_by_what_is_above_them() -> None:
    begun = {kind: [(before[-4:], rest) for before, rest in at(kind)] for kind in (HEADING, PARAGRAPH, LINE)}
    assert begun == {
        HEADING: [("at\n\n", "The boat has been in the")],
        PARAGRAPH: begun[PARAGRAPH],
        LINE: [("in.\n", "The first trip of the summer")],
    }
    assert sorted(begun[PARAGRAPH]) == [
        ("``\n\n", "Afterwards we will put the boat"),
        ("e.\n\n", "What we have to buy for"),
    ]
    ((before, rest),) = at(SALUTATION, LETTER)
    assert (before, rest) == ("Dear Anna,\n\n", "thank you very much for your")


def test_the_mark_of_an_item_is_before_the_caret() -> None:
    assert sorted((before.rpartition("\n")[2], rest) for before, rest in at(ITEM)) == [
        ("- ", "two tins of the blue paint,"),
        ("1. [ ] ", "three new ropes for the old"),
    ]


def test_sentences_begin_or_go_on_after_their_third_word() -> None:
    text = "Early one morning we left. Then the two of them talked for long. Nobody knew what was to come of all this."
    places = {before.split()[-1]: rest for before, rest in at(SENTENCE, text)}
    assert places == {"left.": "Then the two of them talked", "what": "was to come of all this."}


def test_a_title_is_no_end_of_a_sentence() -> None:
    assert at(SENTENCE, "We went to see old Mrs. Miller and her three cats in the garden.") == []


def test_places_inside_are_deep_in_their_paragraph() -> None:
    places = at(INSIDE)
    assert places
    assert all(len(before.rpartition("\n")[2].split()) >= DEEP and before[-1] == " " for before, _ in places)


def test_code_tables_and_quoted_blocks_have_no_places() -> None:
    assert not any("code" in place.rest or "quoted" in place.rest for place in drawn({"text": [NOTE]}, 1000))


def test_a_long_text_is_cut_where_a_line_begins() -> None:
    text = "\n\n".join(f"Paragraph {n} of this text has exactly nine words." for n in range(99))
    long = [place.before for place in drawn({"text": [text]}, 1000) if len(place.before) > REACH / 2]
    assert long
    assert all(len(before) <= REACH and before.startswith("Paragraph") for before in long)


def test_every_kind_of_text_and_every_document_has_its_turn() -> None:
    one, other = ("\n\n".join(f"{who} {n} of this text has a number." for n in range(9)) for who in ("One", "Other"))
    places = drawn({"a": [one] * 5, "b": [other, "A third text that has only one paragraph."]}, 4)
    assert [place.rest.split()[0] for place in places if place.kind == PARAGRAPH] == ["One", "Other"] * 2
    assert places == drawn({"a": [one] * 5, "b": [other, "A third text that has only one paragraph."]}, 4)


def test_our_letters_have_salutations_where_the_text_has_none() -> None:
    places = drawn({"text": [NOTE]}, 5)
    greeted = [place for place in places if place.kind == SALUTATION]
    assert len(greeted) == 5
    assert all(place.before.endswith("\n") for place in greeted)


def test_a_text_without_places_is_refused() -> None:
    with pytest.raises(InputError, match="no place where a person begins"):
        drawn({"text": ["Too short."]}, 5)


def test_the_text_of_the_app_has_every_kind_of_place() -> None:
    assert {place.kind for place in drawn(texts(None), 5)} == {*KINDS}
