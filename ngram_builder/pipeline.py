"""Sources in, store out: read, tokenise on all cores, count, prune, write."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import InputError, PolydraftError
from core.ngram.store import NgramStore
from ngram_builder.count import Entries, Kept, Packing, Runs, count, sum_rows, with_totals
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
        exact: store every count exactly; else the rarer, larger ones to within a few percent (the manifest
            says how many).
        max_bad: share of damaged input from which on nothing is written.
        workers: threads that tokenise; None is all cores.
        progress: called now and then with the share of input bytes read (0 to 1) and the report so far.

    Raises: InputError for wrong arguments, TooMuchDamage, OSError when the disk refuses.
    """
    began = time.monotonic()
    if orders.step != 1 or len(orders) == 0 or orders[0] < 1 or orders[-1] > 8:
        raise InputError(f"Orders {list(orders)} given; a contiguous range within 1 to 8 expected.")
    at_least = _min_counts(orders, min_count, otherwise=DEFAULT_MIN_COUNT)
    out, sources = Path(out), [str(source) for source in sources]
    files: dict[Path, str] = {}  # each with the first source that led to it
    for source in sources:
        for file in expand([source]):
            files.setdefault(file, source)

    report = BuildReport()
    packing = Packing(orders[-1], len(tokenizer.pieces))
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".parts", dir=out.parent))
    try:
        runs = Runs(folder, packing, max(memory - _BASELINE, 64 << 20))
        summary = _read(files, tokenizer, runs, report, workers or os.cpu_count() or 1, progress)
        if report.bad > max_bad:
            raise TooMuchDamage(
                f"{len(report.damage)} damaged places in {report.documents} documents, {report.bad:.1%} "
                f"of the input, more than {max_bad:.1%}; nothing was written. First: {report.damage[0]}."
            )
        if not report.tokens:
            raise InputError(f"No text found in {', '.join(sources)}; nothing was written.")
        entries = count(runs.merged(), packing, orders, at_least)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

    about = {
        "tokenizer": {
            "fingerprint": tokenizer.fingerprint,
            "name": name,
            "vocab_size": len(tokenizer.pieces),
        },
        "documents": report.documents,
        "tokens": report.tokens,
        "min_count": {str(n): at_least[n] for n in orders},
        "closed": _rises(at_least),
        "sources": summary,
    }
    return _finish(report, out, entries, packing, orders, about, exact, began)


def merge(
    stores: Sequence[NgramStore],
    out: str | Path,
    *,
    min_count: int | Mapping[int, int] = 1,
    exact: bool = False,
) -> BuildReport:
    """Add the counts of several stores of one tokenizer up, prune, and write the sum to `out`.

    What was pruned from a store before is missing in the sum. Orders become those that all stores hold.

    Raises: InputError when the stores do not go together; OSError when the disk refuses.
    """
    began = time.monotonic()
    if not stores:
        raise InputError("Nothing to merge: give at least one store.")
    if len({store.fingerprint for store in stores}) > 1:
        raise InputError("Only stores of one tokenizer can be merged; these are of several.")
    orders = range(max(s.orders[0] for s in stores), min(s.orders[-1] for s in stores) + 1)
    if not orders:
        raise InputError("These stores have no order of n-grams in common.")
    at_least = _min_counts(orders, min_count, otherwise=1)
    first = stores[0].manifest
    packing = Packing(orders[-1], int(first["tokenizer"]["vocab_size"]))
    rows: list[list[tuple[int, ...]]] = [[] for _ in range(packing.order + 1)]
    counts: list[list[int]] = [[] for _ in range(packing.order + 1)]
    for store in stores:
        for ids, seen, _ in store.ngrams():
            if len(ids) <= packing.order and seen:
                rows[len(ids)].append(ids)
                counts[len(ids)].append(seen)
    kept: list[Kept] = []
    for n, level in enumerate(rows):
        words = packing.pack(np.array(level, dtype=np.uint64).reshape(len(level), n))
        words, (sums,) = sum_rows(words, np.array([counts[n]], dtype=np.uint64))
        stays = sums >= (at_least.get(n, 1) if n > 1 else 1)
        kept.append((words[:, stays], sums[stays]))
    distinct = [len(level) for _, level in kept]
    manifests = [store.manifest for store in stores]
    about = {
        "tokenizer": first["tokenizer"],
        "documents": sum(int(m["documents"]) for m in manifests),
        "tokens": sum(int(m["tokens"]) for m in manifests),
        "min_count": {
            str(n): max(at_least[n], *(int(m["min_count"].get(str(n), 1)) for m in manifests)) for n in orders
        },
        "closed": _rises(at_least) and all(m["closed"] for m in manifests),
        "sources": [source for m in manifests for source in m["sources"]],
    }
    report = BuildReport(documents=about["documents"], tokens=about["tokens"])
    return _finish(
        report, Path(out), with_totals(kept, packing, orders, distinct), packing, orders, about, exact, began
    )


def _finish(
    report: BuildReport,
    out: Path,
    entries: list[Entries],
    packing: Packing,
    orders: range,
    about: Mapping[str, Any],
    exact: bool,
    began: float,
) -> BuildReport:
    report.ngrams = {n: int((level.counts > 0).sum()) for n, level in enumerate(entries) if n}
    report.distinct = {n: level.distinct for n, level in enumerate(entries) if n}
    contexts = {str(n): int((level.totals > 0).sum()) for n, level in enumerate(entries)}
    ngrams = {str(n): found for n, found in report.ngrams.items()}
    manifest = {**about, "orders": list(orders), "ngrams": ngrams, "contexts": contexts}
    write_store(out, entries, packing, manifest, exact)
    report.seconds, report.size = time.monotonic() - began, out.stat().st_size
    return report


def _min_counts(orders: range, given: int | Mapping[int, int], otherwise: int) -> dict[int, int]:
    counts = {n: given if isinstance(given, int) else given.get(n, otherwise) for n in orders}
    if min(counts.values()) < 1:
        raise InputError(f"Minimum counts {counts} given; 1 or more expected.")
    return counts


def _rises(min_counts: Mapping[int, int]) -> bool:
    """Whether no order is pruned less than the one below: then the ending of every stored n-gram is stored
    too."""
    at_least = [min_counts[n] for n in sorted(min_counts) if n > 1]
    return at_least == sorted(at_least)


def _read(
    files: Mapping[Path, str],
    tokenizer: Tokenizer,
    runs: Runs,
    report: BuildReport,
    workers: int,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Tokenise everything into `runs`; returns what the manifest says about each source."""
    summary: dict[str, dict[str, Any]] = {}
    total_bytes = max(sum(file.stat().st_size for file in files), 1)
    done_bytes = 0

    def encode(texts: list[str]) -> tuple[np.ndarray, int]:
        ids: list[int] = []
        for text in texts:
            ids += tokenizer.encode(text)
            ids.append(-1)
        return (np.array(ids, dtype=np.int64) + 1).astype(np.uint32), len(texts)

    with ThreadPoolExecutor(workers) as pool:
        for file, source in files.items():
            nothing = {"name": Path(source).name, "files": 0, "bytes": 0, "documents": 0, "tokens": 0}
            entry = summary.setdefault(source, nothing)
            # A few batches wait while others are tokenised; their order, and so the report's, is the file's.
            waiting: deque[Future[tuple[np.ndarray, int]]] = deque()
            batches: Iterator[list[str] | None] = chain(_batches(documents(file, report.damage.append)), [None])
            for batch in batches:
                if batch is not None:
                    waiting.append(pool.submit(encode, batch))
                while len(waiting) > (2 * workers if batch is not None else 0):
                    ids, n = waiting.popleft().result()
                    runs.add(ids)
                    entry["documents"] += n
                    entry["tokens"] += len(ids) - n
                    report.documents += n
                    report.tokens += len(ids) - n
                    if progress:
                        progress(done_bytes / total_bytes, report)
            size = file.stat().st_size
            done_bytes += size
            entry["files"] += 1
            entry["bytes"] += size
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
