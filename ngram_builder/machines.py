"""The places where the steps of a build are made: this machine, or a cluster (see `cluster`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from ngram_builder import write
from ngram_builder.child import Children
from ngram_builder.encoding import PER_PROCESS, encoding
from ngram_builder.inputs import Part
from ngram_builder.parts import Advance, Counted, count_parts, note_part
from ngram_builder.plan import Plan
from ngram_builder.ranges import merge_range, read_range
from ngram_builder.runs import Run
from ngram_builder.write import SegmentPlan, write_segment

if TYPE_CHECKING:  # its module imports torch, which counting does not need
    from core.models.base import Tokenizer

DOCUMENTS = 150 << 20  # bytes that documents and their tokens in flight take, at most
LEAST_MEMORY = 64 << 20  # bytes for sorting; a build with less would be too slow
FEW = 1 << 20  # n-grams that are written faster than a process starts

Tokens = tuple[int | None, int | None]  # a range of first tokens: from one up to but without another
Done = TypeVar("Done")


class Machines(Protocol):
    """Each method makes some steps of a build, all at once."""

    def note(self, plan: Plan, parts: Sequence[Part], consumed: Callable[[int], None]) -> None:
        """Notes the documents or paragraphs of parts."""
        ...

    def count(self, plan: Plan, parts: Sequence[Part], advance: Advance) -> list[Counted]:
        """Counts parts."""
        ...

    def merge(self, plan: Plan, runs: Sequence[Run], ranges: Mapping[int, Tokens]) -> Iterator[None]:
        """Merges runs; yields for each range when it is complete."""
        ...

    def write(self, plan: Plan, segments: Sequence[SegmentPlan]) -> Iterator[int]:
        """Writes segments; yields the number of n-grams of each when it is written."""
        ...


@dataclass
class ThisMachine:
    """All cores of this machine: processes that encode (see `encoding`) and write, and threads that sort, which
    releases Python's lock.

    Attributes:
        tokenizer: None counts nothing.
    """

    tokenizer: Tokenizer | None = None

    def note(self, plan: Plan, parts: Sequence[Part], consumed: Callable[[int], None]) -> None:
        for part in parts:
            note_part(plan, part, consumed)

    def count(self, plan: Plan, parts: Sequence[Part], advance: Advance) -> list[Counted]:
        assert self.tokenizer
        spare = max(plan.memory // 2 - LEAST_MEMORY, 0)  # half of the memory at most goes to processes
        processes = min(plan.workers, spare // PER_PROCESS)
        memory = plan.memory - (processes * PER_PROCESS if processes > 1 else 0)
        with encoding(self.tokenizer, plan.workers, processes, plan.memory // 4) as encode:
            return count_parts(plan, parts, encode, memory, max(plan.workers // 2, 1), advance)

    def merge(self, plan: Plan, runs: Sequence[Run], ranges: Mapping[int, Tokens]) -> Iterator[None]:
        _sweep(plan)
        each = plan.memory // plan.workers
        with ThreadPoolExecutor(plan.workers) as pool:
            merging = [pool.submit(merge_range, plan, number, runs, some, each) for number, some in ranges.items()]
            yield from _completed(pool, merging)

    def write(self, plan: Plan, segments: Sequence[SegmentPlan]) -> Iterator[int]:
        at_once = max((plan.memory + DOCUMENTS) // write.MEMORY, 1)  # no documents are in memory any more
        at_once = min(plan.workers, at_once, len(segments))
        if at_once == 1 or sum(segment.entries for segment in segments) <= FEW:
            yield from (write_segment(plan, segment) for segment in segments)
            return
        with ExitStack() as opened:  # processes, because marisa-trie holds Python's lock while it builds
            children = opened.enter_context(Children())
            pool = opened.enter_context(ThreadPoolExecutor(at_once))
            writing = [pool.submit(children.call, write_segment, plan, segment) for segment in segments]
            yield from _completed(pool, writing)


def _completed(pool: ThreadPoolExecutor, futures: Sequence[Future[Done]]) -> Iterator[Done]:
    """The results as they come. After an error nothing that waits is begun."""
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _sweep(plan: Plan) -> None:
    """Removes the files of ranges that were not completed."""
    named: set[Path] = set()
    for path in plan.ranges.glob("range-*.json"):
        if found := read_range(plan, int(path.stem.removeprefix("range-"))):
            named.update(found.files(plan.ranges))
    for path in plan.ranges.glob("range-*.rows"):
        if path not in named:
            path.unlink()
