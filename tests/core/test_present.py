"""Rows of the page, made from drafts by one pure function."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.ask import Ask, KeptRow
from core.drafting.drafts import Draft, Drafts
from core.present import Presentation, TextDraft, kept_rows, present
from core.text import alike, say_the_same, says_something, up_to_punctuation
from tests.paths import ROOT
from tests.table_model import Letters


class Words(Letters):
    def __init__(self) -> None:
        super().__init__(6)
        self.pieces = [b" sea", b" and", b" the", b"s", b" old", b"side"]

    def encode(self, text: str) -> list[int]:
        ids = []
        while text:
            ids.append(next(i for i, piece in enumerate(self.pieces) if text.startswith(piece.decode())))
            text = text[len(self.pieces[ids[-1]]) :]
        return ids


def draft(ids: list[int], row: int, p: float = -1.0, **more) -> Draft:
    totals = [p * (n + 1) for n in range(len(ids))]
    made = {"own": len(ids), "rests": True, "personal": [False] * len(ids), "p_branch": 0.5} | more
    return Draft(ids, totals, row, **made)


def page(kept=(), earlier=(), **ask) -> Presentation:
    rows = [KeptRow(*row) for row in dict(kept).items()]
    return Presentation(Words(), Ask(k=3, kept=rows, **ask), earlier=earlier)


def test_rows_are_ordered_by_number_and_no_text_appears_twice():
    found = Drafts([draft([4, 0], 2), draft([0], 0), draft([0], 1)], step=2)
    assert [(row.id, row.text) for row in present(found, page())] == [(0, " sea"), (2, " old sea")]


def test_rows_that_differ_in_nothing_count_as_one_and_the_shown_one_stays():
    found = Drafts([draft([0, 3], 0), draft([0], 1), draft([4, 0], 2)], step=2)
    assert [row.text for row in present(found, page())] == [" seas", " sea", " old sea"]
    assert [row.id for row in present(found, page(merge_alike=True))] == [0, 2]
    assert [row.id for row in present(found, page(merge_alike=True, kept={1: " sea"}))] == [1, 2]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("she asked.", "She asked.", True),
        ("she asked.", "he asked.", False),
        (" the letters", " the letter", True),
        (" two boxes", " two box", True),
        (" the cities", " the city", True),
        (" the colour", " the color", True),
        (" organising", " organizing", True),
        (" travelled", " traveled", True),
        (" the news", " the new", False),
        (" four", " for", False),
        (" his", " hi", False),
        (" to create", " to create.", False),
    ],
)
def test_texts_are_alike_in_any_case_number_and_spelling(one: str, other: str, same: bool) -> None:
    assert (alike(one) == alike(other)) is same


def test_unasked_rows_follow_the_form_of_the_document_and_end_at_punctuation() -> None:
    found = Drafts([draft([0, 3], 0), draft([3, 0], 1)], step=2)
    assert present(found, page(unasked=True, before="It rained.\n")) == []  # " sea", and "s sea", which begins small
    assert [row.text for row in present(found, page(unasked=True, before="a word\n"))] == ["s sea"]
    assert [up_to_punctuation(text) for text in (" the sea, and", ". I am", " well-known", " one – two")] == [
        " the sea", "", " well-known", " one",
    ]  # fmt: skip


def test_only_a_drafts_own_tokens_are_shown():
    found = Drafts([draft([4, 0, 3], 0, own=1)], step=3)
    assert [row.text for row in present(found, page())] == [" old"]
    assert [row.text for row in present(found, page(distinct=False))] == [" old seas"]


def test_by_the_papers_rule_finished_drafts_stand_among_the_others_by_score():
    found = Drafts([draft([0], 0, -2.0)], step=1, finished=[replace(draft([4, 0], 0, -0.5), ended=True)])
    rows = present(found, page(distinct=False))
    assert [(row.id, row.text, row.finished) for row in rows] == [(0, " old sea", True), (1, " sea", False)]


def test_by_the_papers_rule_a_draft_is_as_probable_as_where_it_branches():
    def of(ids: list[int], *totals: float) -> Draft:
        return replace(draft(ids, 0), totals=list(totals))

    found = Drafts([of([0, 1, 2], -0.5, -1.0, -1.5), of([0, 1, 3], -0.5, -1.0, -3.0), of([4, 0], -2.0, -2.5)], step=3)
    rows = present(found, page(distinct=False))
    assert [row.probability for row in rows] == pytest.approx([np.exp(-1.5), np.exp(-2.0), np.exp(-3.0)])


@pytest.mark.parametrize("done", [False, True])
def test_a_draft_does_not_end_in_a_word_that_waits_for_the_next(done: bool) -> None:
    found = Drafts([draft([0, 1, 2], 0)], step=3, done=done)
    assert [row.text for row in present(found, page())] == [" sea"]
    kept = page(kept={0: " sea and the"})
    assert [row.text for row in present(found, kept)] == [" sea and the"]


def test_the_best_draft_is_rounded_alike_beside_any_other_drafts():
    best, other = draft([0, 1, 2], 0), draft([0, 3], 1)
    for rows, expected in ([best], [" sea"]), ([best, other], [" sea", " seas"]):
        found = Drafts(rows, step=3, done=True)
        assert [row.text for row in present(found, page())] == expected


def test_another_draft_is_not_rounded_to_the_beginning_of_one():
    found = Drafts([draft([0, 3], 0), draft([0, 1, 2], 1)], step=3, done=True)
    assert [row.text for row in present(found, page())] == [" seas", " sea and the"]


def test_drawn_drafts_end_at_words_once_they_are_done():
    found = Drafts([draft([0, 4, 0, 5], 0)], step=4, done=True)
    assert [row.text for row in present(found, page(length=3))] == [" sea old"]


def test_personal_spans_are_joined_and_kept_rows_keep_theirs():
    found = Drafts([draft([4, 0, 3], 0, personal=[False, True, True])], step=3)
    (row,) = present(found, page())
    assert row.personal == ((4, 9),)
    earlier = [("Call", TextDraft(0, " the old sea", 0.5, 0.5, False, personal=((4, 8),)))]
    (kept,) = present(found, page(kept={0: " old sea"}, before="Call the", earlier=earlier))
    assert kept.personal == ((0, 4),)


def test_kept_rows_are_tokens_again_and_grow_once_they_are_short():
    rows = kept_rows([KeptRow(0, " old sea"), KeptRow(2, " sea"), KeptRow(7, " sea")], page(), word=0, length=2)
    assert [(row.slot, row.ids, row.grows) for row in rows] == [(0, [4, 0], False), (2, [0], True)]


@pytest.mark.parametrize("word", ["begins_word", "personal", "piece ="])
def test_the_algorithm_reads_on_one_page_and_knows_no_text(word):
    source = (ROOT / "core" / "superposed.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 250
    assert word not in source


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            " situations where you want to change the default value",
            " cases where you want to change the default value",
            True,
        ),
        (" he went to the house of his wife", " she went to the house of his wife", True),
        (" the next day", " the next week", False),
        (" the", " then", False),
        (" in the morning", " in the morning, and nobody saw him before noon", False),
        ("Mr. Smith,", "Dr. Johnson,", False),
        ("", "", False),
    ],
)
def test_texts_say_the_same_if_they_agree_in_two_thirds_of_their_letters(one: str, other: str, same: bool) -> None:
    assert say_the_same(one, other) is say_the_same(other, one) is same


@pytest.mark.parametrize(
    ("draft", "before", "something"),
    [
        ("   ", "It rained. ", False),
        (" . . . .", "It rained", False),
        ("....", "It rained", False),
        ("-----", "It rained\n", False),
        (".", "It rained", True),
        ('."', 'He said "no', True),
        ("…", "It rained", True),
        ("It rained.", "It rained.\n", False),
        ("rained.", "It rained.\nIt ", False),
        ("It rained.", "It rained. ", False),
        ("It rained again.", "It rained. ", True),
        ("very", "It was very ", True),
        ("so", "", True),
    ],
)
def test_a_draft_says_something_new(draft: str, before: str, something: bool) -> None:
    assert says_something(draft, before) is something
