"""Draws charts of an evaluation's rows as SVG: one chart per figure, with a line per series and its label at the end,
or with named points. Readable on light and dark background."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from research.report import ReportRow, number_in

WIDE, HIGH = 540, 300  # of one chart
LEFT, RIGHT, TOP, BOTTOM = 52, 208, 34, 40
APART = 13  # between two labels
# Eight hues that most colour-blind readers can distinguish.
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a7a00", "#56b4e9", "#7a5195", "#777777")
DASHES = ("", ' stroke-dasharray="5 3"', ' stroke-dasharray="1.5 3"')  # of the first, second and third use of a hue
Series = Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class _Axes:
    """The axes of a chart, which convert values to positions."""

    x0: float
    x1: float
    low: float
    high: float
    log: bool = False

    def x(self, x: float) -> float:
        return LEFT + (x - self.x0) / ((self.x1 - self.x0) or 1) * (WIDE - LEFT - RIGHT)

    def y(self, y: float) -> float:
        low, high = self.low, self.high
        share = math.log(max(y, low) / low) / math.log(high / low) if self.log else (y - low) / (high - low)
        return HIGH - BOTTOM - share * (HIGH - TOP - BOTTOM)

    def drawn(self, title: str, x_label: str, x_ticks: Sequence[float]) -> list[str]:
        """Returns the title, a line at each tick of y, and the numbers and the name of x."""
        parts = [f'<text x="{LEFT}" y="18" font-weight="600">{escape(title)}</text>']
        for tick in _ticks(self.low, self.high, self.log):
            y = self.y(tick)
            parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDE - RIGHT}" stroke="#8884" fill="none"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
        parts += [
            f'<text x="{self.x(x):.1f}" y="{HIGH - BOTTOM + 16}" text-anchor="middle">{x:g}</text>' for x in x_ticks
        ]
        middle = (LEFT + WIDE - RIGHT) / 2
        return [*parts, f'<text x="{middle}" y="{HIGH - 8}" text-anchor="middle">{escape(x_label)}</text>']


def points(rows: Iterable[ReportRow], x: str, y: str) -> list[tuple[float, float]]:
    """Returns the points in columns `x` and `y` of a table."""
    return [(number_in(row, x), number_in(row, y)) for row in rows]


def series(rows: Iterable[ReportRow], name: str, x: str, y: str) -> Series:
    """Returns the points in columns `x` and `y` of a table, by the value in its column `name`, in the order of rows."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        groups.setdefault(str(row[name]), []).append((number_in(row, x), number_in(row, y)))
    return groups


def _look(number: int) -> tuple[str, str]:
    """Returns the hue and the dash of a chart's nth line; no two lines of a chart share both."""
    if number >= len(HUES) * len(DASHES):
        raise ValueError(f"{number + 1} lines in a chart; at most {len(HUES) * len(DASHES)} can be told apart.")
    return HUES[number % len(HUES)], DASHES[number // len(HUES)]


def lines(title: str, x_label: str, series: Series, log: bool = False) -> str:
    """Returns a chart as an SVG group of WIDE × HIGH. `series` are (x, y) points by name; a single point is
    drawn as a mark. With `log`, y is logarithmic and must be positive."""
    points = [point for line in series.values() for point in line]
    ys = [y for _, y in points]
    low, high = (max(min(ys), 1e-9), max(ys)) if log else (min(0.0, *ys), max(ys))
    if high <= low:
        high = low * 10 if log else low + 1
    axes = _Axes(min(x for x, _ in points), max(x for x, _ in points), low, high, log)
    parts = axes.drawn(title, x_label, sorted({x for x, _ in points}))
    ends = []
    for number, (name, line) in enumerate(series.items()):
        hue, dash = _look(number)
        path = "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in line)
        parts.append(f'<path d="M{path}" fill="none" stroke="{hue}" stroke-width="1.8"{dash}/>')
        if len(line) == 1:
            parts.append(_mark(axes.x(line[0][0]), axes.y(line[0][1]), hue, True, False))
        ends.append((axes.y(line[-1][1]), name, hue))
    for y, (_, name, hue) in zip(_spread([end[0] for end in sorted(ends)]), sorted(ends), strict=True):
        parts.append(f'<text x="{WIDE - RIGHT + 6}" y="{y + 4:.1f}" style="fill:{hue}">{escape(name)}</text>')
    return "".join(parts)


@dataclass(frozen=True)
class PlotPoint:
    x: float
    y: float
    label: str = ""
    filled: bool = True


def scatter(title: str, x_label: str, groups: Mapping[str, Sequence[PlotPoint]]) -> str:
    """Returns a chart of points as an SVG group of WIDE × HIGH. No two groups have both hue and mark in common;
    their names are on the right. A line joins a group's filled points in their order, a dashed one its hollow points.
    Both axes begin at 0."""
    if len(groups) > 2 * len(HUES):
        raise ValueError(f"{len(groups)} groups in a chart of points; at most {2 * len(HUES)} can be told apart.")
    points = [point for group in groups.values() for point in group]
    axes = _Axes(0.0, 1.05 * max(p.x for p in points), 0.0, 1.05 * (max(p.y for p in points) or 1.0))
    parts = axes.drawn(title, x_label, _ticks(axes.x0, axes.x1, False))
    for number, (name, group) in enumerate(groups.items()):
        hue, square = HUES[number % len(HUES)], number >= len(HUES)
        for filled, dash, below in ((True, DASHES[0], -6), (False, DASHES[1], 14)):
            drawn = [p for p in group if p.filled is filled]
            path = "L".join(f"{axes.x(p.x):.1f} {axes.y(p.y):.1f}" for p in drawn)
            if len(drawn) > 1:
                parts.append(f'<path d="M{path}" fill="none" stroke="{hue}" stroke-opacity=".6"{dash}/>')
            for p in drawn:
                x, y = axes.x(p.x), axes.y(p.y)
                parts.append(_mark(x, y, hue, filled, square))
                if p.label:
                    parts.append(f'<text x="{x + 2:.1f}" y="{y + below:.1f}">{escape(p.label)}</text>')
        y = TOP + 1.5 * APART * (number + 0.5)
        parts.append(_mark(WIDE - RIGHT + 10, y - 4, hue, True, square))
        parts.append(f'<text x="{WIDE - RIGHT + 19}" y="{y:.1f}" style="fill:{hue}">{escape(name)}</text>')
    return "".join(parts)


def _mark(x: float, y: float, hue: str, filled: bool, square: bool) -> str:
    paint = f'class="mark" stroke="{hue}" fill="{hue if filled else "none"}"'
    if square:
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" {paint}/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {paint}/>'


def heat_map(
    title: str,
    x_label: str,
    y_label: str,
    values: Mapping[tuple[float, float], float],
    marks: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Returns a map as an SVG group of WIDE × HIGH: a cell for each x and y, darker for a greater value, which its
    tooltip shows. Cells are equally wide whatever the steps of x and y. `marks` are points (x, y) by
    name, with a legend."""
    xs, ys = sorted({x for x, _ in values}), sorted({y for _, y in values})
    least, most = min(values.values()), max(values.values())
    wide, high = (WIDE - LEFT - RIGHT) / len(xs), (HIGH - TOP - BOTTOM) / len(ys)

    def place(value: float, steps: list[float]) -> float:
        """Returns where a value lies, in cells; the middle of the first cell is 0.5."""
        after = next((n for n, step in enumerate(steps) if step >= value), len(steps) - 1)
        if after == 0 or value >= steps[-1]:
            return after + 0.5
        return after - 0.5 + (value - steps[after - 1]) / (steps[after] - steps[after - 1])

    parts = [f'<text x="{LEFT}" y="18" font-weight="600">{escape(title)}</text>']
    for (x, y), value in values.items():
        left, top = LEFT + xs.index(x) * wide, HIGH - BOTTOM - (ys.index(y) + 1) * high
        shade = (value - least) / ((most - least) or 1)
        label = escape(f"{x_label} = {x:g}, {y_label} = {y:g}: {value:.3g}")
        cell = f'x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{HUES[0]}"'
        parts.append(f'<rect {cell} fill-opacity="{0.05 + 0.95 * shade:.2f}"><title>{label}</title></rect>')
    apart = math.ceil(22 / wide)  # cells between two numbers, so that they do not overlap
    for n, x in list(enumerate(xs))[::apart]:
        at = LEFT + (n + 0.5) * wide
        parts.append(f'<text x="{at:.1f}" y="{HIGH - BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    for n, y in list(enumerate(ys))[:: math.ceil(APART / high)]:
        at = HIGH - BOTTOM - (n + 0.5) * high
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDE - RIGHT) / 2}" y="{HIGH - 8}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="8" y="{(TOP + HIGH - BOTTOM) / 2}">{escape(y_label)}</text>')
    legend = WIDE - RIGHT + 6
    for n, (name, (x, y)) in enumerate((marks or {}).items(), 1):
        at = f"{LEFT + place(x, xs) * wide:.1f}", f"{HIGH - BOTTOM - place(y, ys) * high:.1f}"
        line = TOP + 44 + APART * n
        for cx, cy in (at, (legend + 4, line - 4)):
            parts.append(f'<circle cx="{cx}" cy="{cy}" r="4" fill="{HUES[n]}" stroke="#fff"/>')
        parts.append(f'<text x="{legend + 12}" y="{line}">{escape(name)}</text>')
    for n, (title, value) in enumerate((("greatest", most), ("least", least))):
        parts.append(f'<text x="{legend}" y="{TOP + 12 + 16 * n}">{title}: {value:.3g}</text>')
    return "".join(parts)


def page(charts: Sequence[str], across: int = 2) -> str:
    """Returns an SVG file with the charts in rows of `across`."""
    rows = math.ceil(len(charts) / across)
    placed = "".join(
        f'<g transform="translate({n % across * WIDE} {n // across * HIGH})">{chart}</g>'
        for n, chart in enumerate(charts)
    )
    size = f'viewBox="0 0 {across * WIDE} {rows * HIGH}" width="{across * WIDE}" height="{rows * HIGH}"'
    style = "<style>text{font:11px system-ui,sans-serif;fill:#777}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{placed}</svg>\n'


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        return [10.0**n for n in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _spread(ys: list[float]) -> list[float]:
    """Returns sorted positions, moved apart so that labels do not overlap."""
    placed: list[float] = []
    for y in ys:
        placed.append(max(y, placed[-1] + APART) if placed else y)
    floor = float(HIGH - BOTTOM + 10)
    for n in range(len(placed) - 1, -1, -1):
        placed[n] = min(placed[n], floor)
        floor = placed[n] - APART
    return placed
