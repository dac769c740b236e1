"""Forks: the k paths with the highest expected match, rows that keep their places, and the nodes that passes expand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import TableModel

from core.drafting.drafts import Kept, Options
from core.drafting.driver import Driven
from core.drafting.forks import Continuations, Node, branch_probabilities, choose
from core.drafting.rows import make_forked_drafts
from core.superposed import superpose, superposed

LETTERS = [bytes([97 + i]) for i in range(26)]
NEVER = frozenset[int]()


@st.composite
def trees(draw) -> Continuations:
    """Trees of a few nodes with probabilities that a node's children share."""
    width = draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def shares() -> np.ndarray:
        return np.log(random.dirichlet(np.full(width + 1, 0.5))[:width])

    tree = Continuations([([i], s, s) for i, s in enumerate(shares().tolist())], LETTERS, NEVER)
    for _ in range(draw(st.integers(0, 4))):
        for node in tree.unexpanded(9, draw(st.integers(1, 2))):
            scores = shares()
            tree.expand(node, np.arange(width), scores, scores)
    return tree


def covered(leaves: tuple[Node, ...]) -> float:
    """Σ P(node) · length(node) over the union of the paths."""
    return sum(node.worth for node in {node for leaf in leaves for node in leaf.path})


@settings(max_examples=120)
@given(trees(), st.integers(1, 5))
def test_the_chosen_paths_cover_as_much_as_any_others(tree, k):
    leaves = tree.leaves()
    best = max(covered(some) for some in itertools.combinations(leaves, min(k, len(leaves))))
    assert covered(tuple(choose(leaves, k))) == pytest.approx(best)


@settings(max_examples=50)
@given(trees(), st.integers(1, 5), st.data())
def test_beside_kept_rows_the_choice_adds_as_much_as_any_other(tree, k, data):
    leaves = tree.leaves()
    kept = data.draw(st.lists(st.sampled_from(leaves), unique=True, max_size=2))
    left = [leaf for leaf in leaves if leaf not in kept]
    best = max(covered((*kept, *some)) for some in itertools.combinations(left, min(k, len(left))))
    chosen = choose(leaves, k, [leaf.row for leaf in kept])
    assert not set(chosen) & set(kept)
    assert covered((*kept, *chosen)) == pytest.approx(best)


@settings(max_examples=100)
@given(trees(), st.integers(2, 5))
def test_branches_are_disjoint_events(tree, k):
    chosen = choose(tree.leaves(), k)
    found = branch_probabilities(tree.nodes(), [leaf.row for leaf in chosen])
    assert all(0 < p <= 1 for p in found)
    assert sum(found) <= 1 + 1e-9


def test_drafts_branch_where_a_word_differs_although_it_begins_alike():
    """The drafts "a story" and "an essay" branch at "a" and "an", not after the letter with which both begin."""
    pieces = [b"ing", b" a", b" an", b" story", b" essay"]
    tree = Continuations([([0], math.log(0.5), math.log(0.5))], pieces, NEVER)

    def expand(node: Node, next_tokens: dict[int, float]) -> list[Node]:
        scores = np.log(list(next_tokens.values()))
        tree.expand(node, np.array(list(next_tokens)), scores, scores)
        return node.children

    a, an = expand(tree.roots[0], {1: 0.4, 2: 0.2})
    expand(a, {3: 0.1})
    expand(an, {4: 0.3})
    drafts = make_forked_drafts(tree, Options(k=2), [])
    found = {tree.row(draft.ids).text: draft.p_branch for draft in drafts}
    assert found == {b"ing a story": pytest.approx(0.2), b"ing an essay": pytest.approx(0.1)}


def test_no_row_is_spent_on_what_hardly_ever_comes():
    found = [([token], math.log(p), math.log(p)) for token, p in enumerate((0.9, 0.05, 0.001))]
    tree = Continuations(found, LETTERS, NEVER)
    assert [leaf.ids for leaf in choose(tree.leaves(), 3, least=0.01)] == [[0], [1]]
    only = Continuations(found[2:], LETTERS, NEVER)
    assert [leaf.ids for leaf in choose(only.leaves(), 3, least=0.01)] == [[2]]  # there is nothing else


def exact(model: TableModel, prefix: list[int], ids: list[int]) -> float:
    """P of a continuation by plain passes."""
    total = 0.0
    for n, token in enumerate(ids):
        total += float(model.after(prefix + ids[:n]).log_softmax(0)[token])
    return math.exp(total)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 4))
def test_branches_are_the_models_probabilities(seed, forks, k):
    model, prefix = TableModel(seed=seed), [1, 2]
    options = {"forks": forks, "exact_steps": 9, "candidates": 6, "stop_ids": NEVER}
    *_, last = superpose(model, prefix, k, 6, **options)
    stems = [ids[: exact - 9 if exact > 9 else exact] for ids, exact in zip(last.ids, last.exact, strict=True)]
    for i, ids in enumerate(last.ids):
        others = [other for j, other in enumerate(last.ids) if j != i]
        shared = max((_common(ids, other) for other in others), default=0)
        assert last.drafts[i].p_branch == pytest.approx(exact(model, prefix, ids[: shared + 1]), rel=1e-4)
    assert len({tuple(ids) for ids in last.ids}) == len(stems)


def _common(a: list[int], b: list[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def run(model, prefix, options, kept=()):
    """Every state of the drafts of a prefix."""
    sequence = model.open()
    drafting = Driven(superposed([sequence.sync(prefix)], sequence, prefix, options, kept=kept))
    states = [drafting.latest]
    while not drafting.done:
        states.append(drafting.advance(model.forward(drafting.rows())))
    assert sequence.inputs == prefix
    sequence.close()
    return states


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 5), st.integers(0, 5), st.integers(0, 3))
def test_a_row_is_replaced_once_at_most_and_then_grows(seed, k, forks, exact_steps):
    model, prefix = TableModel(seed=seed), [1, 2]
    options = Options(k=k, length=6, forks=forks, exact_steps=exact_steps, candidates=6, stop_ids=NEVER)
    states = run(model, prefix, options)
    for before, after in itertools.pairwise(states):
        assert after.settled or not before.settled
        for row, ids in zip(before.lineages, before.ids, strict=True):
            now = dict(zip(after.lineages, after.ids, strict=True)).get(row)
            if before.settled or not after.settled:
                assert now is not None and now[: len(ids)] == ids
    first, last = states[0], states[-1]
    grown = dict(zip(last.lineages, last.ids, strict=True))
    for row, ids in zip(first.lineages, first.ids, strict=True):  # a beginning that stays, stays in its row
        if row and any(other[: len(ids)] == ids for other in last.ids) and last.ids[0][: len(ids)] != ids:
            assert grown[row][: len(ids)] == ids
    assert all(len(ids) == 6 for ids in last.ids)


@settings(max_examples=15)
@given(st.integers(0, 1000), st.data())
def test_kept_rows_keep_their_places_and_the_others_are_filled(seed, data):
    model, prefix = TableModel(seed=seed), [1, 2]
    options = Options(k=3, length=6, forks=3, candidates=6, stop_ids=NEVER)
    earlier = run(model, prefix, options)[-1]
    rows = data.draw(st.lists(st.sampled_from(sorted(earlier.lineages)), unique=True, min_size=1, max_size=2))
    kept = [Kept(row, ids) for row, ids in zip(earlier.lineages, earlier.ids, strict=True) if row in rows]
    for state in run(model, prefix, options, kept):
        found = dict(zip(state.lineages, state.ids, strict=True))
        gone = [row for row in kept if row.slot in found and found[row.slot] != row.ids]
        assert state.settled or not gone
    assert sorted(found) == [0, 1, 2]
    for row in gone:  # it gave way to a draft that is worth more
        first = next(n for n, (a, b) in enumerate(zip(row.ids, found[row.slot], strict=True)) if a != b)
        assert exact(model, prefix, found[row.slot][: first + 1]) > exact(model, prefix, row.ids[: first + 1])
    assert len({tuple(ids) for ids in found.values()}) == 3


def test_only_what_is_missing_is_computed():
    model, prefix = TableModel(seed=3), [1, 2]
    options = Options(k=3, length=6, forks=3, candidates=6, stop_ids=NEVER)
    earlier = run(model, prefix, options)[-1]
    every = [Kept(row, ids) for row, ids in zip(earlier.lineages, earlier.ids, strict=True)]
    before = model.tokens_fed
    (only,) = run(model, prefix, options, every)
    assert only.done
    assert model.tokens_fed - before == len(prefix)
    short = [Kept(every[0].slot, every[0].ids[:2], grows=True), *every[1:]]
    *_, last = run(model, prefix, options, short)
    assert dict(zip(last.lineages, map(len, last.ids), strict=True)) == {row.slot: 6 for row in every}


def test_an_improbable_kept_row_is_replaced():
    model, prefix = TableModel(seed=3, spread=4), [1, 2]
    unlikely = int(model.after(prefix).argmin())
    options = Options(k=3, length=6, forks=3, candidates=6, stop_ids=NEVER, min_branch=0.01)
    *_, last = run(model, prefix, options, [Kept(0, [unlikely, 1, 1]), Kept(1, [int(model.after(prefix).argmax()), 0])])
    assert all(ids[0] != unlikely for ids in last.ids)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 50),
    forks=st.integers(1, 3),
    exact_steps=st.integers(0, 2),
    end_below=st.sampled_from([0.0, 0.3]),
    min_branch=st.sampled_from([0.0, 0.05]),
)
def test_the_best_draft_is_the_same_for_any_k(seed, forks, exact_steps, end_below, min_branch):
    model = TableModel(seed=seed)
    chosen = {"exact_steps": exact_steps, "end_below": end_below, "min_branch": min_branch}
    best = []
    for k in (1, 2, 3, 5):
        *_, found = superpose(model, [1, 2], k, 6, forks=forks, stop_ids=NEVER, **chosen)
        best.append(found.ids[0])
    assert best == [best[0]] * 4


def test_a_draft_ends_before_an_unlikely_word_and_not_inside_one():
    model, prefix = TableModel(seed=1), [1, 2]
    model.tokenizer.pieces = [b" a", b"b", b" c", b"d", b" e", b"f"]
    *_, whole = superpose(model, prefix, 3, 8, exact_steps=7, stop_ids=NEVER)
    *_, ended = superpose(model, prefix, 3, 8, exact_steps=7, stop_ids=NEVER, end_below=0.5)
    shorter = 0
    for draft in ended.drafts:
        ids, full = draft.ids, dict(zip(whole.lineages, whole.ids, strict=True))[draft.slot]
        assert full[: len(ids)] == ids
        for n in range(draft.stem, len(full)):
            p = float(model.after(prefix + full[:n]).softmax(0)[full[n]])
            if p < 0.5 and model.tokenizer.pieces[full[n]].startswith(b" "):
                assert len(ids) == n
                shorter += 1
                break
        else:
            assert len(ids) == 8
    assert shorter
