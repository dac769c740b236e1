"""Slips of the finger: which words may be meant, where nothing is corrected, and the rows that correct."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from torch import Tensor

from core.ask import KeptRow
from core.models import LanguageModel, Row
from core.ngram.counts import Counts
from core.ngram.interpolation import Linear, Mixed
from core.present import TextDraft
from core.session import Session
from core.slips import NEIGHBOURS, correctable, meant
from tests.completing import complete

SHORT: dict[str, Any] = {"k": 3, "length": 4, "forks": 2, "exact_steps": 2}  # long enough for every row that corrects


def test_one_slip_of_each_kind_is_undone() -> None:
    assert meant("teh")["the"] > 0  # swapped
    assert meant("lettter")["letter"] > 0  # doubled
    assert meant("leter")["letter"] > 0  # left out
    assert meant("lettwr")["letter"] > 0  # a neighbouring key
    assert "letter" not in meant("letter")
    assert meant("hte")["the"] > 0  # the first two letters swapped
    assert 0 < meant("ketter")["letter"] < meant("lettwr")["letter"]  # the first letter is right more often than others
    assert meant("etter")["letter"] > 0
    assert "lottor" not in meant("letter")
    assert all(0 < p < 0.03 for p in meant("lettwr").values())


def test_neighbours_are_those_of_both_layouts() -> None:
    assert set("tzgh") <= set(NEIGHBOURS["y"]) | {"y"} | set("z")
    assert "z" in NEIGHBOURS["t"]  # QWERTZ
    assert "y" in NEIGHBOURS["t"]  # QWERTY
    assert all(letter in NEIGHBOURS[other] for letter, others in NEIGHBOURS.items() for other in others)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("I saw teh", "teh"),
        ("I saw teh ", "teh "),
        ("teh", "teh"),
        ("I met Teh", ""),
        ("Call NASA", ""),
        ("I saw te", ""),
        ("x = foo(bar", ""),
        ("see www.exampel", ""),
        ("self.valeu", ""),
        ("`lettr", ""),
        ("an e-mial", ""),
        ("I saw 3rd", ""),
    ],
)
def test_code_names_and_short_words_are_left_alone(text: str, word: str) -> None:
    assert correctable(text) == word


def drafts(session: Session, before: str, kept: Sequence[KeptRow] = (), **options: Any) -> list[TextDraft]:
    return complete(session, before, kept=kept, **(SHORT | options)).finish().drafts


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("I am looking forwrad", "I am looking forward"), ("She wrote a long lettwr", "She wrote a long letter")],
)
def test_a_row_replaces_the_letters_that_it_corrects(session: Session, typed: str, wanted: str) -> None:
    found = [typed[: len(typed) - d.replace] + d.text for d in drafts(session, typed, corrects=True) if d.replace]
    assert any(text.startswith(wanted) for text in found), found
    assert not any(d.replace for d in drafts(session, typed))  # clients that cannot delete letters


def test_right_words_are_not_corrected(session: Session) -> None:
    typed = "Thank you very much "
    for end in range(typed.index(" m") + 1, len(typed) + 1):
        assert not any(d.replace for d in drafts(session, typed[:end], corrects=True)), typed[:end]


@pytest.mark.parametrize(
    ("typed", "learned"),
    [
        ("Thank you very muhc", "It was muhc indeed"),
        ("She wrote a long lettwr", "It was lettwright indeed"),  # lett·wr, and lett·wright
        ("Thank you very muhc", "muhc is a word"),  # without a space before it
        ("Why did he go?\nbecasue", "It was becasuele indeed"),  # with one
    ],
)
def test_the_beginnings_of_the_writers_own_words_are_not_corrected(session: Session, typed: str, learned: str) -> None:
    tokenizer = session.equipped.model.tokenizer
    for text, own, corrected in (
        (learned, True, False),
        (learned, False, True),
        ("It was a letter for much, because", True, True),
    ):
        store = Counts.of(len(tokenizer.pieces), [(tokenizer.encode(text), 1)])
        ngrams = Linear([Mixed(store, 0.9 if own else 0.1, personal=own)])
        assert any(d.replace for d in drafts(session, typed, corrects=True, ngrams=ngrams)) is corrected, text


def test_the_row_of_a_finished_word_stays_while_the_writer_pauses(session: Session) -> None:
    typed = "Thank you very muhc"
    drafts(session, typed, corrects=True)
    kept: list[KeptRow] = []
    for options in ({}, {"grow": True, "tails": True}, {}):  # as the page asks again at a pause
        found = drafts(session, f"{typed} ", kept, corrects=True, **options)
        texts = [f"{typed} "[: -d.replace] + d.text for d in found if d.replace]
        assert any(text.startswith("Thank you very much ") for text in texts), found
        assert all(d.replace == 3 for d in found if d.replace), "what was right of it stays"
        kept = [KeptRow(d.id, d.text) for d in found if not d.replace]
    for end in (" f", " ", "  "):  # gone once a letter follows, also when it is deleted again
        assert not any(d.replace for d in drafts(session, typed + end, corrects=True)), end


def typed_quickly(session: Session, text: str, **options: Any) -> list[TextDraft]:
    """The drafts after a text of which every earlier request was cancelled before its first pass."""
    for end in range(text.rindex(" ", 0, -1) + 1, len(text)):
        complete(session, text[:end], **(SHORT | options)).close()
    return drafts(session, text, **options)


@pytest.mark.parametrize(
    ("typed", "wanted", "stores"),
    [
        ("Thank you very muhc ", "Thank you very much ", True),
        ("I am looking forwrad ", "I am looking forward ", False),
    ],
)
def test_a_word_that_is_finished_before_any_drafts_is_corrected_too(
    session: Session, typed: str, wanted: str, stores: bool
) -> None:
    options: dict[str, Any] = {"corrects": True} | ({} if stores else {"alpha": 0.0, "personal_weight": 0.0})
    drafts(session, typed[: typed.rindex(" ", 0, -1)], **options)
    found = [typed[: len(typed) - d.replace] + d.text for d in typed_quickly(session, typed, **options) if d.replace]
    assert any(text.startswith(wanted) for text in found), found
    again = drafts(session, typed, grow=True, tails=True, **options)  # as the page asks at a pause
    found = [typed[: len(typed) - d.replace] + d.text for d in again if d.replace]
    assert any(text.startswith(wanted) for text in found), found
    for end in ("f", "", " "):  # gone once a letter follows, also when it is deleted again
        assert not any(d.replace for d in drafts(session, typed + end, **options)), end


def test_a_word_is_corrected_at_its_space_although_drafts_have_read_its_first_letters(session: Session) -> None:
    typed = "I am looking forwrad "
    drafts(session, "I am looking forw", corrects=True)
    found = [typed[: -d.replace] + d.text for d in drafts(session, typed, corrects=True) if d.replace]
    assert any(text.startswith("I am looking forward ") for text in found), found


@contextmanager
def passes_of(model: LanguageModel) -> Iterator[list[int]]:
    """The number of inputs of each pass, while it lasts."""
    passes, forward = list[int](), model.forward

    def counted(rows: list[Row]) -> list[Tensor]:
        passes.append(sum(len(row.inputs) for row in rows))
        return forward(rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "forward", counted)
        yield passes


def test_a_word_that_is_not_corrected_takes_no_pass_more(session: Session) -> None:
    typed = "She wrote a beautifully "
    passes: list[list[int]] = []
    for corrects in (True, False):
        fresh = session.equipped.open()
        drafts(fresh, typed[: typed.rindex(" ", 0, -1)], corrects=corrects)
        with passes_of(session.equipped.model) as counted:
            assert not any(d.replace for d in typed_quickly(fresh, typed, corrects=corrects))
        passes.append(counted)
        fresh.close()
    assert passes[0] == passes[1]


def test_quickly_finished_words_of_the_writers_own_store_and_names_and_code_stay(session: Session) -> None:
    tokenizer = session.equipped.model.tokenizer
    store = Counts.of(len(tokenizer.pieces), [(tokenizer.encode("It was muhc indeed"), 1)])
    own = Linear([Mixed(store, 0.9, personal=True)])
    assert any(d.replace for d in typed_quickly(session, "Thank you very muhc ", corrects=True))
    assert not any(d.replace for d in typed_quickly(session, "So thank you very muhc ", corrects=True, ngrams=own))
    for typed in ("Call me Jhon ", "I saw Teh ", "x = foo(bar, teh "):
        assert not any(d.replace for d in typed_quickly(session, typed, corrects=True)), typed
