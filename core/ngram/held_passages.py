"""Passages that wait to be added to a personal store: packed, so that those of 100 million tokens take a third of their
size in memory."""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Iterator

import zstandard

from core.ngram.passages import StoredPassage

_BLOCK = 1 << 20  # bytes packed together


class HeldPassages:
    """A queue of passages.

    Attributes:
        tokens, characters: of all of them.
    """

    def __init__(self) -> None:
        self.tokens = self.characters = 0
        self._count = 0
        self._first: deque[StoredPassage] = deque()  # of the block that `popleft` has unpacked
        self._blocks: deque[bytes] = deque()
        self._last: list[StoredPassage] = []
        self._size = 0  # bytes of `_last`

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[StoredPassage]:
        yield from self._first
        for block in self._blocks:
            yield from _unpacked(block)
        yield from self._last

    def append(self, passage: StoredPassage) -> None:
        self._add(passage, 1)
        self._last.append(passage)
        self._size += len(passage.text) + len(passage.ids)
        if self._size > _BLOCK:
            # Marshal and not JSON, because ids are bytes; the block never leaves this process.
            rows = [(each.text, each.tokens, each.ids) for each in self._last]
            self._blocks.append(zstandard.compress(marshal.dumps(rows), 1))
            self._last, self._size = [], 0

    def popleft(self) -> StoredPassage:
        """Removes the first passage and returns it."""
        if not self._first:
            if self._blocks:
                self._first.extend(_unpacked(self._blocks.popleft()))
            else:
                self._first.extend(self._last)
                self._last, self._size = [], 0
        passage = self._first.popleft()
        self._add(passage, -1)
        return passage

    def _add(self, passage: StoredPassage, times: int) -> None:
        self._count += times
        self.tokens += times * passage.tokens
        self.characters += times * len(passage.text)


def _unpacked(block: bytes) -> list[StoredPassage]:
    return [StoredPassage(*row) for row in marshal.loads(zstandard.decompress(block))]
