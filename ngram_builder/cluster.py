"""Builds on a Dask cluster with the same functions as on one machine: counting, where each part is one task, merging
and writing.

All machines must share the work folder: runs, ranges and segments pass through it, and only their names and sizes
through the scheduler. If a worker dies, the work since its part's last journal is lost; another worker continues from
the journal.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from core.errors import InputError
from ngram_builder.encoding import encoding
from ngram_builder.inputs import Part
from ngram_builder.machines import Machines, Tokens
from ngram_builder.parts import Advance, Counted, count_parts, journal_of, note_part
from ngram_builder.plan import Plan
from ngram_builder.ranges import merge_range
from ngram_builder.readers import Damage
from ngram_builder.runs import Run
from ngram_builder.write import SegmentPlan, write_segment

if TYPE_CHECKING:  # an optional package
    from distributed import Client, Future

    from core.models.base import Tokenizer

PATIENCE = 10  # seconds to wait for a scheduler

LoadTokenizer = Callable[[], "Tokenizer"]


@dataclass
class Cluster:
    """The machines of a Dask cluster; see `Machines`.

    Attributes:
        load: returns the tokenizer on a worker; must be importable there.
    """

    client: Client
    load: LoadTokenizer

    def note(self, plan: Plan, parts: Sequence[Part], consumed: Callable[[int], None]) -> None:
        self._check_folder(plan.folder)
        begun = {self.client.submit(note_part, plan, part, pure=False): part for part in parts}
        for future, _ in self._completed(list(begun)):
            consumed(sum(file.size for file in begun[future].files))

    def count(self, plan: Plan, parts: Sequence[Part], advance: Advance) -> list[Counted]:
        self._check_folder(plan.folder)
        before = [journal_of(plan, part.number) for part in parts]
        missing = [(part, known) for part, known in zip(parts, before, strict=True) if not known.done]
        begun = {
            self.client.submit(_count_part, plan, part, self.load, pure=False): (part, known) for part, known in missing
        }
        counted = {known.number: known for known in before}
        for future, now in self._completed(list(begun)):
            part, known = begun[future]
            counted[part.number] = now
            advance(
                sum(file.size for file in part.files[known.finished :]),
                now.documents - known.documents,
                now.tokens - known.tokens,
                [Damage(*place) for place in now.damage[len(known.damage) :]],
            )
        return [counted[part.number] for part in parts]

    def merge(self, plan: Plan, runs: Sequence[Run], ranges: Mapping[int, Tokens]) -> Iterator[None]:
        futures = [
            self.client.submit(merge_range, plan, number, list(runs), tokens, plan.memory, pure=False)
            for number, tokens in ranges.items()
        ]
        for _ in self._completed(futures):
            yield

    def write(self, plan: Plan, segments: Sequence[SegmentPlan]) -> Iterator[int]:
        futures = [self.client.submit(write_segment, plan, segment, pure=False) for segment in segments]
        for _, entries in self._completed(futures):
            yield entries

    def _completed(self, futures: Sequence[Future]) -> Iterator[tuple[Future, Any]]:
        from distributed import KilledWorker, as_completed

        try:
            yield from as_completed(list(futures), with_results=True)
        except KilledWorker as error:
            raise InputError(
                f"The cluster gave up a part after its workers died repeatedly ({error}), usually for lack of memory: "
                "give the workers more, or a smaller --memory. The counts so far are kept."
            ) from error
        finally:
            self.client.cancel([future for future in futures if not future.done()])

    def _check_folder(self, folder: Path) -> None:
        if not self.client.scheduler_info()["workers"]:
            self.client.wait_for_workers(1, timeout=60)
        mark = folder / f"part-seen-{uuid.uuid4().hex}"
        mark.touch()
        try:
            seen = cast("dict[str, bool]", self.client.run(_sees, str(mark)))
        finally:
            mark.unlink()
        if blind := [worker for worker, sees in seen.items() if not sees]:
            raise InputError(
                f"{len(blind)} of {len(seen)} workers ({blind[0]} for one) have no access to {folder}: choose a folder "
                "on a file system that all machines share, with --work."
            )


@contextmanager
def cluster(address: str, load: LoadTokenizer, workers: int | None = None) -> Iterator[Machines]:
    """Connects to the cluster of the scheduler at `address`, or with "local" starts one of `workers` processes here.

    Raises: InputError when Dask is not installed or no scheduler answers.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError("Counting on a cluster needs Dask: pip install 'polydraft[dask]'.") from error
    if address == "local":
        processes = workers or os.cpu_count() or 1
        with (
            LocalCluster(
                n_workers=processes, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
            ) as local,
            Client(local) as client,
        ):
            yield Cluster(client, load)
        return
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise InputError(f"No Dask scheduler answers at {address}: {error}.") from error
    with client:
        yield Cluster(client, load)


def _sees(path: str) -> bool:
    return Path(path).exists()


@cache
def _tokenizer(load: LoadTokenizer) -> Tokenizer:
    """Loads the tokenizer once per process."""
    return load()


def _count_part(plan: Plan, part: Part, load: LoadTokenizer) -> Counted:
    # Another worker, presumed dead, may still run the same part. Its runs have other names, so they are kept.
    with encoding(_tokenizer(load), workers=1, processes=1, memory=plan.memory // 4) as encode:
        (counted,) = count_parts(plan, [part], encode, plan.memory, alone=False)
    return counted
