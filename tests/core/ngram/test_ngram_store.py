"""The store against counting by brute force, and against damage."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ngram_builder
from core.errors import InputError
from core.ngram import NgramStore, StoreError
from core.ngram.container import Container, write_container
from core.ngram.keys import RankCode
from core.ngram.records import Records, pack_records
from ngram_builder import readers
from tests.ngram_tools import WordTokenizer, brute_force, store_of, tiny_runs

TOKENIZER = WordTokenizer()

token_lists = st.lists(st.lists(st.integers(0, 5), max_size=20), min_size=1, max_size=8).filter(any)
order_ranges = st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda t: range(min(t), max(t) + 1))


def build(folder: Path, documents: list[list[int]], **options) -> NgramStore:
    source = folder / "source.jsonl"
    source.write_text("".join(json.dumps({"text": " ".join(map(str, ids))}) + "\n" for ids in documents))
    tokenizer = options.pop("tokenizer", TOKENIZER)
    ngram_builder.build([source], folder / "s.ngram", tokenizer, workers=1, **options)
    return NgramStore.open(folder / "s.ngram", fingerprint=tokenizer.fingerprint, verify=True)


def check_against_brute_force(store: NgramStore, documents, orders, min_count) -> None:
    kept, totals = brute_force(documents, orders, min_count)
    found = {gram: (n, total) for gram, n, total in store.ngrams()}
    for gram, n in kept.items():
        assert found[gram][0] == n == store.count(gram)
    for gram, total in totals.items():
        assert found[gram][1] == total == store.total(gram)
    for gram, (n, total) in found.items():
        if len(gram) in orders and len(gram) > 1:
            assert kept.get(gram, 0) == n
        assert totals.get(gram, 0) == total


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token_lists, order_ranges, st.lists(st.integers(1, 3), min_size=8, max_size=8), st.booleans())
def test_every_order_is_counted_as_by_brute_force(tmp_path, documents, orders, minima, exact):
    min_count = {n: minima[n - 1] for n in orders}
    store = build(tmp_path, documents, orders=orders, min_count=min_count, exact=exact)
    check_against_brute_force(store, documents, orders, min_count)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token_lists, st.integers(1, 9))
@example([[0, 1, 2, 3, 4, 5] * 5, [5, 0] * 9], 1).via("more runs than are read at once")
def test_many_small_runs_merge_to_the_same_bytes(tmp_path, documents, least):
    whole = build(tmp_path, documents, min_count=1).path.read_bytes()
    with tiny_runs(least):
        assert build(tmp_path, documents, min_count=1).path.read_bytes() == whole


READS = {
    "count": lambda store: store.count([1, 2]),
    "total": lambda store: store.total([1]),
    "evidence": lambda store: store.evidence([[1]], [2]).counts.tolist(),
    "probabilities": lambda store: store.probabilities([1], [2, 3], {2: 1.0}).tolist(),
    "continuations": lambda store: store.continuations([1]),
    "quick continuations": lambda store: store.quick_continuations([1], 5),
    "all": lambda store: sorted(store.ngrams()),
}


@pytest.mark.parametrize("way", ["moved", "written", "copied over", "cut short", "emptied", "removed"])
def test_a_file_replaced_under_an_open_reader_is_read_on_or_said_to_be_replaced(tmp_path, way):
    """Never is a number of one file read as one of the other."""
    path, other = tmp_path / "s.ngram", tmp_path / "other.ngram"
    store_of(path, {(1, 2): 3, (1, 3): 4}, 8, range(2, 3))
    expected = {name: read(NgramStore.open(path)) for name, read in READS.items()}
    store_of(other, {(n, m): 7 * n + m + 1 for n in range(8) for m in range(8)}, 8, range(2, 3))
    opened = {name: NgramStore.open(path) for name in READS}
    match way:
        case "moved":
            other.replace(path)
        case "written":
            store_of(path, {(1, 2): 9}, 8, range(2, 3))
        case "copied over":
            path.write_bytes(other.read_bytes())
        case "cut short":
            os.truncate(path, 100)
        case "emptied":
            path.write_bytes(b"")
        case _:
            path.unlink()
    if way in ("moved", "written", "removed"):
        assert {name: read(opened[name]) for name, read in READS.items()} == expected
        return
    for name, read in READS.items():
        with pytest.raises(StoreError, match="was overwritten while it is in use; restart"):
            read(opened[name])


def test_files_order_of_documents_and_threads_do_not_change_the_store(tmp_path):
    rng = random.Random(1)
    documents = [[rng.randrange(9) for _ in range(rng.randrange(1, 40))] for _ in range(60)]
    stores = []
    for folder, files, workers in (("a", 1, 1), ("b", 7, 3)):
        rng.shuffle(documents)
        (tmp_path / folder / "text").mkdir(parents=True)
        for i in range(files):
            lines = [json.dumps({"text": " ".join(map(str, ids))}) + "\n" for ids in documents[i::files]]
            (tmp_path / folder / "text" / f"{i}.jsonl").write_text("".join(lines))
        out = tmp_path / folder / "s.ngram"
        ngram_builder.build([tmp_path / folder / "text"], out, TOKENIZER, workers=workers)
        stores.append(NgramStore.open(out))
    parts = [{name: bytes(s._container.section(name)) for name in s._container.sizes} for s in stores]
    assert parts[0] == parts[1]


@pytest.mark.parametrize("vocab_size", [300, 65536, 2_000_000])
def test_large_vocabularies_and_order_8(tmp_path, vocab_size):
    rng = random.Random(vocab_size)
    tokens = [0, vocab_size - 1, *(rng.randrange(vocab_size) for _ in range(4))]
    documents = [[rng.choice(tokens) for _ in range(30)] for _ in range(8)]
    tokenizer = WordTokenizer(vocab_size)
    store = build(tmp_path, documents, tokenizer=tokenizer, orders=range(2, 9), min_count=1)
    check_against_brute_force(store, documents, range(2, 9), dict.fromkeys(range(2, 9), 1))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    token_lists,
    order_ranges,
    st.lists(st.integers(1, 3), min_size=8, max_size=8),
    st.lists(st.lists(st.integers(0, 7), max_size=9), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_probabilities_are_equation_5(tmp_path, documents, orders, minima, contexts, rng):
    min_count = {n: minima[n - 1] for n in orders}
    store = build(tmp_path, documents, orders=orders, min_count=min_count)
    kept, totals = brute_force(documents, orders, min_count)
    weights = {n: rng.random() for n in orders if rng.random() < 0.8}
    candidates = [rng.randrange(8) for _ in range(5)]
    expected = np.zeros((len(contexts), 5))
    for row, context in enumerate(contexts):
        for column, token in enumerate(candidates):
            for n, weight in weights.items():
                ending = tuple(context[len(context) - n + 1 :])
                if len(ending) == n - 1 and ending in totals:
                    expected[row, column] += weight * kept.get((*ending, token), 0) / totals[ending]
    got = store.probabilities_batch(contexts, candidates, weights)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    each = [candidates[::-1]] * len(contexts)  # (d, m) candidates, in another order
    np.testing.assert_allclose(store.probabilities_batch(contexts, each, weights), expected[:, ::-1], rtol=1e-12)
    for context, row in zip(contexts, expected, strict=True):
        np.testing.assert_allclose(store.probabilities(context, candidates, weights), row, rtol=1e-12)


def test_evidence_includes_how_much_of_a_context_was_kept(tmp_path):
    # "1" goes on with 2 three times, and once each with 3 and 4, which are pruned
    store = build(tmp_path, [[1, 2]] * 3 + [[1, 3], [1, 4]], min_count=2)
    known = store.evidence([[9, 1], [2]], [2, 3, 99])
    assert known.orders == (2, 3, 4, 5, 6)
    assert known.counts[0, 0].tolist() == [3, 0, 0]
    assert known.totals[:, 0].tolist() == [3, 0]
    assert known.seen[:, 0].tolist() == [5, 3]
    assert known.fractions()[0, 0].tolist() == [1, 0, 0]


def test_look_ups_that_make_no_sense_are_refused(tmp_path):
    store = build(tmp_path, [[1, 2, 3]] * 2)
    with pytest.raises(InputError, match="Order 7 requested; this store has 2 to 6"):
        store.probabilities([1], [2], {7: 1.0})
    with pytest.raises(InputError, match="Candidates of shape"):
        store.evidence([[1], [2]], [[1, 2]])
    assert store.probabilities([], [1, 2]).tolist() == [0, 0]
    assert store.evidence([], [1, 2]).counts.shape == (0, 5, 2)
    assert store.probabilities([1, 2], []).shape == (0,)


def test_continuations_come_most_frequent_first(tmp_path):
    store = build(tmp_path, [[1, 2, 9], [1, 2], [1, 3, 9], [1, 4], [1, 3], [1, 3]], min_count=1)
    assert store.continuations([1]) == [(3, 3), (2, 2), (4, 1)]
    assert store.continuations([1, 2]) == [(9, 1)]
    assert store.continuations([63]) == store.continuations([4]) == []


@given(st.integers(1, 70_000), st.data())
@settings(max_examples=60)
@example(16_646_144, None).via("as many tokens as three bytes can number")
def test_rank_codes_are_unique_and_decodable(n, data):
    code = RankCode.for_tokens(n)
    assert code.capacity >= n
    if data is None:
        return
    ranks = data.draw(st.lists(st.integers(0, n - 1), max_size=9))
    strings = code.strings(n)
    key, found = b"".join(strings[rank] for rank in ranks), list[int]()
    while key:
        found.append(strings.index(key[: code.lengths[key[0]]]))
        key = key[code.lengths[key[0]] :]
    assert found == ranks
    assert len(set(strings)) == n


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1, max_size=900),
    st.booleans(),
)
@settings(max_examples=40)
def test_counts_are_exact_or_within_the_stated_error(pairs, exact):
    counts, totals = np.array(pairs, dtype=np.uint64).T
    about, sections = pack_records(counts, totals, exact)
    records = Records(about, {name: memoryview(data) for name, data in sections.items()})
    assert records.counts(range(len(records))) == [records[i][0] for i in range(len(records))]
    allowed = about["max_relative_error"]
    assert allowed == 0 if exact else allowed < 0.1
    for i, pair in enumerate(pairs):
        for got, meant in zip(records[i], pair, strict=True):
            assert abs(got - meant) <= allowed * meant * (1 + 1e-9)


# Damage


@pytest.fixture(scope="module")
def intact(tmp_path_factory) -> NgramStore:
    rng = random.Random(3)
    folder = tmp_path_factory.mktemp("intact")
    return build(folder, [[min(int(rng.expovariate(0.1)), 60) for _ in range(60)] for _ in range(20)])


def test_six_hundred_altered_files_never_give_a_wrong_number(intact, tmp_path):
    whole = intact.path.read_bytes()
    everything = sorted(intact.ngrams())
    rng, path, refused = random.Random(5), tmp_path / "altered.ngram", 0
    path.write_bytes(whole)
    with path.open("r+b") as file:  # written over in place, which is much faster than 600 new files
        for _ in range(600):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 1, 2, 9))):
                data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            file.seek(0)
            file.write(data)
            file.flush()
            try:
                store = NgramStore.open(path, verify=True)
            except StoreError:
                refused += 1
            else:  # only the padding between sections was hit
                assert sorted(store.ngrams()) == everything
    assert refused > 540


def test_a_truncated_or_lengthened_store_is_refused_without_verifying(intact, tmp_path):
    whole = intact.path.read_bytes()
    path = tmp_path / "cut.ngram"
    for length in [*range(0, 400, 7), *range(400, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError):
            NgramStore.open(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(StoreError, match=r"longer than its manifest states: \d+ bytes, \d+ expected"):
        NgramStore.open(path)


def test_what_is_no_store_is_refused(intact, tmp_path):
    later = bytearray(intact.path.read_bytes())
    struct.pack_into("<I", later, 8, 7)
    deep = b"[" * 200_000
    for data, said in (
        (b"", "not an n-gram store"),
        (b"hello" * 50, "not an n-gram store"),
        (bytes(4096), "not an n-gram store"),
        (later, "format version 7; this program reads versions 1 and 2"),
        (struct.pack("<8sII32s", b"NGRAMS\r\n", 1, len(deep), hashlib.sha256(deep).digest()) + deep, "not JSON"),
    ):
        (tmp_path / "file").write_bytes(data)
        with pytest.raises(StoreError, match=said):
            NgramStore.open(tmp_path / "file")
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(StoreError, match="cannot be read"):
            NgramStore.open(path)


@pytest.mark.parametrize(
    "sections",
    [
        7,
        [{}],
        [{"name": "x", "offset": 1e400, "bytes": 0, "sha256": ""}],
        [{"name": "x", "offset": 0, "bytes": 1 << 62, "sha256": ""}],
        [{"name": "x", "offset": 1 << 62, "bytes": 64, "sha256": ""}],
        [{"name": "x", "offset": 0, "bytes": -64, "sha256": ""}],
        [{"name": "x", "offset": 0, "bytes": 64, "sha256": ""}, {"name": "y", "offset": 0, "bytes": 64, "sha256": ""}],
    ],
)
def test_sections_that_do_not_lie_in_the_file_are_refused(tmp_path, sections):
    """The checksum of the manifest is right, as if the file were written on purpose."""
    text = json.dumps({"sections": sections}).encode()
    head = struct.pack("<8sII32s", b"NGRAMS\r\n", 1, len(text), hashlib.sha256(text).digest())
    (tmp_path / "odd.ngram").write_bytes((head + text).ljust(512, b"\0"))
    with pytest.raises(StoreError, match=r"is damaged|truncated"):
        NgramStore.open(tmp_path / "odd.ngram")


@pytest.mark.parametrize("section", ["codes.0", "marks.0", "pairs.0", "wide.0", "tokens"])
def test_a_section_that_was_altered_on_purpose_gives_other_numbers_or_an_error(intact, tmp_path, section):
    """Its checksum is right, so `verify` finds nothing."""
    container = Container(intact.path)
    manifest = {k: v for k, v in container.manifest.items() if k != "sections"}
    parts = {name: bytes(container.section(name)) for name in container.sizes}
    grams = [gram for gram, _, _ in intact.ngrams()]
    for byte in (0, 1, 77, 254, 255):
        write_container(tmp_path / "odd.ngram", manifest, parts | {section: bytes([byte]) * len(parts[section])})
        try:
            store = NgramStore.open(tmp_path / "odd.ngram", verify=True)
            for gram in grams[:50]:
                assert store.count(gram) >= 0
            store.evidence([gram[:-1] for gram in grams[:50]], list(range(60)))
            list(store.ngrams())
        except StoreError:
            pass
    write_container(tmp_path / "odd.ngram", manifest, parts | {section: parts[section] + b"x"})
    with pytest.raises(StoreError, match="bytes"):
        NgramStore.open(tmp_path / "odd.ngram", verify=True)


def one_segment(records: dict[str, object], first: object = ()) -> dict[str, object]:
    return {"entries": 1, "segments": [{"first": first, "entries": 1, "records": records}]}


STEEP = {"records": 0, "listed": 0, "wide": 0, "wide_type": "log8", "first": 1, "ratio": 1e300}


@pytest.mark.parametrize(
    "change",
    [
        {"orders": [2, 4]},
        {"orders": []},
        {"orders": "many"},
        {"orders": [2, 10**12]},
        {"orders": [1e400]},
        {"entries": 1e400},
        {"records": None},
        one_segment({"records": 1e400}),
        one_segment({"records": 0, "listed": 256, "wide": 0, "wide_type": "<u4"}),
        one_segment(STEEP),
        {"entries": 3},
        {"keys": {"one": 300, "two": 9, "tokens": 1}},
        {"keys": {}},
        one_segment({}),
        one_segment({"records": 1, "listed": 1, "wide": 0, "wide_type": "<f4"}),
        one_segment({}, first=[1]),
        one_segment({}, first="many"),
        {"segments": []},
        {"segments": None},
        {"tokenizer": None},
    ],
)
def test_a_manifest_that_contradicts_the_file_is_refused(intact, tmp_path, change):
    container = Container(intact.path)
    manifest = {k: v for k, v in container.manifest.items() if k != "sections"} | change
    write_container(tmp_path / "odd.ngram", manifest, {n: container.section(n) for n in container.sizes})
    with pytest.raises(StoreError, match="damaged"):
        NgramStore.open(tmp_path / "odd.ngram", verify=True)


def test_a_failed_write_leaves_the_old_store_and_no_litter(intact, tmp_path):
    path = tmp_path / "s.ngram"
    path.write_bytes(intact.path.read_bytes())
    with pytest.raises(InputError):
        ngram_builder.build([tmp_path / "nothing.txt"], path, TOKENIZER)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match="No text found"):
        ngram_builder.build([tmp_path / "empty.txt"], path, TOKENIZER)
    assert path.read_bytes() == intact.path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.txt", "s.ngram"]


# Merging stores


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token_lists, token_lists)
def test_merged_stores_equal_one_build(tmp_path, first, second):
    for name in ("a", "b", "both"):
        (tmp_path / name).mkdir(exist_ok=True)
    stores = [build(tmp_path / name, documents, min_count=1) for name, documents in (("a", first), ("b", second))]
    ngram_builder.merge(stores, tmp_path / "merged.ngram", min_count=2)
    merged = NgramStore.open(tmp_path / "merged.ngram", verify=True)
    with pytest.raises(InputError, match="one tokenizer"):
        ngram_builder.merge([merged, build(tmp_path / "b", [[1, 2]] * 2, tokenizer=WordTokenizer(65))], tmp_path / "x")
    both = build(tmp_path / "both", first + second, min_count=2)
    assert sorted(merged.ngrams()) == sorted(both.ngrams())


def test_folders_are_read_in_order_and_each_file_once(tmp_path):
    for name in ("b.txt", "a.md", "c.jsonl.zst", "notes.pdf", ".hidden.txt"):
        (tmp_path / name).write_text("1 2")
    found = readers.expand([tmp_path / "b.txt", tmp_path, str(tmp_path / "*.md")])
    assert [f.name for f in found] == ["b.txt", "a.md", "c.jsonl.zst"]
