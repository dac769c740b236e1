"""Compares drawn tokens with their distribution."""

from __future__ import annotations

from collections import Counter


def chi_squared(*samples: tuple[Counter, dict[tuple[int, ...], float], int]) -> float:
    """How many standard deviations above its mean χ² lies of some samples: what was seen, the probabilities, and the
    number of runs of each; cells that are expected less than 5 times are one."""
    statistic, freedom = 0.0, 0
    for seen, expected, runs in samples:
        assert not sum(n for t, n in seen.items() if expected[t] == 0)
        cells = [(seen[t], p * runs) for t, p in expected.items() if p * runs >= 5]
        rest = runs - sum(n for n, _ in cells), runs - sum(e for _, e in cells)
        cells += [rest] if rest[1] >= 5 else []
        statistic += sum((n - e) ** 2 / e for n, e in cells)
        freedom += max(len(cells) - 1, 0)
    v = 2 / (9 * max(freedom, 1))  # Wilson-Hilferty: the cube root of χ² / freedom is close to normal
    return ((statistic / max(freedom, 1)) ** (1 / 3) - (1 - v)) / v**0.5
