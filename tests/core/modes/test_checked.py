"""Drafts that one tree pass checks and corrects."""

from __future__ import annotations

from typing import Any

from table_model import TableModel

from core.drafting.drafts import Drafts, Options
from core.drafting.driver import draft_all
from core.modes.start import Mode, start
from tests.completing import complete

TEXT = [0, 1, 2]


def checked_drafts(model: TableModel, k: int, length: int, nodes: int, **options: Any) -> Drafts:
    o = Options(k=k, length=length, forks=0, **options)
    *_, (last,) = draft_all(model, [TEXT], lambda s, ids: start(s, ids, o, Mode("superposed"), verify=nodes))
    assert last.checked
    return last


def test_what_is_sure_is_what_the_target_says_one_by_one() -> None:
    for seed in range(10):
        model = TableModel(vocabulary=12, seed=seed, spread=2)
        last = checked_drafts(model, 4, 8, nodes=10)
        for ids, sure in zip(last.ids, last.exact, strict=True):
            assert sure >= 1
            for at in range(1, sure):
                assert ids[at] == int(model.after(TEXT + ids[:at]).argmax())


def test_an_end_ends_a_draft() -> None:
    model = TableModel(vocabulary=12, seed=4, spread=2)
    stop = checked_drafts(model, 3, 8, nodes=99).ids[0][3]
    for ids in checked_drafts(model, 3, 8, nodes=99, stop_ids=frozenset({stop})).ids:
        assert stop not in ids[:-1]
        assert len(ids) == 8 or ids[-1] == stop


def test_drafts_of_a_session_are_refined_in_their_rows(autocomplete) -> None:
    """After the superposed drafts one pass looks; beginnings stay, rows stay, and so does the cached text."""
    session, text = autocomplete.open(), "I would like to thank you for the inv"
    completion = complete(session, text, verify=12, k=3, length=8)
    shown, fed = [], []
    while rows := completion.rows():
        shown.append((completion.checked, [(d.id, d.text) for d in completion.drafts]))
        fed.append(rows[0].parents is not None)
        completion.advance(autocomplete.model.forward(rows))
    assert completion.done and completion.checked
    assert sum(fed) == 1  # one tree
    before = next(drafts for checked, drafts in shown if checked)
    after = [(d.id, d.text) for d in completion.drafts]
    assert {i for i, _ in after} <= {i for i, _ in before}
    first = dict(before)
    for i, new in after:
        least = min(len(new), len(first[i]), 2)
        assert new[:least] == first[i][:least]
    held = list(session.sequence.inputs)
    completion.close()
    assert session.sequence.inputs == held and None not in held
    plain = complete(session, text, k=3, length=8)
    while rows := plain.rows():
        plain.advance(autocomplete.model.forward(rows))
    assert not plain.checked
    session.close()
