"""Which cached text a new one agrees with furthest: clients without a session of their own reuse the cache by it."""

from __future__ import annotations

from collections.abc import Container, Mapping

WORTH = 64  # characters that must agree at least, unless they are half of the shorter text


def closest(text: str, held: Mapping[str, str], busy: Container[str] = ()) -> tuple[str, int] | None:
    """The name of the held text with the longest common beginning, and that beginning's length in characters; of equal
    ones, one that is not busy. None where too little agrees."""
    found = [(agreement(text, other), name not in busy, name) for name, other in held.items()]
    common, _, name = max(found, default=(0, True, ""))
    shorter = min(len(text), len(held.get(name, "")))
    return (name, common) if common and (common >= WORTH or 2 * common >= shorter) else None


def agreement(a: str, b: str) -> int:
    """The length of the common beginning of two texts."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
