"""Finds private passages in texts that other programs have written, so that a copy of private text is private too.

Two kinds of passages are compared:

- Of a document whose text is at hand, `add_text` takes the text itself, in blocks of `BLOCK` UTF-16 units. A text that
  shares 2 `BLOCK` - 1 units in a row with a passage contains one of its blocks, whatever was changed around it.
- Of a passage that another program has removed from its document, only `Trace`s are left, which `traces` makes while
  the text is at hand: of each sentence its length and digest, never the text. A text that contains such a sentence
  unchanged is found. Sentences shorter than `BLOCK` occur anywhere, so they leave a trace only if the passage has no
  longer one.

A passage shorter than `BLOCK` counts as a whole; a single character, or one repeated, is no passage. All lengths and
positions are in UTF-16 units, as the page counts.

White space is compared as one space, whatever it is: other programs write other line ends, and wrap lines anew.

A text is read once for each length of what is searched, at most `BLOCK` times, however many passages there are: a hash
of the first units of each passage is looked up at every position, and only where it agrees the digest is computed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

if TYPE_CHECKING:
    import numpy as np

BLOCK = 16  # units
MOST_TRACES = 256  # of one text; of more sentences, evenly spaced ones leave a trace
PIECE = 1 << 20  # units of a text that are hashed at once: 16 MB of numbers
HASHED = 64 << 20  # units whose digests are computed for one text; a text that needs more counts as private
_ODD = 0x9E3779B97F4A7C15  # multiplier of the hash
_KEPT = 40  # bits of a hash that a trace drops, so that it does not reveal its first units
_SPACE = re.compile(r"\s+")

Ranges = Sequence[Sequence[int]]

# The length of a passage, 24 bits of the hash of its first `BLOCK` units, and its digest.
Trace = tuple[
    Annotated[int, Field(ge=1, le=1 << 40)],
    Annotated[int, Field(ge=0, lt=1 << 24)],
    Annotated[str, Field(pattern="^[0-9a-f]{32}$")],
]


def units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    return len(_encoded(text)) // 2


def joined(ranges: Ranges) -> list[list[int]]:
    """Sorts ranges, joins those that touch, and drops empty ones."""
    ranges_joined: list[list[int]] = []
    for start, end in sorted((start, end) for start, end in ranges if start < end):
        if ranges_joined and start <= ranges_joined[-1][1]:
            ranges_joined[-1][1] = max(ranges_joined[-1][1], end)
        else:
            ranges_joined.append([start, end])
    return ranges_joined


def traces(text: str, ranges: Ranges) -> list[Trace]:
    """The traces of the private passages of a text."""
    passages_compared: list[bytes] = []
    for passage in _passages(text, ranges):
        sentences = [_compared(part.strip()) for part in re.split(r"(?<=[.!?…])\s+|\n+", passage)]
        passages_compared += [sentence for sentence in sentences if len(sentence) >= 2 * BLOCK] or [_compared(passage)]
    step = -(-len(passages_compared) // MOST_TRACES) or 1
    return [(len(data) // 2, _first(data), _digest(data)) for data in passages_compared[::step]]


class PrivateText:
    """Private passages of many documents; `within` finds them in a text."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[Any]] = defaultdict(list)  # by length: arrays of hashes, one array when sorted
        self._traces: dict[int, dict[int, set[tuple[int, str]]]] = defaultdict(lambda: defaultdict(set))

    def add_text(self, text: str, ranges: Ranges) -> None:
        """Adds the private passages of a text that is at hand."""
        import numpy as np

        for passage in _passages(text, ranges):
            numbers = _numbers(_compared(passage))
            length = min(BLOCK, len(numbers))
            starts = np.append(np.arange(0, len(numbers) - length, length), len(numbers) - length)
            blocks = np.lib.stride_tricks.sliding_window_view(numbers, length)[starts]
            hashes = _hashes(numbers, length)[starts][blocks.max(1) != blocks.min(1)]
            self._blocks[length].append(np.unique(hashes))

    def add_traces(self, traces: Iterable[Trace]) -> None:
        """Adds passages of which only traces are left."""
        for length, first, digest in traces:
            self._traces[min(BLOCK, length)][first].add((length, digest))

    def within(self, text: str) -> bool:
        """Whether a text contains a passage, or much of one."""
        import numpy as np

        data, left = _compared(text), HASHED
        for length in sorted({*self._blocks, *self._traces}):
            blocks = self._blocks.get(length, [])
            if len(blocks) > 1:
                blocks[:] = [np.unique(np.concatenate(blocks))]
            firsts = np.array(sorted(self._traces.get(length, ())), np.uint64)
            for start, hashes in _pieces(data, length):
                if blocks and _among(hashes, blocks[0]).any():
                    return True
                for at in np.flatnonzero(_among(hashes >> np.uint64(_KEPT), firsts)):
                    first = int(hashes[at]) >> _KEPT
                    for whole, digest in self._traces[length][first]:
                        left -= whole
                        part = data[2 * (start + at) : 2 * (start + at + whole)]
                        if left < 0 or _digest(part) == digest:
                            return True
        return False


def _passages(text: str, ranges: Ranges) -> Iterator[str]:
    """The private parts of a text, without white space around them, that say something."""
    data = _encoded(text)
    for start, end in joined(ranges):
        passage = data[2 * max(start, 0) : 2 * max(end, 0)].decode("utf-16-le", "surrogatepass").strip()
        if len(set(passage)) > 1:
            yield passage


def _compared(text: str) -> bytes:
    """A text as it is compared with others."""
    return _encoded(_SPACE.sub(" ", text))


def _encoded(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _numbers(data: bytes) -> np.ndarray[Any, np.dtype[np.uint64]]:
    import numpy as np

    return np.frombuffer(data, "<u2").astype(np.uint64)


def _first(data: bytes) -> int:
    """The kept bits of the hash of the first units."""
    numbers = _numbers(data[: 2 * BLOCK])
    return int(_hashes(numbers, len(numbers))[0]) >> _KEPT


def _hashes(numbers: Any, length: int) -> Any:
    """The hashes, modulo 2^64, of all parts of this length: (len(found) - length + 1,) uint64."""
    import numpy as np

    hashes = np.zeros(len(numbers) - length + 1, np.uint64)
    factor = 1
    for at in range(length):
        factor = factor * _ODD % (1 << 64)
        hashes += (numbers[at : at + len(hashes)] + np.uint64(1)) * np.uint64(factor)
    return hashes


def _among(hashes: Any, known: Any) -> Any:
    """Which numbers are among others, which are sorted."""
    import numpy as np

    if not len(known):
        return np.zeros(len(hashes), bool)
    return known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)] == hashes


def _pieces(data: bytes, length: int) -> Iterator[tuple[int, Any]]:
    """The hashes of all parts of this length, in pieces, each with the position of its first part."""
    for start in range(0, len(data) // 2 - length + 1, PIECE):
        yield start, _hashes(_numbers(data[2 * start : 2 * (start + PIECE + length - 1)]), length)
