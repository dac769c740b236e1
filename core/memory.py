"""Memory that was freed, returned to the system."""

from __future__ import annotations

import ctypes
import sys


def return_freed() -> None:
    """Returns memory that Python has freed to the system, if the C library supports it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
