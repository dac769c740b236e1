"""Maps parts of the input to sorted runs of windows, on this machine or on a cluster: read, encoded and sorted at once,
resumed by journals. The runs are in the work folder (see `work`); `ranges` merges them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from core.errors import PolydraftError
from ngram_builder import repeats
from ngram_builder import runs as run_files
from ngram_builder.encoding import Encode
from ngram_builder.inputs import Input, Part, digest
from ngram_builder.plan import Plan
from ngram_builder.readers import Damage, Document, Reading, spelled
from ngram_builder.runs import Run, new_run, sorted_windows, windows_within, write_run
from ngram_builder.selection import chosen
from ngram_builder.work import read_json, write_json

BATCH = 1 << 18  # characters that are encoded at once

# What was read since the last call: bytes, documents, tokens, damage.
Advance = Callable[[int, int, int, Sequence[Damage]], None]


@dataclass
class Counted:
    """The journal of a part: the contents of its runs so far.

    Attributes:
        number: of the part.
        inputs: its files; see `inputs`.
        files: documents and tokens of each file that was started.
        finished: how many of them were read to the end.
        damage: of finished files.
        left_out: documents and paragraphs of finished files that were not counted, by the reason.
        runs: name and rows of each.
        repeated: identifies the documents or paragraphs that it leaves out because they repeat others; see `repeats`.
        done: whether the part is complete.
    """

    number: int
    inputs: list[Input] = field(default_factory=list)
    files: list[list[int]] = field(default_factory=list)
    finished: int = 0
    damage: list[tuple[str, int, str]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    runs: list[tuple[str, int]] = field(default_factory=list)
    repeated: str = ""
    done: bool = False

    @property
    def documents(self) -> int:
        return sum(documents for documents, _ in self.files)

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.files)


def journal_of(plan: Plan, number: int) -> Counted:
    """Reads the journal of a part; an empty one if it is missing, or if a run that it names does not match it."""
    stored = read_json(plan.part(number) / "journal.json")
    counted = Counted(**stored) if stored else Counted(number)
    intact = all(run.intact(plan.packing) for run in runs_of(plan, counted))
    return counted if intact else Counted(number)


def adopt(plan: Plan, part: Part) -> None:
    """Notes in the journal of a part where its files are now, if they were touched or moved."""
    counted = journal_of(plan, part.number)
    now = [
        [file.address, file.size, file.stamp, known[3]] for file, known in zip(part.files, counted.inputs, strict=True)
    ]
    if now == counted.inputs:
        return
    moved = {spelled(str(old[0])): spelled(str(new[0])) for old, new in zip(counted.inputs, now, strict=True)}
    counted.inputs = now
    counted.damage = [(moved.get(path, path), line, reason) for path, line, reason in counted.damage]
    _save(plan, counted)


def note_part(plan: Plan, part: Part, consumed: Callable[[int], None] = lambda _: None) -> None:
    """Notes the documents or paragraphs of a part, by which `repeats.find` finds those that repeat others."""
    repeats.note(plan, part, consumed)
    if not journal_of(plan, part.number).inputs:
        _save(plan, Counted(part.number, _inputs(part)))


def without_repeated(plan: Plan, part: Part) -> None:
    """Discards the runs of a part that were counted without other repeated documents or paragraphs than are known
    now."""
    counted = journal_of(plan, part.number)
    now = repeats.digest(repeats.repeated(plan.part(part.number)))
    if counted.repeated != now:
        _save(plan, Counted(part.number, counted.inputs, repeated=now))
        for run in runs_of(plan, counted):
            run.path.unlink(missing_ok=True)


def _inputs(part: Part) -> list[Input]:
    return [[file.address, file.size, file.stamp, ""] for file in part.files]


def runs_of(plan: Plan, counted: Counted) -> list[Run]:
    return [Run(plan.part(counted.number) / name, rows) for name, rows in counted.runs]


def count_parts(
    plan: Plan,
    parts: Sequence[Part],
    encode: Encode,
    memory: int,
    sorters: int = 1,
    advance: Advance = lambda *_: None,
    alone: bool = True,
) -> list[Counted]:
    """Counts the windows of all documents of each part into sorted runs in its folder; continues from existing runs.

    While one buffer of tokens is sorted and written, the next one is read and encoded.

    Args:
        memory: bytes that sorting may take.
        sorters: buffers that are sorted at once.
        alone: no other process can work on the same parts, so files that no journal names may be deleted.
    """
    with ThreadPoolExecutor(sorters) as pool:
        sorting = _Sorting(pool, sorters, plan, memory // sorters)
        begun = list[_Counting]()
        for part in parts:
            counting = _Counting(plan, part, sorting, advance, alone)
            begun.append(counting)
            try:
                counting.count(encode)
            except PolydraftError:  # the caller's `advance` ends the build; what was read is kept
                counting.flush()
                sorting.finish()
                raise
        sorting.finish()
    return [counting.saved for counting in begun]


class _Sorting:
    """Sorts buffers of tokens into runs in the background; journals name the runs in the order of the buffers.

    Attributes:
        capacity: windows that are sorted at once.
    """

    def __init__(self, pool: ThreadPoolExecutor, sorters: int, plan: Plan, memory: int) -> None:
        self._pool, self._sorters, self._memory, self._plan = pool, sorters, memory, plan
        # The rest holds the tokens that are read next.
        self.capacity = windows_within(memory - memory // 8, plan.packing)
        self._waiting: deque[tuple[Future[list[Run]], _Counting, Counted]] = deque()

    def add(self, counting: _Counting, ids: np.ndarray, contents: Counted) -> None:
        """Sorts these tokens; then the journal of their part says `contents`."""
        while len(self._waiting) >= self._sorters:
            self._complete_one()
        self._waiting.append((self._pool.submit(self._runs, counting.folder, ids), counting, contents))

    def finish(self) -> None:
        while self._waiting:
            self._complete_one()

    def _runs(self, folder: Path, ids: np.ndarray) -> list[Run]:
        blocks = sorted_windows(ids, self._plan.packing, self.capacity)
        return [write_run(new_run(folder), iter([block])) for block in blocks]

    def _complete_one(self) -> None:
        future, counting, contents = self._waiting.popleft()

        def save(runs: Sequence[Run]) -> None:
            counting.saved = replace(contents, runs=[(run.path.name, run.rows) for run in runs])
            _save(self._plan, counting.saved)

        runs = [*runs_of(self._plan, counting.saved), *future.result()]
        if contents.done and len(runs) > run_files.FAN_IN:
            wait([other for other, *_ in self._waiting])  # merging takes the memory of sorting
            runs = run_files.compacted(runs, counting.folder, self._plan.packing, self._memory, save)
        save(runs)


class _Counting:
    """Counts one part.

    Attributes:
        saved: the contents of the runs on disk; the part may have been read further.
    """

    def __init__(self, plan: Plan, part: Part, sorting: _Sorting, advance: Advance, alone: bool) -> None:
        self.folder, self._part, self._sorting = plan.part(part.number), part, sorting
        self._selection, self._advance = plan.selection, advance
        self.folder.mkdir(parents=True, exist_ok=True)
        self.saved = journal_of(plan, part.number)
        if alone and not self.saved.done:
            _sweep(self.folder, self.saved)
        self._read = deepcopy(self.saved)
        self._read.inputs = self.saved.inputs or _inputs(part)
        self._held: list[np.ndarray] = []
        self._size = 0

    def count(self, encode: Encode) -> None:
        if self.saved.done:
            return
        dedup = self._selection.dedup
        sieve = repeats.Sieve(self.folder, dedup) if dedup else None
        for number in range(self._read.finished, len(self._part.files)):
            self._count_file(number, encode, sieve)
        self._read.done = True
        self.flush()

    def flush(self) -> None:
        """Sorts the tokens held."""
        ids = np.concatenate(self._held) if self._held else np.zeros(0, dtype=np.uint32)
        self._held, self._size = [], 0
        self._sorting.add(self, ids, deepcopy(self._read))

    def _count_file(self, number: int, encode: Encode, sieve: repeats.Sieve | None) -> None:
        read, file = self._read, self._part.files[number]
        if number == len(read.files):
            read.files.append([0, 0])
        figures = read.files[number]
        damage: list[Damage] = []
        left_out = Counter[str](read.left_out)

        def damaged(place: Damage) -> None:
            damage.append(place)
            self._advance(0, 0, 0, [place])

        reading = Reading(damaged, lambda size: self._advance(size, 0, 0, ()), self._selection.signals)
        documents = chosen(file, reading, self._selection, left_out)
        if sieve:
            documents = sieve.sift(number, documents, left_out)
        # Documents of this file that the runs already contain are read again, to report their damage, and skipped.
        for ids, n in encode(batches(islice(documents, figures[0], None))):
            if self._size and self._size + len(ids) > self._sorting.capacity:
                self.flush()
            self._held.append(ids)
            self._size += len(ids)
            figures[0] += n
            figures[1] += len(ids) - n
            self._advance(0, n, len(ids) - n, ())
        read.finished = number + 1
        read.inputs[number][3] = digest(file, self._selection.signals)
        read.damage += [(place.path, place.line, place.reason) for place in damage]
        read.left_out = {reason: number for reason, number in left_out.items() if number}


def batches(documents: Iterable[Document]) -> Iterator[list[str]]:
    """Texts that are encoded at once."""
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


def _save(plan: Plan, counted: Counted) -> None:
    write_json(plan.part(counted.number) / "journal.json", asdict(counted))


def _sweep(folder: Path, counted: Counted) -> None:
    named = {"journal.json", *(path.name for path in repeats.files_in(folder)), *(name for name, _ in counted.runs)}
    for path in folder.iterdir():
        if path.name not in named:
            path.unlink()
