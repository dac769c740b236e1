"""The drafter of repeated text: what it proposes, and that it proposes nothing of another text or of forgotten ones."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.options import speculation
from app.options.settings import DraftSettings
from core.autocomplete import Autocomplete
from core.models import costs
from core.models.base import path_to
from core.models.costs import CostCurve
from core.ngram.personal import PersonalStore
from core.ngram.shelf import Shelf
from core.noise import SeededNoise
from core.speculative import SuffixDrafter, TokenTree
from core.speculative.drafters import Moment
from core.speculative.drafters.suffix import HALF, LEAST
from tests.ngram_tools import WordTokenizer
from tests.table_model import TableModel


def paths(tree: TokenTree) -> dict[tuple[int, ...], float]:
    """Each path of a tree, with its confidence."""
    return {
        tuple(tree.ids[p] for p in path_to(node, tree.parents)): q for node, q in enumerate(tree.products().tolist())
    }


def test_a_longer_match_is_followed_further() -> None:
    depths = []
    for match in (2, 4, 8):
        tree = SuffixDrafter(most=400).draft(Moment([*range(400), 401, *range(match)]), 400)
        assert tree.ids == list(range(match, match + len(tree)))
        assert tree.confidence[0] == match / (match + HALF)
        depths.append(len(tree))
    assert depths[0] < depths[1] < depths[2] < 100


def test_branches_share_a_matchs_probability_by_their_counts() -> None:
    text = [1, 2, 7, 8, 1, 2, 9, 8, 1, 2, 7, 8, 1, 2, 7, 8, 5, 1, 2]  # 7 three times, 9 once
    tree = SuffixDrafter().draft(Moment(text), 1)
    assert tree.ids == [7, 9]
    assert tree.confidence == pytest.approx([2 / 3 * 3 / 4, 2 / 3 * 1 / 4])


def test_a_shorter_match_adds_what_else_followed_it() -> None:
    text = [5, 1, 2, 7, 6, 1, 2, 9, 0, 5, 1, 2]  # 5 1 2 then 7; 1 2 also 9
    found = paths(SuffixDrafter().draft(Moment(text), 1))
    assert found == pytest.approx({(7,): 3 / 7, (9,): 4 / 7 * 2 / 6})


class Follows:
    """A store that knows two continuations of everything."""

    def continuations(self, context, limit=None):
        return [((context[-1] + 1) % 6, 10), ((context[-1] + 2) % 6, 3)]


def test_a_store_goes_on_where_the_text_knows_nothing() -> None:
    tree = SuffixDrafter([Follows()], most=8).draft(Moment([3, 0, 4]), 4)  # type: ignore[list-item]
    assert {path for path in paths(tree) if len(path) == 1} == {(5,), (0,)}
    assert max(tree.depths) > 0
    after = SuffixDrafter([Follows()]).draft(Moment([1, 2, 5, 9, 0, 7]), 2)  # type: ignore[list-item]
    assert (2, 5) in paths(after)  # the text's own match goes on after a token that the store proposes, too


TEXT = st.lists(st.integers(0, 4), min_size=1, max_size=30)


@settings(max_examples=80, deadline=None)
@given(TEXT, st.integers(1, 6), st.one_of(st.none(), st.integers(0, 99)))
def test_a_tree_is_within_its_limits_and_from_the_text(text: list[int], depth: int, seed: int | None) -> None:
    tree = SuffixDrafter(most=8).draft(Moment(text, noise=None if seed is None else SeededNoise(seed)), depth)
    assert len(tree) <= 8
    assert all(level < depth for level in tree.depths)
    assert len(tree.indices()) == len(tree)  # children of one parent differ
    assert all(q >= LEAST for q in tree.products())
    assert tree.likelihood is not None
    children = tree.children()
    for values in (tree.confidence, tree.likelihood):
        assert all(sum(values[n] for n in nodes) <= 1 + 1e-9 for nodes in children.values())
    runs = set(pairwise(text))
    for path in tree.indices():
        assert tuple([*text, *path][-2:]) in runs  # the token before each, and it, were there before


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=4), TEXT)
def test_nothing_of_another_text_is_proposed(others: list[list[int]], text: list[int]) -> None:
    """Drafts that were not taken, and documents of others, leave no trace: the proposals are a new drafter's."""
    drafter = SuffixDrafter()
    for other in others:
        drafter.draft(Moment([*text, *other]), 4)
        drafter.draft(Moment(other), 4)
    assert drafter.draft(Moment(text), 4) == SuffixDrafter().draft(Moment(text), 4)


def test_the_known_noise_says_which_branch_is_sampled() -> None:
    """The first proposal is the sampled token far more often than the most frequent one is."""
    text, draws = [1, 2, 7, 1, 2, 7, 1, 2, 9, 1, 2, 9, 1, 2, 8, 1, 2], 300
    q = np.zeros(10)
    q[[7, 9, 8]] = 0.4, 0.4, 0.2
    hits = {True: 0, False: 0}
    for seed in range(draws):
        noise = SeededNoise(seed)
        drawn = noise.draw(q, len(text))
        for known in hits:
            tree = SuffixDrafter().draft(Moment(text, noise=noise if known else None), 1)
            hits[known] += tree.ids[0] == drawn
    assert hits[True] == draws
    assert hits[False] < draws / 2


# --- passages of personal stores

WORDS = WordTokenizer(60)


@pytest.fixture
def store(tmp_path: Path) -> PersonalStore:
    return PersonalStore.open(tmp_path / "me.sqlite", WORDS, create=True)


def numbers(*ids: int) -> str:
    return " ".join(map(str, ids))


def test_the_newest_passages_are_proposed(store: PersonalStore) -> None:
    store.learn(numbers(*range(20)))
    drafter = SuffixDrafter()
    drafter.read([store])
    assert drafter.draft(Moment([50, 3, 4, 5]), 3).ids == [6, 7, 8]
    store.learn(numbers(30, 31, 32))
    drafter.read([store])  # a passage is at the next reading what was committed before it
    store.refresh()
    drafter.read([store])
    assert drafter.draft(Moment([50, 30, 31]), 3).ids == [32]  # no token of another passage, and no break
    assert drafter.draft(Moment([50, 3, 4, 5]), 3).ids == [6, 7, 8]


def test_a_longer_match_comes_first_wherever_it_is(store: PersonalStore) -> None:
    store.learn(numbers(7, 1, 2, 3))
    drafter = SuffixDrafter()
    drafter.read([store])
    assert drafter.draft(Moment([9, 2, 5, 0, 7, 1, 2]), 1).ids == [3, 5]  # 7 1 2, then 2 alone
    assert drafter.draft(Moment([7, 1, 2, 5, 0, 7, 1, 2]), 1).ids == [5, 3]


def test_forgotten_text_is_not_proposed(store: PersonalStore) -> None:
    store.add("letter", [numbers(*range(20))])
    store.add("diary", [numbers(*range(20, 40))])
    drafter = SuffixDrafter()
    drafter.read([store])
    drafter.draft(Moment([5, 6]), 4)
    store.forget_phrase("8 9")
    store.forget_document("diary")
    store.refresh()
    drafter.read([store])
    assert drafter.draft(Moment([5, 6]), 4).ids == [7]
    assert drafter.draft(Moment([20, 21]), 4).ids == []
    assert not {8, 9, 25} & {*drafter._passages.ids}  # not even in memory
    drafter.read([])
    assert drafter.draft(Moment([5, 6]), 4).ids == []


def test_the_apps_drafter_reads_the_stores_that_are_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TableModel(20)
    monkeypatch.setattr(costs, "known", lambda *_: CostCurve((1, 48), (1.0, 1.5)))
    app = Autocomplete(model, shelf=Shelf(model.tokenizer, tmp_path))
    with PersonalStore.open(tmp_path / "me.sqlite", model.tokenizer, create=True) as me:
        me.add("letter", ["\nabcdefgh\ni\njklm"])  # letters are tokens

        def proposed(stores: list[str] | None = None, **settings: object) -> list[int]:
            wanted = {"mode": "sampled", "speculation": {"mode": "lossless", "drafter": "suffix"}}
            chosen = speculation.chosen_by(app, DraftSettings.model_validate({"sampling": wanted} | settings), stores)
            assert chosen is not None
            return chosen.by.drafter.draft(Moment([5, 6]), 2).ids

        assert proposed() == proposed(["me"]) == [7, 8]
        assert proposed([]) == proposed(ngrams=False) == proposed(personal_weight=0) == []
        me.switch(False)
        assert proposed() == []
        assert proposed(["me"]) == [7, 8]
        me.forget_phrase("i")
        assert proposed(["me"]) == [7]
        held = [drafter for drafter in speculation._learnt[app].drafters.values() if isinstance(drafter, SuffixDrafter)]
        assert all(8 not in drafter._passages.ids for drafter in held)
        names = [str(n) for n in range(speculation.READERS + 2)]
        for name in names:
            PersonalStore.open(tmp_path / f"{name}.sqlite", model.tokenizer, create=True).close()
        proposed(names)
        for name in names:
            proposed([name])
        assert [name[1] for name in speculation._learnt[app].drafters if len(name) > 1] == ["2", "3", "4"]
        assert {by.drafter for by in speculation._learnt[app].speculators.values()} <= {
            *speculation._learnt[app].drafters.values()
        }
