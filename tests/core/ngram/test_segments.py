"""Stores of several segments: the same answers as with one, bytes that do not depend on how they were made, damage."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.ngram import NgramStore, StoreError, checked, store
from core.ngram.container import Container, write_container
from tests.ngram_tools import segments_of, store_of

VERSION_1 = Path(__file__).parents[2] / "data" / "version-1.ngram"
Gram = tuple[int, ...]


def random_grams(rng: random.Random, number: int, vocab: int, longest: int = 4) -> dict[Gram, int]:
    def token() -> int:
        return min(int(rng.expovariate(0.4)), vocab - 1)  # a few tokens begin most n-grams

    return {tuple(token() for _ in range(rng.randint(2, longest))): rng.randint(1, 600) for _ in range(number)}


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 30), st.integers(1, 30), st.integers(1, 2))
def test_a_divided_store_answers_as_a_whole_one(tmp_path, seed, most, lowest):
    rng = random.Random(seed)
    grams = random_grams(rng, 60, 12)
    orders = range(lowest, 5)
    whole = store_of(tmp_path / "whole.ngram", grams, 12, orders)
    with segments_of(most):
        divided = store_of(tmp_path / "divided.ngram", grams, 12, orders)
    listed = divided.manifest["segments"]
    assert len(listed) >= (len(divided) - 1) / most
    assert max(segment["entries"] for segment in listed) <= most + 1  # the empty n-gram comes on top
    assert sorted(divided.ngrams()) == sorted(whole.ngrams())
    contexts = [list(gram) for gram in grams] + [[rng.randrange(12) for _ in range(3)] for _ in range(20)]
    for candidates in (list(range(12)), [list(range(12))] * len(contexts)):
        for name in ("counts", "totals", "seen"):
            arrays = [getattr(s.evidence(contexts, candidates), name) for s in (whole, divided)]
            np.testing.assert_array_equal(*arrays)
    for context in [[], *contexts, *([token] for token in range(12))]:
        for read in (NgramStore.count, NgramStore.total, NgramStore.continuations):
            assert read(divided, context) == read(whole, context)
        for quick in (3, 128):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store, "QUICK", quick)
                divided.forget_looked_up(), whole.forget_looked_up()
                assert divided.quick_continuations(context, 3) == whole.quick_continuations(context, 3)


def test_segments_begin_at_short_n_grams(tmp_path):
    """So that most contexts have all their continuations in one segment."""
    grams = {(a, b, c): 1 for a in range(6) for b in range(6) for c in range(6)}
    with segments_of(50):
        store = store_of(tmp_path / "s.ngram", grams, 6, range(2, 4))
    firsts = [segment["first"] for segment in store.manifest["segments"]]
    assert firsts == [[], [1], [2], [3], [4], [5]]


def test_version_1_is_read(tmp_path):
    """The file was written before stores had segments."""
    rng = random.Random(3)
    grams = {tuple(rng.choices(range(1, 30), k=rng.randint(2, 4))): rng.randint(1, 600) for _ in range(60)}
    old, new = NgramStore.open(VERSION_1, verify=True), store_of(tmp_path / "new.ngram", grams, 40, range(2, 5))
    assert (Container(VERSION_1).version, Container(new.path).version) == (1, 2)
    assert sorted(old.ngrams()) == sorted(new.ngrams())
    assert all(old.count(gram) == count for gram, count in grams.items())


@pytest.fixture
def divided(tmp_path) -> NgramStore:
    with segments_of(30):
        return store_of(tmp_path / "s.ngram", random_grams(random.Random(1), 200, 30), 40, range(2, 5))


def test_segments_that_contradict_each_other_are_refused(divided, tmp_path):
    container = Container(divided.path)
    manifest = {k: v for k, v in container.manifest.items() if k != "sections"}
    listed, sections = manifest["segments"], container.stored()
    assert len(listed) > 3
    fewer = [*listed[:1], listed[1] | {"entries": listed[1]["entries"] - 1}, *listed[2:]]
    for segments in ([], listed[::-1], listed[1:], fewer, [*listed[:2], *listed[1:]], [{}], [1]):
        total = sum(segment["entries"] for segment in segments if segment in listed or segment in fewer)
        write_container(tmp_path / "odd.ngram", manifest | {"segments": segments, "entries": total}, sections)
        with pytest.raises(StoreError, match="damaged"):
            NgramStore.open(tmp_path / "odd.ngram")
    swapped = sections | {"trie.1": sections["trie.2"], "trie.2": sections["trie.1"]}
    write_container(tmp_path / "odd.ngram", manifest, swapped)
    with suppress(StoreError):  # other numbers, if as many
        list(NgramStore.open(tmp_path / "odd.ngram").ngrams())


def test_a_damaged_segment_is_found(divided, tmp_path):
    container = Container(divided.path)
    manifest = {k: v for k, v in container.manifest.items() if k != "sections"}
    trie = bytearray(container.section("trie.2"))
    trie[40:60] = bytes(range(20))
    write_container(tmp_path / "odd.ngram", manifest, container.stored() | {"trie.2": bytes(trie)})
    with pytest.raises(StoreError, match="its trie cannot be read"):
        NgramStore.open(tmp_path / "odd.ngram")
    data = bytearray(divided.path.read_bytes())
    data[container.stored()["codes.3"].offset] ^= 1
    divided.path.write_bytes(data)
    with pytest.raises(StoreError, match=r"section .* does not match its checksum"):
        NgramStore.open(divided.path, verify=True)


def test_a_store_that_was_written_here_is_not_checked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(checked, "LARGE", 1)
    with segments_of(30):
        store_of(tmp_path / "s.ngram", random_grams(random.Random(1), 200, 30), 40, range(2, 5))
    seen: list[int] = []
    monkeypatch.setattr(checked, "check_trie", lambda trie, longest: seen.append(longest))
    NgramStore.open(tmp_path / "s.ngram")
    assert seen == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    NgramStore.open(tmp_path / "s.ngram")
    assert len(seen) > 3
