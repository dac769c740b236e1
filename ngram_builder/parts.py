"""Maps files to sorted runs of windows, on this machine or on a cluster: tokenised by several threads, resumed by a
journal. The runs are in the work folder (see `work`); `ranges` merges them."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ngram_builder import runs as run_files
from ngram_builder.count import Packing
from ngram_builder.readers import Damage, Document, File, Reading, Signals, read_file
from ngram_builder.runs import Run, merged, rows_within, sorted_windows, windows_within, write_run
from ngram_builder.work import read_json, write_json

if TYPE_CHECKING:  # its module imports torch, which counting does not need
    from core.models.base import Tokenizer

BATCH = 1 << 18  # characters per tokenising task

Advance = Callable[[int, int], None]  # bytes read and tokens counted since the last call


@dataclass
class Counted:
    """The journal of a part: the contents of its runs so far.

    Attributes:
        files: documents and tokens of each file that was started.
        finished: how many of them were read to the end.
        damage, left_out: of finished files.
        runs: name and rows of each.
        done: whether the part is complete.
    """

    files: list[list[int]] = field(default_factory=list)
    finished: int = 0
    damage: list[tuple[str, int, str]] = field(default_factory=list)
    left_out: int = 0
    runs: list[tuple[str, int]] = field(default_factory=list)
    done: bool = False

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.files)


def journal_of(folder: Path, packing: Packing) -> Counted:
    """Reads the journal of a part; an empty one if it is missing, or if a run that it names does not match it."""
    stored = read_json(folder / "journal.json")
    counted = Counted(**stored) if stored else Counted()
    intact = all(run.intact(packing) for run in runs_of(folder, counted))
    return counted if intact else Counted()


def runs_of(folder: Path, counted: Counted) -> list[Run]:
    return [Run(folder / name, rows) for name, rows in counted.runs]


def count_part(
    folder: Path,
    files: Sequence[File],
    tokenizer: Tokenizer,
    packing: Packing,
    *,
    memory: int,
    workers: int,
    signals: Signals | None = None,
    advance: Advance = lambda *_: None,
    alone: bool = True,
) -> Counted:
    """Counts the windows of all documents in `files` into sorted runs in `folder`; continues from existing runs.

    Args:
        memory: bytes that sorting may take.
        workers: threads that tokenise.
        alone: no other process can work on the same part, so files that no journal names may be deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counted = journal_of(folder, packing)
    if counted.done:
        return counted
    if alone:
        _sweep(folder, counted)
    capacity = windows_within(memory, packing)
    held: list[np.ndarray] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if size:
            ids = np.concatenate(held)
            held.clear()
            size = 0
            for block in sorted_windows(ids, packing, capacity):
                counted.runs.append(_new_run(folder, iter([block])))
            _save(folder, counted)

    with ThreadPoolExecutor(workers) as pool:
        for number in range(counted.finished, len(files)):
            if number == len(counted.files):
                counted.files.append([0, 0])
            progress = counted.files[number]
            damage: list[Damage] = []
            reading = Reading(damage.append, lambda size: advance(size, 0), signals)
            # Documents of this file that the runs already contain are read again, to report their damage, and skipped.
            documents = islice(read_file(files[number], reading), progress[0], None)
            for ids, n in _tokenised(documents, tokenizer, pool, workers):
                if size and size + len(ids) > capacity:
                    flush()
                held.append(ids)
                size += len(ids)
                progress[0] += n
                progress[1] += len(ids) - n
                advance(0, len(ids) - n)
            counted.finished = number + 1
            counted.damage += [(place.path, place.line, place.reason) for place in damage]
            counted.left_out += reading.left_out
    flush()
    _compact(folder, counted, packing, memory)
    counted.done = True
    _save(folder, counted)
    return counted


def _tokenised(
    documents: Iterable[Document], tokenizer: Tokenizer, pool: ThreadPoolExecutor, workers: int
) -> Iterator[tuple[np.ndarray, int]]:
    """Yields (ids, documents): streams of tokens (uint32, token + 1) with a 0 after every document, in order."""

    def encode(texts: list[str]) -> tuple[np.ndarray, int]:
        arrays = []
        for text in texts:
            ids = np.zeros(len(written := tokenizer.encode(text)) + 1, dtype=np.uint32)
            ids[:-1] = written
            ids[:-1] += 1
            arrays.append(ids)
        return np.concatenate(arrays), len(texts)

    # A few batches are queued while others are tokenised; they are returned in the file's order.
    waiting: deque[Future[tuple[np.ndarray, int]]] = deque()
    for batch in _batches(documents):
        waiting.append(pool.submit(encode, batch))
        while len(waiting) > 2 * workers:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _batches(documents: Iterable[Document]) -> Iterator[list[str]]:
    held: list[str] = []
    size = 0
    for document in documents:
        held.append(document.text)
        size += len(document.text)
        if size >= BATCH:
            yield held
            held, size = [], 0
    if held:
        yield held


def _compact(folder: Path, counted: Counted, packing: Packing, memory: int) -> None:
    """Merges runs until few enough remain to read all of them at once."""
    while len(counted.runs) > run_files.FAN_IN:
        oldest = runs_of(folder, counted)[: run_files.FAN_IN]
        whole = _new_run(folder, merged(oldest, packing, rows_within(memory, packing)))
        counted.runs = [*counted.runs[len(oldest) :], whole]
        _save(folder, counted)
        for run in oldest:
            run.path.unlink(missing_ok=True)


def _new_run(folder: Path, blocks: Iterator[tuple[np.ndarray, np.ndarray]]) -> tuple[str, int]:
    run = write_run(folder / f"run-{uuid.uuid4().hex}.rows", blocks)
    return run.path.name, run.rows


def _save(folder: Path, counted: Counted) -> None:
    write_json(folder / "journal.json", asdict(counted))


def _sweep(folder: Path, counted: Counted) -> None:
    named = {"journal.json", *(name for name, _ in counted.runs)}
    for path in folder.iterdir():
        if path.name not in named:
            path.unlink()
