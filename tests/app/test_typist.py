"""The simulated typist: moves, and the passages that are written."""

from __future__ import annotations

import pytest

from app.options.settings import DraftSettings
from app.options.typist import PASSAGE, Passage, Way, best_move, passages, typed
from core.autocomplete import Autocomplete
from tests.table_model import TableModel, words


@pytest.mark.parametrize(
    ("shown", "rest", "move"),
    [
        ([], " hello", ("character", 1)),
        ([" hello there"], " hello there, you", ("draft", 12)),
        ([" hello you"], " hello there", ("word", 6)),
        ([" no", " hello there x"], " hello there", ("word", 6)),  # of any draft, for one key
        ([" end. And"], " end, however", ("word", 4)),  # without the punctuation after it
        ([". And"], ". But", ("character", 1)),
        ([" a"], " a", ("draft", 2)),
        (["x"], "y", ("character", 1)),
        ([" hel"], " hello", ("draft", 4)),  # a whole draft may end inside a word
    ],
)
def test_the_typist_makes_the_move_that_writes_most(shown: list[str], rest: str, move: tuple[str, int]) -> None:
    assert best_move(shown, rest) == move


def test_passages_are_taken_in_turns_and_begin_before_a_word() -> None:
    by_kind = {"a": ["word " * 400], "b": ["text " * 400, "more " * 300]}
    found = passages(by_kind, 500)
    assert [passage.kind for passage in found] == ["a", "b"] * 2
    assert all(passage.rest.startswith(" ") for passage in found)
    assert len({(p.kind, p.before, p.rest) for p in found}) >= 2


def test_some_passages_begin_where_a_document_or_a_line_does() -> None:
    text = "\n\n".join(f"Paragraph {n} has some words. " * 4 for n in range(40))
    found = passages({"a": [text]}, 12 * PASSAGE)
    assert all(passage.before + passage.rest in text and len(passage.rest) == PASSAGE for passage in found)
    begun = ["document" if not p.before else "line" if p.before.endswith("\n") else "inside" for p in found]
    assert begun == ["inside", "inside", "line", "inside", "inside", "document"] * 2
    assert all(passage.rest.startswith("Paragraph") for passage in found if passage.before.endswith("\n"))


def test_a_typist_asks_for_other_drafts_after_two_keys_without_a_right_one() -> None:
    autocomplete = Autocomplete(TableModel(seed=5, vocabulary=20))
    passage = Passage("", words("abc"), words("abcdefghijklmnopqrst"))
    settings = DraftSettings(k=1, length=2, end_below=0, forks=0)
    plain, asking = (typed(autocomplete, passage, Way("", settings, rejects=n)) for n in (0, 2))
    assert plain.keys["others"] == 0
    assert 0 < asking.keys["others"] <= (asking.keys.total() - asking.keys["others"]) / 2
    assert asking.keys["word"] + asking.keys["draft"] >= plain.keys["word"] + plain.keys["draft"]
