"""Memory of this machine, free memory of a device, and the share of it that a model's cache may take."""

from __future__ import annotations

import math
from pathlib import Path

import psutil
import torch

CACHE_SHARE = 0.25  # of the memory that would be free without the cache: the rest is for other programs
CACHE_POSITIONS = 48 * 1024  # limit of a CPU's cache: more than forty people's full windows
OF_ALL = 1 / 12  # of a machine's memory, if nobody has chosen a limit: other programs need theirs a minute later,
AT_LEAST = 4 * 1024  # but a large model has room for some full windows, in positions

# A container's limit, and the memory of its processes (cgroup version 2).
_LIMIT, _TAKEN = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated there; on a CPU within the limit of the container, too."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = psutil.virtual_memory().available
    try:
        return min(free, max(int(_LIMIT.read_text()) - int(_TAKEN.read_text()), 0))
    except (OSError, ValueError):  # no limit: "max", or no such file
        return free


def total_bytes() -> int:
    """Bytes of memory of this machine, or of the container within it."""
    total = psutil.virtual_memory().total
    try:
        return min(total, int(_LIMIT.read_text()))
    except (OSError, ValueError):  # no limit
        return total


def usual_limit(position: int) -> int:
    """The most bytes of a CPU's cache, if nobody has chosen a limit."""
    return max(int(OF_ALL * total_bytes()), AT_LEAST * position)


def room_in_cache(taken: int, more: int, free: int, position: int, most: float = math.inf) -> bool:
    """Whether a cache of `taken` bytes stays within its share of memory, its number of positions, and `most` bytes,
    after `more` bytes.

    Args:
        free: bytes that can be allocated now, besides the cache.
        position: bytes of one position.
    """
    return taken + more <= min(CACHE_SHARE * (taken + free), CACHE_POSITIONS * position, most)
