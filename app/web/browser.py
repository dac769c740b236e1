"""The Chromium for browser tests and benchmarks of the page: the system's own; none is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import PolydraftError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
# The same engine without a window's surroundings: a page takes half the processor time to load.
SHELLS = ("chromium-headless-shell", "chrome-headless-shell")
# All pages in one process, which keeps their compiled scripts: a page takes a fifth less processor time to load.
SHELL_FLAGS = ("--renderer-process-limit=1",)
ADVICE = "Install Chromium or Chrome so that it is on PATH (Debian, Ubuntu: apt-get install chromium)."
# As root Chromium runs without its sandbox only; the others keep it from calling home.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def find_browser() -> Path | None:
    """The first of `NAMES` on PATH, for Playwright's `executable_path`; None without one: show `ADVICE`."""
    return _first(NAMES)


def _first(names: tuple[str, ...]) -> Path | None:
    command = next(filter(None, map(shutil.which, names)), None)
    return Path(command) if command else None


@contextmanager
def chromium(shell: bool = False) -> Iterator[Browser]:
    """Headless Chromium, driven by Playwright.

    Args:
        shell: use one of `SHELLS` if there is one, and `SHELL_FLAGS`.

    Raises:
        PolydraftError: if Chromium or Playwright is missing.
    """
    path = (_first(SHELLS) if shell else None) or find_browser()
    if path is None:
        raise PolydraftError(f"This needs Chromium. {ADVICE}")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise PolydraftError('This needs Playwright: pip install "polydraft[dev]".') from error
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=[*FLAGS, *(SHELL_FLAGS if shell else ())])
        yield browser
        browser.close()


def open_editor(browser: Browser, url: str) -> Page:
    """Opens the page in a window and waits until its editor runs."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(url)
    page.wait_for_function("window.polydraft !== undefined", polling=20)
    return page
