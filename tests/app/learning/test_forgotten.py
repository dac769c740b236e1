"""What the server holds to undo a removal: in memory alone, for one page, bounded in time and size."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.learning.forgotten import HeldTexts
from core.errors import InputError
from core.ngram.passages import StoredPassage
from core.ngram.removed import Removed, RemovedDocument, Undone
from tests.waiting import until


def removed(size: int = 10, before: int = 0) -> Removed:
    passage = StoredPassage("x" * size, 1, b"")
    return Removed("one", before, before + 1, 9, (RemovedDocument(1, "a.txt", "", 1, (passage,)),), {})


def put_back(_: str, text: Removed) -> Undone:
    return Undone(1, text.after + 1, False)


def held(texts: HeldTexts, *tickets: str) -> list[bool]:
    """Whether each can still be undone."""

    def can(ticket: str) -> bool:
        try:
            texts.undo(ticket, lambda *_: (_ for _ in ()).throw(KeyError))
        except KeyError:
            return True
        except InputError:
            return False
        raise AssertionError

    return [can(ticket) for ticket in tickets]


@pytest.fixture(autouse=True)
def _no_timers_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    until(lambda: threading.active_count() <= before)  # no timer that nobody needs


def test_a_closed_page_takes_its_own_texts_with_it() -> None:
    texts = HeldTexts()
    mine, others = texts.keep("a", "me", removed()), texts.keep("b", "me", removed())
    texts.leave("a")
    assert held(texts, mine, others) == [False, True]
    texts.drop_store("me")
    assert held(texts, others) == [False]


def test_time_ends_it_also_if_the_page_never_says_that_it_is_closed() -> None:
    texts = HeldTexts(hold=0.05)
    ticket = texts.keep("a", "me", removed())
    until(lambda: held(texts, ticket) == [False])


def test_the_oldest_go_when_there_is_too_little_room() -> None:
    texts = HeldTexts(room=100)
    tickets = [texts.keep("a", "me", removed(40)) for _ in range(3)]
    assert held(texts, *tickets) == [False, True, True]
    texts.leave("a")


def test_an_undo_that_fails_can_be_tried_again_and_one_that_works_cannot() -> None:
    texts = HeldTexts()
    ticket = texts.keep("a", "me", removed())
    assert held(texts, ticket, ticket) == [True, True]
    assert texts.undo(ticket, put_back)[0] == "me"
    assert held(texts, ticket) == [False]


def test_the_one_before_can_be_undone_next() -> None:
    texts = HeldTexts()
    first, second = texts.keep("a", "me", removed()), texts.keep("a", "me", removed(before=1))
    texts.undo(second, put_back)
    found: list[Removed] = []
    texts.undo(first, lambda name, text: found.append(text) or put_back(name, text))
    assert found[0].after == 3, "the number of removals after the second was undone"


def test_nothing_of_it_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    texts = HeldTexts()
    texts.keep("a", "me", removed(1 << 16))
    assert list(tmp_path.iterdir()) == []
    texts.leave("a")
