"""The rules of other papers, and ARC's as published, in the loop of speculative decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from core.samplers import TopK
from core.speculative import (
    Calibration,
    CalibrationError,
    Drafter,
    ModelDrafter,
    NgramDrafter,
    TargetSampling,
    TokenTree,
    generate,
)
from core.speculative.calibration import Constants, fingerprint, for_model, user_file
from core.speculative.drafters import Moment
from core.speculative.options import SpeculationOptions
from core.speculative.tree import DraftDistribution
from research.drafters import published
from research.tolerance import SCORES, as_published, fuzzy, pruned_as_published, pruned_by, ranked, typical
from tests.table_model import TableModel

MODEL = TableModel()


def made(tau: float, **about: Any) -> Calibration:
    return Calibration(fingerprint(MODEL), "table", np.ones(4), Constants(0.01, 0.1, tau), **about)


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    n = draw(st.integers(1, 14))
    parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    return TokenTree(list(range(n)), parents, [draw(st.floats(0.001, 1)) for _ in range(n)])


@given(trees(), st.integers(0, 20), st.sampled_from(list(SCORES)))
def test_other_rules_of_pruning_keep_trees_of_no_more_than_so_many(tree: TokenTree, count: int, by: str) -> None:
    places = ranked(tree, count, by)
    assert len(places) <= count
    assert all(tree.parents[p] in {*places, -1} for p in places)
    if by == "probability":  # a child is never likelier than its parent, so nothing is lost
        assert len(places) == min(count, len(tree)) or len(set(tree.products())) < len(tree)


def test_pruning_by_depth_weighs_the_depth() -> None:
    chain = TokenTree([0, 1, 2, 3], [-1, 0, 1, -1], [0.5, 0.5, 0.5, 0.3])  # e^ℓ: .5 .25 .125 .3
    assert ranked(chain, 2, "depth", 0.1) == [0, 3]
    assert ranked(chain, 2, "depth", 1.0) == [0, 1]
    text = generate(
        MODEL, NgramDrafter(), [0, 1] * 4, "arc", tree_size=4, tolerance="none", prune=pruned_by("depth", 2)
    )
    assert len(list(text)) == 64


def test_the_papers_pruning_goes_by_the_drafters_own_distribution() -> None:
    """With the noise the third token is the most probable one, without it (ℓ of eq. 1) the first."""
    tree = TokenTree([0, 1, 2], [-1] * 3, [0.05, 0.05, 0.9], likelihood=[0.96, 0.03, 0.01])
    assert pruned_as_published(tree, np.array([1.0, 0, 0])) == [0]
    assert SpeculationOptions("arc").pruned(tree, np.array([1.0, 0, 0])).ids == [0, 1, 2]


def test_the_papers_constants_have_files_of_their_own_that_the_app_does_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: tmp_path)
    for positions in (32, None, 8):
        file = user_file(MODEL, paper=True, positions=positions)
        file.parent.mkdir(exist_ok=True)
        made(positions or 1.0, positions=positions).save(file)
    found = published(MODEL)
    assert list(found) == ["as published", "as published, δ over 8 positions", "as published, δ over 32 positions"]
    assert [calibration.overall.tau for calibration in found.values()] == [1, 8, 32]
    with pytest.raises(CalibrationError, match=r"`polydraft calibrate --paper --temperature 0\.5` once"):
        published(MODEL, TargetSampling(0.5))
    with pytest.raises(CalibrationError, match="table is not calibrated"):
        for_model(MODEL)


def test_arc_as_published_takes_the_first_near_proposal_in_the_drafters_order() -> None:
    """Also digits, and before the token that the target draws; after it the text is lossless."""
    tree = TokenTree([3, 1, 2, 0], [-1] * 4, [0.4, 0.3, 0.2, 0.1])
    p = np.array([0.5, 0.2, 0.2, 0.0, 0.05, 0.05])  # the rule dropped 3

    def took(tau: float, drawn: int) -> tuple[int | None, float | None]:
        options = SpeculationOptions("arc", tolerance=as_published(MODEL, made(tau)))
        return options.tolerated(tree, [0, 1, 2, 3], p, MODEL, 0, drawn)

    assert [took(1e9, drawn)[0] for drawn in (5, 3, 2)] == [1, None, 1]  # all proposals are near
    assert took(1e-9, 5) == (3, 1.0), "the most probable token"


def test_typical_by_hand() -> None:
    def accepts(p: np.ndarray, x: int) -> bool:
        return typical()(TokenTree([x], [-1], [1.0]), [0], p, -1, 0) == (0, None)

    flat = np.full(1000, 1e-3)
    assert accepts(flat, 3)  # H = ln 1000: δ·exp(-H) = 0.0003
    sure = np.array([0.95, 0.05])
    assert not accepts(sure, 1)  # 0.09 is less than 0.3·exp(-0.2)
    assert accepts(sure, 0)


@pytest.mark.parametrize("name", ["typical", "fsd"])
def test_tolerance_lets_more_stand_and_never_what_the_rule_dropped(name: str) -> None:
    # Nearly the target: it guesses the target's noise, so an equal model's proposals would need no tolerance.
    drafter = ModelDrafter(TableModel(spread=0.7), MODEL) if name == "fsd" else NgramDrafter()
    how: dict[str, Any] = {"length": 120, "rule": TopK(3), "tree_size": 6}
    lossless = generate(MODEL, drafter, [0, 1, 2], **how)
    list(lossless)
    rule = fuzzy(0.5) if name == "fsd" else typical()
    arc = generate(MODEL, drafter, [0, 1, 2], "arc", **how, tolerance=rule, prune=False, distributions=name == "fsd")
    for at, token in enumerate(arc):
        assert how["rule"](None, MODEL.after(arc.ids[: 3 + at])[None])[0, token.id].isfinite()
        assert token.lts is None
    assert arc.statistics.tolerated > 0
    assert arc.statistics.accept_length > lossless.statistics.accept_length


class Perfect(Drafter):
    """Has the target's own distribution, and guesses the noise: at each level the tokens with the largest ln p + G."""

    name = "perfect"

    def draft(self, moment: Moment, depth: int) -> TokenTree:
        tree, ids = TokenTree(likelihood=[]), list(moment.ids)
        assert tree.likelihood is not None and moment.distributions
        for level in range(2):
            logits, at = MODEL.after(ids), len(tree) - 3 if level else -1  # after the likeliest three, the first
            logq = logits.log_softmax(0).numpy()
            assert moment.noise is not None
            noisy = logq + moment.noise.gumbel(len(ids), np.arange(len(logq)))
            best = np.argsort(-noisy)[1:4]  # all but the one that the target draws
            tree.own[at] = DraftDistribution(logits)
            tree.ids.extend(best.tolist())
            tree.parents.extend([at] * 3)
            tree.confidence.extend(np.exp(noisy[best] - np.logaddexp.reduce(noisy[best])).tolist())
            tree.likelihood.extend(np.exp(logq[best]).tolist())
            ids.append(int(best[0]))
        return tree


def test_fsd_lets_a_perfect_drafter_stand_whatever_it_knows_of_the_dice() -> None:
    """Its distribution is the target's, so JS = 0 everywhere, and no proposal is refused."""
    how: dict[str, Any] = {"tolerance": fuzzy(1e-6), "distributions": True}
    text = generate(MODEL, Perfect(), [0, 1, 2], "arc", length=200, tree_size=6, **how)
    assert {token.how for token in text} == {"plain", "tolerated", "bonus"}
    assert text.statistics.tolerated > 100


def test_fsd_needs_a_drafter_with_a_distribution() -> None:
    with pytest.raises(InputError, match="returns no distributions"):
        list(generate(MODEL, NgramDrafter(), [0, 1] * 4, "arc", tree_size=6, tolerance=fuzzy()))
