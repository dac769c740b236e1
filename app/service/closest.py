"""Finds the cached text with the longest common prefix, so that clients without a session reuse the cache."""

from __future__ import annotations

from collections.abc import Container, Mapping

WORTH = 64  # characters that must agree at least, unless they are half of the shorter text


def closest(text: str, cached: Mapping[str, str], busy: Container[str] = ()) -> tuple[str, int] | None:
    """The name of the cached text with the longest common prefix, and the prefix's length in characters; among equal
    ones, one that is idle. None if the prefix is too short."""
    agreements = [(agreement(text, other), name not in busy, name) for name, other in cached.items()]
    common, _, name = max(agreements, default=(0, True, ""))
    shorter = min(len(text), len(cached.get(name, "")))
    return (name, common) if common and (common >= WORTH or 2 * common >= shorter) else None


def agreement(a: str, b: str) -> int:
    """The length of the common prefix of two texts."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
