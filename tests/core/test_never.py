"""What is never suggested: no row of any method contains it, whatever is typed, kept or proposed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core import phrases
from core.ask import Ask, KeptRow
from core.autocomplete import Autocomplete
from core.modes.start import Mode
from core.phrases import BANNED, Phrases
from tests.completing import completed

TEXT = "Thank you very much for your"
OPTIONS: dict[str, Any] = {"k": 3, "length": 8, "end_below": 0.0}


def rows(autocomplete: Autocomplete, text: str = TEXT, **options: Any) -> list[str]:
    return [row.text for row in completed(autocomplete, text, Ask(**OPTIONS | options)).drafts]


@pytest.mark.parametrize("more", [{}, {"verify": 16}, {"tails": True, "exact_steps": 1}, {"merge_alike": True}])
def test_checks_and_second_rounds_bring_none_back(autocomplete: Autocomplete, more: dict[str, Any]) -> None:
    never = [row.split()[-1].strip(".,") for row in rows(autocomplete, **more)]
    assert not any(Phrases.of(never).within(row) for row in rows(autocomplete, never=never, **more))


@pytest.mark.parametrize(
    ("text", "begins", "never"),
    [
        ("I am looking forward to hearing from you, and tha", "nk", "thank*"),
        ("We are looking forward to", " seeing", "forward to seeing"),
    ],
)
def test_what_is_half_typed_is_not_finished(autocomplete: Autocomplete, text: str, begins: str, never: str) -> None:
    assert any(row.startswith(begins) for row in rows(autocomplete, text, k=9))
    after = rows(autocomplete, text, k=9, never=[never])
    assert after
    assert not any(row.startswith(begins) for row in after)


def test_a_kept_row_that_contains_it_goes(autocomplete: Autocomplete) -> None:
    first = rows(autocomplete)
    kept = [KeptRow(n, row) for n, row in enumerate(first)]
    word = first[1].split()[0]
    after = rows(autocomplete, kept=kept, never=[word])
    assert first[0] in after or word in first[0]
    assert not any(Phrases.of([word]).within(row) for row in after)


def test_slurs_are_left_out_of_rows_that_appear_unasked(
    autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    word = rows(autocomplete)[0].split()[0]
    (tmp_path / "slurs.txt").write_text(f"# of this test\n{word}\n")
    monkeypatch.setattr(phrases, "SLURS", tmp_path / "slurs.txt")
    phrases.shipped_slurs.cache_clear()
    phrases.compiled.cache_clear()
    try:
        for unasked, without, there in ((True, True, False), (True, False, True), (False, True, True)):
            found = rows(autocomplete, unasked=unasked, without_slurs=without)
            assert any(row.split()[0] == word for row in found) == there
        assert not any(row.split()[0] == word for row in rows(autocomplete, no_slurs=True, without_slurs=False))
    finally:
        phrases.shipped_slurs.cache_clear()
        phrases.compiled.cache_clear()


@pytest.mark.parametrize("mode", ["superposed", "greedy"])
def test_a_banned_token_is_in_no_draft_even_if_the_stores_propose_it(autocomplete: Autocomplete, mode: str) -> None:
    word = rows(autocomplete, mode=Mode(mode))[0].split()[0].strip(".,")
    after = rows(autocomplete, mode=Mode(mode), token_bias=[(f" {word}", BANNED)])
    assert after
    assert not any(row.split()[0].startswith(word) for row in after)


@pytest.mark.parametrize("mode", ["superposed", "sampled", "beam"])
def test_other_drafts_begin_differently_from_those_that_were_shown(autocomplete: Autocomplete, mode: str) -> None:
    shown: list[str] = []
    for _ in range(2):
        others = rows(autocomplete, mode=Mode(mode), avoid=shown)
        assert others
        assert not {row.split()[0].strip(",.") for row in others} & {row.split()[0].strip(",.") for row in shown}
        shown += others


def test_other_drafts_of_a_half_typed_word_are_other_words(autocomplete: Autocomplete) -> None:
    text = "I look forward to hear"
    first = rows(autocomplete, text)
    others = rows(autocomplete, text, avoid=first)
    assert others
    assert not {row.split()[0] for row in others} & {row.split()[0] for row in first}


def test_where_nothing_likely_is_left_there_is_no_draft(autocomplete: Autocomplete) -> None:
    text = "Thank you very much for your help. I look forward to hearing from yo"
    assert rows(autocomplete, text, min_branch=0.2)
    assert not rows(autocomplete, text, min_branch=0.2, avoid=["u", "ur"])
