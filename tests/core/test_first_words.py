"""Drafts where a text begins or goes on after white space: the model reads what it would read before the next word."""

from __future__ import annotations

import pytest

from core.autocomplete import Autocomplete
from core.forms import odd_beginnings
from core.models.base import Row
from core.session import Session
from tests.completing import complete

WRITTEN = (
    "Dear Anna,\n\nThank you for the list:\n\n- eggs\n- “milk”\n\n# Later\n\nWe  meet\tat noon.\r\n\r\n"
    "> So be it.\n\n1. Go"
)


def most_probable(autocomplete: Autocomplete, before: list[int]) -> str:
    sequence = autocomplete.model.open()
    (logits,) = autocomplete.model.forward([Row(sequence, before)])
    sequence.close()
    return autocomplete.model.tokenizer.decode([int(logits.argmax())])


def test_at_every_key_the_model_reads_the_beginning_of_the_document_and_its_own_tokens(
    autocomplete: Autocomplete,
) -> None:
    tokenizer = autocomplete.model.tokenizer
    for end in range(len(WRITTEN) + 1):
        text = WRITTEN[:end]
        plan = autocomplete.healer.plan(text, window=autocomplete.window)
        assert plan.prefix_ids[: plan.begins] == tokenizer.beginning
        assert tokenizer.decode(plan.prefix_ids[plan.begins :] + plan.word_ids) == text
        if not WRITTEN[end - 1 : end].isalnum() and WRITTEN[end : end + 1].isalpha():  # a word follows
            assert (tokenizer.beginning + tokenizer.encode(WRITTEN))[: len(plan.prefix_ids)] == plan.prefix_ids


def test_the_context_of_the_beginning_is_read_while_the_window_contains_the_beginning(
    autocomplete: Autocomplete,
) -> None:
    tokenizer, window = autocomplete.model.tokenizer, 64
    for words in range(1, 200, 9):
        plan = autocomplete.healer.plan("so " * words, window=window)
        read = len(tokenizer.beginning) + len(tokenizer.encode("so " * words)) - 1  # without the space at the caret
        whole = read <= window
        assert (plan.prefix_ids[: len(tokenizer.beginning)] == tokenizer.beginning) is whole


def test_typing_over_empty_lines_and_marks_reads_no_token_twice(tiny_autocomplete: Autocomplete) -> None:
    session, fed = tiny_autocomplete.open(), 0
    for end in range(len(WRITTEN) + 1):
        completion = complete(session, WRITTEN[:end], k=1, length=1, forks=0)
        completion.finish()
        fed += completion.fed
    tokenizer = session.equipped.model.tokenizer
    # The letters of a half-typed word are read until it is known how the word goes on.
    words = sum(len(tokenizer.encode(word)) for word in WRITTEN.split())
    assert fed <= len(tokenizer.beginning + tokenizer.encode(WRITTEN)) + 3 * words
    session.close()


@pytest.mark.parametrize(
    ("before", "never"),
    [("Dear ", "the"), ("The ", "the"), ("My ", "the"), ("Dear Sir or Madam,\n\n", "\n"), ("It rained.\n\n", " ")],
)
def test_what_stands_first_is_no_surprise_to_the_model(autocomplete: Autocomplete, before: str, never: str) -> None:
    plan = autocomplete.healer.plan(before, window=autocomplete.window)
    assert most_probable(autocomplete, plan.prefix_ids).strip(" ") != never


@pytest.mark.parametrize("before", ["", "Dear Sir,\n\n", "# Notes\n\n", "We need:\n\n- ", "It rained.  ", "So "])
def test_no_draft_begins_with_white_space_or_an_odd_mark(session: Session, before: str) -> None:
    for row in complete(session, before, k=5, length=4).finish().drafts:
        assert row.text[0] not in odd_beginnings(before)
