"""Proposals are those of the plain rule: list what follows the ends of each context, score it, keep the best."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ngram import NgramStore
from core.ngram import store as store_module
from core.ngram.counts import Counts
from core.ngram.interpolation import PROPOSALS, PRUNED, WHOLE, Linear, Mixed, Store
from core.ngram.personal import PersonalStore
from tests.ngram_tools import WordTokenizer, brute_force, store_of

V, QUICK = 9, 6
ORDERS = range(2, 7)
TOKENS = st.integers(0, V - 1)
TEXTS = st.lists(TOKENS, min_size=1, max_size=9)


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> list[NgramStore]:
    """Stores of random text, one of them without its rare n-grams."""
    stores: list[NgramStore] = []
    for seed, least in ((0, 1), (1, 2)):
        random = np.random.default_rng(seed)
        # Skewed, so that some contexts have many continuations and others few.
        texts = [(random.random(60) ** 2 * V).astype(int).tolist() for _ in range(4)]
        kept, _ = brute_force(texts, ORDERS, dict.fromkeys(ORDERS, least))
        folder = tmp_path_factory.mktemp("stores")
        stores.append(store_of(folder / f"{seed}.ngram", kept, V, ORDERS))
    return stores


@pytest.fixture(scope="module")
def of_pruned(pruned: list[NgramStore]) -> dict[int, dict[tuple[int, ...], list[int]]]:
    """By the id of each store, which does not change."""
    return {id(store): following(store) for store in pruned}


@pytest.fixture(autouse=True, scope="module")
def few_are_quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "QUICK", QUICK)
        yield


def following(store: Store) -> dict[tuple[int, ...], list[int]]:
    """The most frequent tokens after each context, out of all of the store's n-grams."""
    assert isinstance(store, NgramStore | Counts)
    counted, below = defaultdict[tuple[int, ...], Counter[int]](Counter), Counter[tuple[int, ...]]()
    for gram, count, _ in store.ngrams():
        below.update(gram[:at] for at in range(1, len(gram) + 1))
        if count:
            counted[gram[:-1]][gram[-1]] = count
    few = [context for context in counted if isinstance(store, Counts) or below[context] <= QUICK]
    ranked = {context: sorted(counted[context], key=lambda x, c=context: (-counted[c][x], x)) for context in few}
    return {context: tokens[:PROPOSALS] for context, tokens in ranked.items()}


def listed(mixed: list[Mixed], follow: list[dict[tuple[int, ...], list[int]]], context: list[int]) -> list[int]:
    """The tokens that the stores list after a context: after its longest known end first."""
    found: dict[int, None] = {}
    for one, after in zip(mixed, follow, strict=True) if len(context) > 1 else ():
        of_store: dict[int, None] = {}
        for n in reversed(one.store.orders) if one.alpha else ():
            if len(of_store) < PROPOSALS and 2 < n <= len(context) + 1:
                of_store |= dict.fromkeys(after.get(tuple(context[1 - n :]), []))
        found |= of_store
    return list(found)


@given(data=st.data())
@settings(max_examples=120)
def test_proposals_are_those_of_the_plain_rule(
    pruned: list[NgramStore], of_pruned: dict[int, dict[tuple[int, ...], list[int]]], data: st.DataObject
) -> None:
    draw = data.draw
    own = Counts.of(V, [(ids, 1) for ids in draw(st.lists(TEXTS, max_size=4))])
    for passage in draw(st.lists(TEXTS, max_size=2)):
        own.add(passage)
    choice = [
        Mixed(pruned[0], 0.6),
        Mixed(pruned[1], draw(st.sampled_from([0.0, 0.3, 1.0])), PRUNED),
        Mixed(own, 0.9, WHOLE, personal=True),
    ]
    mixed = draw(st.lists(st.sampled_from(choice), min_size=1, max_size=3, unique_by=id))
    contexts = draw(st.lists(st.lists(TOKENS, max_size=7), min_size=1, max_size=4))
    known = draw(st.sets(TOKENS, max_size=4))
    text = draw(st.none() | st.lists(TOKENS, max_size=12))
    offsets = None
    if draw(st.booleans()):
        shift = st.floats(-6, 6)
        offsets = [np.array(draw(st.lists(shift, min_size=5, max_size=5))) for _ in mixed]
    rule = Linear(mixed)
    rule = rule if text is None else rule.after(text)
    rule = rule if offsets is None else rule.earned(offsets)

    follow = [following(own) if one.store is own else of_pruned[id(one.store)] for one in mixed]
    tokens = [[token for token in listed(mixed, follow, context) if token not in known] for context in contexts]
    some = [n for n, each in enumerate(tokens) if each]
    given = [dict[int, float]() for _ in contexts]
    if some:
        nothing, every = np.full((len(some), V), -np.inf), [range(V)] * len(some)
        p = np.exp(rule.scores(nothing, [contexts[n] for n in some], every))
        for n, row in zip(some, p.tolist(), strict=True):
            given[n] = {token: row[token] for token in tokens[n]}
    # Any bound, or just what some token is given.
    least = [draw(st.floats(0, 1) | st.sampled_from([0.0, 1e-3, *of_each.values()])) for of_each in given]
    wanted = [
        sorted((t for t, p in of_each.items() if p >= bound), key=lambda t, p=of_each: (-p[t], t))[:PROPOSALS]
        for of_each, bound in zip(given, least, strict=True)
    ]
    assert rule.proposals(contexts, least, known) == wanted
    assert rule.proposals(contexts, least, known) == wanted  # and again, with what is remembered


def test_what_is_remembered_of_a_store_ends_with_its_next_change(tmp_path: Path) -> None:
    words: Any = WordTokenizer(V)
    store = PersonalStore.open(tmp_path / "me.sqlite", words, create=True)
    other = PersonalStore.open(tmp_path / "me.sqlite", words)  # as another process would
    rule = Linear([Mixed(store, 0.9, WHOLE, personal=True)])

    def proposed() -> list[int]:
        store.refresh()
        return rule.proposals([[1, 2]], [0.0])[0]

    assert proposed() == []
    store.add("first", ["1 2 3"])
    assert proposed() == proposed() == [3]
    other.add("second", ["1 2 4 1 2 4"])
    assert proposed() == proposed() == [4, 3]
    store.forget_document("second")
    assert proposed() == [3]
    other.forget_phrase("2 3")
    assert proposed() == []
