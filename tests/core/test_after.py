"""Drafts that know the text after the caret: they end where it begins, are ranked by it, or are not shown at all."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from core import after as comparing
from core.ask import KeptRow
from core.autocomplete import Autocomplete
from core.completion import Completion
from core.models.costs import CostCurve
from core.ngram import Interpolation
from core.session import Session
from core.text import spaced, without_repeated
from tests.completing import complete
from tests.shared_cases import cases
from tests.table_model import Letters, TableModel, words


@pytest.mark.parametrize(
    ("draft", "after", "left"),
    [
        (" over the lazy dog", " the lazy dog jumps", " over"),
        (" the lazy", " the lazy dog", ""),
        (" to the", " the best", " to"),
        (" to\n the", "  the best", " to"),
        (" end.", ".", " end"),
        (" end. And more", ".\nNext line", " end"),
        (" cat sat", " satin", " cat sat"),  # no word of it is repeated
        ("ting the", "s", "ting the"),
        ("ful day", " day is over", "ful"),
        (" anything", "", " anything"),
        (" anything", " \n", " anything"),
    ],
)
def test_a_draft_is_cut_where_it_begins_to_repeat_what_follows(draft: str, after: str, left: str) -> None:
    assert without_repeated(draft, after) == left


def test_a_growing_draft_shows_no_word_that_it_loses_later() -> None:
    assert without_repeated(" over la", " lazy dog", growing=True) == " over"
    assert without_repeated(" over la", " lazy dog") == " over la"


@pytest.mark.parametrize("case", cases("spacing"))
def test_a_draft_repeats_nothing_of_what_follows_and_does_not_join_the_next_word(case: dict[str, Any]) -> None:
    draft, after = case["draft"], case["after"]
    assert spaced(without_repeated(draft, after), after) == case["inserted"]


class SpacedWords(Letters):
    """Words, and a space as the last token."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.pieces[-1] = b" "

    def encode(self, text: str) -> list[int]:
        space, others = len(self.pieces) - 1, super().encode
        return [i for letter in text for i in ([space] if letter == " " else others(letter))]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are withdrawn early, for the table varies little."""
    monkeypatch.setattr(comparing, "MOST_LOST", 0.1)


@pytest.fixture
def model() -> TableModel:
    made = TableModel(vocabulary=7, seed=3)
    made.tokenizer = SpacedWords(7)
    return made


@pytest.fixture
def session(model: TableModel) -> Iterator[Session]:
    made = Autocomplete(model).open()
    yield made
    made.close()


def completed(session: Session, text: str, **options: Any) -> Completion:
    kept = options.pop("kept", ())
    return complete(session, text, kept=kept, **({"heal": False, "k": 3, "length": 2} | options)).finish()


def gain(model: TableModel, before: str, draft: str, after: str) -> float:
    """ln P(after | before, draft) - ln P(after | before), token by token."""

    def logprob(text: str, rest: str) -> float:
        ids = model.tokenizer.encode(text + rest)
        places = range(len(text), len(ids))
        return sum(float(torch.log_softmax(model.after(ids[:n]), 0)[ids[n]]) for n in places)

    return logprob(before + draft, spaced(draft, after).removeprefix(draft) + after) - logprob(before, after)


AFTER = [words(a + b + "a") for a in "abcdef" for b in "abcdef"]


def test_drafts_are_ranked_by_how_likely_they_make_what_follows(model: TableModel, session: Session) -> None:
    plain = [draft.text for draft in completed(session, "abca").drafts]
    assert len(plain) == 3
    seen = set()
    for after in AFTER:
        found = completed(session, "abca", after=after)
        gains = {draft: gain(model, "abca", draft, after) for draft in plain}
        if (
            any(without_repeated(draft, after) != draft for draft in plain)
            or abs(max(gains.values()) + comparing.MOST_LOST) < 1e-4
        ):
            continue
        if max(gains.values()) < -comparing.MOST_LOST:
            assert found.drafts == []
            seen.add("silent")
            continue
        (best,) = [draft for draft in found.drafts if draft.id == found.best]
        assert best.gain == pytest.approx(max(gains.values()), abs=1e-4)
        assert gains[best.text] == pytest.approx(best.gain, abs=1e-4)
        seen.add("moved" if best.text != plain[0] else "same")
    assert {"silent", "moved"} <= seen


def test_drafts_that_appear_unasked_are_shown_only_where_they_join_what_follows(session: Session) -> None:
    shown = set()
    for after in AFTER:
        asked, unasked = (completed(session, "abca", after=after, unasked=one) for one in (False, True))
        joining = [draft for draft in asked.drafts if (draft.gain or 0) >= comparing.JOINS]
        assert [draft.text for draft in unasked.drafts] == [draft.text for draft in joining]
        shown.add(len(joining))
    assert len(shown) > 2


def test_without_a_comparison_nothing_appears_unasked_in_a_line(session: Session) -> None:
    session.equipped.row_costs = CostCurve((1, 2), (100.0, 101.0))
    assert completed(session, "abcab", after=words("bc")).drafts
    assert completed(session, "abcac", after=words("bc"), unasked=True).drafts == []


def silent_after(session: Session) -> str:
    return next(after for after in AFTER if not completed(session, "abca", after=after).drafts)


def test_rows_that_stay_on_the_page_are_not_withdrawn(session: Session) -> None:
    silent, first = silent_after(session), completed(session, "abca").drafts[0]
    found = completed(session, "abca", after=silent, kept=[KeptRow(first.id, first.text)])
    assert [(draft.id, draft.text) for draft in found.drafts] == [(first.id, first.text)], "and no other one joins them"


def test_rows_that_are_withdrawn_are_told_because_a_reader_may_have_seen_them(session: Session) -> None:
    completion = complete(session, "abca", heal=False, k=3, length=2, after=silent_after(session))
    assert not completion.compared
    completion.finish()
    assert completion.compared
    assert (len(completion.drafts), len(completion.withdrawn)) == (0, 3), "its caller decides whether they stay"


@pytest.mark.parametrize("after", ["", " ", f"\n{words('ab')}", f"  \n{words('ab')}"])
def test_at_the_end_of_a_line_every_draft_is_shown(session: Session, after: str) -> None:
    found = completed(session, "abca", after=after)
    assert found.compared
    assert [draft.gain for draft in found.drafts] == [None] * 3


def test_the_cache_keeps_the_text_alone(session: Session) -> None:
    completed(session, "abca", after=words("bcd"))
    assert session.sequence.inputs == [*session.equipped.model.tokenizer.beginning, 0, 1, 2, 0]


def test_the_pass_is_skipped_where_it_costs_more_than_the_drafts(session: Session) -> None:
    plain, silent = completed(session, "abca"), silent_after(session)
    session.equipped.row_costs = CostCurve((1, 2), (100.0, 101.0))  # many inputs cost much more than many passes
    skipped = completed(session, "abca", after=silent)
    assert (skipped.best, len(skipped.drafts)) == (plain.best, len(plain.drafts))
    session.equipped.row_costs = CostCurve((1, 90), (100.0, 101.0))
    assert all(draft.gain is not None for draft in completed(session, "abca", after=words("bcd")).drafts)


def test_the_drafts_are_ranked_alike_whatever_is_cached_and_however_slow_the_machine_is_now(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.equipped.row_costs = CostCurve((1, 90), (100.0, 101.0))
    first = completed(session, "abca", after=words("bcd"))
    ticks = itertools.count(0, 1e6)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    for _ in range(3):
        again = completed(session, "abca", after=words("bcd"))
        assert [(row.text, row.gain) for row in again.drafts] == [(row.text, row.gain) for row in first.drafts]
        assert again.best == first.best


@pytest.fixture
def filling() -> Iterator[Session]:
    """Of a model that fills in the middle."""
    model = TableModel(vocabulary=9, seed=1)
    names = {"<fim_prefix>": 6, "<fim_suffix>": 7, "<fim_middle>": 8}
    model.tokenizer.special_names = names
    model.tokenizer.special_ids = frozenset(names.values())
    made = Autocomplete(model).open()
    yield made
    made.close()


def test_a_model_that_fills_in_the_middle_reads_what_follows(filling: Session) -> None:
    found = completed(filling, "abca", after=words("bcd"))
    assert filling.sequence.inputs == [6, 0, 1, 2, 0, 7, 1, 2, 3, 8]
    assert found.compared
    assert found.drafts
    for after in ("", " \n"):
        completed(filling, "abca", after=after)
        plain = [*filling.equipped.model.tokenizer.beginning, 0, 1, 2, 0]
        assert filling.sequence.inputs == plain, "without text after the caret the prompt is plain"


class Listening(Interpolation):
    """No n-grams, but it notes the contexts that it is asked for."""

    def __init__(self) -> None:
        self.contexts: list[list[int]] = []

    def scores(self, logq: np.ndarray, contexts: Any, candidates: Any) -> np.ndarray:
        self.contexts += map(list, contexts)
        return logq.astype(np.float64)

    def knows(self, ids: Any) -> bool:
        return False


def test_n_grams_see_the_text_before_and_the_draft_side_by_side(filling: Session) -> None:
    asked, text = [], [*filling.equipped.model.tokenizer.beginning, 0, 1, 2, 0]
    for after in ("", words("bcd")):
        listening = Listening()
        completed(filling, "abca", after=after, ngrams=listening)
        asked.append(listening.contexts)
    assert all(context[: len(text)] == text for contexts in asked for context in contexts)
    assert [contexts[0] for contexts in asked] == [text] * 2
