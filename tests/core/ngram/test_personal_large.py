"""Large personal stores: a thread updates the counts by the changes, while another looks up."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.ngram import StoreError, personal, personal_counts, stored_texts
from core.ngram.counts import windows_of
from core.ngram.held_passages import HeldPassages
from core.ngram.passages import StoredPassage
from core.ngram.personal import PersonalStore
from core.ngram.personal_counts import FRESH
from core.ngram.shelf import Shelf
from core.ngram.tally import Tally
from core.ngram.windows import Windows
from tests.ngram_tools import WordTokenizer

TOKENIZER = WordTokenizer(64)
passages = st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=12), st.integers(1, 4)), max_size=6)


def text_of(ids: Any) -> str:
    return " ".join(map(str, ids))


def much(seed: int, tokens: int = 3 * FRESH) -> str:
    return text_of(np.random.default_rng(seed).integers(0, 64, tokens).tolist())


# ---------------------------------------------------------------- windows


@given(first=passages, second=passages)
@settings(max_examples=80)
def test_windows_added_and_taken_away_are_those_counted_at_once(first: Any, second: Any) -> None:
    one, two, both = (windows_of(found, 6) for found in (first, second, first + second))
    for made, expected in ((one.merged(two), both), (both.merged(two, -1), one)):
        for array in ("hi", "lo", "before", "shared", "changes"):
            assert getattr(made, array).tolist() == getattr(expected, array).tolist()


def test_a_million_tokens_take_no_more_than_30_mb() -> None:
    ids = np.random.default_rng(0).zipf(1.3, 1_000_000) % 50_000
    assert windows_of([(ids, 1)], 50_000).nbytes <= 30e6


# ---------------------------------------------------------------- only the changes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PersonalStore]:
    with PersonalStore.open(tmp_path / "me.sqlite", TOKENIZER, create=True) as made:
        yield made


def counted_anew(path: Path) -> dict[tuple[int, ...], int]:
    with PersonalStore.open(path, TOKENIZER) as again:
        return {gram: n for gram, n, _ in again.ngrams()}


def test_only_what_changed_is_counted(store: PersonalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcd":
        store.add(name, [much(ord(name))])
    store.evidence([[1]], [2])
    sorted_tokens = []
    beginning = Windows.beginning

    def counting(symbols: np.ndarray, begins: np.ndarray, times: np.ndarray) -> Windows:
        sorted_tokens.append(len(begins))
        return beginning(symbols, begins, times)

    monkeypatch.setattr(Windows, "beginning", counting)
    store.add("e", [much(5)])
    store.evidence([[1]], [2])
    store.forget_document("b")
    store.evidence([[1]], [2])
    assert 6 * FRESH <= sum(sorted_tokens) < 6 * FRESH + 100
    assert {gram: n for gram, n, _ in store.ngrams()} == counted_anew(store.path)


# ---------------------------------------------------------------- in the background


class Slow:
    """Delays the counting until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.threads = threading.Event(), set[str]()
        bring = Tally.brought_up_to_date

        def slowly(this: Tally, *arguments: Any) -> Tally:
            self.threads.add(threading.current_thread().name)
            assert self.go.wait(60)
            return bring(this, *arguments)

        monkeypatch.setattr(Tally, "brought_up_to_date", slowly)


def counting(store: PersonalStore) -> bool:
    """Whether a thread updates the store's counts."""
    following = store._counts._following
    return following is not None and not following.tally.done()


def wait(store: PersonalStore) -> None:
    idle = 0  # a look-up uses what a thread has counted, and may start another thread
    for _ in range(2000):
        idle = 0 if counting(store) else idle + 1
        store.prepare()
        store.refresh()
        if idle == 3:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the counts are not brought up to date")


def test_drafts_go_on_with_the_former_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "me.sqlite"
    with (
        PersonalStore.open(path, TOKENIZER, create=True) as writer,
        PersonalStore.open(path, TOKENIZER, in_background=True) as reader,
    ):
        writer.add("old", [text_of([1, 2, 3] * 100)])
        reader.prepare()
        wait(reader)
        slow = Slow(monkeypatch)

        def known() -> tuple[int, int]:
            counts = reader.evidence([[1]], [2, 9], [2]).counts[0, 0]
            return int(counts[0]), int(counts[1])

        assert known() == (100, 0)
        writer.add("new", [text_of([1, 9] * FRESH)])
        assert known() == (100, 0), "the former counts, while a thread counts"
        assert counting(reader)
        writer.learn("1 9", times=3)
        slow.go.set()
        wait(reader)
        assert known() == (100, FRESH + 2 * 3)
        slow.go.clear()
        writer.forget_document("old")
        known()
        slow.go.set()
        wait(reader)
        assert known() == (0, FRESH + 2 * 3)
        assert threading.current_thread().name not in slow.threads - {"MainThread"}
        assert slow.threads


@pytest.mark.parametrize("counted", ["long ago", "in the background", "just now"])
def test_after_a_removal_no_look_up_uses_the_former_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: str
) -> None:
    path = tmp_path / "me.sqlite"
    with (
        PersonalStore.open(path, TOKENIZER, create=True) as writer,
        PersonalStore.open(path, TOKENIZER, in_background=True) as reader,
    ):
        writer.add("other", [text_of([5, 6] * FRESH)])
        if counted == "long ago":
            writer.add("secret", [text_of([1, 2])])
        reader.prepare()
        wait(reader)
        slow = Slow(monkeypatch)
        if counted == "just now":
            writer.learn("1 2", origin="secret")
            assert reader.evidence([[1]], [2], [2]).totals.tolist() == [[4]]
        elif counted == "in the background":
            writer.add("secret", [text_of([1, 2] * FRESH)])
            reader.refresh()  # a thread counts it
        writer.forget_document("secret")
        assert reader.evidence([[1]], [2], [2]).totals.tolist() == [[0]]
        slow.go.set()
        wait(reader)
        assert reader.evidence([[1]], [2], [2]).totals.tolist() == [[0]]
        assert reader.evidence([[5]], [6], [2]).totals.tolist() == [[FRESH]], "the others count again"


def test_what_cannot_be_counted_beside_is_a_problem_of_that_store(tmp_path: Path) -> None:
    Shelf(TOKENIZER, tmp_path).open("me", create=True).close()
    with PersonalStore.open(tmp_path / "me.sqlite", TOKENIZER) as store:
        store.add("a", ["1 2 3"])
    with sqlite3.connect(tmp_path / "me.sqlite") as file:
        file.execute("UPDATE passages SET ids = ?", [np.array([999999], dtype="<u4").tobytes()])
    file.close()
    shelf = Shelf(TOKENIZER, tmp_path, in_background=True)
    for _ in range(500):
        if not shelf.active():
            break
        threading.Event().wait(0.01)
    assert "999999" in shelf.problems["me"]
    shelf.close()


def test_a_store_that_is_closed_while_it_counts_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "me.sqlite"
    with PersonalStore.open(path, TOKENIZER, create=True) as writer:
        writer.add("a", [much(1)])
    slow = Slow(monkeypatch)
    reader = PersonalStore.open(path, TOKENIZER, in_background=True)
    reader.prepare()
    following = reader._counts._following
    reader.close()
    slow.go.set()
    assert following
    assert isinstance(following.tally.exception(60), CancelledError)


# ---------------------------------------------------------------- limits


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_texts, "LARGEST", 100)


@pytest.mark.usefixtures("small_limit")
def test_more_than_a_store_may_hold_is_refused_before_it_is_added(store: PersonalStore, tmp_path: Path) -> None:
    store.add("a", [text_of([1] * 60)])
    assert store.add("a", [text_of([2] * 90)]) == 90, "what is replaced does not count"
    read = []

    def documents() -> Iterator[str]:
        for i in range(50):
            read.append(i)
            yield text_of([3] * 5)

    for adding in (
        lambda: store.add("b", documents()),
        lambda: store.learn(text_of([4] * 11)),
        lambda: store.restore([personal.StoredText("x", "2024", 1, (text_of([5] * 11),))]),
    ):
        with pytest.raises(InputError, match=r"would have 10\d tokens or more; at most 100 .* Nothing was added"):
            adding()
    assert len(read) == 3, "it is refused as soon as it is too much"
    with pytest.raises(InputError, match="1 to 1000 expected"):
        store.learn("1 2", times=10**9)
    assert [(document["origin"], document["tokens"]) for document in store.documents()] == [("a", 90)]
    assert store.learn(text_of([4] * 10)) == 10


# ---------------------------------------------------------------- adding


def test_an_adding_ends_within_a_long_document(store: PersonalStore) -> None:
    calls = 0

    def check_cancelled() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    text = much(1, 150_000)
    with pytest.raises(KeyboardInterrupt):
        store.add("long", [text], check_cancelled)
    assert store.documents() == []
    store.add("long", [f"{text} \ud83d"])
    assert [text.passages for text in store.texts()] == [(f"{text} \ufffd",)], "no file holds half of a pair"
    assert store.token_ids()[1][0].tolist() == TOKENIZER.encode(text), "in portions, and yet the same"


# ---------------------------------------------------------------- file systems


@pytest.mark.skipif(sys.platform == "win32", reason="SQLite has this way of locking elsewhere")
def test_a_file_system_without_a_write_ahead_log_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def without(path: Path, **options: Any) -> sqlite3.Connection:
        return connect(f"file:{path}?vfs=unix-dotfile", uri=True, **options)

    monkeypatch.setattr("core.ngram.personal_file.sqlite3.connect", without)
    with pytest.raises(StoreError, match=r"has no write-ahead log there.*network drive.*XDG_DATA_HOME"):
        PersonalStore.open(tmp_path / "me.sqlite", TOKENIZER, create=True)


def test_the_first_look_up_and_the_one_after_a_removal_wait_for_no_thread_where_the_store_is_small(
    store: PersonalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(personal_counts, "Following", None)  # nothing in the background
    store.add("letter", ["1 2 3 4"])
    store.add("other", ["1 2 5"])
    with PersonalStore.open(store.path, TOKENIZER, in_background=True) as drafting:
        twice = drafting.count(TOKENIZER.encode("1 2"))
        assert twice > 0
        store.forget_document("letter")
        drafting.refresh()
        assert drafting.count(TOKENIZER.encode("1 2")) == twice / 2
        store.add("third", ["1 2"])
        drafting.refresh()
        assert drafting.count(TOKENIZER.encode("1 2")) == twice


@given(steps=st.lists(st.text(max_size=5) | st.none()), size=st.integers(0, 30))
@settings(max_examples=40)
def test_held_passages_are_a_queue_whatever_is_packed(steps: list[str | None], size: int) -> None:
    held, wanted = HeldPassages(), list[StoredPassage]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core.ngram.held_passages._BLOCK", size)
        for step in steps:
            if step is not None:
                wanted.append(StoredPassage(step, len(step), bytes(4 * len(step))))
                held.append(wanted[-1])
            elif wanted:
                assert held.popleft() == wanted.pop(0)
            assert (list(held), len(held)) == (wanted, len(wanted))
            assert held.tokens == held.characters == sum(each.tokens for each in wanted)
