"""Builds a store from sources: maps files to runs, merges them range by range, writes the store segment by segment.
After a kill at any moment the same call resumes, and writes the same bytes."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from core.errors import InputError, PolydraftError
from core.files import unfinished
from core.memory import return_freed
from core.ngram.store import NgramStore
from ngram_builder import repeats, write
from ngram_builder.count import Packing
from ngram_builder.disk import full_disk_explained
from ngram_builder.fitting import Fitting
from ngram_builder.inputs import Part, divided, stamped
from ngram_builder.levels import CountsOfCounts
from ngram_builder.machines import DOCUMENTS, LEAST_MEMORY, Machines, ThisMachine
from ngram_builder.parts import Counted, adopt, journal_of, runs_of, without_repeated
from ngram_builder.plan import Plan
from ngram_builder.ranges import Level, MergedRange, ids_of, read_pieces, read_range, segments_of
from ngram_builder.readers import Damage, File, Signals, expand
from ngram_builder.runs import LEAST_WINDOWS, Run, equal_ranges
from ngram_builder.selection import DocumentSelection
from ngram_builder.stored import runs_of_stores
from ngram_builder.work import (
    check_room,
    discard,
    human,
    keep_parts,
    parts_in,
    read_json,
    work_folder,
    write_json,
)
from ngram_builder.write import SegmentPlan, save_tokens, store_size, write_store

if TYPE_CHECKING:  # its module imports torch, which counting does not need
    from core.models.base import Tokenizer

_RANGE_ROWS = 1 << 24  # rows of runs that are merged into one range, about: a kill costs no more than its ranges
_MOST_RANGES = 4096
DEFAULT_ORDERS = range(2, 7)
DEFAULT_MIN_COUNT = 2

COMPARING, READING, MERGING, WRITING = "Comparing", "Reading", "Merging", "Writing"
# The share of a build's time that each phase takes, in their order; without one, the others take longer.
TIMES = {COMPARING: 0.05, READING: 0.5, MERGING: 0.2, WRITING: 0.25}

# A phase, its share done (0 to 1), and the report so far.
Progress = Callable[[str, float, "BuildReport"], None]
Tell = Callable[[str, float], None]  # the same with the report of this build


class TooMuchDamage(PolydraftError):
    """More of the input was unreadable than allowed; no store was written. `damage` lists what was found."""

    def __init__(self, message: str, damage: Sequence[Damage]) -> None:
        super().__init__(message)
        self.damage = list(damage)


@dataclass
class BuildReport:
    """The figures of a build.

    Attributes:
        documents, tokens: numbers read; tokens without the boundaries between documents.
        left_out_by: numbers of what was not counted, by the reason: documents by "signals", "duplicates" (of the
            shard's own list), "sample", "repeated", or a rule of `quality`; and "paragraphs" of other documents.
        damage: everything that could not be read.
        ngrams: number stored, per order.
        seconds: wall clock of this call; size: of the store in bytes.
    """

    documents: int = 0
    tokens: int = 0
    left_out_by: dict[str, int] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    ngrams: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    size: int = 0

    @property
    def left_out(self) -> int:
        """The number of documents that were not counted."""
        return sum(number for reason, number in self.left_out_by.items() if reason != repeats.PARAGRAPHS)

    @property
    def bad(self) -> float:
        """The share of the input that could not be read: damaged places out of places and documents."""
        return len(self.damage) / max(len(self.damage) + self.documents, 1)


def done(phase: str, share: float) -> float:
    """The share of a whole build that is done when this share of a phase is."""
    phases = list(TIMES)
    return sum(TIMES[before] for before in phases[: phases.index(phase)]) + TIMES[phase] * share


def build(
    sources: Iterable[str | Path],
    out: str | Path,
    tokenizer: Tokenizer,
    *,
    name: str = "",
    orders: range = DEFAULT_ORDERS,
    min_count: int | Mapping[int, int] = DEFAULT_MIN_COUNT,
    fit: int | None = None,
    memory: int | None = None,
    exact: bool = False,
    max_bad: float = 0.01,
    signals: Signals | None = None,
    rules: Sequence[str] = (),
    sample: float = 1.0,
    dedup: str | None = None,
    workers: int | None = None,
    work: str | Path | None = None,
    keep: bool = False,
    machines: Machines | None = None,
    progress: Progress = lambda *_: None,
    notify: Callable[[str], None] = lambda _: None,
) -> BuildReport:
    """Counts the n-grams of all documents in `sources` and writes them to `out`.

    The file depends only on the documents, the tokenizer and the options. Apart from the names of the sources, it does
    not depend on the division into files, on memory, workers, machines or interruptions.

    Args:
        sources: files, folders, glob patterns, URLs; see `readers`.
        out: the store, replaced in one step at the end.
        tokenizer: of the model whose drafts will use the store; its `encode` is called from several threads.
        name: of the model, for messages.
        orders: a contiguous range of orders within 1 to 8.
        min_count: n-grams with a smaller count are dropped; one number, or per order. All single tokens are kept.
        fit: bytes that the store may have; then `min_count` is the least that is considered, see `fitting`.
        memory: bytes that the process may take; None is 2 GiB more than it takes now.
        exact: store every count exactly; else the rarer, larger ones to within a few percent (the manifest
            contains the error).
        max_bad: the share of damaged input above which nothing is written.
        signals: which documents of RedPajama-V2 to read; None is all.
        rules: names of rules in `quality` that documents must meet.
        sample: the share of documents to read, above 0 to 1. Their content decides, so it is the same documents
            whatever the workers, and of equal documents all or none.
        dedup: "documents" or "paragraphs", of which only the first of equal ones is counted. The input is read twice.
        workers: cores to use; None is all.
        work: a folder for intermediate files, removed at the end; None is one beside `out`.
        keep: do not remove it, so that a later build with more sources reads only what is new.
        machines: where to count; None is this machine.
        progress: called repeatedly.
        notify: called with a sentence for the user.

    Raises: InputError for wrong arguments, TooMuchDamage, NoRoom when the disk is full, OSError when it refuses. After
        the last three, and after a kill, the intermediate files stay and the same call resumes from them.
    """
    began = time.monotonic()
    if orders.step != 1 or len(orders) == 0 or orders[0] < 1 or orders[-1] > 8:
        raise InputError(f"Orders {list(orders)} given; a contiguous range within 1 to 8 expected.")
    at_least = _min_counts(orders, min_count, otherwise=DEFAULT_MIN_COUNT)
    out, sources = Path(out), [str(source) for source in sources]
    source_of = _files_of(sources, signals, out)
    files = list(source_of)
    selection = DocumentSelection.of(signals, rules, sample, dedup)
    packing = Packing(orders[-1], len(tokenizer.pieces))
    machines = machines or ThisMachine(tokenizer)
    identity = {"tokenizer": tokenizer.fingerprint, "order": packing.order, "selection": selection.identity()}
    sorting = _for_sorting(memory)
    folder = Path(work) if work else out.with_name(f".{out.name}.work")
    kept = f"What is done so far is kept in {folder}: free some space, and run the same command again."
    with full_disk_explained(out, kept), work_folder(folder, identity) as discarded:
        if discarded:
            notify(f"{folder} had files of a build with other options or another tokenizer; they were discarded.")
        plan = Plan(folder, packing, orders, at_least, sorting, workers or os.cpu_count() or 1, selection, exact)
        parts = _parts(plan, files)
        _check_disk(folder, _room(files, packing, at_least), [part.number for part in parts], notify)
        report = BuildReport()
        tell = partial(_told, progress, report)
        if selection.dedup:
            _compare(plan, parts, files, machines, tell)
        counted = _count(plan, parts, machines, report, max_bad, tell, notify)
        _check(report, max_bad)
        if not report.tokens:
            discard(folder)
            left_out = f" {report.left_out:,} documents were left out." if report.left_out else ""
            raise InputError(f"No text found in {', '.join(sources)}; nothing was written.{left_out}")
        runs = [run for part in counted for run in runs_of(plan, part)]
        about = {
            "tokenizer": {"fingerprint": tokenizer.fingerprint, "name": name, "vocab_size": len(tokenizer.pieces)},
            "documents": report.documents,
            "tokens": report.tokens,
            "sources": _summary(parts, counted, source_of),
        }
        if fit is not None:
            plan = _fitted(plan, fit, about, runs, machines, tell, notify)
        about |= {"min_count": {str(n): plan.min_counts[n] for n in orders}, "closed": _rises(plan.min_counts)}
        for litter in unfinished(out):
            litter.unlink(missing_ok=True)
        write_merged(out, plan, runs, about, report, machines, progress)
        if keep:
            keep_parts(folder, [part.number for part in parts])
        else:
            discard(folder)
    report.seconds = time.monotonic() - began
    return report


def merge(
    stores: Sequence[NgramStore],
    out: str | Path,
    *,
    min_count: int | Mapping[int, int] = 1,
    memory: int | None = None,
    exact: bool = False,
    progress: Progress = lambda *_: None,
) -> BuildReport:
    """Adds up the counts of several stores of one tokenizer, prunes, and writes the sum to `out`.

    N-grams that were pruned from a store before are missing in the sum. The result has the orders that all stores
    share.

    Args:
        memory, progress: as for `build`.

    Raises: InputError when the stores cannot be merged; NoRoom when the disk is full; OSError when it refuses.
    """
    began = time.monotonic()
    if not stores:
        raise InputError("Nothing to merge: give at least one store.")
    if len({store.fingerprint for store in stores}) > 1:
        raise InputError("Stores of several tokenizers given; only stores of one tokenizer can be merged.")
    orders = range(max(s.orders[0] for s in stores), min(s.orders[-1] for s in stores) + 1)
    if not orders:
        raise InputError("These stores have no order of n-grams in common.")
    at_least = _min_counts(orders, min_count, otherwise=1)
    first = stores[0].manifest
    packing = Packing(orders[-1], int(first["tokenizer"]["vocab_size"]))
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
    report, out = BuildReport(documents=about["documents"], tokens=about["tokens"]), Path(out)
    sorting = _for_sorting(memory)
    folder = out.with_name(f".{out.name}.merge")
    again = "Free some space, and run the same command again."
    with full_disk_explained(out, again), work_folder(folder, {"merge": token_hex(8)}):  # no earlier work is this one's
        try:
            plan = Plan(folder, packing, orders, at_least, sorting, os.cpu_count() or 1, exact=exact, whole=True)
            runs = runs_of_stores(stores, plan.part(0), packing, sorting)
            write_merged(out, plan, runs, about, report, progress=progress)
        finally:
            discard(folder)
    report.seconds = time.monotonic() - began
    return report


def write_merged(
    out: Path,
    plan: Plan,
    runs: Sequence[Run],
    about: Mapping[str, Any],
    report: BuildReport,
    machines: Machines | None = None,
    progress: Progress = lambda *_: None,
) -> None:
    """Merges runs and writes their n-grams to a store. Continues from what is in the work folder, and leaves it there.

    Args:
        about: what the manifest says of the input.
        report: gets the numbers of n-grams, and the size.
        machines: where to work; None is this machine.
    """
    tell = partial(_told, progress, report)
    segments, by_rank, ranges = _write(plan, runs, machines or ThisMachine(), tell)
    report.ngrams = {n: sum(found.ngrams[n - 1] for found in ranges) for n in range(1, plan.packing.order + 1)}
    contexts = {n: sum(found.contexts[n - 1] for found in ranges) for n in report.ngrams}
    contexts[0] = int(any(found.total for found in ranges))
    numbers = {"ngrams": report.ngrams, "contexts": contexts}
    numbers = {name: {str(n): number for n, number in of.items()} for name, of in numbers.items()}
    write_store(out, plan.segments, segments, by_rank, {**about, "orders": list(plan.orders), **numbers})
    report.size = out.stat().st_size
    tell(WRITING, 1.0)


def _told(progress: Progress, report: BuildReport, phase: str, share: float) -> None:
    progress(phase, share, report)


def _write(
    plan: Plan, runs: Sequence[Run], machines: Machines, tell: Tell
) -> tuple[list[SegmentPlan], np.ndarray, list[MergedRange]]:
    """Merges all runs, and writes the segments of the store; what is done already stays. Returns also the tokens by
    rank, and the ranges."""
    return_freed()  # of counting
    ranges = _merge(plan, runs, machines, tell)
    return_freed()
    tell(WRITING, 0.0)
    segments, by_rank = _segments(plan, ranges)
    missing = [segment for segment in segments if not segment.written(plan.segments)]
    total = sum(segment.entries for segment in segments)
    done = total - sum(segment.entries for segment in missing)
    for entries in machines.write(plan, missing) if missing else ():
        done += entries
        tell(WRITING, min(done / total, 0.99))
    return segments, by_rank, ranges


def _segments(plan: Plan, ranges: Sequence[MergedRange]) -> tuple[list[SegmentPlan], np.ndarray]:
    """Divides the n-grams into segments. Returns also the tokens by rank, which the folder of the segments then has."""
    files = [found.files(plan.ranges) for found in ranges]
    with ExitStack() as opened:
        levels = []
        for n in range(plan.packing.order):
            rows = [(paths[n], found.rows[n]) for paths, found in zip(files, ranges, strict=True)]
            levels.append(opened.enter_context(closing(Level(rows, plan.packing))))
        starts = segments_of(levels, write.MOST_ENTRIES)
        segments: list[SegmentPlan] = []
        for number, (start, end) in enumerate(pairwise(starts)):
            keys = [level.key(at) for level, at, stop in zip(levels, start, end, strict=True) if at < stop]
            first = ids_of(min(keys), plan.packing) if number else ()
            empty = sum(found.tokens for found in ranges), sum(found.total for found in ranges)
            pieces = [level.pieces(at, stop) for level, at, stop in zip(levels, start, end, strict=True)]
            segments.append(SegmentPlan(number, first, empty if number == 0 and any(empty) else None, pieces))
        single = read_pieces(levels[0].pieces(0, len(levels[0])), plan.packing)
    if read_json(plan.segments / "plan.json") != {"exact": plan.exact}:
        shutil.rmtree(plan.segments, ignore_errors=True)
        plan.segments.mkdir()
        write_json(plan.segments / "plan.json", {"exact": plan.exact})
    return segments, save_tokens(plan.segments, single, plan.packing)


def _fitted(
    plan: Plan,
    fit: int,
    about: Mapping[str, Any],
    runs: Sequence[Run],
    machines: Machines,
    tell: Tell,
    notify: Callable[[str], None],
) -> Plan:
    """The plan with the least pruning whose store fits into so many bytes, and writes the segments of that store."""
    path, asked = plan.folder / "fit.json", [*_asked(plan, runs), plan.exact]
    known, tally = read_json(path), CountsOfCounts(plan.packing.order)
    if known is None or known["asked"] != asked:
        for found in _merge(plan, runs, machines, tell):
            tally.add_packed(found.tally)
        known = {"asked": asked, "tally": tally.packed(), "sizes": []}
        write_json(path, known)
    else:
        tally.add_packed(known["tally"])
    fitting = Fitting(plan.min_counts, tally.of, plan.exact, fit)
    fitting.sizes |= dict(known["sizes"])
    place = fitting.next()
    for line in fitting.table(place) if place is not None else ():
        notify(line)
    while place is not None:
        fitted = replace(plan, min_counts=fitting[place])
        segments, by_rank, _ = _write(fitted, runs, machines, tell)
        fitting.sizes[place] = store_size(plan.segments, segments, by_rank, about)
        write_json(path, {**known, "sizes": list(fitting.sizes.items())})
        place = fitting.next()
    assert fitting.best is not None
    return replace(plan, min_counts=fitting[fitting.best])


def _files_of(sources: Sequence[str], signals: Signals | None, out: Path) -> dict[File, str]:
    """Each file of the sources with the first source that contains it. Raises InputError if `out` is one of them."""
    source_of: dict[File, str] = {}
    for source in sources:
        for file in expand([source]):
            source_of.setdefault(stamped(file, signals), source)
    if out.exists() and any(out.samefile(file.address) for file in source_of if not file.remote):
        raise InputError(f"{out} is one of the sources; give another file for the store.")
    return source_of


def _min_counts(orders: range, given: int | Mapping[int, int], otherwise: int) -> dict[int, int]:
    counts = {n: given if isinstance(given, int) else given.get(n, otherwise) for n in orders}
    if min(counts.values()) < 1:
        raise InputError(f"Minimum counts {counts} given; 1 or more expected.")
    return counts


def _rises(min_counts: Mapping[int, int]) -> bool:
    """Whether no order is pruned less than the one below. Then the suffix of every stored n-gram is stored too."""
    at_least = [min_counts[n] for n in sorted(min_counts) if n > 1]
    return at_least == sorted(at_least)


def _parts(plan: Plan, files: Sequence[File]) -> list[Part]:
    """Divides the input into parts: those on disk that are still wanted, and new ones."""
    numbers = parts_in(plan.folder)
    inputs = [(number, journal_of(plan, number).inputs) for number in numbers]
    parts = divided(files, [each for each in inputs if each[1]], plan.selection.signals, max(numbers, default=-1) + 1)
    for part in parts:
        if part.number in numbers:
            adopt(plan, part)
    return parts


def _compare(plan: Plan, parts: Sequence[Part], files: Sequence[File], machines: Machines, tell: Tell) -> None:
    """Finds what repeats other text, and discards the counts that were made without knowing it."""
    total, read = sum(file.size for file in files), 0

    def consumed(size: int) -> None:
        nonlocal read
        read += size
        tell(COMPARING, min(read / max(total, 1), 1.0))

    machines.note(plan, parts, consumed)
    repeats.find(plan, parts, {file: place for place, file in enumerate(files)})
    for part in parts:
        without_repeated(plan, part)
    tell(COMPARING, 1.0)


def _count(
    plan: Plan,
    parts: Sequence[Part],
    machines: Machines,
    report: BuildReport,
    max_bad: float,
    tell: Tell,
    notify: Callable[[str], None],
) -> list[Counted]:
    """The map step: turns every file into runs."""
    total = sum(file.size for part in parts for file in part.files)
    read = 0

    def advance(consumed: int, documents: int, tokens: int, damage: Sequence[Damage]) -> None:
        nonlocal read
        read += consumed
        report.documents += documents
        report.tokens += tokens
        report.damage += damage
        share = min(read / max(total, 1), 1.0)
        # Not where little is left to read, and not between documents that are not counted yet.
        if report.damage and total - read > _LITTLE and (consumed or documents):
            _check_so_far(report, max_bad, share)
        tell(READING, share)

    for part in parts:
        before = journal_of(plan, part.number)
        size = sum(file.size for file in part.files[: before.finished])
        advance(size, before.documents, before.tokens, [Damage(*place) for place in before.damage])
    if report.tokens:
        notify(f"Resuming after {report.tokens / 1e6:.1f} M tokens that were counted before.")
    counted = machines.count(plan, parts, advance)
    report.documents = sum(part.documents for part in counted)
    report.tokens = sum(part.tokens for part in counted)
    report.left_out_by = dict(sum((Counter(part.left_out) for part in counted), Counter[str]()))
    report.damage = [Damage(*place) for part in counted for place in part.damage]
    tell(READING, 1.0)
    return counted


_LITTLE = 1 << 20  # bytes
# As many documents per byte as so far, times this, are assumed in the unread input, all of them sound.
_DENSER = 4


def _check_so_far(report: BuildReport, max_bad: float, share: float) -> None:
    """Raises TooMuchDamage when too much is damaged even if the rest of the input is sound."""
    places = len(report.damage) + report.documents
    at_most = places * (1 + _DENSER * (1 - share) / share) if share else float("inf")
    if share < 1 and len(report.damage) > max_bad * at_most:
        raise TooMuchDamage(
            f"{len(report.damage)} damaged places among {report.documents} documents in the first {share:.0%} of the "
            f"input: more than {max_bad:.1%} of it is damaged, whatever the rest holds. {_KEPT} "
            f"First: {report.damage[0]}.",
            report.damage,
        )


_KEPT = "No store was written; the counts are kept, and the same command with a larger --max-bad resumes from them."


def _check(report: BuildReport, max_bad: float) -> None:
    """Raises TooMuchDamage when too much of the input was damaged."""
    if report.bad > max_bad:
        raise TooMuchDamage(
            f"{len(report.damage)} damaged places in {report.documents} documents, {report.bad:.1%} "
            f"of the input, more than {max_bad:.1%}. {_KEPT} First: {report.damage[0]}.",
            report.damage,
        )


def _merge(plan: Plan, runs: Sequence[Run], machines: Machines, tell: Tell) -> list[MergedRange]:
    """The merge step: turns all runs into n-grams, range by range of first tokens."""
    edges: list[int | None] = [None, *_cuts(plan, runs), None]
    wanted = dict(enumerate(pairwise(edges)))
    missing = {number: tokens for number, tokens in wanted.items() if read_range(plan, number) is None}
    done = len(wanted) - len(missing)
    for _ in machines.merge(plan, runs, missing) if missing else ():
        done += 1
        tell(MERGING, done / len(wanted))
    ranges: list[MergedRange] = []
    for number in wanted:
        if (found := read_range(plan, number)) is None:
            raise PolydraftError(f"Range {number} in {plan.ranges} was removed meanwhile; run the same command again.")
        ranges.append(found)
    return ranges


def _cuts(plan: Plan, runs: Sequence[Run]) -> list[int]:
    """The first tokens at which ranges begin, read from the plan on disk if it has one for these runs and this
    pruning."""
    asked = _asked(plan, runs)
    known = read_json(plan.ranges / "plan.json")
    if known and known["asked"] == asked:
        return known["cuts"]
    if plan.ranges.exists():
        discard(plan.ranges)
    plan.ranges.mkdir()
    rows = sum(run.rows for run in runs)
    number = min(max(-(-rows // _RANGE_ROWS), 2 * plan.workers if rows > LEAST_WINDOWS else 1), _MOST_RANGES)
    cuts = equal_ranges(list(runs), plan.packing, number)
    write_json(plan.ranges / "plan.json", {"asked": asked, "cuts": cuts})
    return cuts


def _asked(plan: Plan, runs: Sequence[Run]) -> list[Any]:
    """What the ranges depend on: orders, pruning, and the runs, whose names are never used twice."""
    names = hashlib.sha256(" ".join(f"{run.path.name} {run.rows}" for run in runs).encode()).hexdigest()
    return [list(plan.orders), list(plan.min_counts.values()), names]


def _summary(parts: Sequence[Part], counted: Sequence[Counted], source_of: Mapping[File, str]) -> list[dict[str, Any]]:
    """The entry of each source in the manifest."""
    summary = {
        source: {"name": Path(source).name, "files": 0, "bytes": 0, "documents": 0, "tokens": 0}
        for source in source_of.values()
    }
    for part, figures in zip(parts, counted, strict=True):
        for file, (documents, tokens) in zip(part.files, figures.files, strict=True):
            entry = summary[source_of[file]]
            entry["files"] += 1
            entry["bytes"] += file.size
            entry["documents"] += documents
            entry["tokens"] += tokens
    return list(summary.values())


def _for_sorting(memory: int | None) -> int:
    """The memory left for sorting and merging, out of the limit for the whole process; None is 2 GiB more than it takes
    now. Documents get half of what is left, but no more than they need."""
    taken = _resident()
    left = 2 << 30 if memory is None else memory - taken
    sorting = left - min(DOCUMENTS, left // 2)
    if sorting < LEAST_MEMORY:
        least = taken + 2 * LEAST_MEMORY
        raise InputError(
            f"Memory of {human(taken + left)} given; with this tokenizer, at least {human(least)} are needed."
        )
    return sorting


def _resident() -> int:
    """Bytes of memory that this process takes now."""
    return psutil.Process().memory_info().rss


# Bytes of text per byte of a packed file, measured on shards of prose.
_UNPACKED = {".zst": 4.0, ".gz": 3.0, ".parquet": 2.0}
_BYTES_PER_TOKEN = 4.3
_SURELY = 0.5  # of the estimated disk space: text that repeats itself needs no less


def _room(files: Sequence[File], packing: Packing, min_counts: Mapping[int, int]) -> int:
    """Estimates the bytes of disk that a build of prose needs: runs, n-grams, segments, the store."""
    text = sum(file.size * _UNPACKED.get(Path(file.name).suffix.lower(), 1.0) for file in files)
    tokens = text / _BYTES_PER_TOKEN
    runs = tokens * 8 * (packing.words + 1)
    stay = 0.4 if min(min_counts.values()) > 1 else 0.7 * packing.order
    return int(runs + tokens * stay * (8 * (packing.words + 2) + 8))


def _check_disk(folder: Path, needed: int, numbers: Sequence[int], notify: Callable[[str], None]) -> None:
    """Raises NoRoom if the disk has surely too little space, and says so if it may have. Parts of other numbers than
    these are no part of the build."""
    check_room(folder, int(_SURELY * needed), numbers)
    free = shutil.disk_usage(folder).free
    if free < needed and not any(folder.glob("part-*")):  # else some of it is used already
        notify(
            f"The build may need {human(needed)} in {folder.parent}, and {human(free)} are free: if the disk gets "
            "full, it keeps what is done."
        )
