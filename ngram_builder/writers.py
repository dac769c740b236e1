"""Writes the segments of a store on all cores, in processes: marisa-trie holds Python's lock while it builds."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from core.errors import PolydraftError
from ngram_builder.count import Packing
from ngram_builder.write import SegmentPlan, read_tokens, write_segment

COMMAND = (sys.executable, "-P", "-m", f"{__package__}.writer_child")  # -P: not a package of the working folder
FEW = 1 << 20  # n-grams that are written faster than a process starts


def write_segments(
    folder: Path, plans: Sequence[SegmentPlan], packing: Packing, exact: bool, workers: int
) -> Iterator[int]:
    """Writes segments into `folder`, and yields the number of n-grams of each as it is done. Raises what
    `write_segment` does; PolydraftError if a process ends."""
    by_rank = read_tokens(folder)
    calls = [(folder, plan, by_rank, packing, exact) for plan in plans]
    if workers == 1 or sum(plan.entries for plan in plans) <= FEW:
        for call, plan in zip(calls, plans, strict=True):
            write_segment(*call)
            yield plan.entries
        return
    idle: SimpleQueue[_Process] = SimpleQueue()

    def write(call: tuple[Any, ...], entries: int) -> int:
        process = idle.get()
        try:
            process.write(call)
        finally:
            idle.put(process)
        return entries

    with ExitStack() as opened:
        for _ in range(min(workers, len(plans))):
            idle.put(opened.enter_context(_Process()))
        pool = opened.enter_context(ThreadPoolExecutor(min(workers, len(plans))))
        futures = [pool.submit(write, call, plan.entries) for call, plan in zip(calls, plans, strict=True)]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


class _Process:
    """A process that writes segments; see `writer_child`."""

    def __enter__(self) -> _Process:
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def write(self, call: tuple[Any, ...]) -> None:
        commands, answers = self._process.stdin, self._process.stdout
        assert commands is not None
        assert answers is not None
        try:
            commands.write(pickle.dumps(call))
            commands.flush()
            answer = pickle.load(answers)  # noqa: S301 our own child's
        except (EOFError, BrokenPipeError) as error:
            raise PolydraftError(
                f"A process that writes the store ended with status {self._process.wait()}, usually for lack of "
                "memory: give a smaller --memory or fewer --workers. What is done so far is kept."
            ) from error
        if answer is not None:
            raise answer
