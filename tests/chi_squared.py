"""Compares drawn tokens with their distribution."""

from __future__ import annotations

from collections import Counter


def chi_squared(seen: Counter, expected: dict[tuple[int, ...], float], runs: int) -> float:
    """How many standard deviations above its mean χ² lies; cells that are expected less than 5 times are one."""
    cells = [(seen[t], p * runs) for t, p in expected.items() if p * runs >= 5]
    rest = runs - sum(n for n, _ in cells), runs - sum(e for _, e in cells)
    assert not any(n for t, n in seen.items() if expected[t] == 0)
    if rest[1] >= 5:
        cells.append(rest)
    freedom = max(len(cells) - 1, 1)
    statistic = sum((n - e) ** 2 / e for n, e in cells)
    # Wilson-Hilferty: the cube root of χ² / freedom is close to normal.
    v = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - v)) / v**0.5
