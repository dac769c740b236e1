"""`polydraft bench NAME`: one measurement each, beside its peer in the same run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast

from rich.console import Console

from app.bench.report import BenchOptions, Report, show
from core.errors import PolydraftError

# Name -> the measurement. Each is a module of this package (- is _ there) with `measure(options, progress) -> Report`.
BENCHES = {
    "drafts": "time for k drafts of 10 tokens: Superposed, sampled in one batch, one after another",
    "keystroke": "key press to the drafts on the page, in real Chromium",
    "stillness": "counts of rows that stay and of movements in the page while text is typed, in real Chromium",
    "startup": "process start to a page that answers",
    "healing": "how often one of 3 drafts restores a half-typed word",
    "samplers": "each rule beside Hugging Face's own, Top-W beside plain NumPy",
    "per-token": "the whole time of a generated token under Top-W and its peers",
    "batches": "speculation for 1 to 16 texts in shared passes, beside plain decoding of as many",
    "panel": "slider move to chart and drafts of the sampling panel, in real Chromium; typing with the panel open",
    "cpu-torch": "the torch backend's step on this CPU, beside the time of reading its weights",
    "gpu": "steps, drafts, many people and samplers on a CUDA device, beside its bandwidth and Hugging Face's generate",
    "ngram": "n-gram stores: bytes, look-ups, opening, building, beside dict, SQLite, KenLM and infini-gram",
    "speculative": "tokens per second, accept length and speed-up over plain decoding, method by method",
    "serve": "editors that request completions at every key, 1 to 64 at once, beside llama-cpp-python and vLLM",
    "soak": "many typists at once on a real server, for minutes: waits, fairness, memory, leaks",
}


class Measurement(Protocol):
    """The module of one measurement."""

    def measure(self, options: BenchOptions, progress: Callable[[str], None]) -> Report: ...


def module_of(name: str) -> Measurement:
    return cast("Measurement", import_module(f"{__name__}.{name.replace('-', '_')}"))


def measure(name: str, options: BenchOptions, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Runs one measurement. `progress` is called with a description of each phase."""
    return module_of(name).measure(options, progress)


def run(name: str, as_json: bool, options: BenchOptions | None = None) -> int:
    """Runs a measurement and prints a table, or one JSON object on stdout.

    Returns: the exit status: 0 when it ran, whether its targets are met or not; 1 with a message.
    """
    console = Console(stderr=True, soft_wrap=True)
    if name not in BENCHES:
        console.print(f"There is no measurement called {name!r}. Choose one of: {', '.join(BENCHES)}.", markup=False)
        return 1
    options = options or BenchOptions()
    try:
        with console.status(f"{name} …") as status:
            report = measure(name, options, lambda text: status.update(f"{name}: {text} …"))
    except PolydraftError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    show(report, as_json)
    return 0
