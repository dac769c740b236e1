"""`eval typing --slips`: what the typist types, corrects and counts, on rows that are written by hand."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from app.options.typist import Passage
from core.present import TextDraft
from core.slips import NEIGHBOURS
from research.evals import slips
from research.evals.slips import slip, written

PASSAGE = Passage("books", "It was", " a long letter to them")


def test_a_slip_is_a_neighbouring_doubled_dropped_or_swapped_letter() -> None:
    chance = random.Random(0)
    made = {slip("et", chance) for _ in range(500)}
    assert {("ee", 1), ("t", 2), ("te", 2)} <= made
    assert made - {("ee", 1), ("t", 2), ("te", 2)} == {(key, 1) for key in NEIGHBOURS["e"]}
    assert {n for _, n in (slip("e ", chance) for _ in range(200))} == {1}  # no space is swapped or comes early


def write(
    monkeypatch: pytest.MonkeyPatch, rate: float, corrects: bool, rows: Any = lambda before: []
) -> slips.SlippedPassage:
    monkeypatch.setattr(slips, "_drafts", lambda _, before, __, ___: rows(before))
    session: Any = SimpleNamespace(close=lambda: None)
    autocomplete: Any = SimpleNamespace(open=lambda: session)
    return written(autocomplete, PASSAGE, rate, corrects, random.Random(1))


def test_without_rows_and_slips_every_character_is_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    found = write(monkeypatch, 0.0, True)
    assert (found.keys, found.characters, found.saved, found.wronged) == (22, 22, 0.0, 0)


def test_slips_cost_keys_and_rows_that_correct_save_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PASSAGE.before + PASSAGE.rest

    def correcting(before: str) -> list[TextDraft]:
        right = next(n for n in range(len(before) + 1) if not text.startswith(before[: n + 1]) or n == len(before))
        if right == len(before):
            return []
        return [TextDraft(0, text[right : right + 8], 1.0, 1.0, False, replace=len(before) - right)]

    alone = write(monkeypatch, 0.5, False)
    helped = write(monkeypatch, 0.5, True, correcting)
    assert alone.keys > 30
    assert helped.keys < alone.keys - 8
    assert helped.wronged == 0


def test_rows_that_correct_right_words_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = write(monkeypatch, 0.0, True, lambda _: [TextDraft(0, "xy", 1.0, 1.0, False, replace=1)])
    assert found.wronged == found.places == 22
