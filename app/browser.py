"""Finds the Chromium that browser tests and the keystroke benchmark use: the system's own, none is downloaded."""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
ADVICE = "Install Chromium or Chrome so that it is on PATH (Debian, Ubuntu: apt-get install chromium)."


def find_browser() -> Path | None:
    """The first of `NAMES` on PATH, for Playwright's `executable_path`; None if there is none: show `ADVICE`."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return Path(found) if found else None
