"""Sources in, store out: read, tokenise on all cores, count, prune, write."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from core.errors import InputError, PolydraftError
from ngram_builder.count import Packing, Runs, count
from ngram_builder.readers import Damage, documents, expand
from ngram_builder.write import write_store

if TYPE_CHECKING:  # its module imports torch, which counting has no use for
    from core.models.base import Tokenizer

_BATCH = 1 << 18  # characters tokenised as one task
_BASELINE = 500 << 20  # bytes that the interpreter, the tokenizer and documents on their way take
DEFAULT_ORDERS = range(2, 7)
DEFAULT_MIN_COUNT = 2

Progress = Callable[[float, "BuildReport"], None]


class TooMuchDamage(PolydraftError):
    """More of the input than allowed could not be read; nothing was written."""


@dataclass
class BuildReport:
    """What a build read and wrote.

    Attributes:
        documents, tokens: read, without the boundaries between documents.
        damage: everything that could not be read.
        ngrams: stored, per order; distinct: seen, per order, before pruning.
        seconds: wall clock, in total; size: of the store in bytes.
    """

    documents: int = 0
    tokens: int = 0
    damage: list[Damage] = field(default_factory=list)
    ngrams: dict[int, int] = field(default_factory=dict)
    distinct: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    size: int = 0

    @property
    def bad(self) -> float:
        """Share of the input that could not be read: damaged places out of places and documents."""
        return len(self.damage) / max(len(self.damage) + self.documents, 1)


def build(
    sources: Iterable[str | Path],
    out: str | Path,
    tokenizer: Tokenizer,
    *,
    name: str = "",
    orders: range = DEFAULT_ORDERS,
    min_count: int | Mapping[int, int] = DEFAULT_MIN_COUNT,
    memory: int = 2 << 30,
    exact: bool = False,
    max_bad: float = 0.01,
    workers: int | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Count the n-grams of all documents in `sources` and write them to `out`.

    The file depends on the documents, the tokenizer and the options alone, not on how they were divided into
    files, on memory or on workers, but for the sources that it names.

    Args:
        sources: files, folders, glob patterns; see `readers`.
        out: the store, replaced in one step when all is done.
        tokenizer: of the model whose drafts the store is for; its `encode` is called from several threads.
        name: of the model, for messages.
        orders: a contiguous range of orders within 1 to 8.
        min_count: n-grams seen less often are dropped; one number, or per order. Single tokens all stay.
        memory: bytes that the process may take.
        exact: store every count exactly, instead of large ones to within some 2 %.
        max_bad: share of damaged input from which on nothing is written.
        workers: threads that tokenise; None is all cores.
        progress: called now and then with the share of input bytes read (0 to 1) and the report so far.

    Raises: InputError for wrong arguments, TooMuchDamage, OSError when the disk refuses.
    """
    began = time.monotonic()
    if orders.step != 1 or len(orders) == 0 or orders[0] < 1 or orders[-1] > 8:
        raise InputError(f"Orders {list(orders)} given; a contiguous range within 1 to 8 expected.")
    at_least = {
        n: min_count if isinstance(min_count, int) else min_count.get(n, DEFAULT_MIN_COUNT) for n in orders
    }
    if min(at_least.values()) < 1:
        raise InputError(f"Minimum counts {at_least} given; 1 or more expected.")
    out, sources = Path(out), [str(source) for source in sources]
    files = [(source, file) for source in sources for file in expand([source])]
    files = [
        (source, file) for i, (source, file) in enumerate(files) if file not in [f for _, f in files[:i]]
    ]

    report = BuildReport()
    packing = Packing(orders[-1], len(tokenizer.pieces))
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".parts", dir=out.parent))
    try:
        runs = Runs(folder, packing, max(memory - _BASELINE, 64 << 20))
        summary = _read(files, tokenizer, runs, report, workers or os.cpu_count() or 1, progress)
        if report.bad > max_bad:
            raise TooMuchDamage(
                f"{len(report.damage)} damaged places beside {report.documents} documents are {report.bad:.1%} of "
                f"the input, more than {max_bad:.1%}; nothing was written. First: {report.damage[0]}."
            )
        if not report.tokens:
            raise InputError(f"No text found in {', '.join(sources)}; nothing was written.")
        entries = count(runs.merged(), packing, orders, at_least)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

    rising = all(at_least[n] <= at_least[n + 1] for n in orders[:-1])
    about = {
        "orders": list(orders),
        "tokenizer": {
            "fingerprint": tokenizer.fingerprint,
            "name": name,
            "vocab_size": len(tokenizer.pieces),
        },
        "documents": report.documents,
        "tokens": report.tokens,
        "min_count": {str(n): at_least[n] for n in orders},
        "ngrams": {str(n): int((level.counts > 0).sum()) for n, level in enumerate(entries) if n},
        "contexts": {str(n): int((level.totals > 0).sum()) for n, level in enumerate(entries)},
        "closed": rising,  # every stored n-gram's ending is stored too, so that look-ups may stop early
        "sources": summary,
    }
    write_store(out, entries, packing, about, exact)
    report.ngrams = {n: int((level.counts > 0).sum()) for n, level in enumerate(entries) if n}
    report.distinct = {n: level.distinct for n, level in enumerate(entries) if n}
    report.seconds, report.size = time.monotonic() - began, out.stat().st_size
    return report


def _read(
    files: list[tuple[str, Path]],
    tokenizer: Tokenizer,
    runs: Runs,
    report: BuildReport,
    workers: int,
    progress: Progress | None,
) -> list[dict[str, object]]:
    """Tokenise everything into `runs`; returns what the manifest says about each source."""
    summary: dict[str, dict[str, object]] = {}
    total_bytes = max(sum(file.stat().st_size for _, file in files), 1)

    def encode(texts: list[str]) -> tuple[np.ndarray, int]:
        ids: list[int] = []
        for text in texts:
            ids += tokenizer.encode(text)
            ids.append(-1)
        return (np.array(ids, dtype=np.int64) + 1).astype(np.uint32), len(texts)

    done_bytes = 0
    with ThreadPoolExecutor(workers) as pool:
        for source, file in files:
            entry = summary.setdefault(
                source, {"name": Path(source).name, "files": 0, "bytes": 0, "documents": 0, "tokens": 0}
            )
            waiting: deque[Future[tuple[np.ndarray, int]]] = deque()
            read = tokens = 0
            batches = _batches(documents(file, report.damage.append))
            while True:
                batch = next(batches, None)
                if batch is not None:
                    waiting.append(pool.submit(encode, batch))
                while waiting and (batch is None or len(waiting) > 2 * workers):
                    ids, n = waiting.popleft().result()
                    runs.add(ids)
                    read, tokens = read + n, tokens + len(ids) - n
                    if progress:
                        progress(done_bytes / total_bytes, report)
                if batch is None:
                    break
            size = file.stat().st_size
            done_bytes += size
            report.documents, report.tokens = report.documents + read, report.tokens + tokens
            for key, more in (("files", 1), ("bytes", size), ("documents", read), ("tokens", tokens)):
                entry[key] = int(str(entry[key])) + more
    if progress:
        progress(1.0, report)
    return list(summary.values())


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= _BATCH:
            yield held
            held, size = [], 0
    if held:
        yield held
