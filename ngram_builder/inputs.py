"""Divides the input into parts, and finds the parts that an earlier build in the same work folder has counted.

A part is what one journal describes: one file, or several small ones. A part on disk is used again if the input still
contains each of its files: at the same address with the same size and stamp, or, when a file was touched or moved, with
the same name and content. So a file that changed, came or went costs its own part and no other.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache

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
    missing, parts = dict.fromkeys(files), list[Part]()
    digest_of = cache(lambda file: digest(file, signals))
    left = list(earlier)
    for look in (lambda _: "", digest_of):  # parts that are as they were come first
        unlike = list[tuple[int, Sequence[Input]]]()
        for number, inputs in left:
            if found := _found(inputs, missing, look):
                parts.append(Part(number, found))
                for file in found:
                    del missing[file]
            else:
                unlike.append((number, inputs))
        left = unlike
    parts += [Part(free + place, group) for place, group in enumerate(_groups(list(missing)))]
    return sorted(parts, key=lambda part: order[part.files[0]])


def _found(inputs: Sequence[Input], missing: Collection[File], digest_of: Callable[[File], str]) -> tuple[File, ...]:
    """The files of an earlier part among those that no part contains yet, by their stamps, or their names and digests;
    () if one of them is gone."""
    wanted = [(File(str(address), int(size), str(stamp)), str(known)) for address, size, stamp, known in inputs]
    taken = {file for file, _ in wanted if file in missing}
    alike = defaultdict[tuple[str, int], list[File]](list)
    for file in missing:
        if file not in taken:
            alike[file.name, file.size].append(file)
    found = list[File]()
    for file, known in wanted:
        if file not in taken:
            others = alike[file.name, file.size]
            same = next((other for other in others if known and digest_of(other) == known), None)
            if same is None:
                return ()
            others.remove(same)
            file = same
        found.append(file)
    return tuple(found)


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
