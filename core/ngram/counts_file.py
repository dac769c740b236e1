"""The counts of the older text of a large personal store, in a file beside the store: `NAME.counts`.

    offset 0      the description, a line of JSON: the store, its passages, and the type, shape and place of each array
           4096   the arrays: those of `Windows`, and those of the passages' ids

The arrays are mapped, so memory holds the parts in use. The file is computed from the store's own: what is missing,
damaged or of another store is written again, range by range of first tokens, in bounded memory. One program writes it
at a time; others go on with the former file. What is forgotten is overwritten with zeros there.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from core.files import locked, open_regular, replacing, sweep, unfinished
from core.ngram.errors import StoreError
from core.ngram.passage_ids import PassageIds
from core.ngram.windows import BITS, Range, Windows

ENDING = ".counts"
VERSION = 1
LARGE = 1 << 21  # tokens that are counted in memory alone: of a small store, or of text that is newer than the file
SHARE = 16  # newer text may also have one SHARE-th of the tokens in the file
PIECE = 1 << 21  # windows sorted at a time
_HEAD = 4096
_WIPED = 1 << 20

# The passages up to a number, and their tokens; and all tokens. Only an index is read, without the texts.
_STATE = (
    "SELECT count(*) FILTER (WHERE id <= :last), coalesce(sum(tokens) FILTER (WHERE id <= :last), 0), "
    "coalesce(sum(tokens), 0) FROM (SELECT id, tokens FROM passages)"
)
_PASSAGES = "SELECT id, tokens FROM (SELECT id, tokens FROM passages) ORDER BY id"


@dataclass(frozen=True)
class Older:
    """What the file contains.

    Attributes:
        windows: the counts.
        ids: of the passages that they count.
        tokens: (p,) int64 of the passages, without what is stored twice.
        last: the largest number of a passage that was ever counted.
        map: the file; None of no file.
    """

    windows: Windows
    ids: PassageIds
    tokens: np.ndarray
    last: int
    map: mmap.mmap | None = None

    @classmethod
    def none(cls) -> Older:
        none = np.zeros(0, dtype=np.int64)
        return cls(Windows.beginning(none, none, none), PassageIds.none(), none, 0)

    @classmethod
    def open(cls, path: Path, identity: str) -> Older:
        """Maps the file of a store; none if it is missing, damaged or of another store."""
        try:
            with open_regular(path) as file:
                about = json.loads(file.readline(_HEAD))
                if (about["version"], about["store"]) != (VERSION, identity):
                    return cls.none()
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            arrays = {name: _array(mapped, *place) for name, place in about["arrays"].items()}
            changes = arrays["changes"][:, : len(arrays["hi"])]
            windows = Windows.mapped(arrays["hi"], arrays["lo"], arrays["before"], arrays["shared"], changes)
            ids = PassageIds(*(arrays[name] for name in ("numbers", "times", "starts", "symbols")))
            sizes = {len(windows.hi), len(windows.lo), len(windows.before) - 1, len(windows.shared), changes.shape[1]}
            if len(sizes) == len({*map(len, (ids.numbers, ids.times, arrays["tokens"], ids.starts[1:]))}) == 1:
                return cls(windows, ids, arrays["tokens"], int(about["last"]), mapped)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # it is written again
        return cls.none()

    def has(self, passages: np.ndarray) -> bool:
        """Whether all these passages (q, 2), number and tokens, are among those that were counted. They are not after
        an earlier copy of the store took its place, where other text has the numbers of later one."""
        at = np.searchsorted(self.ids.numbers, passages[:, 0])
        if int(at.max(initial=-1)) >= len(self.tokens):
            return False
        return bool(np.array_equal(np.stack([self.ids.numbers[at], self.tokens[at]], axis=1), passages))

    def release_pages(self) -> None:
        """Gives the memory of the pages that were read back to the system, which reads them again when needed."""
        if self.map is not None and hasattr(self.map, "madvise"):  # not on Windows
            self.map.madvise(mmap.MADV_DONTNEED)


def file_of(store: Path) -> Path:
    """The file that belongs to a store's."""
    return store.with_name(store.stem + ENDING)


def lock_of(store: Path) -> Path:
    """The empty file by which one program at a time writes the counts."""
    path = file_of(store)
    return path.with_name(f".{path.name}.lock")


def brought_up_to_date(
    older: Older | None,
    file: sqlite3.Connection,
    store: Path,
    vocab_size: int,
    alive: Callable[[], None] = lambda: None,
) -> Older | None:
    """The counts of a store's older text; None for a small store, which needs no file.

    Args:
        older: as they were.
        file: the store's; not in a transaction.
        store: its path.
        vocab_size: V. Raises InputError when the store contains ids of V and above.
        alive: called repeatedly; if it raises, the file stays as it was.
    Raises: StoreError when the file cannot be written.
    """
    path = file_of(store)
    (identity,) = file.execute("SELECT value FROM about WHERE key = 'identity'").fetchone()

    def state(some: Older) -> tuple[bool, bool, int]:
        """Whether none of its passages was removed; whether little text is newer; and the tokens of the store."""
        passages, tokens, total = file.execute(_STATE, {"last": some.last}).fetchone()
        intact = (passages, tokens) == (len(some.tokens), some.tokens.sum())
        return intact, total - tokens <= max(LARGE, tokens // SHARE), total

    older = older or Older.open(path, identity)
    intact, few, total = state(older)
    if intact and few and older.last:
        return older
    if total <= LARGE and not path.exists() and not unfinished(path):
        return None
    try:
        with ExitStack() as turn:
            _wait_for(path, turn, alive)
            older = Older.open(path, identity)  # another program may have written it meanwhile
            while True:  # text may be removed, or the store deleted, while the file is written
                intact, few, total = state(older)
                if total <= LARGE or not store.exists():
                    remove(store)
                    return None
                if intact and few:
                    return older
                older = _written(path, identity, older, file, vocab_size, alive)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(
            f"{path} cannot be written: {reason}. A large store needs about 35 bytes a token there; free some room, or "
            "switch the store off."
        ) from error


def remove(store: Path) -> None:
    """Overwrites a store's file with zeros and removes it, and what a killed process left of it. Raises OSError when
    the system refuses."""
    path = file_of(store)
    sweep(path.parent)
    with suppress(FileNotFoundError), path.open("r+b") as file:
        path.unlink()
        _wipe(file)


def _wait_for(path: Path, turn: ExitStack, alive: Callable[[], None]) -> None:
    """Waits until no other program writes the file."""
    while True:
        alive()
        try:
            turn.enter_context(locked(path))
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise


def _written(
    path: Path, identity: str, older: Older, file: sqlite3.Connection, vocab_size: int, alive: Callable[[], None]
) -> Older:
    """Writes the file anew: the older passages that are still in the store, and all newer ones."""
    sweep(path.parent)
    file.execute("BEGIN")  # one state for all reads
    try:
        present = np.array(file.execute(_PASSAGES).fetchall(), dtype=np.int64).reshape(-1, 2)
        if not older.has(present[present[:, 0] <= older.last]):
            older = Older.none()
        new = PassageIds.read(file, older.last, vocab_size)
    finally:
        file.execute("COMMIT")
    kept = np.isin(older.ids.numbers, present[:, 0])
    gone = older.ids.some(~kept)
    ids = older.ids if kept.all() else older.ids.some(kept)
    last = max(older.last, int(new.numbers.max(initial=0)))
    with ExitStack() as opened:
        former = None
        if len(gone.numbers) or not older.last:  # the former file contains what was removed, or nobody knows what
            with suppress(FileNotFoundError):
                former = opened.enter_context(path.open("r+b"))
        with replacing(path) as out:
            arrays = _write_windows(out, older, new, gone, vocab_size, alive)
            arrays["numbers"] = _append(out, ids.numbers, new.numbers)
            arrays["times"] = _append(out, ids.times, new.times)
            arrays["starts"] = _append(out, ids.starts, ids.starts[-1] + new.starts[1:])
            arrays["symbols"] = _append(out, ids.symbols, new.symbols)
            arrays["tokens"] = _append(out, present[:, 1])
            about = {"version": VERSION, "store": identity, "last": last, "arrays": arrays}
            out.seek(0)
            out.write(json.dumps(about).encode().ljust(_HEAD - 1) + b"\n")
        if former:
            _wipe(former)
    return Older.open(path, identity)


Place = tuple[str, list[int], int]  # of an array: type, shape and offset


def _write_windows(
    out: IO[bytes], older: Older, new: PassageIds, gone: PassageIds, vocab_size: int, alive: Callable[[], None]
) -> dict[str, Place]:
    """Writes the arrays of `Windows`, with room for as many windows as there may be: the rest is a hole in the file."""
    room = len(older.windows) + len(new.symbols)
    most = older.windows.weight + int((np.diff(new.starts) * new.times).sum())
    types = {"hi": "<i8", "lo": "<i8", "before": "<u4" if most < 1 << 32 else "<i8", "shared": "|u1", "changes": "<u4"}
    shapes = {name: [room] for name in types} | {"before": [room + 1], "changes": [2, room]}
    offsets, end = dict[str, int](), _HEAD
    for name, kind in types.items():
        offsets[name] = end
        end += -(-prod(shapes[name]) * np.dtype(kind).itemsize // _HEAD) * _HEAD

    def put(name: str, array: np.ndarray, at: int) -> None:
        kind = np.dtype(types[name])
        out.seek(offsets[name] + at * kind.itemsize)
        out.write(np.ascontiguousarray(array, dtype=kind).data)

    count, weight, changes = 0, 0, np.zeros(2, dtype=np.int64)
    put("before", np.zeros(1), 0)
    for piece in _pieces(older, new, gone, vocab_size):
        alive()
        put("hi", piece.hi, count)
        put("lo", piece.lo, count)
        put("before", weight + piece.before[1:].astype(np.int64), count + 1)
        put("shared", piece.shared, count)  # pieces begin with different tokens, so their first windows share nothing
        for row in (0, 1):
            put("changes", changes[row] + piece.changes[row].astype(np.int64), row * room + count)
        count, weight = count + len(piece), weight + piece.weight
        changes += piece.changes[:, -1]
        older.release_pages()
    out.seek(end)
    out.truncate()
    shapes |= {name: [count] for name in ("hi", "lo", "shared")} | {"before": [count + 1]}
    return {name: (types[name], shapes[name], offsets[name]) for name in types}


def _pieces(older: Older, new: PassageIds, gone: PassageIds, vocab_size: int) -> Iterator[Windows]:
    """The windows of older and new passages without those that are gone, ascending, in pieces by their first token."""
    edges = older.windows.hi.searchsorted(np.arange(vocab_size + 2) << 2 * BITS)
    sizes = np.diff(edges) + new.firsts(vocab_size) + gone.firsts(vocab_size)
    for low, high in runs_of(sizes, PIECE):
        piece = older.windows.part(Range(int(edges[low]), int(edges[high])))
        for ids, sign in ((new, 1), (gone, -1)):
            piece = piece.merged(Windows.beginning(ids.symbols, *ids.begins(max(low, 1), high)), sign)
        if len(piece):
            yield piece


def runs_of(sizes: np.ndarray, least: int) -> Iterator[tuple[int, int]]:
    """Ranges of items, from one to before another, that have a size of at least `least` together; the last one has what
    is left."""
    upto = np.cumsum(sizes)
    first, before = 0, 0
    while first < len(sizes):
        end = min(int(np.searchsorted(upto, before + least)) + 1, len(sizes))
        yield first, end
        first, before = end, int(upto[end - 1])


def _append(out: IO[bytes], *parts: np.ndarray) -> Place:
    """Writes arrays of one axis and type, one after the other."""
    offset = out.tell()
    for part in parts:
        out.write(np.ascontiguousarray(part).data)
    out.write(bytes(-sum(part.nbytes for part in parts) % _HEAD))
    return parts[0].dtype.str, [sum(map(len, parts))], offset


def _array(mapped: mmap.mmap, kind: str, shape: list[int], offset: int) -> np.ndarray:
    """Raises ValueError if the file is too short."""
    return np.frombuffer(mapped, dtype=kind, count=prod(shape), offset=offset).reshape(shape)


def _wipe(file: IO[bytes]) -> None:
    """Overwrites a file that has no name any more with zeros."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    for start in range(0, size, _WIPED):
        file.write(bytes(min(_WIPED, size - start)))
    file.flush()
    os.fsync(file.fileno())
