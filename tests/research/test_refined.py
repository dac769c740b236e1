"""Superposed drafts that several checks refine, also by another model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.superposed import superpose
from research.refined import Refined, verified
from tests.table_model import TableModel

TEXT = [0, 1, 2]


class Twice:
    """N-grams that know one thing: after 1, what the model holds likely comes in the opposite order."""

    def scores(self, logq: np.ndarray, contexts: list[list[int]], candidates: np.ndarray) -> np.ndarray:
        turned = -logq
        return np.where(np.array([c[-1] == 1 for c in contexts])[:, None], turned, logq)

    def scores_without(self, logq, contexts, candidates):
        return (self.scores(logq, contexts, candidates),) * 2

    def proposals(self, contexts, least, known=()) -> list[list[int]]:
        return [[] for _ in contexts]

    def knows(self, ids) -> bool:
        return False


@settings(max_examples=40)
@given(
    seed=st.integers(0, 30),
    k=st.integers(1, 5),
    length=st.integers(1, 9),
    first=st.one_of(st.none(), st.integers(1, 9)),
    exact_steps=st.integers(0, 2),
    mixed=st.booleans(),
)
def test_looked_at_to_the_end_drafts_are_those_of_branching_greedy(
    seed: int, k: int, length: int, first: int | None, exact_steps: int, mixed: bool
) -> None:
    model = TableModel(vocabulary=12, seed=seed, spread=2)
    options: dict[str, Any] = {"ngrams": _mixing() if mixed else None}
    *_, branching = superpose(model, TEXT, k, length, forks=0, exact_steps=length - 1, **options)
    sequence = model.open()
    *_, last = verified(
        model,
        TEXT,
        k,
        length,
        sequence=sequence,
        first=first,
        rounds=length,
        nodes=10**6,
        exact_steps=exact_steps,
        **options,
    )
    assert sorted(last.ids) == sorted(branching.ids)
    assert last.sure == [length] * len(last.ids)
    assert sequence.inputs == TEXT


def _mixing() -> Any:
    """The rule as `superpose` takes it."""
    from core.ngram.interpolation import Interpolation

    return type("Mixing", (Twice, Interpolation), {})()


@settings(max_examples=40)
@given(seed=st.integers(0, 30), nodes=st.integers(0, 12), rounds=st.integers(1, 3), first=st.integers(1, 7))
def test_rows_keep_their_order_and_what_is_sure(seed: int, nodes: int, rounds: int, first: int) -> None:
    """A row's beginning up to `changed` was shown before; what is sure stays; each round feeds at most `nodes`."""
    model = TableModel(vocabulary=12, seed=seed, spread=2)
    shown: Refined | None = None
    for found in verified(model, TEXT, 3, 7, first=first, rounds=rounds, nodes=nodes):
        assert len({ids[0] for ids in found.ids}) == len(found.ids)
        if found.checked:
            assert shown is not None
            assert found.fed <= nodes
            for new, old, changed, sure in zip(found.ids, shown.ids, found.changed, shown.sure, strict=True):
                assert new[:changed] == old[:changed]
                assert new[changed : changed + 1] != old[changed : changed + 1] or changed == len(old)
                assert new[:sure] == old[:sure]
                assert len(new) == 7
            assert all(a >= b for a, b in zip(found.sure, shown.sure, strict=True))
        shown = found


def test_another_model_checks_what_one_drafted() -> None:
    drafting, checking = TableModel(vocabulary=12, seed=1, spread=2), TableModel(vocabulary=12, seed=2, spread=2)
    held, target = drafting.open(), checking.open()
    *_, last = verified(drafting, TEXT, 3, 6, sequence=held, target=target, rounds=6, nodes=99)
    for ids, sure in zip(last.ids, last.sure, strict=True):
        assert sure == 6
        # Exact steps are the drafting model's, which is taken at its word for them.
        assert ids[2:] == _greedy(checking, TEXT + ids[:2], 4)
    assert held.inputs == target.inputs == TEXT
    with pytest.raises(InputError, match="different tokenizers"):
        list(verified(drafting, TEXT, 3, 6, target=TableModel(vocabulary=11).open()))


def _greedy(model: TableModel, ids: list[int], n: int) -> list[int]:
    for _ in range(n):
        ids = [*ids, int(model.after(ids).argmax())]
    return ids[-n:]


def test_stopping_between_rounds_leaves_the_text() -> None:
    model = TableModel(vocabulary=12, seed=4, spread=2)
    sequence = model.open()
    for after in range(1, 9):
        drafts = verified(model, TEXT, 3, 6, sequence=sequence, rounds=3)
        for _ in range(after):
            next(drafts)
        drafts.close()
        assert sequence.inputs == TEXT
