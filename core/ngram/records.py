"""Count and continuation total of every n-gram, in little more than a byte each.

A record is a pair (count, total): the number of occurrences of the n-gram, and the sum of the counts of its stored
continuations, 0 if it has none. Most n-grams are rare, so a few pairs cover nearly all of them: the 255
most common pairs are listed once, exactly, and each n-gram has a byte that indexes them (`codes`). Code 255
marks an escape: the pair is in a side table (`wide`), at the position that is the number of escapes before it;
`marks[i]` is the number of escapes before record i·BLOCK, so at most BLOCK codes must be read.

Wide pairs are exact (u32 or u64), or quantised to a byte each: value = round(first · ratio^(byte - 1)) for
byte >= 1 and 0 for byte 0, with the ratio chosen from the store's own range. The manifest contains the largest
relative error, about sqrt(ratio) - 1; pairs from the list stay exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core.ngram.errors import StoreError

ESCAPE = 255
BLOCK = 256
_LARGEST = 63 * math.log(2)  # the logarithm of the largest count


def pack_records(counts: np.ndarray, totals: np.ndarray, exact: bool) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Packs records (N,) uint64 each; returns the manifest's entry and the sections codes, marks, pairs and
    wide."""
    n = len(counts)
    pairs = np.stack([counts, totals], axis=1).astype("<u8")
    distinct, inverse, often = _distinct(pairs)
    listed = np.lexsort((np.arange(len(distinct)), -often))[:ESCAPE]  # most common first; ties in order of value
    code_of = np.full(len(distinct), ESCAPE, dtype=np.uint8)
    code_of[listed] = np.arange(len(listed), dtype=np.uint8)
    codes = code_of[inverse]

    escaped = codes == ESCAPE
    marks = np.concatenate([[0], np.cumsum(np.add.reduceat(escaped, np.arange(0, n, BLOCK), dtype=np.int64))])
    wide = pairs[escaped]
    about: dict[str, Any] = {"records": n, "listed": len(listed), "wide": len(wide)}
    if exact:
        dtype = "<u4" if int(pairs.max(initial=0)) < 1 << 32 else "<u8"
        about |= {"wide_type": dtype, "max_relative_error": 0.0}
        packed = wide.astype(dtype)
    else:
        positive = wide[wide > 0]
        first = int(positive.min(initial=1)) if len(positive) else 1
        last = int(positive.max()) if len(positive) else 1
        ratio = max((last / first) ** (1 / 254), 1.0000001)
        about |= {"wide_type": "log8", "first": first, "ratio": ratio}
        steps = np.rint(np.log(np.maximum(wide, first) / first) / math.log(ratio)) + 1
        packed = np.where(wide == 0, 0, np.minimum(steps, 255)).astype(np.uint8)
        values = _log8_values(first, ratio)[packed].astype(float)
        error = np.abs(values - wide) / np.maximum(wide, 1)
        about["max_relative_error"] = float(error.max(initial=0))
    return about, {
        "codes": codes.tobytes(),
        "marks": marks.astype("<u4").tobytes(),
        "pairs": distinct[listed].astype("<u8").tobytes(),  # count and total, one pair after the other
        "wide": packed.tobytes(),
    }


def _distinct(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct pairs, ascending; for each pair its place among them; and how often each occurs."""
    if int(pairs.max(initial=0)) < 1 << 32:  # then one number stands for a pair, which sorts much faster
        joined, inverse, often = np.unique(pairs[:, 0] << 32 | pairs[:, 1], return_inverse=True, return_counts=True)
        return np.stack([joined >> 32, joined & 0xFFFFFFFF], axis=1), inverse, often
    distinct, inverse, often = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return distinct, inverse.reshape(-1), often


def _log8_values(first: int, ratio: float) -> np.ndarray:
    values = np.rint(first * ratio ** (np.arange(256) - 1.0))
    values[0] = 0
    return values.astype(np.uint64)


class Records:
    """Reads packed records out of mapped sections."""

    def __init__(self, about: Mapping[str, Any], sections: Mapping[str, memoryview]) -> None:
        """Checks the sections' sizes against `about`. Raises StoreError."""
        try:
            self._n, listed, wide = int(about["records"]), int(about["listed"]), int(about["wide"])
            kind = str(about["wide_type"])
            scale = (int(about["first"]), float(about["ratio"])) if kind == "log8" else None
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StoreError("The store is damaged: its manifest does not describe the counts.") from error
        width = {"<u4": 4, "<u8": 8, "log8": 1}.get(kind)
        if width is None:
            raise StoreError(f"The store is damaged: counts of the unknown kind {kind!r}.")
        if not 0 <= listed <= ESCAPE or self._n < 0 or wide < 0:
            raise StoreError(f"The store is damaged: {self._n} counts, {listed} common and {wide} wide, do not fit.")
        if scale and not (scale[0] > 0 and scale[1] >= 1 and math.log(scale[0]) + 254 * math.log(scale[1]) < _LARGEST):
            raise StoreError(f"The store is damaged: counts from {scale[0]} on in steps of {scale[1]}.")
        expected = {
            "codes": self._n,
            "marks": 4 * (-(-self._n // BLOCK) + 1),
            "pairs": 16 * listed,
            "wide": 2 * width * wide,
        }
        for name, size in expected.items():
            if len(sections[name]) != size:
                raise StoreError(
                    f"The store is damaged: section {name} has {len(sections[name])} bytes, {size} expected."
                )
        self._codes = sections["codes"]
        self._marks = np.frombuffer(sections["marks"], dtype="<u4")
        flat = np.frombuffer(sections["pairs"], dtype="<u8").tolist()
        if max(flat, default=0) >= 1 << 63:
            raise StoreError("The store is damaged: a count does not fit 63 bits.")
        self._pairs = list(zip(flat[::2], flat[1::2], strict=True))
        self._values: list[int] | None = _log8_values(*scale).tolist() if scale else None
        self._wide = np.frombuffer(sections["wide"], dtype=np.uint8 if scale else kind)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int) -> tuple[int, int]:
        """(count, total) of n-gram i. Raises StoreError if the file points past its own end."""
        try:
            code = self._codes[i]
            if code != ESCAPE:
                return self._pairs[code]
            block = i // BLOCK
            at = self._marks.item(block) + bytes(self._codes[block * BLOCK : i]).count(ESCAPE)
            first, second = self._wide.item(2 * at), self._wide.item(2 * at + 1)
        except IndexError:
            raise StoreError(f"The store is damaged: it has no count for n-gram {i}.") from None
        return (first, second) if self._values is None else (self._values[first], self._values[second])

    def counts(self, numbers: Sequence[int]) -> list[int]:
        """The counts of these n-grams. Raises StoreError as `[]` does."""
        codes, pairs = self._codes, self._pairs
        try:
            return [self[i][0] if (code := codes[i]) == ESCAPE else pairs[code][0] for i in numbers]
        except IndexError:
            raise StoreError(f"The store is damaged: it has no count for one of {len(numbers)} n-grams.") from None
