"""The two rules: the paper's against its authors' numbers, ours against its properties."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InputError
from core.ngram import PRUNED, Geometric, Linear, Mixed, NgramStore
from tests.ngram_tools import store_of
from tests.paths import DATA

GOLDEN = json.loads((DATA / "spd_ngrams.json").read_text())
VOCAB = 49_152
FILLER = VOCAB - 1  # represents all continuations that are not in the golden cases


@pytest.fixture(scope="module")
def golden_store(tmp_path_factory) -> NgramStore:
    ngrams: dict[tuple[int, ...], int] = {}
    totals: dict[tuple[int, ...], int] = {}
    for context, total, seen, following in GOLDEN["ngrams"]:
        totals[tuple(context)] = total
        if len(context) > 1:
            ngrams[tuple(context)] = seen
        for token, count in zip(following[::2], following[1::2], strict=True):
            ngrams[*context, token] = count
    listed: Counter[tuple[int, ...]] = Counter()
    for gram, count in ngrams.items():
        listed[gram[:-1]] += count
    for context, total in totals.items():
        if total > listed[context]:
            ngrams[*context, FILLER] = total - listed[context]
    return store_of(tmp_path_factory.mktemp("golden") / "s.ngram", ngrams, VOCAB, range(2, 7))


def test_counts_and_totals_are_the_authors(golden_store):
    for check in GOLDEN["ngram_unit_checks"]:
        tokens = [candidate["token"] for candidate in check["candidates"]]
        known = golden_store.evidence([check["context_ids"]], tokens)
        for column, candidate in enumerate(check["candidates"]):
            for order, pair in enumerate(candidate["count_total_by_context_length_1to5"]):
                assert [known.counts[0, order, column], known.totals[0, order]] == (pair or [0, 0])
            probability = golden_store.probabilities(check["context_ids"], tokens)[column]
            assert probability == pytest.approx(candidate["ngram_prob"], rel=2e-7)


@pytest.mark.parametrize("setting", ["geom", "geom_T1"])
def test_per_step_ngram_probabilities_are_the_authors(golden_store, setting):
    rule = Geometric(golden_store)
    for case in GOLDEN["cases"]:
        drafts = [[], [], []]
        for step in case[setting]:
            contexts = [case["prefix_ids"] + draft for draft in drafts]
            g = rule.probabilities(contexts, step["cand"])
            np.testing.assert_allclose(g, step["ngram_p"], rtol=3e-7, atol=0)
            drafts = step["drafts"]


def test_geometric_scores_rank_drafts_as_the_authors_do(golden_store):
    rule, k, steps = Geometric(golden_store), 3, 0
    for case in GOLDEN["cases"]:
        drafts, total = [[]], [0.0]
        for step in case["geom_T1"]:
            logq = np.log(np.tile(step["cand_p"], (len(drafts), 1)))
            scores = rule.scores(logq, [case["prefix_ids"] + draft for draft in drafts], step["cand"])
            grown = sorted(
                (
                    (before + scores[row, column], [*drafts[row], token])
                    for row, before in enumerate(total)
                    for column, token in enumerate(step["cand"])
                ),
                key=lambda pair: -pair[0],
            )[:k]
            expected = [score if score is not None else -np.inf for score in step["lp"]]
            for (score, draft), theirs, their_score in zip(grown, step["drafts"], expected, strict=True):
                if np.isfinite(their_score):
                    assert draft == theirs
                    assert score == pytest.approx(their_score, abs=2e-4)
                else:
                    assert not np.isfinite(score)
            drafts, total, steps = step["drafts"], expected, steps + 1
    assert steps == 80


def test_geometric_forbids_the_unseen_and_penalises_a_draft_with_nothing_seen(tmp_path):
    store = store_of(tmp_path / "s.ngram", {(1, 2): 3, (1, 3): 1}, 16, range(2, 3))
    logq = np.log([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    scores = Geometric(store, alpha=0.5, weights={2: 0.4}, penalty=10).scores(logq, [[1], [9]], [2, 3, 4])
    np.testing.assert_allclose(scores[0], [0.5 * np.log(0.5 * 0.4 * 0.75), 0.5 * np.log(0.3 * 0.4 * 0.25), -np.inf])
    np.testing.assert_allclose(scores[1], 0.5 * logq[1] - 10)


# Ours


@pytest.fixture(scope="module")
def phrases(tmp_path_factory) -> NgramStore:
    documents = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 7], [2, 3, 9, 9, 1, 2, 3, 4]] * 3
    counts = Counter(tuple(ids[i : i + n]) for ids in documents for n in range(2, 5) for i in range(len(ids) - n + 1))
    return store_of(tmp_path_factory.mktemp("phrases") / "s.ngram", counts, 16, range(2, 5))


@given(
    st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=4),
    st.lists(st.floats(-8, 8), min_size=13, max_size=13),
    st.floats(0, 1),
    st.floats(0, 1),
)
@settings(max_examples=60)
def test_linear_gives_a_distribution_and_forbids_nothing(phrases, contexts, logits, alpha, floor):
    logq = np.array(logits) - np.log(np.exp(logits).sum())
    rule = Linear([Mixed(phrases, alpha, replace(PRUNED, floor=floor))])
    p = np.exp(rule.scores(np.tile(logq, (len(contexts), 1)), contexts, np.arange(13)))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    if alpha < 1:
        assert (p > 0).all()


@given(st.lists(st.floats(-30, 0), min_size=3, max_size=3))
def test_linear_changes_nothing_where_the_store_knows_nothing(phrases, logq):
    unknown = Linear(phrases).scores(np.array([logq]), [[11, 12, 13]], [1, 2, 3])
    np.testing.assert_allclose(unknown, [logq], rtol=1e-12, atol=1e-12)
    off = Linear(phrases, alpha=0).scores(np.array([logq]), [[1, 2, 3]], [1, 2, 4])
    np.testing.assert_allclose(off, [logq], rtol=1e-12, atol=1e-12)


def test_the_drafts_words_count_for_no_familiarity_however_many_drafts_there_are(phrases):
    logq, typed = np.log([[0.5, 0.5]]), [8, 11, 12]
    rule = Linear(phrases).after(typed)
    contexts = [[*typed, 1, 2, 3, 4, 5, 6, 1, 2, 3], [*typed, 9, 9, 9]]
    alone = [rule.scores(logq, [context], [4, 8]) for context in contexts]
    np.testing.assert_array_equal(np.concatenate(alone), rule.scores(np.tile(logq, (2, 1)), contexts, [4, 8]))
    assert alone[0][0, 0] < Linear(phrases).scores(logq, contexts[:1], [4, 8])[0, 0]


def test_arguments_out_of_range_are_refused(phrases):
    with pytest.raises(InputError, match="alpha"):
        Linear(phrases, 1.5)
    for wrong in ({"floor": -1}, {"shares": ()}, {"shares": (2,)}):
        with pytest.raises(InputError):
            replace(PRUNED, **wrong)
    with pytest.raises(InputError, match="alpha"):
        Geometric(phrases, alpha=-0.1)
    with pytest.raises(InputError, match="shape"):
        Linear(phrases).scores(np.zeros((2, 3)), [[1]], [1, 2, 3])
