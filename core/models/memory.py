"""Memory that is free on a device, and how much of it the texts in a model's cache may take."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import psutil
import torch

CACHE_SHARE = 0.25  # of what would be free without the cache: the rest is for the machine's other programs
CACHE_POSITIONS = 48 * 1024  # of a CPU's cache at most: more than forty people's full windows

# Where a container's limit stands, and what its processes take (cgroup version 2).
_LIMIT, _TAKEN = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated there; on a CPU within the limit of the container, too."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = psutil.virtual_memory().available
    try:
        return min(free, max(int(_LIMIT.read_text()) - int(_TAKEN.read_text()), 0))
    except (OSError, ValueError):  # no such limit: "max", or no such file
        return free


def room_in_cache(taken: int, more: int, free: int, position: int) -> bool:
    """Whether a cache that takes so many bytes stays within its limits with `more` of them: its share of memory, and
    its most positions.

    Args:
        free: bytes that can be allocated now, beside those of the cache.
        position: bytes of one position.
    """
    return taken + more <= min(CACHE_SHARE * (taken + free), CACHE_POSITIONS * position)


def return_freed() -> None:
    """Return memory that Python has freed to the system, where the C library can: after a load, some 90 MB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
