"""Superposed Decoding: the authors' outputs, the paper's bookkeeping, and the properties of distinct beginnings."""

from __future__ import annotations

import json
from unittest.mock import Mock, patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.drafting.candidates import top_indices
from core.drafting.drafts import Kept, Options
from core.drafting.driver import draft_all
from core.errors import InputError
from core.superposed import superpose, superpose_batch, superposed
from tests.paths import DATA
from tests.table_model import TableModel

GOLDEN = json.loads((DATA / "spd_plain.json").read_text())
# Of a score, a sum over 10 tokens: float32 sums in another order (oneDNN's) differ by up to 4e-4 from the authors';
# tests/core/models/test_native.py holds transformers' own layers to 2e-4.
TOLERANCE = 1e-3
PAPER = {"distinct": False, "forks": 0, "exact_steps": 0, "stop_ids": frozenset({GOLDEN["meta"]["eos_id"]})}


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: str(case["id"]))
def test_the_papers_method_gives_the_authors_drafts(torch_model, case):
    *_, last = superpose(torch_model, case["prefix_ids"], 3, 10, **PAPER)
    assert last.ids == case["drafts"]
    assert last.logprobs == pytest.approx(case["logprobs"], abs=TOLERANCE)
    finished = [([t for t in ids if t >= 0], p) for ids, p in case["finished"]]
    assert [draft.ids for draft in last.finished] == [ids for ids, _ in finished]
    assert [draft.logprob for draft in last.finished] == pytest.approx([p for _, p in finished], abs=TOLERANCE)


@pytest.fixture(scope="module")
def prefix(tiny_llama):
    return tiny_llama.tokenizer.encode("The quick brown fox jumps over the lazy")


def test_every_step_yields_k_drafts_one_token_longer(tiny_llama, prefix):
    for distinct in (True, False):
        for n, drafts in enumerate(superpose(tiny_llama, prefix, 4, 6, distinct=distinct, forks=0), start=1):
            assert drafts.step == n
            assert len(drafts.ids) <= 4
            assert all(len(draft.ids) == n or draft.ended for draft in drafts.drafts)
            assert drafts.logprobs == sorted(drafts.logprobs, reverse=True)
        assert drafts.done


def test_beginnings_are_distinct_and_lineages_stay(tiny_llama, prefix):
    steps = list(superpose(tiny_llama, prefix, 5, 5, forks=0))
    first = dict(zip(steps[0].lineages, steps[0].ids, strict=True))
    for drafts in steps:
        assert sorted(drafts.lineages) == [0, 1, 2, 3, 4]
        for lineage, ids in zip(drafts.lineages, drafts.ids, strict=True):
            assert ids[:1] == first[lineage]
    assert len({ids[0] for ids in steps[-1].ids}) == 5


def test_one_draft_superposed_is_greedy(tiny_llama, prefix):
    *_, superposed = superpose(tiny_llama, prefix, 1, 8, forks=0, exact_steps=0, stop_ids=frozenset())
    *_, exact = superpose(tiny_llama, prefix, 1, 8, forks=0, exact_steps=7, stop_ids=frozenset())
    assert superposed.ids == exact.ids


def test_a_superposed_step_is_one_row_whatever_k(tiny_llama, prefix):
    sequence = tiny_llama.open()
    for k in (1, 8):
        sequence.sync(prefix)
        before = tiny_llama.tokens_fed
        list(superpose(tiny_llama, prefix, k, 10, sequence=sequence, forks=0, exact_steps=0, stop_ids=frozenset()))
        assert tiny_llama.tokens_fed - before == 9
    sequence.close()


def test_a_batch_gives_what_each_prefix_gives_alone(torch_model):
    prefixes = [case["prefix_ids"] for case in GOLDEN["cases"][:2]] + [GOLDEN["cases"][0]["prefix_ids"][:6]]
    alone = [list(superpose(torch_model, p, 3, 5))[-1] for p in prefixes]
    *_, together = superpose_batch(torch_model, prefixes, 3, 5)
    for a, b in zip(alone, together, strict=True):
        assert a.ids == b.ids
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-3)


def test_a_stop_token_ends_a_lineage_and_the_others_go_on(tiny_llama, prefix):
    *_, free = superpose(tiny_llama, prefix, 3, 6, forks=0, stop_ids=frozenset())
    stop = free.ids[0][2]
    *_, last = superpose(tiny_llama, prefix, 3, 6, forks=0, stop_ids=frozenset({stop}))
    assert any(draft.ended and draft.ids[-1] == stop for draft in last.drafts)
    assert all(draft.ids.count(stop) == (1 if draft.ended else 0) for draft in last.drafts)


@settings(max_examples=80, deadline=None)
@given(
    k=st.integers(1, 4),
    length=st.integers(1, 14),
    every=st.integers(1, 6),
    forks=st.integers(0, 4),
    exact=st.integers(0, 5),
    distinct=st.booleans(),
    seed=st.integers(0, 50),
)
def test_a_text_of_n_tokens_has_a_reset_after_every_s(k, length, every, forks, exact, distinct, seed):
    draws = Mock(wraps=np.random.default_rng(seed))
    options = {"forks": forks, "exact_steps": exact, "distinct": distinct, "candidates": 6, "seed": seed}
    with patch("core.superposed.np.random.default_rng", lambda _: draws):
        steps = list(superpose(TableModel(seed=seed), [1, 2], k, length, reset_every=every, **options))
    resets = (length - 1) // every
    assert draws.choice.call_count == resets
    texts = steps[-1].ids
    assert all(len(ids) == length for ids in texts)
    assert len({tuple(ids[: resets * every]) for ids in texts}) == 1


@pytest.mark.parametrize("every", [1, 3])
def test_no_reset_replaces_a_kept_row(every):
    made, kept = Options(k=3, length=9, reset_every=every, forks=0), [Kept(1, [0, 3, 1, 4, 2])]
    model = TableModel(seed=3)
    *_, last = draft_all(model, [[1, 2]], lambda s, ids: lambda logits: superposed(logits, s, ids, made, kept=kept))
    rows = {draft.slot: draft.ids for draft in last[0].drafts}
    assert rows[1] == kept[0].ids
    assert all(len(ids) == every for row, ids in rows.items() if row != 1)


def test_finished_drafts_keep_their_text_when_a_reset_settles_on_another():
    options = {"distinct": False, "forks": 0, "exact_steps": 9, "candidates": 6, "reset_every": 2}
    for seed in range(20):
        model = TableModel(seed=seed)
        *_, last = superpose(model, [1, 2], 3, 6, stop_ids=frozenset({5}), seed=seed, **options)
        for draft in last.finished:
            p = [model.after([1, 2, *draft.ids[:n]]).log_softmax(0)[token] for n, token in enumerate(draft.ids)]
            assert draft.logprob == pytest.approx(float(sum(p)), abs=1e-4)


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"length": 0}, {"tau": 0.0}, {"candidates": 2}, {"exact_steps": -1}, {"mixing": "quadratic"}]
)
def test_values_out_of_range_are_named(tiny_llama, prefix, wrong):
    with pytest.raises(InputError, match=str(next(iter(wrong.values())))):
        list(superpose(tiny_llama, prefix, **{"k": 3, "length": 3, **wrong}))


def test_an_empty_prefix_is_refused(tiny_llama):
    with pytest.raises(InputError, match="empty prefix"):
        next(superpose(tiny_llama, []))


@settings(max_examples=200)
@given(st.integers(1, 3000), st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 0.999]))
def test_thelikeliest_are_those_of_a_full_sort(size, m, seed, cropped):
    random = np.random.default_rng(seed)
    x = random.integers(-50, 50, size).astype(np.float32)  # with many equals
    x[random.random(size) < cropped] = -np.inf
    assert top_indices(x, m).tolist() == np.argsort(-x, kind="stable")[:m].tolist()
