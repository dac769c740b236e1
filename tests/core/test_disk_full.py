"""A full disk: whatever is written says so in a sentence, the old file is whole, and the next attempt works.

A limit on the size of files stands in for it, which no right of the user lifts: a file cannot grow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.learning.base_stores import BaseStores
from app.options.presets import OwnPresets
from core.controls import PRESETS, Preset
from core.errors import PolydraftError
from core.models import adapter as files
from core.ngram.personal import PersonalStore
from tests.core.models.test_adapter import SHAPES, adapter_for
from tests.ngram_tools import WordTokenizer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has no such limit")

TOKENIZER = WordTokenizer()
MUCH = " ".join(str(i * i % 64) for i in range(40_000))


@contextmanager
def full(largest: int = 512) -> Iterator[None]:
    """No file can be written beyond this many bytes."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"
    }


@pytest.fixture
def store(tmp_path: Path) -> PersonalStore:
    """A store with two documents and an adapter."""
    store = PersonalStore.open(tmp_path / "me.sqlite", TOKENIZER, create=True)
    store.add("a", ["1 2 3 " * 500])
    store.add("b", ["4 5 6"])
    store.learned.mkdir()
    (store.learned / "weights").write_bytes(b"learned")
    return store


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.add("c", [MUCH]),
        lambda store: store.add("a", [MUCH]),
        lambda store: store.learn("7 8"),
        lambda store: store.forget_document("a"),
        lambda store: store.forget_phrase("5"),
        lambda store: store.switch(False),
        lambda store: store.delete(),
    ],
    ids=["add", "replace", "learn", "forget a document", "forget a phrase", "switch", "delete"],
)
def test_a_store_stays_as_it_was_and_is_used_on(store: PersonalStore, write: Callable[[PersonalStore], object]) -> None:
    before = [*store.texts()]
    with full(), pytest.raises(PolydraftError, match=r"disk is full\. Nothing was changed"):
        write(store)
    assert [*store.texts()] == before
    assert store.check() == []
    assert (store.learned / "weights").read_bytes() == b"learned"
    assert store.evidence([[1]], [2], [2]).totals.tolist() == [[500]]
    with PersonalStore.open(store.path, TOKENIZER) as again:
        assert [*again.texts()] == before
        write(again)


def test_a_removal_is_complete_later_if_the_log_cannot_be_written(store: PersonalStore) -> None:
    """The commit had room, and what follows it has none."""
    with pytest.MonkeyPatch.context() as patch:
        from core.ngram import personal_file

        commit = personal_file.PersonalFile.scrub

        def without_room(file: personal_file.PersonalFile) -> bool:
            with full(0):
                return commit(file)

        patch.setattr(personal_file.PersonalFile, "scrub", without_room)
        done = store.forget_document("b")
    assert not done.complete
    assert [text.origin for text in store.texts()] == ["a"]
    store.close()
    PersonalStore.open(store.path, TOKENIZER).close()
    assert b"4 5 6" not in b"".join(contents(store.path.parent).values())


def test_a_store_that_cannot_be_created_leaves_no_file(tmp_path: Path) -> None:
    with full(), pytest.raises(PolydraftError, match="disk is full"):
        PersonalStore.open(tmp_path / "me.sqlite", TOKENIZER, create=True)
    assert list(tmp_path.iterdir()) == []


def test_an_undo_without_room_for_the_adapter_brings_the_text_back_and_learns_again(store: PersonalStore) -> None:
    (store.learned / "weights").write_bytes(bytes(1 << 20))
    removed = store.forget_document("b", keep=1 << 30).removed
    assert removed is not None
    with full(300_000):
        assert not store.undo(removed).adapter
    store.refresh()
    assert store.relearning
    assert [text.origin for text in store.texts()] == ["a", "b"]
    assert not [path for path in store.path.parent.rglob("*") if "adapter" in path.name]


def preset(name: str) -> Preset:
    return Preset.from_dict({**PRESETS[0].as_dict(), "name": name})


def test_presets_stay_as_they_were(tmp_path: Path) -> None:
    presets = OwnPresets(tmp_path / "presets.sqlite")
    presets.save(preset("mine"))
    with full(), pytest.raises(PolydraftError, match=r"presets\.sqlite cannot be used"):
        presets.add([preset(f"{i}") for i in range(100)])
    assert [one.name for one in presets.all()] == ["mine"]
    presets.save(preset("more"))


def test_the_choice_of_base_stores_stays_as_it_was(tmp_path: Path) -> None:
    stores = BaseStores("f" * 64, file=tmp_path / "base-stores.json")
    (own,) = stores.list()
    stores.change(own["file"], True, 0.5)
    before = contents(tmp_path)
    with full(10), pytest.raises(PolydraftError, match=r"cannot be saved in .*base-stores\.json: File too large"):
        stores.change(own["file"], True, 0.25)
    assert contents(tmp_path) == before
    assert stores.list()[0]["weight"] == 0.5


def test_an_adapter_and_its_state_stay_as_they_were(tmp_path: Path) -> None:
    adapter = adapter_for(SHAPES, ["q_proj"])
    files.save(adapter, tmp_path / "me.adapter")
    files.write(tmp_path / "me.adapter" / "training.safetensors", b"state")
    before = contents(tmp_path)
    with full():
        with pytest.raises(PolydraftError, match=r"adapter_model\.safetensors cannot be written: File too large"):
            files.save(adapter, tmp_path / "me.adapter")
        with pytest.raises(PolydraftError, match=r"training\.safetensors cannot be written: File too large"):
            files.write(tmp_path / "me.adapter" / "training.safetensors", bytes(10_000))
    assert contents(tmp_path) == before, "and no temporary file is left"
    assert files.load(tmp_path / "me.adapter").result == adapter.result
