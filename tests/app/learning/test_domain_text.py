"""A store of one half of a manual saves keys on the other half."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import ngram_builder
from app.options.settings import DraftSettings
from app.options.typist import Passage, Way, typed
from core.autocomplete import Autocomplete
from core.models import load_model
from core.ngram.base import BASE_STORE, BaseShelf, ChosenStore

PARTS = ("zephyr lantern", "Quillbrook valve", "orchard gauge", "tidal ledger", "ember coupling", "halyard register")
STEPS = (
    "Before you open the {0}, turn the {1} until it stops.",
    "Never clean the {0} while the {1} is under load.",
    "The {0} loses its setting when the {1} is removed.",
    "Tighten the {0} by hand, then read the {1} twice.",
)
PASSAGES, CHARACTERS = 3, 30


def section(chance: random.Random) -> str:
    """Four steps of the manual in any order, with any of its parts."""
    return " ".join(step.format(*chance.sample(PARTS, 2)) for step in chance.sample(STEPS, len(STEPS)))


def test_a_store_of_half_of_a_manual_saves_keys_on_the_other_half(tiny_default: Path, tmp_path: Path) -> None:
    """The model's weights are random, so every key that is saved is a store's."""
    chance = random.Random(0)
    sections = [section(chance) for _ in range(60)]
    (tmp_path / "half.txt").write_text("\n\n".join(sections[::2]), encoding="utf-8")
    others = sections[1::2][:PASSAGES]
    with closing(load_model(str(tiny_default))) as model:
        store, pruned = tmp_path / "half.ngram", dict.fromkeys(range(2, 7), 1)
        ngram_builder.build([str(tmp_path / "half.txt")], store, model.tokenizer, name="default", min_count=pruned)
        saved = {}
        for name, more in (("general", ()), ("domain", (ChosenStore(store),))):
            shelf = BaseShelf(model.tokenizer.fingerprint, (ChosenStore(BASE_STORE), *more))
            autocomplete, keys = Autocomplete(model, bases=shelf), 0
            for part in others:
                at = part.index(" ", 60)
                passage = Passage("manual", part[:at], part[at : at + CHARACTERS])
                keys += sum(typed(autocomplete, passage, Way("", DraftSettings(k=3, length=4))).keys.values())
            saved[name] = 100 * (1 - keys / (PASSAGES * CHARACTERS))
    assert saved["domain"] > saved["general"] + 20, saved
