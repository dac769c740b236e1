"""This machine's processor, on which compiled code depends, and its cores."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cpu() -> str:
    """The CPU's name and instruction sets, as far as the system reports them: code for one may crash on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")  # the latter two on ARM
    fields = {line.split(":")[0].strip(): line for line in reversed(lines)}
    return "\n".join(fields[name] for name in wanted if name in fields)


def cores() -> int:
    """The number of cores that this process may use; macOS and Windows have no affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 4
