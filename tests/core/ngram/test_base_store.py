"""The base store is the user's choice: built from a domain's text, named at the start, or left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ngram_builder
from app.cli.main import app
from app.learning.base_stores import BaseStores
from app.web.serving import serve
from core.autocomplete import load_autocomplete
from core.models import load_model
from core.ngram import NgramStore, StoreError
from core.ngram.base import BASE_STORE, base_store, chosen
from tests.ngram_tools import WordTokenizer

PHRASE = "The quay warden logs every mooring in the green bay of the sea before the tide turns."


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for another tokenizer."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "words.txt").write_text("1 2 3 4 5 6 " * 20)
    words: Any = WordTokenizer()
    ngram_builder.build([str(folder / "words.txt")], folder / "words.ngram", words, name="words")
    return folder / "words.ngram"


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


def test_a_store_for_another_tokenizer_says_what_to_do(foreign: Path, tiny_file: Path) -> None:
    remedy = r"built for the tokenizer of words .* `polydraft ngram build SOURCE -o FILE --tokenizer MODEL`, and choose"
    with pytest.raises(StoreError, match=remedy):
        load_autocomplete(str(tiny_file), store=foreign, personal=False)
    refused = run("complete", "Once upon a", "--model", tiny_file, "--base-store", foreign)
    assert refused.exit_code == 1
    assert "--base-store FILE or in My writing; or choose --base-store none." in refused.stderr


def test_the_apps_own_store_is_left_out_for_other_models(foreign: Path) -> None:
    assert (chosen(None), chosen("none"), chosen(str(foreign))) == (BASE_STORE, None, foreign)
    store, missing = base_store(WordTokenizer().fingerprint)
    assert store is None
    assert missing.startswith("No n-grams: ")
    mine, nothing = base_store(WordTokenizer().fingerprint, foreign)
    assert (mine is not None, nothing) == (True, "")
    assert base_store(WordTokenizer().fingerprint, None) == (None, "")


@pytest.mark.parametrize("page", [True, False])
def test_a_wrong_file_ends_the_start(tmp_path: Path, page: bool) -> None:
    (tmp_path / "text.txt").write_text("no store")
    with pytest.raises(StoreError, match=r"text\.txt"):
        serve(port=0, base_store=[str(tmp_path / "text.txt")], page=page)
