"""Reproducible sampling: the noise is a hash of seed, draft, position and token.

The Gumbel-max trick samples a token: argmax ln p(x) + G(x), where G(x) is that noise with a standard Gumbel
distribution. So the same seed gives the same text, however many tokens a pass yields. A drafter may use the same noise:
argmax ln q(x) + G(x) equals the target's token more often than argmax ln q(x) does, and the more often the closer q is
to p. The text is the same as without proposals (Daliri, Musco and Suresh 2024, arXiv 2408.07978: Gumbel coupling,
"drafter-invariant" speculative decoding).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

Words = TypeVar("Words", int, NDArray[Any])  # numbers of 64 bits


@dataclass(frozen=True)
class SeededNoise:
    """The noise of one draft.

    Attributes:
        seed, draft: a different value of either gives independent noise.
        renewed: positions from which on the noise is independent of what it was before; each counts.
    """

    PROPOSALS: ClassVar[int] = 1  # number of the noise with which a drafter samples proposals for the rejection sampler

    seed: int
    draft: int = 0
    renewed: tuple[int, ...] = field(default=(), kw_only=True)

    def gumbel(self, position: int, tokens: np.ndarray) -> np.ndarray:
        """Returns standard Gumbel numbers (n,) for these tokens, after a text of `position` tokens."""
        return -np.log(self._waits(position, tokens))

    def draw(self, p: np.ndarray, position: int) -> int:
        """Samples a token from p (V,), which may have any positive sum."""
        kept = np.flatnonzero(p)
        return int(kept[np.argmax(p[kept] / self._waits(position, kept))])  # the Gumbel-max trick, one logarithm less

    def uniform(self, position: int, n: int) -> np.ndarray:
        """Returns n numbers, uniform from 0 to below 1, after a text of `position` tokens."""
        return np.exp(-self.other(2)._waits(position, np.arange(n)))

    def other(self, number: int) -> SeededNoise:
        """Returns noise that is independent of this one, and of that of all drafts."""
        return replace(self, draft=self.draft + (number << 32))

    def _waits(self, position: int, tokens: np.ndarray) -> np.ndarray:
        """Returns standard exponential numbers (n,)."""
        key, times = 0, sum(at <= position for at in self.renewed)
        for part in (self.seed, self.draft + (times << 48), position):
            key = _mix((key + part) & _ALL)
        u = ((_mix(tokens.astype(np.uint64) + np.uint64(key)) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        return -np.log(u)


_ALL = 2**64 - 1


def _mix(z: Words) -> Words:
    """The finaliser of splitmix64, for one number (Python computes that ten times faster than NumPy) or for many."""
    z = (z + 0x9E3779B97F4A7C15) & _ALL
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _ALL
    return z ^ (z >> 31)
