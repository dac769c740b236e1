"""Personal stores in the drafts: a shelf of them, mixed with the base store, and the marks of their words."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from app.learning.personal import PersonalStores
from core.autocomplete import Autocomplete
from core.errors import InputError
from core.models import LanguageModel
from core.ngram import Linear, StoreError
from core.ngram.counts import Counts
from core.ngram.shelf import Shelf, interpolation
from core.present import TextDraft
from tests.app.web.security.test_guard import as_another_user
from tests.completing import complete
from tests.ngram_tools import WordTokenizer, add_text
from tests.table_model import TableModel

PHRASE = "Yours ever, Wilhelmina Featherstonehaugh of Little Piddlington."


# ---------------------------------------------------------------- the rule


def counts(*passages: list[int]) -> Counts:
    return Counts.of(64, [(ids, 1) for ids in passages])


def test_the_scores_without_personal_stores_are_those_of_the_others() -> None:
    base, mine, work = counts([1, 2, 3] * 5), counts([1, 2, 4] * 5), counts([1, 2, 5] * 5)
    logq = np.log([[0.4, 0.3, 0.3]])
    rule = interpolation(base, [mine, work], 0.5, 0.8)
    assert rule is not None
    scores, without = rule.scores_without(logq, [[1, 2]], [3, 4, 5])
    np.testing.assert_allclose(without, Linear([(base, 1.0)], alpha=0.5).scores(logq, [[1, 2]], [3, 4, 5]))
    assert scores[0, 2] > without[0, 2]
    assert scores[0, 0] < without[0, 0]
    base_only = interpolation(base)
    assert base_only is not None
    both = base_only.scores_without(logq, [[1, 2]], [3, 4, 5])
    assert both[0] is both[1]
    assert interpolation(None) is interpolation(base, [base], 0, 0) is None
    with pytest.raises(InputError):
        interpolation(base, alpha=1.5)


# ---------------------------------------------------------------- the shelf


def test_stores_count_as_soon_as_they_come_go_or_are_switched(tmp_path: Path) -> None:
    words = WordTokenizer(8)
    shelf, other = Shelf(words, tmp_path / "stores"), Shelf(words, tmp_path / "stores")
    assert shelf.active() == []
    other.open("work", create=True).close()
    with other.open("me", create=True) as me:
        me.learn("1 2 3")
        assert [store.name for store in shelf.active()] == ["me", "work"]
        assert shelf.active()[0].count([1, 2]) > 0
        me.switch(False)
        assert [store.name for store in shelf.active()] == ["work"]
        assert [store.name for store in shelf.named(["me"])] == ["me"]
        me.switch(True)
        assert [store.name for store in shelf.active()] == ["me", "work"]
    shelf.close()


def test_an_unusable_store_does_not_affect_the_others(tmp_path: Path) -> None:
    Shelf(WordTokenizer(9), tmp_path).open("foreign", create=True).close()
    (tmp_path / "junk.sqlite").write_text("junk" * 2000)
    shelf = Shelf(WordTokenizer(8), tmp_path)
    shelf.open("mine", create=True).close()
    assert [store.name for store in shelf.active()] == ["mine"]
    assert set(shelf.problems) == {"foreign", "junk"}
    assert "tokenizer" in shelf.problems["foreign"]
    with pytest.raises(StoreError, match="tokenizer"):
        shelf.named(["foreign"])
    with pytest.raises(StoreError, match=r"no personal store called 'none'; there are: foreign, junk, mine"):
        shelf.named(["none"])
    autocomplete = Autocomplete(TableModel(8), shelf=shelf)
    autocomplete.adapt()
    assert "The store junk is not used: " in str(autocomplete.notice)
    (tmp_path / "junk.sqlite").unlink()
    autocomplete.adapt()
    assert "junk" not in str(autocomplete.notice)
    shelf.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="another user's rights are needed")
def test_a_store_that_was_read_while_it_was_read_only_can_be_written_again() -> None:
    """For root no file is read-only, so another user does it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder) / "me.sqlite"

        def read_and_write() -> str:
            shelf = Shelf(WordTokenizer(8), Path(folder))
            shelf.open("me", create=True).close()
            path.chmod(0o400)
            with closing(sqlite3.connect(path)) as read:  # any program
                read.execute("SELECT * FROM about").fetchall()
            path.chmod(0o600)
            left = sorted(each.name for each in Path(folder).iterdir() if not os.access(each, os.W_OK))
            with shelf.open("me") as store:
                store.learn("1 2 3")
                return f"{store.total([1, 2])} beside {left}"

        assert as_another_user(read_and_write) == "4 beside ['me.sqlite-shm', 'me.sqlite-wal']"


@pytest.mark.parametrize("name", ["", "../evil", "a/b", ".hidden", " x", "x" * 80])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name of a store"):
        Shelf(WordTokenizer(8), tmp_path).open(name, create=True)
    assert not list(tmp_path.iterdir())


def test_learning_is_off_until_it_is_switched_on(tmp_path: Path) -> None:
    stores = PersonalStores(WordTokenizer(8), tmp_path)
    stores.create("me")
    assert stores.take_in("1 2 3", True) == []
    assert stores.list()[0]["tokens"] == 0
    with stores.at("me") as store:
        store.switch_learning(True)
    assert stores.take_in("1 2 3", True) == ["me"]
    with stores.at("me") as store:
        assert store.learn("4 5") == 2
    assert add_text(stores, "me", "letter", "1 1 1") == 3
    (tmp_path / "letter.txt").write_text("5 6 7")
    assert stores.add_file("me", tmp_path / "letter.txt", "letter.txt", lambda _: None).tokens == 3
    listed = stores.list()[0]
    assert (listed["store"], listed["enabled"], listed["learning"], listed["tokens"]) == ("me", True, True, 11)
    assert listed["changed"] > "2020"
    with stores.at("me") as store:
        assert store.forget_document("letter").documents == 1
        store.switch(False)
    assert not stores.list()[0]["enabled"]
    os.utime(tmp_path / "me.sqlite", (0, 0))
    assert stores.list()[0]["changed"].startswith("1970"), "looking changes nothing"


# ---------------------------------------------------------------- drafts


@pytest.fixture
def personal(llama_model: LanguageModel, autocomplete: Autocomplete, tmp_path: Path) -> Iterator[Autocomplete]:
    shelf = Shelf(llama_model.tokenizer, tmp_path / "stores")
    yield Autocomplete(llama_model, autocomplete.ngrams, shelf=shelf)
    shelf.close()


def drafts(autocomplete: Autocomplete, text: str, **options: Any) -> list[TextDraft]:
    session = autocomplete.open()
    completion = complete(session, text, **{"k": 3, "length": 8, **options})
    completion.finish()
    session.close()
    return completion.drafts


def test_an_added_phrase_is_suggested_at_the_very_next_keystroke(personal: Autocomplete) -> None:
    before = "I remain, yours ever, Wil"
    assert not any("Featherstone" in draft.text or draft.personal for draft in drafts(personal, before))
    stores = PersonalStores(personal.model.tokenizer, personal.shelf.folder if personal.shelf else None)
    stores.create("me")
    with stores.at("me") as store:
        store.learn(PHRASE, times=4)
    found = next(draft for draft in drafts(personal, before) if "Featherstone" in draft.text)
    assert "Feather" in "".join(found.text[start:end] for start, end in found.personal), "what a store chose is marked"
    assert all(a[1] < b[0] for a, b in zip(found.personal, found.personal[1:], strict=False))
    with stores.at("me") as store:
        store.forget_phrase("Wilhelmina Featherstonehaugh")
    assert not any("Featherstone" in draft.text for draft in drafts(personal, before))


@pytest.mark.parametrize(
    ("learned", "before", "drafted"),
    [
        ("NFD", "On y va\u00a0? Un\u202fca\u00adfé\u200b crè\u2060me\u00a0de Fré\u200b", "déric Müllerstein"),
        ("NFC", "On y va ? Un cafe\u0301 cre\u0300me de Fre\u0301", "de\u0301ric Mu\u0308llerstein"),
    ],
    ids=["spaces, and marks without width", "decomposed"],
)
def test_a_phrase_is_found_in_every_form_of_its_letters_and_drafted_in_the_documents(
    personal: Autocomplete, learned: Literal["NFC", "NFD"], before: str, drafted: str
) -> None:
    phrase = "Un café crème de Frédéric Müllerstein."
    assert personal.shelf is not None
    with personal.shelf.open("me", create=True) as store:
        store.learn(unicodedata.normalize(learned, phrase), times=4)
        assert store.occurrences("cafe\u0301 cre\u0300me") == store.occurrences("café crème") == {"typed": 1}
    found = [draft for draft in drafts(personal, before, length=12) if draft.text.startswith(drafted)]
    assert found
    assert all(draft.personal and draft.personal[-1][1] <= len(draft.text) for draft in found)


def test_without_a_personal_store_no_token_is_marked(tiny_autocomplete: Autocomplete, tmp_path: Path) -> None:
    """The choice of drafts may take a token that is not among the most probable ones of its place."""
    before = "Thank you for your letter. I am writ"
    shelf = Shelf(tiny_autocomplete.model.tokenizer, tmp_path / "stores")
    tiny = Autocomplete(tiny_autocomplete.model, tiny_autocomplete.ngrams, shelf=shelf)
    for end in range(len(before) - 12, len(before) + 1):
        assert not any(draft.personal for draft in drafts(tiny, before[:end]))
    shelf.close()


def test_weights_and_names_decide_which_stores_speak(personal: Autocomplete) -> None:
    before = "I remain, yours ever, Wilhelmina"
    assert personal.shelf is not None
    for name in ("me", "work"):
        with personal.shelf.open(name, create=True) as store:
            store.learn(PHRASE if name == "me" else "The quarterly report is due.", times=4)

    def suggests(**options: object) -> bool:
        return any("Feather" in draft.text for draft in drafts(personal, before, **options))

    assert suggests()
    assert not suggests(personal_weight=0.0)
    assert not suggests(stores=["work"])
    with personal.shelf.open("me") as store:
        store.switch(False)
    assert not suggests()
    assert suggests(stores=["me"])
    assert not suggests(ngrams=None)
