"""Reproducible sampling: the noise is a hash of seed, draft, position and token.

The Gumbel-max trick samples a token: argmax ln p(x) + G(x), where G(x) is that noise with a standard Gumbel
distribution. So the same seed gives the same text, however many tokens a pass yields. A drafter may use the same noise:
argmax ln q(x) + G(x) equals the target's token more often than argmax ln q(x) does, and the more often the closer q is
to p. The text is the same as without proposals (Daliri, Musco and Suresh 2024, arXiv 2408.07978: Gumbel coupling,
"drafter-invariant" speculative decoding).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Words = TypeVar("Words", np.uint64, NDArray[np.uint64])


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
        with np.errstate(over="ignore"):
            key = np.uint64(0)
            for part in (self.seed, self.draft, place):
                key = _mix(key + np.uint64(part % 2**64))
            u = ((_mix(tokens.astype(np.uint64) + key) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return -np.log(u)


def _mix(z: Words) -> Words:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
