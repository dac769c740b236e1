"""This machine's processor, on which compiled code depends, and its cores."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path


def cpu() -> str:
    """The CPU's name and instruction sets, as far as the system reports them: code for one may crash on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {_mac_chip()}"
    wanted = ("model name", "flags", "Features", "CPU part")  # the latter two on ARM
    fields = {line.split(":")[0].strip(): line for line in reversed(lines)}
    return "\n".join(fields[name] for name in wanted if name in fields)


def _mac_chip() -> str:
    """Apple's name of the chip, or ""; Python's own says no more than "arm"."""
    try:
        asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def cores() -> int:
    """The number of cores that this process may use: OMP_NUM_THREADS at most, as for torch. macOS and Windows have no
    affinity."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 4
    given = re.match(r"\s*0*([1-9]\d{0,8})\b", os.environ.get("OMP_NUM_THREADS", ""), re.ASCII)
    return min(usable, int(given[1])) if given else usable
