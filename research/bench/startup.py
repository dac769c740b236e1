"""`bench startup`: time from process start to a page that answers and to the first draft possible, beside a bare Gradio
page; and the memory of the idle app."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import median
from time import sleep

from psutil import Process

from research.bench.child import free_port, running, running_app
from research.options import BackendOptions, Rounds
from research.report import Progress, Report, counted

IDLE = 1.0  # seconds until the app is idle
BARE = """
import sys, gradio
with gradio.Blocks(analytics_enabled=False) as page:
    gradio.Textbox()
page.launch(server_name="127.0.0.1", server_port=int(sys.argv[1]), quiet=True)
"""


@dataclass(frozen=True)
class StartupOptions(BackendOptions):
    repetitions: Rounds = 3


def measure(options: StartupOptions, progress: Progress) -> Report:
    answers: list[float] = []
    ready: list[float] = []
    bare: list[float] = []
    memory: list[float] = []
    rounds = options.repetitions
    for _ in counted(range(rounds), "round", progress):
        with running_app(options) as child:
            answers.append(child.wait(child.answers))
            ready.append(child.wait(child.ready))
            sleep(IDLE)
            memory.append(Process(child.process.pid).memory_info().rss / 1e6)
        port = free_port()
        with running([sys.executable, "-c", BARE, str(port)], port) as child:
            bare.append(child.wait(child.answers))
    report = Report("startup")
    for what, seconds in (
        ("Polydraft: the page answers", answers),
        ("Polydraft: the first draft is possible", ready),
        ("a bare Gradio page answers", bare),
    ):
        report.rows.append({"what": what, "s": median(seconds), "min_s": min(seconds), "max_s": max(seconds)})
    report.rows.append({"what": "Polydraft: resident memory at rest", "MB": round(median(memory))})
    report.target("process start to a page that answers, s", median(answers), "<= 3.5")
    report.target("process start to the first draft possible, s", median(ready), "<= 6")
    return report
