"""Finds documents or paragraphs that have occurred before, exactly, in bounded memory.

    note    a part of the input ─► the hashes of its documents or paragraphs, sorted, with their places    units-….npy
    find    the hashes of all parts, range by range ─► the places of each part that repeat others        repeated.npy

Of equal ones the first in the order of the files stays, so the result depends neither on workers nor on parts. A Bloom
filter would take less disk, a bit or two in place of 16 bytes, but would leave out text that is new, and whatever it
answers depends on the order of the work, so parts could not be read at once, nor kept when another part changes.

A paragraph is a line, as in CCNet (Wenzek et al. 2019). Short lines stay, since a greeting is no copied page, unless
their document has no other lines that are new. White space at the ends of lines does not distinguish them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np

from core.errors import InputError
from core.files import replacing
from ngram_builder.inputs import Part
from ngram_builder.plan import Plan
from ngram_builder.readers import Document, File, Reading
from ngram_builder.selection import Dedup, chosen, hash_of
from ngram_builder.work import read_json, write_json

_SHORT = 32  # characters; shorter lines stay where anything else of their document does
_PER_UNIT = 64  # bytes of memory to sort a hash with its place
LEAST_UNITS = 1 << 16  # sorted at once
PARAGRAPHS = "paragraphs"  # the reason for leaving out paragraphs; the others leave out documents


def note(plan: Plan, part: Part, consumed: Callable[[int], None] = lambda _: None) -> None:
    """Notes the hashes of a part, if they are not noted yet."""
    place, selection = plan.part(part.number), plan.selection
    place.mkdir(parents=True, exist_ok=True)
    if (place / "units.json").exists():
        return
    at_once = max(plan.memory // _PER_UNIT, LEAST_UNITS)
    held, ends, blocks, total = list[int](), list[int](), 0, 0

    def flush() -> None:
        nonlocal blocks
        hashes = np.array(held, dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        with replacing(place / f"units-{blocks}.npy", private=False) as opened:
            np.save(opened, np.stack([hashes[order], order.astype(np.uint64) + np.uint64(total - len(held))]))
        blocks += 1
        held.clear()

    for file in part.files:
        reading = Reading(lambda _: None, consumed, selection.signals)
        for document in chosen(file, reading, selection, Counter()):
            units = [hash_of(unit) for unit in _units(document.text, selection.dedup)]
            held += units
            total += len(units)
            if len(held) >= at_once:
                flush()
        ends.append(total)
    flush()
    write_json(place / "units.json", {"ends": ends, "blocks": blocks})


def find(plan: Plan, parts: Sequence[Part], order: Mapping[File, int]) -> None:
    """Finds the repeated places of all parts, whose hashes are noted, and writes them where they differ from those that
    are written."""
    places_of = [plan.part(part.number) for part in parts]
    noted = [read_json(place / "units.json") for place in places_of]
    ends = [np.array([0, *each["ends"]], dtype=np.int64) for each in noted]
    ranks = [np.array([order[file] for file in part.files], dtype=np.int64) for part in parts]
    total = sum(int(each[-1]) for each in ends)
    ranges = -(-total // max(plan.memory // (2 * _PER_UNIT), LEAST_UNITS)) or 1
    limits = [0, *(2**64 * i // ranges for i in range(1, ranges)), 2**64 - 1]
    growing = [place / "repeated.part" for place in places_of]
    for path in growing:
        path.write_bytes(b"")
    for low, high in pairwise(limits):
        found = list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]()
        for number, (place, each) in enumerate(zip(places_of, noted, strict=True)):
            for hashes, places in _between(place, each["blocks"], low, high, last=high == limits[-1]):
                file = np.searchsorted(ends[number], places, side="right") - 1
                found.append((hashes, ranks[number][file], places, np.full(len(places), number)))
        hashes, files, places, numbers = (np.concatenate(column) for column in zip(*found, strict=True))
        by_hash = np.lexsort((places, files, hashes))
        hashes, places, numbers = hashes[by_hash], places[by_hash], numbers[by_hash]
        again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
        for number in np.unique(numbers[again]):
            with growing[number].open("ab") as opened:
                places[again[numbers[again] == number]].tofile(opened)
    for path in growing:
        places = np.sort(np.fromfile(path, dtype=np.int64))
        if not np.array_equal(places, repeated(path.parent)):
            with replacing(path.with_name("repeated.npy"), private=False) as opened:
                np.save(opened, places)
        path.unlink()


def _between(place: Path, blocks: int, low: int, high: int, last: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Hashes from `low` up to but without `high`, and their places; with `last` including it."""
    for block in range(blocks):
        units = np.load(place / f"units-{block}.npy", mmap_mode="r")
        start = np.searchsorted(units[0], np.uint64(low))
        end = np.searchsorted(units[0], np.uint64(high), side="right" if last else "left")
        yield np.array(units[0, start:end]), np.array(units[1, start:end]).astype(np.int64)


def repeated(place: Path) -> np.ndarray:
    """The places in a part that repeat others, ascending."""
    with suppress(FileNotFoundError):
        return np.load(place / "repeated.npy")
    return np.zeros(0, dtype=np.int64)


def files_in(place: Path) -> list[Path]:
    """The files that this module has written to a part."""
    return [*place.glob("units*"), *place.glob("repeated.npy")]


def digest(places: np.ndarray) -> str:
    """Identifies what a part was counted without; "" if nothing is repeated."""
    return blake2b(places.tobytes(), digest_size=16).hexdigest() if len(places) else ""


class Sieve:
    """Leaves out what repeats other text, from the documents of one file after the other."""

    def __init__(self, place: Path, dedup: Dedup) -> None:
        self._dedup: Dedup = dedup
        self._ends = read_json(place / "units.json")["ends"]
        self._repeated = repeated(place)

    def sift(self, number: int, documents: Iterable[Document], left_out: Counter[str]) -> Iterator[Document]:
        """Yields what remains of the documents of file `number` of the part. Raises InputError when the file has
        changed since its hashes were noted."""
        start, end = ([0, *self._ends])[number : number + 2]
        first, last = np.searchsorted(self._repeated, [start, end])
        again = frozenset((self._repeated[first:last] - start).tolist())
        at, path = 0, ""
        for document in documents:
            path = document.path
            units = _units(document.text, self._dedup)
            new = [place not in again for place in range(at, at + len(units))]
            at += len(units)
            if not any(new):
                left_out["repeated"] += 1
                continue
            if not all(new):
                left_out[PARAGRAPHS] += new.count(False)
                document = replace(document, text=_without(document.text, new))
            yield document
        if at != end - start:
            raise InputError(f"{path} changed while it was read; run the same command again.")


def _units(text: str, dedup: Dedup | None) -> list[str]:
    """What may repeat other text: the document, or its lines that are not short, if it has any."""
    lines = [line.strip() for line in text.split("\n") if not _is_short(line)] if dedup == "paragraphs" else []
    return lines or [text.strip()]


def _without(text: str, new: Sequence[bool]) -> str:
    """The text without those of its lines that are not short and not new."""
    flags = iter(new)
    return "\n".join(line for line in text.split("\n") if _is_short(line) or next(flags))


def _is_short(line: str) -> bool:
    return len(line.strip()) < _SHORT
