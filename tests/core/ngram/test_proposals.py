"""Words that only a store knows: every store proposes what it makes probable enough to be a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ngram_builder
from core.autocomplete import Autocomplete
from core.drafting.candidates import Candidates
from core.drafting.drafts import Options
from core.models import LanguageModel
from core.ngram import NgramStore
from core.ngram.counts import Counts
from core.ngram.interpolation import Interpolation
from core.ngram.shelf import interpolation
from core.ngram.store import QUICK
from core.samplers.base import Rule
from core.samplers.chain import Chain
from core.samplers.min_p import MinP
from core.samplers.temperature import Temperature
from core.samplers.top_k import TopK
from core.samplers.top_n_sigma import TopNSigma
from core.superposed import superpose
from tests.completing import complete
from tests.ngram_tools import WordTokenizer
from tests.table_model import TableModel

PHRASE = "The zephyr lantern of Quillbrook hums below the marble orchard."


def counts(*passages: list[int]) -> Counts:
    return Counts.of(64, [(ids, 1) for ids in passages])


def built(folder: Path, text: str, tokenizer: Any) -> NgramStore:
    (folder / "text.txt").write_text(text)
    ngram_builder.build([str(folder / "text.txt")], folder / "text.ngram", tokenizer, name="words")
    return NgramStore.open(folder / "text.ngram")


def mixed(*stores: Any, personal: bool = False) -> Interpolation:
    rule = interpolation(None, stores) if personal else interpolation([(store, 1.0) for store in stores])
    assert rule is not None
    return rule


def test_a_base_store_finds_the_continuations_of_a_context_unless_there_are_too_many(tmp_path: Path) -> None:
    words = WordTokenizer(400)
    common = " ".join(f"1 2 {n} 1 2 {n} 0" for n in range(3, 3 + QUICK))
    store = built(tmp_path, f"{common} 5 6 7 5 6 7 5 6 8 5 6 8 5 6 7", words)
    assert store.quick_continuations([5, 6], 1) == store.continuations([5, 6], 1) == [(7, 3)]
    assert store.quick_continuations([5, 6], 9) == store.continuations([5, 6], 9) == [(7, 3), (8, 2)]
    assert len(store.continuations([1, 2])) == QUICK
    assert store.quick_continuations([1, 2], 9) == []
    assert store.quick_continuations([399, 2], 9) == store.quick_continuations([7, 399], 9) == []


@pytest.mark.parametrize(
    "rule",
    [None, MinP(0.1), TopNSigma(1.0), TopK(1), Chain([Temperature(0.7), MinP(0.1)])],
    ids=lambda rule: rule and rule.title,
)
def test_a_word_that_the_model_never_considers_is_drafted_because_a_store_knows_it(rule: Rule | None) -> None:
    """The rule crops the model's distribution; what the stores know is mixed in after it."""
    model, text = TableModel(vocabulary=64, seed=1, spread=6), [5, 6, 7, 8, 9, 1, 2]
    rare = int(model.open().feed(text).argmin())
    store = counts(*[[*text, rare, 3, 4]] * 40)
    *_, plain = superpose(model, text, k=1, length=3)
    assert plain.ids[0][0] != rare
    *_, drafts = superpose(model, text, k=2, length=3, ngrams=store, rule=rule)
    assert drafts.ids[0][0] == rare
    assert drafts.ids[1][0] != rare
    begun = np.array([rare, *range(8)])
    found, logq, _ = Candidates(Options(k=2, ngrams=store, rule=rule), text).select_among(
        model.open().feed(text), text, begun
    )
    assert rare in found
    assert np.isfinite(logq).all()


@pytest.fixture
def at_quillbrook(llama_model: LanguageModel, tmp_path: Path) -> Iterator[Autocomplete]:
    yield Autocomplete(llama_model, built(tmp_path, f"{PHRASE}\n" * 60, llama_model.tokenizer))


def test_a_phrase_of_a_domain_is_completed_from_inside_its_name(at_quillbrook: Autocomplete) -> None:
    session = at_quillbrook.open()
    completion = complete(session, "The zephyr lantern of Quill", k=3, length=10, forks=2)
    completion.finish()
    session.close()
    assert completion.drafts[0].text.startswith("brook hums below the marble orchard")
    assert not completion.drafts[0].personal
