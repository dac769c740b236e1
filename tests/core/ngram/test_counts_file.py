"""Large personal stores: the counts of older text are in a file, and more text than has room is left out."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ngram import StoreError, counts_file, personal_counts, stored_texts
from core.ngram.counts import Counts, windows_of
from core.ngram.personal import PersonalStore
from core.ngram.stored_texts import StoredTexts
from ngram_builder import folders, personal
from tests.ngram_tools import WordTokenizer

V = 64
TOKENIZER = WordTokenizer(V)
FRESH = 1000  # tokens that are counted at once here
MUCH = 3 * FRESH
passages = st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4)), max_size=6)


def random_text(seed: int, tokens: int = MUCH, words: int = V) -> str:
    return " ".join(map(str, (np.random.default_rng(seed).zipf(1.3, tokens) % words).tolist()))


def assert_same(one: Any, other: Any, words: int, seed: int = 0) -> None:
    """Both answer the same look-ups with the same counts."""
    rng = np.random.default_rng(seed)
    contexts = [rng.integers(0, words, rng.integers(0, 7)).tolist() for _ in range(40)]
    found, expected = (each.evidence(contexts, range(words)) for each in (one, other))
    for name in ("counts", "totals", "seen", "types"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    for context in contexts:
        assert one.count(context) == other.count(context)
        assert one.continuations(context) == other.continuations(context)
    assert ngrams_of(one) == ngrams_of(other)


def ngrams_of(counts: Any) -> Counter[tuple[int, ...]]:
    grams = Counter[tuple[int, ...]]()
    for gram, count, _ in counts.ngrams():
        grams[gram] += count
    return grams


@pytest.mark.parametrize("few", [1, 32])
@given(older=passages, newer=passages, fresh=passages)
@settings(max_examples=40, deadline=None)
def test_two_lists_together_count_what_one_list_does(few: int, older: Any, newer: Any, fresh: Any) -> None:
    one, two = windows_of(older, V), windows_of(newer, V)
    if not len(one):
        return
    both, single = Counts(V, two.beside(one), older=one), Counts.of(V, older + newer)
    for passage, times in fresh:
        both.add(passage, times)
        single.add(passage, times)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core.ngram.counts._FEW", few)  # larger ranges are searched, not examined
        assert_same(both, single, 4)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PersonalStore]:
    """A store that is large with 3 * FRESH tokens."""
    monkeypatch.setattr(personal_counts, "FRESH", FRESH)
    monkeypatch.setattr(counts_file, "LARGE", 2 * FRESH)
    monkeypatch.setattr(counts_file, "PIECE", FRESH)
    with PersonalStore.open(tmp_path / "me.sqlite", TOKENIZER, create=True) as made:
        yield made


def assert_counted(store: PersonalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store counts what one without a file counts, which opens the same texts."""
    again = store.path.with_name("again.sqlite")
    again.unlink(missing_ok=True)
    store.prepare()
    store.refresh()
    with PersonalStore.open(again, TOKENIZER, create=True) as other, monkeypatch.context() as patch:
        patch.setattr(counts_file, "LARGE", 1 << 40)
        other.restore(store.texts())
        other.prepare()
        assert_same(store, other, V)
        assert not counts_file.file_of(again).exists()


def test_a_large_store_is_counted_in_a_file_and_newer_text_in_memory(
    store: PersonalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = counts_file.file_of(store.path)
    store.add("a", [random_text(1, FRESH), "1 2 3"])
    store.prepare()
    assert not path.exists(), "a small store needs none"
    store.add("b", [random_text(2), random_text(3)])
    store.learn("1 2 5", times=7)
    assert_counted(store, monkeypatch)
    written = path.stat()
    assert written.st_mode & 0o777 == 0o600
    store.add("c", [random_text(4, FRESH + 1)])
    assert_counted(store, monkeypatch)
    with PersonalStore.open(store.path, TOKENIZER) as opened:
        assert_counted(opened, monkeypatch)
    assert path.stat() == written, "little text is newer, so that nothing is written"
    store.add("d", [random_text(5)])
    assert_counted(store, monkeypatch)
    assert path.stat() != written


def test_forgotten_text_is_overwritten_in_the_file(store: PersonalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add("secret", [random_text(1, 10, 8) + " 61 41 57 44 62 45 63"])
    store.add("other", [random_text(2, words=40)])
    store.settle()
    path = counts_file.file_of(store.path)
    traces = np.array([62, 42, 58, 45, 63, 46, 64], dtype="<u4").tobytes()  # the ids + 1
    assert traces in path.read_bytes()
    with path.open("rb") as former:
        store.forget_document("secret")
        assert not former.read().strip(b"\0")
    assert traces not in path.read_bytes()
    assert_counted(store, monkeypatch)
    store.forget_phrase("1 2")
    assert store.count([1, 2]) == 0
    assert_counted(store, monkeypatch)
    store.forget_document("other")
    assert not path.exists(), "it is a small store again"
    store.add("other", [random_text(2)])
    store.delete()
    assert [*path.parent.glob("*me.*")] == []


@pytest.mark.parametrize("damage", ["cut", "other", "nothing", "noise", "restored"])
def test_a_file_that_does_not_fit_is_written_again(
    store: PersonalStore, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    store.add("a", [random_text(1), random_text(2)])
    store.settle()
    path = counts_file.file_of(store.path)
    data = path.read_bytes()
    if damage == "restored":  # an earlier copy of the store, with other text since
        with sqlite3.connect(store.path) as file:
            file.execute("UPDATE passages SET ids = substr(ids, 1, 4000), tokens = 1000 WHERE id = 1")
        with PersonalStore.open(store.path, TOKENIZER) as opened:
            opened.prepare()
            assert opened.count(()) == 1000 + MUCH
        return
    damaged = {"cut": data[:5000], "other": data.replace(store.identity.encode(), b"0" * 16), "nothing": b"",
               "noise": b'{"version": 1}' + data[14:]}  # fmt: skip
    path.write_bytes(damaged[damage])
    with PersonalStore.open(store.path, TOKENIZER) as opened:
        assert_counted(opened, monkeypatch)


def test_a_full_disk_is_said_and_loses_nothing(store: PersonalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add("a", [random_text(1)])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(counts_file, "_append", full)
        with pytest.raises(StoreError, match=r"me\.counts cannot be written: No space left.*free some room"):
            store.prepare()
    assert not [each for each in store.path.parent.iterdir() if each.suffix == ".tmp"]
    assert_counted(store, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(counts_file, "_append", full)
        store.add("b", ["7 7 7 7"])
        store.settle()
        store.forget_document("a")
        assert not counts_file.file_of(store.path).exists(), "what was forgotten is not left there"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot stop a process")
def test_a_process_that_is_killed_while_it_counts_leaves_no_half_file(
    store: PersonalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("a", [random_text(1)])
    script = (
        "import os, signal, sqlite3, sys; from pathlib import Path; from core.ngram import counts_file\n"
        "counts_file.LARGE = 100\n"
        "counts_file._append = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "path = Path(sys.argv[1]); file = sqlite3.connect(path, isolation_level=None)\n"
        "counts_file.brought_up_to_date(None, file, path, 64)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(store.path)], env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len([each for each in store.path.parent.iterdir() if each.suffix == ".tmp"]) == 1
    assert_counted(store, monkeypatch)
    assert not [each for each in store.path.parent.iterdir() if each.suffix == ".tmp"]


# ---------------------------------------------------------------- more text than a store holds


def mailbox(path: Path, mails: list[str]) -> Path:
    head = "From ann@example.org Mon Jan  1 00:00:00 2024\nFrom: ann@example.org\nSubject: {}\n\n{}\n\n"
    path.write_text("".join(head.format(number, mail) for number, mail in enumerate(mails)))
    return path


def texts_of(store: PersonalStore) -> list[str]:
    return [passage.strip() for text in store.texts() for passage in text.passages]


def test_of_a_mailbox_that_has_no_room_the_newest_mails_are_learned(
    store: PersonalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_texts, "LARGEST", 100)
    folder = tmp_path / "mail"
    folder.mkdir()
    mails = [" ".join([str(n)] * 30) for n in range(5)]
    mailbox(folder / "a.mbox", mails)
    (folder / "b.txt").write_text(" ".join(["6"] * 20))
    store.learn("9 9 9 9")
    added = folders.step(store, folders.changes(store, folder))
    assert texts_of(store) == ["9 9 9 9", *mails[2:]] and added.tokens == 90
    first, second = added.damage
    assert "2 of its 5 documents (60 tokens), the first ones, were left out" in first.reason
    assert "the store is full, so it was left out. Forget some text" in second.reason
    assert not folders.changes(store, folder).to_read, "who watches the folder does not read them again and again"
    store.forget_phrase("9 9 9 9")
    store.forget_document(personal.origin_of(str(folder / "a.mbox")))
    assert folders.step(store, folders.changes(store, folder, again=True)).tokens == 20, "there is room now"


def test_of_a_mailbox_that_grew_only_the_new_mails_are_added(store: PersonalStore, tmp_path: Path) -> None:
    mails = [f"{n} 1 2 3" for n in range(9)]
    personal.add(store, [mailbox(tmp_path / "Sent", mails)])
    before = store.documents()
    assert personal.add(store, [mailbox(tmp_path / "Sent", [*mails, mails[0], "7 7"])]).tokens == 4 * 10 + 2
    store.refresh()
    assert store.documents()[: len(before)] == before and store.removals == 0
    personal.add(store, [mailbox(tmp_path / "Sent", [*mails[1:], "7 7"])])
    store.refresh()
    assert sorted(texts_of(store)) == sorted([*mails[1:], "7 7"]) and store.removals == 1


def test_much_text_is_added_in_parts(store: PersonalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ngram.personal.AT_ONCE", 10)
    store.add("a", ["1 1 1 1", "8 8"])
    inserted = list[int]()
    insert = StoredTexts.insert

    def noting(self: StoredTexts, *rest: Any) -> int:
        with PersonalStore.open(store.path, TOKENIZER) as other:
            inserted.append(len(other.documents()))
        return insert(self, *rest)

    monkeypatch.setattr(StoredTexts, "insert", noting)
    documents = [" ".join([str(n)] * 6) for n in range(5)] + ["8 8"]
    assert store.add("a", documents) == 32
    assert inserted == [2, 2, 4, 4, 6], "others see the parts"
    assert sorted(texts_of(store)) == sorted(documents)
