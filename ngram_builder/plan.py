"""The settings that every part, range and segment of a build needs, on whatever machine it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ngram_builder.count import Packing
from ngram_builder.selection import DocumentSelection


@dataclass(frozen=True)
class Plan:
    """Where and how to count; see `work` for the folders.

    Attributes:
        memory: bytes for sorting and merging, all workers of a machine together.
        whole: the runs have n-grams of stores, not windows.
    """

    folder: Path
    packing: Packing
    orders: range
    min_counts: Mapping[int, int]
    memory: int
    workers: int
    selection: DocumentSelection = field(default_factory=DocumentSelection)
    exact: bool = False
    whole: bool = False

    def part(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}"

    @property
    def ranges(self) -> Path:
        return self.folder / "ranges"

    @property
    def segments(self) -> Path:
        return self.ranges / "segments"
