"""Reproducible sampling: the noise is a hash of seed, draft, position and token.

The Gumbel-max trick samples a token: argmax ln p(x) + G(x), where G(x) is that noise with a standard Gumbel
distribution. So the same seed gives the same text, however many tokens a pass yields. A drafter may use the same noise:
argmax ln q(x) + G(x) equals the target's token more often than argmax ln q(x) does, and the more often the closer q is
to p. The text is the same as without proposals (Daliri, Musco and Suresh 2024, arXiv 2408.07978: Gumbel coupling,
"drafter-invariant" speculative decoding).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dice:
    """The noise of one draft.

    Attributes:
        seed, draft: a different value of either gives independent noise.
    """

    seed: int
    draft: int = 0

    def gumbel(self, place: int, tokens: np.ndarray) -> np.ndarray:
        """Returns standard Gumbel numbers (n,) for these tokens, after a text of `place` tokens."""
        return -np.log(self._waits(place, tokens))

    def draw(self, p: np.ndarray, place: int) -> int:
        """Samples a token from p (V,), which may have any positive sum."""
        kept = np.flatnonzero(p)
        return int(kept[np.argmax(p[kept] / self._waits(place, kept))])  # the Gumbel-max trick, one logarithm less

    def _waits(self, place: int, tokens: np.ndarray) -> np.ndarray:
        """Returns standard exponential numbers (n,). The hash is the finaliser of splitmix64."""
        key = 0
        for part in (self.seed, self.draft, place):
            key = _mix_one((key + part) & _ALL)
        u = ((_mix(tokens.astype(np.uint64) + np.uint64(key)) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return -np.log(u)


_ALL = 2**64 - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(_STEP)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    return z ^ (z >> np.uint64(31))


def _mix_one(z: int) -> int:
    """The same of one number, which Python mixes ten times faster than NumPy."""
    z = (z + _STEP) & _ALL
    z = ((z ^ (z >> 30)) * _FIRST) & _ALL
    z = ((z ^ (z >> 27)) * _SECOND) & _ALL
    return z ^ (z >> 31)
