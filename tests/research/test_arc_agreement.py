"""`eval arc-agreement`: continuations of rejected proposals, and their agreement with that of the sampled token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_model import TableModel

from core.speculative import Calibration, Drafter, TokenTree, generate
from core.speculative.calibration import Constants, fingerprint
from core.speculative.drafters import Moment
from core.speculative.options import PUBLISHED
from research.drafters import Arc
from research.evals import arc_agreement
from research.evals.arc_agreement import AGAIN, ANOTHER, APART, REJECTED, continued, rouge, table

MODEL = TableModel(seed=3)
IDS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


class Three(Drafter):
    name = "three"

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        return TokenTree([0, 1, 2, 3], [-1, -1, -1, 0], [0.4, 0.3, 0.2, 0.1])


def arc(near: bool, **options: object) -> Arc:
    factor = 1e-9 if near else 1e9
    return Arc(Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(factor, factor, 1.0)), dict(options))


def test_each_rejected_proposal_of_the_first_level_is_continued() -> None:
    seed, places, length = 5, 3, 6
    found = continued(MODEL, Three(), [0, 1, 2], {"near": arc(True), "far": arc(False)}, seed, places, length)
    text = [token.id for token in generate(MODEL, None, [0, 1, 2], "off", length=APART * places, seed=seed)]
    assert len(found) == places
    for place, at in zip(found, range(0, len(text), APART), strict=True):
        assert place.sampled == text[at + 1 : at + 1 + length], "the text itself goes on from the sampled token"
        assert place.again != place.sampled
        assert len(place.rejected) == len({0, 1, 2} - {text[at]})
        assert place.tolerated["near"] == [True] * len(place.rejected)
        best = int(MODEL.after([0, 1, 2, *text[:at]]).argmax())
        assert place.tolerated["far"] == [x == best for x in (0, 1, 2) if x != text[at]]


def test_digits_are_tolerated_only_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.speculative.arc.exact_only", lambda _: frozenset(range(MODEL.vocab_size)))
    p = np.array([0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
    assert arc_agreement.tolerates(MODEL, arc(True, **PUBLISHED), p, 1)
    assert not arc_agreement.tolerates(MODEL, arc(True), p, 1)


def test_the_table_compares_with_two_continuations_of_the_sampled_token() -> None:
    same, other = [0, 1, 2, 3], [4, 5, 4, 5]
    place = arc_agreement.Continued(same, same, [same, other], {"ARC": [True, False]})
    away = arc_agreement.Continued(other, other, [same], {"ARC": [False]})
    rows = {row["continuations"]: row for row in table(MODEL, "all", [place, away])}
    assert (rows[AGAIN]["rouge"], rows[AGAIN]["count"]) == (1, 2)
    assert (rows[REJECTED]["rouge"], rows[REJECTED]["count"]) == (0.25, 3), "the mean over places"
    assert rows[REJECTED]["rouge_to_again"] == -0.75
    assert (rows[REJECTED]["rouge_as_near"], rows[REJECTED]["rouge_places"]) == (pytest.approx(1 / 3), 0.5)
    assert (rows["rejected, tolerated by ARC"]["rouge"], rows["rejected, tolerated by ARC"]["count"]) == (1, 1)
    assert rows[ANOTHER]["rouge"] == 0


@given(IDS, IDS)
def test_rouge_is_of_the_longest_common_subsequence(one: list[int], other: list[int]) -> None:
    def longest(a: list[int], b: list[int]) -> int:
        if not a or not b:
            return 0
        if a[-1] == b[-1]:
            return 1 + longest(a[:-1], b[:-1])
        return max(longest(a[:-1], b), longest(a, b[:-1]))

    assert rouge(one, other) == pytest.approx(2 * longest(one, other) / (len(one) + len(other)))
    assert rouge(one, one) == 1
    assert rouge(one, []) == 0
