"""Reproducible sampling: the noise is a hash of seed, draft, position and token.

A token is drawn by the Gumbel-max trick: argmax ln p(x) + G(x), where G(x) is that noise, standard Gumbel distributed.
So the same seed gives the same text, however many tokens a pass yields. A drafter may use the same noise: its likeliest
ln q(x) + G(x) is the target's own token more often than its likeliest ln q(x), the more often the closer q is to p, and
the text stays the one without proposals (Daliri, Musco and Suresh 2024, arXiv 2408.07978: Gumbel coupling,
"drafter-invariant" speculative decoding).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Dice:
    """The noise of one draft.

    Attributes:
        seed, draft: a different value of either gives independent noise.
    """

    seed: int
    draft: int = 0

    def gumbel(self, place: int, tokens: np.ndarray) -> np.ndarray:
        """Standard Gumbel numbers (n,) of these tokens, after a text of `place` tokens."""
        return -np.log(self._waits(place, tokens))

    def draw(self, p: np.ndarray, place: int) -> int:
        """Samples a token from p (V,), which may have any sum above 0."""
        kept = np.flatnonzero(p)
        return int(kept[np.argmax(p[kept] / self._waits(place, kept))])  # the Gumbel-max trick, one logarithm less

    def _waits(self, place: int, tokens: np.ndarray) -> np.ndarray:
        """Standard exponential numbers (n,); the finaliser of splitmix64 is the hash."""
        with np.errstate(over="ignore"):
            key = np.uint64(0)
            for part in (self.seed, self.draft, place):
                key = _mix(key + np.uint64(part % 2**64))
            u = ((_mix(tokens.astype(np.uint64) + key) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return -np.log(u)


def _mix(z: Any) -> Any:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
