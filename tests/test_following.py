"""Drafts that know the text after the caret: cut, ranked, and silent where nothing is missing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from core import following
from core.autocomplete import Autocomplete, Completion, Session
from core.text import without_repeated
from tests.table_model import TableModel


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


@pytest.fixture
def model() -> TableModel:
    return TableModel(seed=3)


@pytest.fixture
def session(model: TableModel) -> Iterator[Session]:
    made = Autocomplete(model).open()
    yield made
    made.close()


def completed(session: Session, text: str, **options: Any) -> Completion:
    completion = session.complete(text, **({"heal": False, "k": 3, "length": 2} | options))
    while not completion.done:
        completion.advance(session.autocomplete.model.forward(completion.rows()))
    return completion


def joint(model: TableModel, before: str, line: str) -> float:
    total = 0.0
    for n, letter in enumerate(line):
        logp = torch.log_softmax(model.after(model.tokenizer.encode(before + line[:n])), 0)
        total += float(logp[ord(letter) - 97])
    return total


def test_drafts_are_ranked_by_how_likely_they_are_with_what_follows(model: TableModel, session: Session) -> None:
    plain = [draft.text for draft in completed(session, "abca").drafts]
    seen = set()
    for letters in range(36):
        after = chr(97 + letters // 6) + chr(97 + letters % 6) + "a"
        found = completed(session, "abca", after=after)
        gains = {d: joint(model, "abca", d + after) - joint(model, "abca", after) for d in plain}
        gains = {d: gain for d, gain in gains.items() if without_repeated(d, after) == d}
        if len(gains) < len(plain):
            continue
        if max(gains.values()) < -1e-4:
            assert found.drafts == []
            seen.add("silent")
        elif max(gains.values()) > 1e-4:
            (best,) = [draft.text for draft in found.drafts if draft.id == found.best]
            assert math.isclose(gains[best], max(gains.values()), abs_tol=1e-4)
            seen.add("moved" if best != plain[0] else "kept")
    assert {"silent", "moved"} <= seen


def test_rows_that_the_reader_sees_do_not_fall_silent(session: Session) -> None:
    from core.present import KeptRow

    silent = next(a for a in ("aba", "cda", "efa", "bca", "dea") if not completed(session, "abca", after=a).drafts)
    first = completed(session, "abca").drafts[0]
    kept = [KeptRow(first.id, first.text)]
    assert completed(session, "abca", after=silent, kept=kept).drafts


def test_the_cache_keeps_the_text_alone(session: Session) -> None:
    completed(session, "abca", after="bcd")
    assert session.sequence.inputs == [0, 1, 2, 0]


def test_the_pass_is_skipped_where_it_takes_more_than_its_share(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = completed(session, "abca")
    session.autocomplete.pace.seconds = 1e6
    skipped = completed(session, "abca", after="bcd")
    assert (skipped.best, len(skipped.drafts)) == (plain.best, len(plain.drafts))
    assert session.autocomplete.pace.seconds < 1e6, "one slow pass is not the last"
    monkeypatch.setattr(following, "SHARE", math.inf)
    completed(session, "abca", after="bcd")
    assert session.autocomplete.pace.seconds < 1


def test_a_model_that_fills_in_the_middle_reads_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TableModel(vocabulary=9, seed=1)
    names = {"<fim_prefix>": 6, "<fim_suffix>": 7, "<fim_middle>": 8}
    model.tokenizer.special_names = names
    model.tokenizer.special_ids = frozenset(names.values())
    session = Autocomplete(model).open()
    found = completed(session, "abca", after="bcd")
    assert session.sequence.inputs == [6, 0, 1, 2, 0, 7, 1, 2, 3, 8]
    assert found.drafts
    completed(session, "abca", after="")
    assert session.sequence.inputs == [0, 1, 2, 0], "without text after the caret the prompt is plain"
