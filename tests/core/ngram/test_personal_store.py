"""Personal stores: counts against brute force, the file after a kill, the file after forgetting."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.ngram.counts import Counts
from core.ngram.errors import StoreError
from core.ngram.passages import likely, occurrences, whole_words
from core.ngram.personal import PARAGRAPH, PHRASE, TYPED, PersonalStore
from core.ngram.plain import plain
from tests.kill_writers import TOKENIZER as WIDE
from tests.kill_writers import phrase
from tests.ngram_tools import WordTokenizer, brute_force
from tests.paths import ROOT

TOKENIZER = WordTokenizer(8)
ORDERS = range(1, 7)

passages = st.lists(st.lists(st.integers(0, 7), max_size=12), max_size=5)


def text_of(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))


@pytest.fixture
def store(tmp_path: Path) -> PersonalStore:
    return PersonalStore.open(tmp_path / "me.sqlite", TOKENIZER, create=True)


# ---------------------------------------------------------------- counts


@given(at_once=passages, later=passages, contexts=st.lists(st.lists(st.integers(-1, 9), max_size=7), max_size=4))
@settings(max_examples=60)
def test_counts_are_those_of_brute_force(
    at_once: list[list[int]], later: list[list[int]], contexts: list[list[int]]
) -> None:
    counts = Counts.of(8, [(ids, 1) for ids in at_once])
    for passage in later:
        counts.add(passage)
    grams, totals = brute_force(at_once + later, ORDERS, dict.fromkeys(ORDERS, 1))
    candidates = list(range(-1, 10))
    known = counts.evidence(contexts, candidates)
    assert known.orders == (2, 3, 4, 5, 6)
    for row, context in enumerate(contexts):
        for column, n in enumerate(known.orders):
            tail = tuple(context[-(n - 1) :]) if len(context) >= n - 1 else None
            assert known.seen[row, column] == grams.get(tail, 0)
            assert known.totals[row, column] == totals.get(tail, 0)
            assert known.types[row, column] == sum(gram[:-1] == tail for gram in grams)
            assert known.counts[row, column].tolist() == [
                grams.get((*tail, token), 0) if tail else 0 for token in candidates
            ]
    for gram, times in grams.items():
        assert counts.count(gram) == times
    for context, total in totals.items():
        assert counts.total(context) == total
        following = dict(counts.continuations(context))
        assert [count for _, count in counts.continuations(context, 2)] == sorted(following.values())[:-3:-1]
        assert following == {g[-1]: n for g, n in grams.items() if g[:-1] == context}
    assert {gram: n for gram, n, _ in counts.ngrams() if gram} == grams


def test_an_order_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="Order 7"):
        Counts.of(8).evidence([[1]], [1], [7])
    with pytest.raises(InputError, match="Candidates of shape"):
        Counts.of(8).evidence([[1]], [[1], [2]])
    with pytest.raises(InputError, match="below 8"):
        Counts.of(8, [([8], 1)])


# ---------------------------------------------------------------- the store


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "learn", "forget"]), st.lists(st.integers(0, 7), min_size=1, max_size=9)),
        max_size=8,
    )
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_counts_are_those_of_the_contents(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]]
) -> None:
    path = tmp_path_factory.mktemp("store") / "me.sqlite"
    with PersonalStore.open(path, TOKENIZER, create=True) as store:
        standing: dict[str, list[list[int]]] = {}
        for kind, ids in steps:
            phrases = [ids, ids[:6]]  # the phrase once more from its beginning, as within a line
            if kind == "add":
                origin = f"file {ids[0] % 2}"
                store.add(origin, [text_of(ids), text_of(ids[1:])])
                standing[origin] = [*phrases, ids[1:], ids[1:7]] * PHRASE
            elif kind == "learn":
                store.learn(text_of(ids), times=3)
                standing.setdefault(TYPED, []).extend(phrases * 3)
            elif kind == "forget":
                store.forget_document(f"file {ids[0] % 2}")
                standing.pop(f"file {ids[0] % 2}", None)
            store.evidence([[1]], [1])
        expected, _ = brute_force(
            [ids for documents in standing.values() for ids in documents], ORDERS, dict.fromkeys(ORDERS, 1)
        )
        assert {gram: n for gram, n, _ in store.ngrams() if gram} == expected
        with PersonalStore.open(path, TOKENIZER) as again:
            assert {gram: n for gram, n, _ in again.ngrams() if gram} == expected


def test_a_sample_is_spread_over_the_texts(store: PersonalStore) -> None:
    store.add("many", [str(number) for number in range(10)])
    assert list(store.sample(5)) == ["0", "2", "4", "6", "8"]
    assert len(list(store.sample(50))) == 10


def test_another_programs_commit_counts_at_the_next_look_up(tmp_path: Path) -> None:
    path = tmp_path / "me.sqlite"
    with PersonalStore.open(path, TOKENIZER, create=True) as one, PersonalStore.open(path, TOKENIZER) as other:
        assert one.evidence([[4]], [5], [2]).totals.tolist() == [[0]]
        other.learn("4 5")
        assert one.evidence([[4]], [5], [2]).totals.tolist() == [[2 * PARAGRAPH]]
        other.forget_phrase("4 5")
        assert one.evidence([[4]], [5], [2]).totals.tolist() == [[0]]
        other.switch(False)
        one.refresh()
        assert not one.enabled


def test_a_file_that_fails_half_way_changes_nothing(store: PersonalStore) -> None:
    store.add("file", ["1 2 3"])

    def texts():
        yield "4 5"
        raise InputError("gone")

    with pytest.raises(InputError):
        store.add("file", texts())
    assert [text for stored in store.texts() for text in stored.passages] == ["1 2 3"]


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), max_size=6), st.lists(st.integers(0, 3), max_size=3)
)
def test_occurrences_are_those_of_a_slow_search_whatever_is_joined(texts: list[list[int]], ngram: list[int]) -> None:
    def slow(ids: list[int]) -> int:
        return sum(ids[at : at + len(ngram)] == ngram for at in range(len(ids) - len(ngram) + 1)) if ngram else 0

    passages = [(f"{at % 2}", np.array(ids, dtype="<u4").tobytes()) for at, ids in enumerate(texts)]
    wanted = {name: sum(slow(ids) for ids in texts[at::2]) for at, name in enumerate("01")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core.ngram.passages._JOINED", 2)
        assert occurrences(passages, [ngram]) == [{name: times for name, times in wanted.items() if times}]


# ---------------------------------------------------------------- forgetting


def everything(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.parametrize("by", ["document", "phrase", "replacing"])
def test_what_is_forgotten_is_in_no_file(tmp_path: Path, by: str) -> None:
    path = tmp_path / "me.sqlite"
    secret = "4321 1234 2345"
    ids = np.array([4321, 1234, 2345], dtype="<u4").tobytes()
    with PersonalStore.open(path, WIDE, create=True) as store:
        filler = text_of([7, 8] * 3000)
        store.add("secret.txt", [f"1 2 {secret} 3 4", f"5 {secret}", filler])
        store.add("other.txt", ["1 2 3"])
        assert secret.encode() in everything(path)
        if by == "document":
            assert store.forget_document("secret.txt").documents == 3
        elif by == "phrase":
            done = store.forget_phrase("4321  1234\n2345")
            assert (done.passages, done.occurrences, done.complete) == (2, 2, True)
        else:
            store.add("secret.txt", ["1 2"])
        # While it is still open: the log, too, is part of the folder.
        left = everything(path)
        assert secret.encode() not in left
        assert ids not in left
        store.refresh()
        assert store.count([4321, 1234]) == 0
        assert store.count([2, 3]) > 0


def test_forgetting_takes_whole_words_in_any_case(tmp_path: Path) -> None:
    class Letters(WordTokenizer):
        def encode(self, text: str) -> list[int]:
            return [ord(c) % 64 for c in text]

    with PersonalStore.open(tmp_path / "me.sqlite", Letters(), create=True) as store:
        store.add("file", ["A cat. The category, CAT\n dog."])
        assert store.forget_phrase("cat").occurrences == 2
        assert [t for stored in store.texts() for t in stored.passages] == ["A ", ". The category, ", "\n dog."]
        store.refresh()
        assert store.count(store._texts._tokenizer.encode("A .")) == 0, "no n-gram closes the gap"
        assert store.forget_phrase("nothing of the kind").occurrences == 0
        with pytest.raises(InputError, match="No words given"):
            store.forget_phrase("  ")


@given(text=st.text("iıİsſkKa é\u0301%_\n", max_size=9), phrase=st.text("iIsSkKaAéÉ%_ ", min_size=1, max_size=3))
@settings(max_examples=300)
def test_every_text_with_a_phrase_is_likely_to_have_it(text: str, phrase: str) -> None:
    if phrase.strip() and whole_words(phrase).search(plain(text)):
        found = [sqlite3.connect(":memory:").execute("SELECT ? LIKE ?", [plain(text), each]) for each in likely(phrase)]
        assert any(row.fetchone()[0] for row in found)


@pytest.fixture
def written(store: PersonalStore) -> PersonalStore:
    """A store whose documents have several passages, and an adapter."""
    store.add("a", ["1 2 3 4 1 2", "5 6"])
    store.add("b", ["1 2"])
    store.learn("7 1 2", times=3)
    store.forget_phrase("4")  # a document of two passages
    store.add("c", ["0 0 7"])
    store.learned.mkdir()
    (store.learned / "weights").write_bytes(b"learned")
    return store


def contents(store: PersonalStore) -> Any:
    with PersonalStore.open(store.path, TOKENIZER) as again:
        return (
            list(again.texts()),
            [ids.tolist() for ids in again.token_ids()[1]],
            {gram: n for gram, n, _ in again.ngrams()},
        )


@pytest.mark.parametrize("what", ["a", "typed", "1 2"])
def test_undo_brings_back_the_same_texts_in_the_same_order_and_their_adapter(written: PersonalStore, what: str) -> None:
    before = contents(written)
    written.evidence([[1]], [2])
    forget = written.forget_document if what.isalpha() else written.forget_phrase
    done = forget(what, keep=1 << 20)
    assert contents(written) != before
    assert not written.learned.exists()
    assert done.removed is not None
    written.evidence([[1]], [2])
    restored = written.undo(done.removed)
    assert contents(written) == before
    assert {gram: n for gram, n, _ in written.ngrams()} == before[2], "also for a reader that has the file open"
    assert restored.adapter
    assert (written.learned / "weights").read_bytes() == b"learned"
    assert not written.relearning


def test_undo_brings_back_nothing_that_was_forgotten_since(written: PersonalStore) -> None:
    first = written.forget_document("a", keep=1 << 20).removed
    second = written.forget_phrase("1 2", keep=1 << 20).removed
    assert first is not None
    assert second is not None
    with pytest.raises(StoreError, match="other text of me was removed or replaced since"):
        written.undo(first)
    written.learn("3 3")  # more text is no obstacle
    written.undo(second)
    with pytest.raises(StoreError, match="no longer be undone"):
        written.undo(second)


def test_undo_never_doubles_a_document_that_was_added_again(written: PersonalStore) -> None:
    removed = written.forget_document("b", keep=1 << 20).removed
    assert removed is not None
    written.add("b", ["1 2"])
    left = contents(written)
    with pytest.raises(StoreError, match="b was added to me again"):
        written.undo(removed)
    assert contents(written) == left


def test_an_adapter_that_was_not_kept_is_learned_again_after_an_undo(written: PersonalStore) -> None:
    assert written.forget_document("c").removed is None, "nothing is kept unless that is requested"
    written.learned.mkdir()
    (written.learned / "weights").write_bytes(bytes(1000))
    done = written.forget_document("a", keep=900)
    assert done.adapter
    assert done.removed is not None
    assert not written.undo(done.removed).adapter
    written.refresh()
    assert written.relearning
    assert written.forget_document("a", keep=5).removed is None


def test_a_removal_that_fails_leaves_the_adapter_and_one_that_was_killed_does_not(written: PersonalStore) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written._file, "set", killed)
        with pytest.raises(Killed):
            written.forget_document("a")
    assert (written.learned / "weights").read_bytes() == b"learned"
    aside = written.learned.rename(written.path.parent / "me.adapter.removed")  # as a kill before the commit leaves it
    PersonalStore.open(written.path, TOKENIZER).close()
    assert not aside.exists()
    written.refresh()
    assert written.relearning


def test_forgetting_reports_an_open_reader_and_completes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ngram.personal_file.PATIENCE", 0.05)
    path = tmp_path / "me.sqlite"
    with PersonalStore.open(path, WIDE, create=True) as store:
        store.add("file", ["4321 1234"])
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM documents").fetchall()
        assert not store.forget_document("file").complete
        reader.close()
        PersonalStore.open(path, WIDE).close()
        assert b"4321 1234" not in everything(path)


# ---------------------------------------------------------------- accidents


def test_no_committed_phrase_is_lost_in_40_kills(tmp_path: Path) -> None:
    path = tmp_path / "me.sqlite"
    command = [sys.executable, "-m", "tests.kill_writers", str(path), "40", "7"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["kept"]) > 10
    assert len(told["gone"]) > 0
    with PersonalStore.open(path, WIDE) as store:
        assert store.check() == []
        standing = {text for stored in store.texts() for text in stored.passages}
        store.refresh()
        for number in told["kept"]:
            assert phrase(number) in standing
            assert store.count(WIDE.encode(phrase(number))) == 2 * PARAGRAPH
        for number in told["gone"]:
            assert phrase(number) not in standing
            assert phrase(number).encode() not in everything(path)
        files = [stored for stored in store.texts() if stored.origin == "file"]
        assert len(files) in (0, 2)  # both documents of a file, or none


def test_it_is_kept_as_it_promises(store: PersonalStore) -> None:
    store.learn("1 2")
    if os.name == "posix":  # only its owner may read it
        assert all(file.stat().st_mode & 0o077 == 0 for file in store.path.parent.iterdir())
    wanted = {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}
    assert {name: store._file.query(f"PRAGMA {name}")[0][0] for name in wanted} == wanted


def test_what_is_no_store_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no personal store"):
        PersonalStore.open(tmp_path / "none.sqlite", TOKENIZER)
    (tmp_path / "text.sqlite").write_text("This is no database, but a text that is long enough to be told. " * 20)
    with pytest.raises(StoreError, match="not a personal store"):
        PersonalStore.open(tmp_path / "text.sqlite", TOKENIZER)
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE things (id)")
    for create in (False, True):
        with pytest.raises(StoreError, match="is not a personal store"):
            PersonalStore.open(tmp_path / "other.sqlite", TOKENIZER, create=create)
    with pytest.raises(InputError, match="tokenizer"):
        PersonalStore.open(tmp_path / "new.sqlite", create=True)
    assert not (tmp_path / "new.sqlite").exists()


def test_a_later_version_and_another_tokenizer_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "me.sqlite"
    PersonalStore.open(path, TOKENIZER, create=True).close()
    with pytest.raises(StoreError, match="tokenizer"):
        PersonalStore.open(path, WordTokenizer(9))
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(StoreError, match="format version 99"):
        PersonalStore.open(path, TOKENIZER)


def test_a_damaged_store_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "me.sqlite"
    with PersonalStore.open(path, TOKENIZER, create=True) as store:
        store.add("file", [text_of([1, 2, 3, 4] * 20000)])
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 12] = os.urandom(4096 * 9)
    path.write_bytes(data)
    try:
        with PersonalStore.open(path, TOKENIZER) as store:
            wrong = store.check()
    except StoreError as error:
        wrong = [str(error)]
    assert wrong


def test_without_a_tokenizer_one_can_look_but_not_add(store: PersonalStore) -> None:
    store.add("file", ["1 2 3 1 2 1 2"])
    store.learn("2 1")
    with PersonalStore.open(store.path) as bare:
        assert bare.documents()[0]["tokens"] == 7
        assert bare.where([[1, 2], [2, 1, 2], [5], []]) == [{"file": 3}, {"file": 1}, {}, {}]
        with pytest.raises(InputError, match="without a tokenizer"):
            bare.learn("4 5")
        bare.switch(False)
    store.refresh()
    assert not store.enabled
