"""The peers of `bench ngram`: other formats of the same n-grams. Each peer is built from the n-grams of a store, and
returns for the same queries how often a candidate followed the last n - 1 tokens of a context."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil

from core.ngram import NgramStore

Contexts = list[list[int]]
Lookups = Callable[[Contexts, list[list[int]]], None]  # of the contexts, and the candidates of each


@dataclass
class Peer:
    """The bytes of a peer, the unit to which they refer (`of`: "n-gram" or "corpus token"), their location, the query
    function, and whether it looks every candidate up in each order; or the reason why the peer is unavailable."""

    name: str
    bytes: int = 0
    where: str = ""
    of: str = "n-gram"
    lookups: Lookups | None = None
    by_order: bool = True
    note: str = ""


def dictionaries(store: NgramStore, folder: Path) -> Iterator[Peer]:
    """Yields a dict of contexts, each a dict of next tokens, per order, as in the Superposed Decoding authors' code."""
    before = _resident()
    tables: dict[int, dict[tuple[int, ...], dict[int, int]]] = {n: {} for n in range(1, store.orders[-1] + 1)}
    for ids, count, _ in store.ngrams():
        if ids:
            tables[len(ids)].setdefault(ids[:-1], {})[ids[-1]] = count
    size = _resident() - before

    def lookups(contexts: Contexts, candidates: list[list[int]]) -> None:
        for context, tokens in zip(contexts, candidates, strict=True):
            for n in store.orders:
                followers = tables[n].get(tuple(context[len(context) - n + 1 :]), {})
                for token in tokens:
                    followers.get(token, 0)

    yield Peer("Python dict of dicts", size, "memory", lookups=lookups)


def sqlite(store: NgramStore, folder: Path) -> Iterator[Peer]:
    """Yields a table without row ids, keyed by the tokens as two or four bytes each."""
    width = ">u2" if int(store.manifest["tokenizer"]["vocab_size"]) <= 1 << 16 else ">u4"
    path = folder / "peer.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE ngrams (ids BLOB PRIMARY KEY, count INTEGER) WITHOUT ROWID")
    rows = sorted((np.array(ids, dtype=width).tobytes(), count) for ids, count, _ in store.ngrams())
    connection.executemany("INSERT INTO ngrams VALUES (?, ?)", rows)
    connection.commit()
    connection.execute("VACUUM")

    def lookups(contexts: Contexts, candidates: list[list[int]]) -> None:
        execute = connection.execute
        for context, tokens in zip(contexts, candidates, strict=True):
            ends = [np.array([token], dtype=width).tobytes() for token in tokens]
            for n in store.orders:
                prefix = np.array(context[len(context) - n + 1 :], dtype=width).tobytes()
                for end in ends:
                    execute("SELECT count FROM ngrams WHERE ids = ?", (prefix + end,)).fetchone()

    yield Peer("SQLite", path.stat().st_size, "disk", lookups=lookups)


def kenlm(store: NgramStore, folder: Path) -> Iterator[Peer]:
    """Yields probabilities instead of counts. A look-up is one score of a candidate, including KenLM's own back-off."""
    if find_spec("kenlm") is None:
        yield Peer("KenLM", note="not installed: pip install 'polydraft[bench]'")
        return
    if store.orders[-1] > 6:
        yield Peer("KenLM", note=f"its package supports orders up to 6; this store has {store.orders[-1]}")
        return
    arpa = folder / "peer.arpa"
    _write_arpa(store, arpa)
    before = _resident()
    model = _load_kenlm(arpa)
    yield Peer("KenLM probing", _resident() - before, "memory", lookups=_scores(model, store), by_order=False)
    del model
    if (tool := shutil.which("build_binary")) is None:
        yield Peer(
            "KenLM trie, quantised", note="KenLM's program build_binary is missing; it is not part of its PyPI package"
        )
        return
    for name, options in (
        ("KenLM trie", ["trie"]),
        ("KenLM trie, quantised", ["-q", "8", "-b", "8", "-a", "255", "trie"]),
    ):
        path = folder / f"{len(name)}.bin"
        subprocess.run([tool, *options, str(arpa), str(path)], check=True, capture_output=True)
        yield Peer(name, path.stat().st_size, "disk", lookups=_scores(_load_kenlm(path), store), by_order=False)


def _load_kenlm(path: Path) -> object:
    import kenlm  # pyright: ignore[reportMissingImports]

    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    return kenlm.Model(str(path), config)


def _scores(model: object, store: NgramStore) -> Lookups:
    import kenlm  # pyright: ignore[reportMissingImports]

    def lookups(contexts: Contexts, candidates: list[list[int]]) -> None:
        score = model.BaseScore  # type: ignore[attr-defined]
        for context, tokens in zip(contexts, candidates, strict=True):
            state, after = kenlm.State(), kenlm.State()
            model.NullContextWrite(state)  # type: ignore[attr-defined]
            for token in context[-(store.orders[-1] - 1) :]:
                score(state, f"t{token}", after)
                state, after = after, state
            for token in tokens:
                score(state, f"t{token}", after)

    return lookups


def _write_arpa(store: NgramStore, path: Path) -> None:
    """Writes an ARPA file with relative frequencies and without back-off; KenLM's size does not depend on the
    values."""
    levels: dict[int, list[tuple[tuple[int, ...], int]]] = {n: [] for n in range(1, store.orders[-1] + 1)}
    for ids, count, _ in store.ngrams():
        if ids:
            levels[len(ids)].append((ids, count))
    with path.open("w") as file:
        file.write("\\data\\\n")
        file.writelines(f"ngram {n}={len(rows) + 3 * (n == 1)}\n" for n, rows in levels.items())
        for n, rows in levels.items():
            end = "\t-0.1\n" if n < store.orders[-1] else "\n"
            file.write(f"\n\\{n}-grams:\n")
            if n == 1:
                file.write("-9\t<unk>\n-9\t<s>\t-0.1\n-9\t</s>\n")
            for ids, count in sorted(rows):
                words = " ".join(f"t{token}" for token in ids)
                file.write(f"{np.log10((count + 0.1) / (count + 9)):.4f}\t{words}{end}")
        file.write("\n\\end\\\n")


def infini_gram(store: NgramStore, folder: Path, documents: Sequence[np.ndarray]) -> Iterator[Peer]:
    """Yields a suffix array over the corpus itself: n-grams of every length, without pruning."""
    if find_spec("infini_gram") is None:
        yield Peer("infini-gram", note="not installed: pip install 'polydraft[bench]'")
        return
    vocab_size = int(store.manifest["tokenizer"]["vocab_size"])
    if not documents or vocab_size >= 1 << 16:
        yield Peer(
            "infini-gram", note="needs the corpus: give it with --text" if not documents else "more than 65,535 tokens"
        )
        return
    index = folder / "infini"
    index.mkdir()
    offsets, at = [], 0
    with (index / "tokenized.0").open("wb") as file:
        for ids in documents:
            offsets.append(at)
            at += file.write(b"\xff\xff" + ids.astype("<u2").tobytes())
    (index / "offset.0").write_bytes(np.array(offsets, dtype="<u8").tobytes())
    command = [sys.executable, "-m", "infini_gram.indexing", "--data_dir", str(index), "--save_dir", str(index)]
    done = subprocess.run([*command, "--mem", "2", "--cpus", "2", "--ulimit", "1024"], capture_output=True, text=True)
    if done.returncode or not (index / "table.0").exists():
        yield Peer("infini-gram", note=f"its indexing failed: {(done.stderr or done.stdout).strip()[-200:]}")
        return
    size = sum(path.stat().st_size for path in index.iterdir() if path.is_file())
    from infini_gram.engine import InfiniGramEngine  # pyright: ignore[reportMissingImports]

    engine = InfiniGramEngine(index_dir=str(index), eos_token_id=0, vocab_size=vocab_size, token_dtype="u16")

    def lookups(contexts: Contexts, candidates: list[list[int]]) -> None:
        for context, tokens in zip(contexts, candidates, strict=True):
            for n in store.orders:
                for token in tokens:
                    engine.count(input_ids=[*context[len(context) - n + 1 :], token])

    yield Peer("infini-gram", size, "disk", of="corpus token", lookups=lookups)


def _resident() -> int:
    return psutil.Process().memory_info().rss
