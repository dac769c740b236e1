"""n-grams as byte strings: each token becomes one to three bytes, the fewer the more frequent it is.

Tokens are numbered by falling frequency (rank 0 is the most frequent) and the rank is written in a prefix
code, so that concatenated tokens need no separator and a context's key is a prefix of its continuations'
keys:

    first byte b < one               1 byte:   rank = b
    one <= b < one + two             2 bytes:  rank = one + (b - one)·256 + b2
    one + two <= b                   3 bytes:  rank = one + two·256 + (b - one - two)·65536 + b2·256 + b3
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.errors import InputError


@dataclass(frozen=True)
class RankCode:
    """The number of the 256 first bytes that start a code of one and of two bytes; the rest start three bytes."""

    one: int
    two: int

    def __post_init__(self) -> None:
        if min(self.one, self.two) < 0 or self.one + self.two > 256:
            raise InputError(f"A rank code of {self.one} + {self.two} first bytes given; at most 256 exist.")

    @classmethod
    def for_tokens(cls, n: int) -> RankCode:
        """The code for `n` distinct tokens: as few three-byte codes as possible, then as many one-byte
        ones."""
        if n > 254 * 65536:
            raise InputError(f"{n} distinct tokens do not fit codes of three bytes.")
        three = 0
        while (256 - three) * 256 + three * 65536 < n:
            three += 1
        # Every first byte moved from two bytes to one costs 255 ranks.
        spare = (256 - three) * 256 + three * 65536 - n
        one = min(256 - three, spare // 255)
        return cls(one, 256 - three - one)

    @property
    def capacity(self) -> int:
        """The number of ranks that can be encoded."""
        return self.one + self.two * 256 + (256 - self.one - self.two) * 65536

    def table(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The codes of ranks 0 … n-1: bytes (n, 3) uint8, of which the first lengths[i] count, lengths (n,)
        uint8."""
        if n > self.capacity:
            raise InputError(f"{n} ranks do not fit a code of {self.capacity}.")
        sizes = self.one, self.two * 256, max(n - self.one - self.two * 256, 0)
        firsts = zip((0, self.one, self.one + self.two), sizes, (16, 8, 0), strict=True)  # with the bits of the rest
        codes = np.concatenate([(first << 16) + (np.arange(size) << bits) for first, size, bits in firsts])[:n]
        lengths = np.repeat(np.array([1, 2, 3], dtype=np.uint8), sizes)[:n]
        return codes.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:], lengths

    def strings(self, n: int) -> list[bytes]:
        """The codes of ranks 0 … n-1 as byte strings."""
        codes, lengths = self.table(n)
        flat = codes.tobytes()
        return [flat[3 * i : 3 * i + length] for i, length in enumerate(lengths.tolist())]

    @cached_property
    def lengths(self) -> bytes:
        """The number of bytes of a code with each first byte."""
        return bytes(1 if first < self.one else 2 if first < self.one + self.two else 3 for first in range(256))
