"""`bench soak`: many typists at once on a real server, for minutes: their waits, and the state of the server
afterwards.

A single typist runs before and after, to detect lasting effects of the load. Memory, threads and descriptors are those
of the server's process.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import psutil
import typer

from research import texts as text
from research.bench.child import Child, running_app
from research.bench.typists import Habits, Outcomes, Server, Typist, foreign
from research.options import BackendOptions, TextOptions
from research.report import Progress, Report, percentile

ALONE = 60  # keys
FEW = 10  # keys of the warm-up
WARM = 1 / 3  # share of the time after which memory should be constant
SETTLE = 20.0  # seconds until connections that are kept alive are closed
EVERY = 1.0  # seconds between two samples of the process


@dataclass(frozen=True)
class Process:
    """The resources of the server's process."""

    memory: int  # bytes
    threads: int
    descriptors: int

    @classmethod
    def of(cls, process: psutil.Process) -> Process:
        return cls(process.memory_info().rss, process.num_threads(), process.num_fds())


@dataclass(frozen=True)
class SoakOptions(BackendOptions, TextOptions):
    minutes: Annotated[float, typer.Option(min=0.05, max=240, help="Duration.")] = 2.0
    typists: Annotated[int, typer.Option(min=1, max=512, help="Typists at once.")] = 64


def measure(options: SoakOptions, progress: Progress) -> Report:
    minutes, typists = options.minutes, options.typists
    words = " ".join(" ".join(document.split()) for file in text.load(options.text) for document in file)
    progress("starting the app")
    with running_app(options) as child:
        child.wait(child.ready)
        return asyncio.run(_soak(child, words, 60 * minutes, typists, progress))


async def _soak(child: Child, words: str, seconds: float, typists: int, progress: Progress) -> Report:
    server, process = Server(child.url, child.headers), psutil.Process(child.process.pid)
    progress("one typist alone")
    await _alone(server, words, FEW)
    before_alone = await _alone(server, words, ALONE)
    before = Process.of(process)
    outcomes, samples = Outcomes(), list[Process]()
    crowd = [
        Typist(i, server, words, Habits(silent=i % 2 == 1, slow=i % 8 == 3, restless=True), outcomes).type(seconds)
        for i in range(typists)
    ]
    began = time.perf_counter()

    async def watch() -> None:
        while True:
            await asyncio.sleep(EVERY)
            samples.append(Process.of(process))
            passed, drafts = time.perf_counter() - began, len(outcomes.first)
            progress(f"{typists} typists, {passed:.0f} of {seconds:.0f} s, {drafts} first drafts")

    watching = asyncio.create_task(watch())
    await asyncio.gather(*crowd, foreign(server, seconds, outcomes))
    watching.cancel()
    progress("one typist alone again")
    after_alone = await _alone(server, words, ALONE)
    progress("waiting until connections are closed")
    after = await _settled(process, before)
    return summary(outcomes, samples, before, after, (before_alone, after_alone), typists, seconds)


async def _alone(server: Server, words: str, keys: int) -> Outcomes:
    outcomes = Outcomes()
    await Typist(1000, server, words, Habits(restless=False), outcomes).type(math.inf, keys)
    return outcomes


async def _settled(process: psutil.Process, before: Process) -> Process:
    """Returns the resources of the process after idle connections have been closed."""
    end = time.perf_counter() + SETTLE
    while True:
        now = Process.of(process)
        if time.perf_counter() > end or (now.threads <= before.threads and now.descriptors <= before.descriptors):
            return now
        await asyncio.sleep(EVERY)


def summary(
    outcomes: Outcomes,
    samples: list[Process],
    before: Process,
    after: Process,
    alone: tuple[Outcomes, Outcomes],
    typists: int,
    seconds: float,
) -> Report:
    report = Report("soak")
    crowd, waits = f"{typists} typists", [wait for waits in outcomes.waits.values() for wait in waits]
    for what, times in (
        (f"{crowd}: key to its first drafts", outcomes.first),
        (f"{crowd}: first key without drafts to the next ones", waits),
        ("alone before: key to its first drafts", alone[0].first),
        ("alone after: key to its first drafts", alone[1].first),
    ):
        report.times(what, [1000 * seconds for seconds in times], (50, 95, 99))
    for end, count in sorted(outcomes.ends.items()):
        report.rows.append({"what": f"requests: {end}", "count": count})
    for why, count in outcomes.lost.most_common(5):
        report.rows.append({"what": f"why: {why}", "count": count})
    warm = [sample.memory for sample in samples[math.ceil(WARM * len(samples)) :]] or [after.memory]
    middle = median(warm)
    for what, memory in (("before", before.memory), ("warm, median", middle), ("warm, most", max(warm))):
        report.rows.append({"what": f"memory, MB: {what}", "count": round(memory / 1e6)})
    report.rows.append({"what": "first drafts a second", "count": round(len(outcomes.first) / seconds, 1)})
    answered = sum(count for end, count in outcomes.ends.items() if end.startswith("foreign, answered"))
    away = max(abs(memory - middle) / middle for memory in warm)
    report.target("requests without a response", outcomes.ends["lost"], "<= 0")
    report.target("foreign requests that were answered", answered, "<= 0")
    report.target("fairness: slowest typist's median wait / median", outcomes.slowest_to_median(), "<= 2")
    report.target("memory after warm-up: furthest from its median, %", 100 * away, "<= 5")
    report.target("threads left", after.threads - before.threads, "<= 0")
    report.target("descriptors left", after.descriptors - before.descriptors, "<= 0")
    first, last = (percentile(outcomes.first, 50) for outcomes in alone)
    report.target("alone after / alone before, p50 to first drafts", last / first, "<= 1.1")
    return report
