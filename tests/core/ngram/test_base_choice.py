"""Base stores are the user's choice: built from a domain's text, several with weights, on the command line, in the file
of the choice and on the page, or left out."""

from __future__ import annotations

import json
import os
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ngram_builder
from app.cli.flags import sentence_of
from app.cli.main import app
from app.clients.options import in_fields
from app.learning.base_stores import BaseStores, in_full, shelf_of
from app.web.serving import serve
from core import files
from core.autocomplete import Autocomplete, load_autocomplete
from core.errors import InputError, OptionError
from core.models import load_model
from core.ngram import Geometric, Linear, NgramStore, StoreError
from core.ngram.base import (
    BASE_STORE,
    BaseShelf,
    ChosenStore,
    StoreChoice,
    base_store,
    choice_as_json,
    chosen,
    chosen_stores,
    read_choice,
)
from core.ngram.shelf import interpolation
from tests.ngram_tools import WordTokenizer
from tests.table_model import TableModel

WORDS = WordTokenizer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores with opposite habits: after 1 2 3 comes 4, or 5."""
    folder = tmp_path_factory.mktemp("stores")
    for name, text in (("four", "1 2 3 4 6 " * 30), ("five", "1 2 3 5 6 " * 30)):
        (folder / f"{name}.txt").write_text(text)
        tokenizer: Any = WORDS
        ngram_builder.build([str(folder / f"{name}.txt")], folder / f"{name}.ngram", tokenizer, name="words")
    return folder


def shares(rule: Any) -> list[float]:
    """The probabilities of 4 and 5 after 1 2 3, for a model that finds both equally likely."""
    return np.exp(rule.scores(np.log(np.full((1, 2), 0.5)), [[1, 2, 3]], [4, 5]))[0].tolist()


def test_several_stores_are_mixed_by_their_weights(folder: Path) -> None:
    four, five = (NgramStore.open(folder / f"{name}.ngram") for name in ("four", "five"))
    even = shares(interpolation([(four, 0.2), (five, 0.2)]))
    assert even[1] > even[0]  # the last one has more say
    for rule in (interpolation, Geometric):
        assert shares(rule([(four, 0.9), (five, 0.1)]))[0] > shares(rule([(four, 0.9), (five, 0.1)]))[1]
        assert shares(rule([(four, 0.1), (five, 0.9)]))[0] < shares(rule([(four, 0.1), (five, 0.9)]))[1]
        assert shares(rule([(four, 1.0)])) == shares(rule(four))
    both = Geometric([(four, 1.0), (five, 3.0)]).probabilities([[1, 2, 3]], [4, 5])
    assert both[0, 1] == pytest.approx(3 * both[0, 0])


def test_options_name_files_with_weights(folder: Path) -> None:
    four, five = folder / "four.ngram", folder / "five.ngram"
    assert chosen_stores([f"{four}=0.5", str(five)]) == (ChosenStore(four, 0.5), ChosenStore(five))
    assert chosen_stores(["default", f"{four}=1"]) == (ChosenStore(BASE_STORE), ChosenStore(four))
    assert chosen_stores(["none"]) == ()
    assert in_full([f"{four}=0.5"]) == [f"{four}=0.5"]
    assert in_full(None) is None
    for wrong, said in (
        ([f"{four}=2"], "weight 2 given for .*above 0 to 1 expected"),
        ([f"{four}=0"], "weight 0 given"),
        ([str(four), f"{four}=0.5"], "given twice as a base store"),
        ([str(folder / "missing.ngram")], "missing.ngram"),
    ):
        with pytest.raises(StoreError, match=said):
            chosen_stores(wrong)


def test_none_with_another_store_is_refused_in_the_words_of_each_edge(folder: Path) -> None:
    with pytest.raises(OptionError) as refused:
        chosen_stores(["none", str(folder / "four.ngram")])
    rest = " none given with other base stores; give one or the other."
    assert sentence_of(refused.value) == "--base-store" + rest
    assert in_fields(refused.value, {}) == ("base_store" + rest, "base_store")


def test_drafts_use_all_chosen_stores(folder: Path) -> None:
    shelf = shelf_of([f"{folder / 'four.ngram'}=0.5", str(folder / "five.ngram")])(WORDS.fingerprint)
    autocomplete = Autocomplete(TableModel(), bases=shelf)
    mixture = autocomplete.mixture(0.9, 0.9)
    assert isinstance(mixture, Linear)
    assert [mixed.alpha for mixed in mixture.stores] == [0.45, 0.9]
    with pytest.raises(InputError, match="2 base stores given"):
        _ = autocomplete.ngrams
    with pytest.raises(StoreError, match="ngram build SOURCE -o FILE --tokenizer MODEL"):
        shelf_of([str(folder / "four.ngram")])("another tokenizer")


def test_a_changed_choice_applies_to_the_next_drafts(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "data" / "base-stores.json"
    shelf = BaseShelf(WORDS.fingerprint, file=file)
    assert shelf.active() == []  # the app's own belongs to another tokenizer
    assert "No n-grams:" in shelf.notice
    page = BaseStores(WORDS.fingerprint, shelf, file)
    page.add(f" {folder / 'four.ngram'} ")
    page.add(str(folder / "five.ngram"))
    assert [(store.path.stem, weight) for store, weight in shelf.active()] == [("four", 1.0), ("five", 1.0)]
    own, row, _ = page.list()
    assert (own["own"], own["on"]) == (True, True) and "was built for the tokenizer of SmolLM2" in own["problem"]
    assert (row["name"], row["tokenizer"], row["sources"], row["orders"]) == ("four", "words", ["four.txt"], [2, 6])
    assert (row["bytes"], row["tokens"]) == ((folder / "four.ngram").stat().st_size, 150)
    page.change(str(folder / "four.ngram"), on=True, weight=0.3)
    page.change(str(folder / "five.ngram"), on=False, weight=1.0)
    assert [(store.path.stem, weight) for store, weight in shelf.active()] == [("four", 0.3)]
    page.remove(str(folder / "four.ngram"))
    assert shelf.active() == []
    assert [one.path.stem for one in read_choice(file).stores] == ["base", "five"]
    assert (folder / "four.ngram").exists()


def test_a_document_names_stores_of_the_choice_that_are_not_on(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "base-stores.json"
    shelf = BaseShelf(WORDS.fingerprint, file=file)
    page = BaseStores(WORDS.fingerprint, shelf, file)
    four, five = str(folder / "four.ngram"), str(folder / "five.ngram")
    page.add(four)
    page.change(four, on=False, weight=0.5)

    def stems(*named: str) -> list[tuple[str, float]]:
        return [(store.path.stem, weight) for store, weight in shelf.active(named)]

    assert stems() == []
    assert stems(four, five) == [("four", 0.5)]  # the other one is not in the choice
    assert stems() == []
    page.change(four, on=True, weight=1.0)
    assert stems() == stems(four) == [("four", 1.0)]
    page.change(four, on=False, weight=1.0)
    assert (stems(), stems(four)) == ([], [("four", 1.0)])
    mixture = Autocomplete(TableModel(), bases=shelf).mixture(0.9, 0.9, base_stores=[four])
    assert isinstance(mixture, Linear)
    assert len(mixture.stores) == 1
    page.remove(four)
    assert stems(four) == []
    assert "default" not in str(shelf.problems)
    stems("default")  # the app's own, which belongs to another tokenizer
    assert "No n-grams:" in shelf.notice


def test_an_error_while_a_changed_choice_is_read_disturbs_no_later_drafts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "base-stores.json"
    shelf = BaseShelf(WORDS.fingerprint, file=file)
    page = BaseStores(WORDS.fingerprint, shelf, file)
    page.add(str(folder / "four.ngram"))
    assert len(shelf.active()) == 1
    page.add(str(folder / "five.ngram"))

    def without_memory(*_: object) -> NgramStore:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(NgramStore, "open", without_memory)
        with pytest.raises(MemoryError):
            shelf.active()
        assert len(shelf.active()) == 1
    page.change(str(folder / "five.ngram"), on=True, weight=0.5)
    assert len(shelf.active()) == 2


def test_what_cannot_be_chosen_is_named(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "base-stores.json"
    page = BaseStores(WORDS.fingerprint, None, file)
    page.add(str(folder / "four.ngram"))
    for act, said in (
        (lambda: page.add(str(folder / "four.ngram")), "is among the stores already"),
        (lambda: page.add(str(folder / "four.txt")), "four.txt"),
        (lambda: page.add(str(BASE_STORE)), "--tokenizer MODEL"),
        (lambda: page.change("nothing", True, 1.0), "is not among the stores"),
        (lambda: page.remove(str(BASE_STORE)), "cannot be removed; switch them off"),
    ):
        with pytest.raises((InputError, StoreError), match=said):
            act()
    assert len(read_choice(file).stores) == 2
    fixed = BaseStores(WORDS.fingerprint, BaseShelf(WORDS.fingerprint, ()), file)
    with pytest.raises(InputError, match="--base-store chose the stores at the start"):
        fixed.add(str(folder / "five.ngram"))
    assert fixed.list() == []


@pytest.mark.parametrize(
    "damage",
    ["{", '{"version": 9, "stores": []}', '{"version": 1, "stores": [{"file": 3}]}', "[]", "[" * 100_000, None],
)
def test_a_damaged_choice_is_reported_and_the_apps_own_store_used(damage: str | None, tmp_path: Path) -> None:
    file = tmp_path / "base-stores.json"
    os.mkfifo(file) if damage is None else file.write_text(damage)
    fingerprint = NgramStore.open(BASE_STORE).fingerprint
    shelf = BaseShelf(fingerprint, file=file)
    assert [store.path for store, _ in shelf.active()] == [BASE_STORE]
    assert shelf.notice
    page = BaseStores(fingerprint, shelf, file)
    own, bad = page.list()
    assert (own.get("problem"), bad.get("damaged"), bad.get("problem") == shelf.notice) == (None, True, True)
    if "{file" not in bad["file"] and not read_choice(file).readable:
        with pytest.raises(InputError, match="Remove it first"):
            page.change(str(BASE_STORE), on=False, weight=1)
    page.remove(bad["file"])
    assert page.list() == [own]
    assert [store.path for store, _ in shelf.active()] == [BASE_STORE]
    assert shelf.notice == ""


def test_a_damaged_entry_disturbs_no_other(folder: Path, tmp_path: Path) -> None:
    file, four = tmp_path / "base-stores.json", {"file": str(folder / "four.ngram"), "weight": 0.5, "on": True}
    bad = [3, None, {"file": "a\0b", "weight": 1, "on": True}, four | {"weight": 7}, four, {"file": "\ud800"}]
    file.write_text(json.dumps({"version": 1, "stores": [four, *bad]}))
    shelf = BaseShelf(WORDS.fingerprint, file=file)
    page = BaseStores(WORDS.fingerprint, shelf, file)
    assert [(store.path.stem, weight) for store, weight in shelf.active()] == [("four", 0.5)]
    rows = page.list()
    assert [row.get("damaged", False) for row in rows] == [False, *[True] * len(bad)]
    page.change(rows[0]["file"], on=True, weight=0.25)  # keeps the others
    for row in rows[:0:-1]:
        page.remove(row["file"])
    assert [row["file"] for row in page.list()] == [four["file"]]
    assert [(store.path.stem, weight) for store, weight in shelf.active()] == [("four", 0.25)]


def test_two_programs_that_change_the_choice_lose_nothing(folder: Path, tmp_path: Path) -> None:
    """The one that waits for the other reads what it wrote."""
    file, four, five = tmp_path / "base-stores.json", folder / "four.ngram", folder / "five.ngram"
    with files.locked(file):
        adding = files.in_thread(lambda: BaseStores(WORDS.fingerprint, None, file).add(str(five)))
        assert not wait([adding], 0.2).done
        file.write_text(choice_as_json(StoreChoice((ChosenStore(four),))))
    adding.result(60)
    assert [one.path for one in read_choice(file).stores] == [four, five]


def test_a_choice_that_another_program_changes_is_waited_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "base-stores.json"
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.1)
    page = BaseStores(WORDS.fingerprint, None, file)
    with files.locked(file), pytest.raises(InputError, match="another program is changing it; try again"):
        page.add(str(folder / "four.ngram"))
    page.add(str(folder / "four.ngram"))


# ---------------------------------------------------------------- used

PHRASE = "The quay warden logs every mooring in the green bay of the sea before the tide turns."


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_domains_store_is_built_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/ngram-stores.md shows it, with the default model, which is loaded once."""
    model = load_model()
    monkeypatch.setattr(model, "close", lambda: None)
    monkeypatch.setattr("core.autocomplete.load_model", lambda *_: model)
    (tmp_path / "manuals.txt").write_text((PHRASE + "\n\n") * 40)
    domain = tmp_path / "harbour.ngram"
    built = run("ngram", "build", tmp_path / "manuals.txt", "-o", domain, "--memory", "16G")
    assert built.exit_code == 0, built.output
    texts = {}
    for store in (domain, "none"):
        shown = run("complete", "The quay warden logs every mooring in the green", "--json", "--base-store", store)
        assert shown.exit_code == 0, shown.output
        texts[str(store)] = [draft["text"] for draft in json.loads(shown.stdout)["drafts"]]
    assert texts[str(domain)][0].startswith(" bay of the sea")
    assert not texts["none"][0].startswith(" bay")
    text = "The quay warden logs every mooring in the green"
    both = run("complete", text, "--json", "--base-store", "default", "--base-store", f"{domain}=0.6")
    assert json.loads(both.stdout)["drafts"][0]["text"].startswith(" bay of the sea")
    monkeypatch.setattr("core.ngram.base.choice_file", lambda: tmp_path / "base-stores.json")
    BaseStores(NgramStore.open(domain).fingerprint).add(str(domain))  # as on the page
    chosen_there = run("complete", text, "--json")
    assert json.loads(chosen_there.stdout)["drafts"][0]["text"].startswith(" bay of the sea")


def test_a_store_for_another_tokenizer_says_what_to_do(folder: Path, tiny_file: Path) -> None:
    remedy = r"built for the tokenizer of words .* `polydraft ngram build SOURCE -o FILE --tokenizer MODEL`, and choose"
    with pytest.raises(StoreError, match=remedy):
        load_autocomplete(str(tiny_file), store=folder / "four.ngram", personal=False)
    refused = run("complete", "Once upon a", "--model", tiny_file, "--base-store", folder / "four.ngram")
    assert refused.exit_code == 1
    assert "--base-store FILE or in My writing; or choose --base-store none." in refused.stderr


def test_the_apps_own_store_is_left_out_for_other_models(folder: Path) -> None:
    four = folder / "four.ngram"
    assert (chosen(None), chosen("none"), chosen(str(four))) == (BASE_STORE, None, four)
    store, missing = base_store(WordTokenizer().fingerprint)
    assert store is None
    assert missing.startswith("No n-grams: ")
    mine, nothing = base_store(WordTokenizer().fingerprint, folder / "four.ngram")
    assert (mine is not None, nothing) == (True, "")
    assert base_store(WordTokenizer().fingerprint, None) == (None, "")


@pytest.mark.parametrize("page", [True, False])
def test_a_wrong_file_ends_the_start(tmp_path: Path, page: bool) -> None:
    (tmp_path / "text.txt").write_text("no store")
    with pytest.raises(StoreError, match=r"text\.txt"):
        serve(port=0, base_store=[str(tmp_path / "text.txt")], page=page)
