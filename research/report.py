"""The report of every measurement, and interleaved timing, so that other load affects all runs alike."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from app.machine.output import plain, say_json

LONGEST_NAME = 60  # characters of a text that names a row; longer ones are explanations

Figure = str | float | None  # int and bool are floats to a type checker
ReportRow = dict[str, Figure]
Progress = Callable[[str], object]  # called with a description of each phase
T = TypeVar("T")


def number_in(row: ReportRow, key: str) -> float:
    """Returns a number of a row. Raises TypeError if it is none."""
    value = row[key]
    if not isinstance(value, int | float):
        raise TypeError(f"{key} is {value!r}, not a number.")
    return value


def text_in(row: ReportRow, key: str) -> str:
    """Returns a text of a row. Raises TypeError if it is none."""
    value = row[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, not a text.")
    return value


_COMPARE = {"<=": operator.le, ">=": operator.ge}


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
    rows: list[ReportRow] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def times(self, what: str, ms: Sequence[float], percents: tuple[int, ...]) -> None:
        """Adds a row with percentiles of some times, in ms."""
        shares = {f"p{p}_ms": percentile(ms, p) for p in percents}
        self.rows.append({"what": what, "count": len(ms)} | shares)

    def target(self, name: str, value: float, target: str) -> None:
        self.targets.append(Target(name, value, target))

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "rows": [{key: _plain(value) for key, value in row.items()} for row in self.rows],
            "targets": [asdict(t) | {"value": _plain(t.value), "met": t.met} for t in self.targets],
        }


def _plain(value: Figure) -> Figure:
    """Returns a value that JSON can represent."""
    if not isinstance(value, float):
        return value
    return round(value, 4) if math.isfinite(value) else None


def table(report: Report, console: Console) -> list[Table]:
    """Returns the results, in as many tables as the console's width needs, and a table of the targets."""
    tables = list(_results(report, console))
    if report.targets:
        target_table = Table(title="targets", title_justify="left")
        for column in ("", "measured", "target", "met"):
            target_table.add_column(column, justify="right" if column == "measured" else "left")
        for t in report.targets:
            target_table.add_row(plain(t.name), _shown(t.value), t.target, "[green]yes[/]" if t.met else "[red]no[/]")
        tables.append(target_table)
    return tables


def _results(report: Report, console: Console) -> Iterator[Table]:
    """Columns that are too many for the width go into further tables, beside the columns that name the rows."""
    unlimited = console.options.update(max_width=10_000)
    for rows in _alike(report.rows):
        columns = _columns(rows)
        names = _naming(columns, rows)
        first, columns = 0, [column for column in columns if column not in names]
        while first < max(len(columns), 1):  # a table of the names alone, if there is nothing else
            last = len(columns)
            table = _result_table(report.name, rows, names, columns[first:last])
            while last > first + 1 and Measurement.get(console, unlimited, table).maximum > console.width:
                last -= 1
                table = _result_table(report.name, rows, names, columns[first:last])
            yield table
            first = max(last, 1)


def _result_table(title: str, rows: list[ReportRow], names: list[str], columns: list[str]) -> Table:
    """The rows that have a value in any of the columns."""
    table = Table(title=title, title_justify="left")
    for column in names + columns:
        numeric = all(isinstance(row.get(column, 0), int | float | None) for row in rows)
        table.add_column(column.replace("_", "\n"), justify="right" if numeric else "left")
    for row in rows:
        if not columns or any(row.get(column) is not None for column in columns):
            table.add_row(*(plain(_shown(row.get(column))) for column in names + columns))
    return table


def _alike(rows: list[ReportRow]) -> list[list[ReportRow]]:
    """The rows, in groups that have half of their columns in common."""
    groups: list[tuple[set[str], list[ReportRow]]] = []
    for row in rows:
        for keys, group in groups:
            if 2 * len(keys & row.keys()) >= min(len(keys), len(row)):
                keys |= row.keys()
                group.append(row)
                break
        else:
            groups.append((set(row), [row]))
    return [group for _, group in groups]


def _columns(rows: list[ReportRow]) -> list[str]:
    """The keys of all rows. A key that only later rows have comes after the one that precedes it there."""
    columns: list[str] = []
    for row in rows:
        at = 0
        for key in row:
            if key not in columns:
                columns.insert(at, key)
            at = columns.index(key) + 1
    return columns


def _naming(columns: list[str], rows: list[ReportRow]) -> list[str]:
    """The first columns, up to the last short text among the first five: they name the rows."""
    first = [c for c in columns[:5] if all(len(_shown(row.get(c))) <= LONGEST_NAME for row in rows)]
    texts = [n for n, c in enumerate(first, 1) if any(isinstance(row.get(c), str) for row in rows)]
    return first[: max(texts)] if texts else columns[:1]


def _shown(value: Figure) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def counted(values: Sequence[T], what: str, progress: Progress) -> Iterator[T]:
    """Yields the values, and reports the number of each before it: "place 3 of 40"."""
    for number, value in enumerate(values, 1):
        progress(f"{what} {number} of {len(values)}")
        yield value


def turned(values: Sequence[T], number: int) -> list[T]:
    """Returns the values from another one on in each round, so that no value is always first."""
    first = number % len(values)
    return [*values[first:], *values[:first]]


@contextmanager
def one_thread() -> Iterator[None]:
    """Context manager: torch computes in one thread."""
    import torch  # takes a while to import, and the command line needs this module

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
    """Times every run once per round. Each round starts with another run.

    Args:
        before: called with the number of the round before each run, outside the measured time. Round -1 is the warm-up.
    """
    names = list(runs)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):
        for name in turned(names, max(number, 0)):
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
        say_json(report.as_dict(), indent=2)
    else:
        console = Console()
        console.print(*table(report, console))
