"""Damaged and hostile tries: marisa-trie crashes on some of them, so none may reach it unchecked.

Each file is opened and read in full in one child process, which would die of what is to be prevented.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import marisa_trie
import numpy as np
import pytest

from core.ngram import checked
from core.ngram.base import BASE_STORE
from core.ngram.container import Container, write_container
from core.ngram.trie_check import Malformed, check_trie
from tests.ngram_tools import store_of

CHILD = """
import json, sys
from pathlib import Path
from core.ngram import StoreError
from core.ngram import NgramStore
refused = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        store = NgramStore.open(path, verify=True)
        grams = list(store.ngrams())
        for gram, _, _ in grams:
            store.count(gram)
        for gram, _, _ in grams[::50]:
            store.continuations(gram[:1], 5)
            store.evidence([gram], list(range(40)))
    except StoreError as error:
        refused += path.name in str(error)
print(json.dumps(refused))
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> tuple[dict, dict[str, bytes]]:
    """A manifest and the sections of an intact store whose trie holds others, strings, links and a cache."""
    rng = random.Random(1)
    grams = {tuple(rng.choices(range(1, 300), k=rng.randint(2, 6))): rng.randint(1, 9) for _ in range(400)}
    store = store_of(tmp_path_factory.mktemp("intact") / "s.ngram", grams, 400, range(2, 7))
    container = Container(store.path)
    manifest = {k: v for k, v in container.manifest.items() if k != "sections"}
    return manifest, {name: bytes(container.section(name)) for name in container.sizes}


def refused(folder: Path) -> int:
    """How many of a folder's stores a child process refused by name, after it read all of them."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)], capture_output=True, text=True, timeout=120, cwd=Path.cwd()
    )
    assert done.returncode == 0, f"the process died with {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def test_150_of_150_damaged_tries_are_refused_and_the_process_lives(parts, tmp_path):
    """A third of the trie's bytes is noise. All checksums fit, because the author of a hostile file writes them."""
    manifest, sections = parts
    rng = random.Random(7)
    for i in range(150):
        trie = bytearray(sections["trie.0"])
        for at in rng.sample(range(16, len(trie)), len(trie) // 3):
            trie[at] = rng.randrange(256)
        write_container(tmp_path / f"{i}.ngram", manifest, sections | {"trie.0": bytes(trie)})
    assert refused(tmp_path) == 150


def test_any_single_number_of_a_trie_may_be_wrong(parts, tmp_path):
    """One 32-bit word of each file is another. Some such tries are sound and hold other keys; most are refused."""
    manifest, sections = parts
    rng, trie = random.Random(11), sections["trie.0"]
    places = rng.sample(range(16, len(trie) - 4, 4), 100)
    for i, at in enumerate(places):
        word = struct.unpack_from("<I", trie, at)[0]
        other = rng.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFFF, word + 1 & 0xFFFFFFFF, word ^ 1 << rng.randrange(32)])
        changed = bytearray(trie)
        struct.pack_into("<I", changed, at, other)
        write_container(tmp_path / f"{i}.ngram", manifest, sections | {"trie.0": bytes(changed)})
    assert refused(tmp_path) > len(places) // 2


@pytest.mark.parametrize(
    ("tries", "binary", "order"),
    [
        (1, True, marisa_trie.LABEL_ORDER),
        (2, False, marisa_trie.WEIGHT_ORDER),
        (7, True, marisa_trie.WEIGHT_ORDER),
        (20, False, marisa_trie.LABEL_ORDER),
    ],
)
def test_tries_of_every_kind_that_the_library_writes_pass(tries, binary, order):
    rng = random.Random(tries)
    for count in (0, 1, 2, 30, 3000):
        keys = [bytes(rng.choices(range(1, 256), k=rng.randint(0, 20))) for _ in range(count)]
        trie = marisa_trie.BinaryTrie(keys, num_tries=tries, binary=binary, order=order)
        check_trie(memoryview(trie.tobytes()), longest=20)


def test_a_key_that_is_longer_than_any_n_gram_and_a_trie_that_is_cut_short_are_refused(parts):
    trie = memoryview(marisa_trie.BinaryTrie([b"x" * 40, b"y"]).tobytes())
    check_trie(trie, longest=40)
    with pytest.raises(Malformed, match="more than 39 bytes"):
        check_trie(trie, longest=39)
    _, sections = parts
    for keep in (0, 8, 15, 16, 24, 100, -9, -1):
        with pytest.raises(Malformed):
            check_trie(memoryview(sections["trie.0"])[:keep], longest=18)


def test_a_large_trie_is_checked_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(checked, "LARGE", 1)
    seen: list[int] = []
    monkeypatch.setattr(checked, "check_trie", lambda trie, longest: seen.append(longest))
    trie = memoryview(marisa_trie.BinaryTrie([b"ab", b"cd"]).tobytes())
    for longest in (9, 9, 12):
        checked.check_once(trie, longest)
    checked.check_once(Container(BASE_STORE).section("trie"), longest=0)  # a limit that no check would accept
    assert seen == [9, 12], "the same bytes pass at once; another limit is another question"
    checked.check_once(memoryview(np.frombuffer(trie, np.uint8) ^ 1), 9)
    assert seen == [9, 12, 9]
