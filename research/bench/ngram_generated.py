"""Builds a store of many n-grams that are generated, in a process of its own whose memory is watched; for
`bench ngram --generated`.

The text follows the app's own store: each token is one of those that followed the token before it there, as often as
there. Every n-gram of it is kept, so a few million tokens give a hundred million n-grams.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from core.errors import InputError, PolydraftError
from core.ngram import NgramStore
from core.ngram.base import BASE_STORE
from ngram_builder.count import Packing
from ngram_builder.pipeline import BuildReport, Plan, write_merged
from ngram_builder.runs import Run, sorted_windows, windows_within, write_run
from research.report import Report

ORDERS = range(2, 7)
MEMORY = 1 << 30  # bytes of `Plan.memory`; the rest of 2 GB is for Python, the libraries and the base store
TOKENS = 0.32  # for each n-gram that is wanted: a little more than needed, since later ones repeat earlier ones
CHAINS, LENGTH = 1 << 13, 256  # texts that are generated at once, and tokens of each
PAUSE = 0.05  # seconds between two looks at the memory


def measure(number: str, report: Report) -> None:
    """Adds the figures of a store of about this many n-grams, such as "100M", to a report."""
    ngrams = _number(number)
    with tempfile.TemporaryDirectory(prefix="polydraft-bench-") as name:
        path = Path(name, "generated.ngram")
        began = time.perf_counter()
        command = [sys.executable, "-P", "-m", __name__, str(path), str(int(ngrams * TOKENS))]
        process = subprocess.Popen(command)
        peak = 0
        while process.poll() is None:
            peak = max(peak, _resident(process.pid))
            time.sleep(PAUSE)
        if process.returncode:
            raise PolydraftError(f"The process that builds the store ended with status {process.returncode}.")
        seconds, size = time.perf_counter() - began, path.stat().st_size
        store, opening = _opened(path)
        row = {"store": "generated", "ngrams": len(store), "segments": len(store.manifest["segments"]), "bytes": size}
        report.rows.append(row | {"build_s": seconds, "opening_ms": opening * 1000})
        report.target("generated, n-grams in millions", len(store) / 1e6, f">= {0.9 * ngrams / 1e6:g}")
        report.target("generated, bytes per n-gram", size / len(store), "<= 3.5")
        report.target("generated, peak of resident memory with all processes, GB", peak / 1e9, "<= 2")


def _opened(path: Path) -> tuple[NgramStore, float]:
    began = time.perf_counter()
    store = NgramStore.open(path)
    return store, time.perf_counter() - began


def _number(text: str) -> int:
    if not (match := re.fullmatch(r"(\d+)([kM]?)", text.strip())):
        raise InputError(f"--generated {text} given; a number such as 100M expected.")
    return int(match[1]) * {"": 1, "k": 1000, "M": 1_000_000}[match[2]]


def _resident(pid: int) -> int:
    """Bytes of memory that a process and those that it started take."""
    total = 0
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    except psutil.NoSuchProcess:
        pass  # it has ended meanwhile
    return total


def texts(tokens: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Yields about this many generated tokens, as streams of token + 1 with a 0 after each text; see
    `sorted_windows`."""
    store = NgramStore.open(BASE_STORE)
    pairs = [(*ids, count) for ids, count, _ in store.ngrams() if len(ids) == 2 and count]
    first, second, counts = np.array(sorted(pairs), dtype=np.int64).T
    sums = np.concatenate([[0], np.cumsum(counts)])
    starts = np.searchsorted(first, np.arange(int(store.manifest["tokenizer"]["vocab_size"]) + 1))
    rng = np.random.default_rng(seed)
    for _ in range(-(-tokens // (CHAINS * LENGTH))):
        stream = np.zeros((CHAINS, LENGTH + 1), dtype=np.uint32)
        last = first[rng.integers(len(first), size=CHAINS)]
        for column in range(LENGTH):
            ended = starts[last] == starts[last + 1]  # nothing follows this token
            last = np.where(ended, first[rng.integers(len(first), size=CHAINS)], last)
            low, high = sums[starts[last]], sums[starts[last + 1]]
            chosen = low + (rng.random(CHAINS) * (high - low)).astype(np.int64)
            last = second[np.searchsorted(sums, chosen, "right") - 1]
            stream[:, column] = last + 1
        yield stream.reshape(-1)


def build(path: Path, tokens: int) -> None:
    """Builds a store of all n-grams of generated texts."""
    manifest = NgramStore.open(BASE_STORE).manifest
    packing = Packing(ORDERS[-1], int(manifest["tokenizer"]["vocab_size"]))
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        folder, runs = Path(name), list[Run]()
        plan = Plan(folder, packing, ORDERS, dict.fromkeys(ORDERS, 1), MEMORY, os.cpu_count() or 1)
        for stream in texts(tokens):
            for block in sorted_windows(stream, packing, windows_within(MEMORY, packing)):
                runs.append(write_run(folder / f"run-{len(runs)}", iter([block])))
        about = {"tokenizer": manifest["tokenizer"], "documents": 1, "tokens": tokens, "sources": [], "closed": True}
        write_merged(path, plan, runs, about, BuildReport(documents=1, tokens=tokens))


if __name__ == "__main__":
    build(Path(sys.argv[1]), int(sys.argv[2]))
