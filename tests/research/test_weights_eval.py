"""`eval weights`: a store without one writer's counts, and what constant and earned weights give to the same tokens."""

from __future__ import annotations

import random
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ngram_builder
from core.ngram import NgramStore
from core.ngram.counts import Counts
from core.ngram.shelf import interpolation
from research.evals.weights import STEP, Without, judged, predicted
from tests.ngram_tools import WordTokenizer


def words(seed: int, count: int) -> str:
    chance = random.Random(seed)
    return " ".join(str(min(int(chance.expovariate(0.3)), 63)) for _ in range(count))


def built(folder: Path, name: str, *texts: str) -> NgramStore:
    tokenizer: Any = WordTokenizer()
    folder = folder / name
    folder.mkdir()
    for n, text in enumerate(texts):
        (folder / f"{n}.txt").write_text(text)
    ngram_builder.build(
        [str(folder)], folder / "s.ngram", tokenizer, name="words", min_count=dict.fromkeys(range(2, 7), 2)
    )
    return NgramStore.open(folder / "s.ngram")


def test_a_store_without_a_writer_is_that_of_the_other_texts(tmp_path: Path) -> None:
    one, other = words(1, 900), words(2, 700)
    both, alone = built(tmp_path, "both", one, other), built(tmp_path, "alone", one)
    without = Without(both, Counts.of(64, [(WordTokenizer().encode(other), 1)]))
    ids = WordTokenizer().encode(one)
    for at in range(6, 200):
        here = [ids[:at]], [[ids[at]]]
        found, expected = without.evidence(*here), alone.evidence(*here)
        assert np.array_equal(found.counts, expected.counts)
        assert np.array_equal(found.totals, expected.totals)
        assert (found.seen >= found.totals).all()
        assert without.count(ids[at - 3 : at]) == alone.count(ids[at - 3 : at])


def test_weights_that_are_earned_follow_a_store_that_is_right() -> None:
    phrase = [5, 9, 12, 7, 3, 30]
    ids = phrase * 120
    store = Counts.of(64, [(phrase, 9)])
    found = predicted(ids, [log(0.05)] * (len(ids) - STEP), {"base and personal": interpolation(store)})
    assert {len(values) for values in found.values()} == {len(ids) - STEP}
    report = judged({"someone": found})
    row: dict[str, Any] = report.rows[0]
    assert row["base and personal, earned"] > row["base and personal, constants"] > row["model"]
    assert report.targets[0].met
    assert (report.targets[2].value or 0) > 1


def test_a_rule_without_stores_has_no_figures() -> None:
    assert predicted([1] * 300, [0.0] * 44, {"base store": None}) == {"model": pytest.approx([0.0] * 44)}
