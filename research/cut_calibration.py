"""Maps the probability that drafting gives to the words of a draft to the share of such words that come true.

Drafting gives the beginning of a draft, up to the end of a word, the product of its tokens' probabilities. How often
it comes true may depend on how the draft was made, so each `Making` may have a map. `polydraft eval time` fits them on
the validation half of the held-out text; research/docs/evaluation.md has the diagram and says why none is in use:
cross-validated on that half, no map is better than the probabilities as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.errors import InputError


@dataclass(frozen=True)
class CutCalibration:
    """One map: from probabilities to shares that came true.

    Attributes:
        points: pairs of both, from (0, 0) to (1, 1), ascending; between them the map is linear.
    Raises: InputError for points that are not ascending.
    """

    points: tuple[tuple[float, float], ...] = ((0.0, 0.0), (1.0, 1.0))

    def __post_init__(self) -> None:
        ascending = all(a < c and b <= d for (a, b), (c, d) in pairwise(self.points))
        if len(self.points) < 2 or self.points[0] != (0, 0) or self.points[-1] != (1, 1) or not ascending:
            raise InputError(f"Points {self.points} given; ascending pairs from (0, 0) to (1, 1) expected.")

    def __call__(self, probability: float) -> float:
        i = min(max(bisect_right(self.points, probability, key=lambda point: point[0]), 1), len(self.points) - 1)
        (a, b), (c, d) = self.points[i - 1], self.points[i]
        return min(b + (d - b) * (probability - a) / (c - a), 1.0)


@dataclass(frozen=True)
class Making:
    """How a draft was made.

    Attributes:
        inside: whether it continues a half-typed word.
        mixed: whether its later tokens come from a row that it shared with other drafts, and no pass checked them.
    """

    inside: bool
    mixed: bool


def fitted(cuts: Sequence[tuple[float, bool]], points: int = 8, least: int = 50) -> CutCalibration:
    """Fits a map to probabilities and whether each came true: isotonic regression over groups of equal size.

    Args:
        cuts: pairs of a probability and whether it came true.
        points: the number of groups, fewer where a group would have fewer than `least` pairs.
    """
    ordered = sorted(cuts)
    groups = max(1, min(points, len(ordered) // least))
    pooled: list[tuple[float, float, int]] = []  # mean probability, share that came true, number; shares ascend
    for n in range(groups):
        part = ordered[n * len(ordered) // groups : (n + 1) * len(ordered) // groups]
        if not part:
            continue
        pooled.append((sum(p for p, _ in part) / len(part), sum(true for _, true in part) / len(part), len(part)))
        while len(pooled) > 1 and pooled[-2][1] > pooled[-1][1]:
            (a, b, m), (c, d, k) = pooled[-2:]
            pooled[-2:] = [((a * m + c * k) / (m + k), (b * m + d * k) / (m + k), m + k)]
    inner: list[tuple[float, float]] = []
    for probability, share, _ in pooled:
        at, true = round(probability, 3), round(share, 3)
        if (inner[-1][0] if inner else 0.0) < at < 1:
            inner.append((at, true))
    return CutCalibration(((0.0, 0.0), *inner, (1.0, 1.0)))
