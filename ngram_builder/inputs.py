"""Divides the input into parts, and finds the parts that an earlier build in the same work folder has counted.

A part is what one journal describes: one file, or several small ones. A part on disk is used again if the input still
contains each of its files: at the same address with the same size and stamp, or, when a file was touched or moved, with
the same name and content. So a file that changed, came or went costs its own part and no other.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ngram_builder.readers import File, Signals

_MOST = 64  # parts of small files, for those that are divided at once
_LARGE = 32 << 20  # bytes; a larger file is a part of its own
_PIECE = 1 << 20

Input = list[str | int]  # of a journal: a file's address, size, stamp, and digest or ""


@dataclass(frozen=True)
class Part:
    """Files that are counted together, in the work folder's subfolder of this number."""

    number: int
    files: tuple[File, ...]


def stamped(file: File, signals: Signals | None) -> File:
    """The file with a stamp that changes, too, when its quality signals or its list of duplicates do. Raises InputError
    when one of them is missing."""
    beside = [each for each in signals.files_for(file) if each] if signals else []
    return replace(file, stamp=" ".join([file.stamp, *(f"{each.size} {each.stamp}" for each in beside)]))


def digest(file: File, signals: Signals | None) -> str:
    """The digest of what was read from a file and from those beside it; "" for a remote file, which its stamp
    identifies, and for one that has changed since it was listed."""
    files = [file, *(each for each in (signals.files_for(file) if signals else ()) if each)]
    if any(each.remote for each in files):
        return ""
    total = hashlib.blake2b(digest_size=16)
    try:
        for each in files:
            total.update(each.size.to_bytes(8, "little"))
            with closing(each.open()) as opened:
                while piece := opened.read(_PIECE):
                    total.update(piece)
        return total.hexdigest() if stamped(File.at(file.address), signals) == file else ""
    except OSError:
        return ""


def divided(
    files: Sequence[File], earlier: Iterable[tuple[int, Sequence[Input]]], signals: Signals | None, free: int
) -> list[Part]:
    """Divides files into parts, in the order of their first files.

    Args:
        earlier: number and inputs of the parts on disk.
        free: the first number that no part on disk has.
    """
    order = {file: place for place, file in enumerate(files)}
    missing = _Missing(files, signals)
    parts, unlike = list[Part](), list[tuple[int, Sequence[Input]]]()
    for number, inputs in earlier:
        if found := missing.taken_by_stamp(inputs):
            parts.append(Part(number, found))
        else:
            unlike.append((number, inputs))
    for number, inputs in unlike:
        if found := missing.taken_by_content(inputs):
            parts.append(Part(number, found))
    parts += [Part(free + place, group) for place, group in enumerate(_groups(missing.files))]
    return sorted(parts, key=lambda part: order[part.files[0]])


class _Missing:
    """The files of the input that no part contains yet."""

    def __init__(self, files: Sequence[File], signals: Signals | None) -> None:
        self._files, self._signals = dict.fromkeys(files), signals
        self._digests: dict[File, str] = {}

    @property
    def files(self) -> list[File]:
        return list(self._files)

    def taken_by_stamp(self, inputs: Sequence[Input]) -> tuple[File, ...]:
        """Removes and returns the files of a part; () if one of them is missing."""
        found = [File(str(address), int(size), str(stamp)) for address, size, stamp, _ in inputs]
        return self._taken(found) if all(file in self._files for file in found) else ()

    def taken_by_content(self, inputs: Sequence[Input]) -> tuple[File, ...]:
        wanted = [(File(str(address), int(size), str(stamp)), str(known)) for address, size, stamp, known in inputs]
        taken = {file for file, _ in wanted if file in self._files}
        alike = defaultdict[tuple[str, int], list[File]](list)
        for file in self._files:
            if file not in taken:
                alike[file.name, file.size].append(file)
        found = list[File]()
        for file, known in wanted:
            if file not in taken:
                others = alike[file.name, file.size]
                same = next((other for other in others if known and self._digest(other) == known), None)
                if same is None:
                    return ()
                others.remove(same)
                file = same
            found.append(file)
        return self._taken(found)

    def _taken(self, found: Sequence[File]) -> tuple[File, ...]:
        for file in found:
            del self._files[file]
        return tuple(found)

    def _digest(self, file: File) -> str:
        if file not in self._digests:
            self._digests[file] = digest(file, self._signals)
        return self._digests[file]


def _groups(files: Sequence[File]) -> list[tuple[File, ...]]:
    """Large files alone; small ones in at most _MOST groups of about equal size, in order, and so alone if there are
    few."""
    groups: list[tuple[File, ...]] = [(file,) for file in files if file.size >= _LARGE]
    small = [file for file in files if file.size < _LARGE]
    if len(small) <= _MOST:
        return groups + [(file,) for file in small]
    each = sum(file.size + 1 for file in small) / _MOST
    held, size = list[File](), 0
    for file in small:
        held.append(file)
        size += file.size + 1
        if size >= each:
            groups.append(tuple(held))
            held, size = [], 0
    return [*groups, tuple(held)] if held else groups
