"""A store of one half of a manual saves keys on the other half."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import ngram_builder
from app.learning.typist import Passage, Way, typed
from app.service.settings import DraftSettings
from core.autocomplete import Autocomplete
from core.models import load_model
from core.ngram.base import BASE_STORE, BaseShelf, ChosenStore

DOCS = sorted((Path(__file__).resolve().parents[3] / "docs").glob("*.md"))

PASSAGES, CHARACTERS = 4, 30


def test_a_store_of_half_of_a_manual_saves_keys_on_the_other_half(tiny_default: Path, tmp_path: Path) -> None:
    """The model's weights are random, so every key that is saved is a store's."""
    manual = "\n\n".join(path.read_text(encoding="utf-8") for path in DOCS)
    parts = [part for part in manual.split("\n\n") if len(part) > 200]  # paragraphs and tables
    (tmp_path / "half.txt").write_text("\n\n".join(parts[::2]), encoding="utf-8")
    others = parts[1::2]
    with closing(load_model(str(tiny_default))) as model:
        store, pruned = tmp_path / "half.ngram", dict.fromkeys(range(2, 7), 1)
        ngram_builder.build([str(tmp_path / "half.txt")], store, model.tokenizer, name="default", min_count=pruned)
        saved = {}
        for name, more in (("general", ()), ("domain", (ChosenStore(store),))):
            shelf = BaseShelf(model.tokenizer.fingerprint, (ChosenStore(BASE_STORE), *more))
            autocomplete, keys = Autocomplete(model, bases=shelf), 0
            for part in others[:: len(others) // PASSAGES][:PASSAGES]:
                at = part.index(" ", 100)
                passage = Passage("manual", part[:at], part[at : at + CHARACTERS])
                keys += sum(typed(autocomplete, passage, Way("", DraftSettings(k=3, length=4))).keys.values())
            saved[name] = 100 * (1 - keys / (PASSAGES * CHARACTERS))
    assert saved["domain"] > saved["general"] + 2, saved
