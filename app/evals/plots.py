"""Line charts of an evaluation's rows as SVG text: one small chart per figure, one line per series, labels at their
ends instead of a legend. Readable on light and dark ground."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDE, HIGH = 460, 300  # of one chart
LEFT, RIGHT, TOP, BOTTOM = 52, 128, 34, 40
APART = 13  # between two labels
# Eight hues that stay apart for most colour-blind readers; dashes tell the second round of them from the first.
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a7a00", "#56b4e9", "#7a5195", "#777777")
Series = Mapping[str, Sequence[tuple[float, float]]]


def lines(title: str, x_label: str, series: Series, log: bool = False) -> str:
    """One chart as an SVG group of WIDE × HIGH: `series` are (x, y) points by name. `log` is for positive y."""
    points = [point for line in series.values() for point in line]
    x0, x1 = min(x for x, _ in points), max(x for x, _ in points)
    ys = [y for _, y in points]
    low, high = (max(min(ys), 1e-9), max(ys)) if log else (min(0.0, *ys), max(ys))
    if high <= low:
        high = low * 10 if log else low + 1

    def at_x(x: float) -> float:
        return LEFT + (x - x0) / ((x1 - x0) or 1) * (WIDE - LEFT - RIGHT)

    def at_y(y: float) -> float:
        share = math.log(max(y, low) / low) / math.log(high / low) if log else (y - low) / (high - low)
        return HIGH - BOTTOM - share * (HIGH - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="18" font-weight="600">{escape(title)}</text>']
    for tick in _ticks(low, high, log):
        y = at_y(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDE - RIGHT}" stroke="#8884" fill="none"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts += [
        f'<text x="{at_x(x):.1f}" y="{HIGH - BOTTOM + 16}" text-anchor="middle">{x:g}</text>'
        for x in sorted({x for x, _ in points})
    ]
    middle = (LEFT + WIDE - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HIGH - 8}" text-anchor="middle">{escape(x_label)}</text>')
    ends = []
    for number, (name, line) in enumerate(series.items()):
        hue, dash = HUES[number % len(HUES)], ' stroke-dasharray="5 3"' if number >= len(HUES) else ""
        path = "L".join(f"{at_x(x):.1f} {at_y(y):.1f}" for x, y in line)
        parts.append(f'<path d="M{path}" fill="none" stroke="{hue}" stroke-width="1.8"{dash}/>')
        ends.append((at_y(line[-1][1]), name, hue))
    for y, (_, name, hue) in zip(_spread([end[0] for end in sorted(ends)]), sorted(ends), strict=True):
        parts.append(f'<text x="{WIDE - RIGHT + 6}" y="{y + 4:.1f}" style="fill:{hue}">{escape(name)}</text>')
    return "".join(parts)


def page(charts: Sequence[str], across: int = 2) -> str:
    """Charts beside and below each other, as one SVG file."""
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
    """Sorted places moved apart, so that no label lies on another."""
    placed: list[float] = []
    for y in ys:
        placed.append(max(y, placed[-1] + APART) if placed else y)
    floor = float(HIGH - BOTTOM + 10)
    for n in range(len(placed) - 1, -1, -1):
        placed[n] = min(placed[n], floor)
        floor = placed[n] - APART
    return placed
