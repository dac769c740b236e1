"""The report of every measurement, and interleaved timing, so that other load affects all runs alike."""

from __future__ import annotations

import json
import math
import operator
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

_COMPARE = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class BenchOptions:
    """The options of a measurement.

    Attributes:
        text: a file or folder to measure on; None is the app's own small text.
        model: as in `load_model`.
        backend: "auto", "torch" or "llama.cpp"; `drafts` measures both for "auto".
        precision: for `speculative`: as in `load_model`.
        base_store: the file of the n-gram store, or "none"; None is the app's own.
        repetitions: the number of repetitions; None is each measurement's own default.
        tiny: whether `gpu` measures a tiny shape, on any device.
        prompts: for `speculative`: the number of prompts of each kind; None is its own default.
        head: for `speculative`: the folder of an EAGLE-3 head; None is the one for the default model.
        pruning: for `speculative`: whether other rules of pruning are measured.
        sweep: for `speculative`: whether temperatures and θ are measured instead of methods.
        plots: for `speculative` with `sweep`: the SVG file for the curves.
        vllm: for `serve`: the Python of an environment with vLLM, which is measured too.
        minutes, typists: for `soak` and `serve`: the duration and the number of typists; None is their own default.
    """

    text: Path | None = None
    model: str = "default"
    backend: str = "auto"
    precision: str = "file"
    base_store: str | None = None
    repetitions: int | None = None
    tiny: bool = False
    prompts: int | None = None
    head: Path | None = None
    pruning: bool = False
    sweep: bool = False
    plots: Path | None = None
    minutes: float | None = None
    typists: int | None = None
    vllm: str | None = None

    @property
    def store(self) -> Path | None:
        """Returns the path of the base store; None for none. Raises StoreError for a file that is not a store."""
        from core.ngram.base import chosen

        return chosen(self.base_store)


@dataclass(frozen=True)
class Target:
    """A figure and its bound: `target` is "<= 1.05" or ">= 65"."""

    name: str
    value: float
    target: str

    @property
    def met(self) -> bool:
        """Whether the exact value meets the bound; a missing value (nan) does not."""
        sign, bound = self.target.split()
        return _COMPARE[sign](self.value, float(bound))


@dataclass
class Report:
    """One measurement: `rows` are the results, one flat dict each; `targets` compare some of them with bounds."""

    name: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def target(self, name: str, value: float, target: str) -> None:
        self.targets.append(Target(name, value, target))

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rows": [{key: _plain(value) for key, value in row.items()} for row in self.rows],
            "targets": [asdict(t) | {"value": _plain(t.value), "met": t.met} for t in self.targets],
        }


def _plain(value: Any) -> Any:
    """Returns a value that JSON can represent."""
    if not isinstance(value, float):
        return value
    return round(value, 4) if math.isfinite(value) else None


def table(report: Report) -> list[RenderableType]:
    """Returns the report as tables: the results, and the targets below them."""
    columns = list(dict.fromkeys(key for row in report.rows for key in row))
    seen = Table(title=report.name, title_justify="left")
    for column in columns:
        numeric = all(isinstance(row.get(column, 0), int | float) for row in report.rows)
        seen.add_column(column.replace("_", " "), justify="right" if numeric else "left")
    for row in report.rows:
        seen.add_row(*(_shown(row.get(column)) for column in columns))
    judged = Table(title="targets", title_justify="left")
    for column in ("", "measured", "target", "met"):
        judged.add_column(column, justify="right" if column == "measured" else "left")
    for t in report.targets:
        judged.add_row(t.name, _shown(t.value), t.target, "[green]yes[/]" if t.met else "[red]no[/]")
    return [seen, judged] if report.targets else [seen]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass
class Timings:
    """Seconds by name; the i-th of every name was measured in the same round, under the same load."""

    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        return median(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Returns the median over rounds of one time divided by another of the same round."""
        return median(a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True))


def interleaved(
    runs: dict[str, Callable[[], object]],
    rounds: int,
    before: Callable[[int], object] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timings:
    """Times every run once per round. Each round starts with another run, so that no run is always first.

    Args:
        before: called with the number of the round before each run, outside the measured time. Round -1 is the warm-up.
    """
    names = list(runs)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):
        first = max(number, 0) % len(names)
        for name in names[first:] + names[:first]:
            before(number)
            start = clock()
            runs[name]()
            elapsed = clock() - start
            if number >= 0:
                taken[name].append(elapsed)
    return Timings(taken)


def percentile(values: Iterable[float], percent: float) -> float:
    """Returns the smallest value that at least `percent` % of `values` do not exceed; nan without values."""
    ordered: Sequence[float] = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(math.ceil(percent / 100 * len(ordered)), 1) - 1]


def show(report: Report, as_json: bool) -> None:
    """Prints a report on stdout: a table, or one JSON object."""
    if as_json:
        json.dump(report.as_dict(), sys.stdout, ensure_ascii=False, indent=2)
        sys.stdout.write("\n")
    else:
        Console().print(*table(report))
