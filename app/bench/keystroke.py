"""`bench keystroke`: real Chromium types held-out text into the running app; the page notes the times.

Times run from the key going down in the browser to the drafts in the page, for keys that needed a request.
A request that a newer key overtook has no time to its end: `answered` says how many had.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.bench import text
from app.bench.child import running_app
from app.bench.report import Options, Report, percentile
from app.browser import ADVICE, find_browser
from core.errors import InputError, PolydraftError

if TYPE_CHECKING:
    from playwright.sync_api import Page

PASSAGES = 4
KEYS = 60  # typed per passage
CONTEXT = 300  # characters that stand there before typing starts
RATE = 8  # keys a second
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
STRAIGHT = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": "-", "–": "-", "…": "."})


def measure(options: Options, progress: Callable[[str], None]) -> Report:
    path = find_browser()
    if path is None:
        raise PolydraftError(f"This measurement needs Chromium. {ADVICE}")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise PolydraftError('This measurement needs Playwright: pip install "polydraft[dev]".') from error

    chosen = passages(text.load(options.text), options.repetitions or PASSAGES)
    seen: dict[str, Any] = {
        "keys": 0,
        "requests": 0,
        "avoided": 0,
        "firstMs": [],
        "doneMs": [],
        "alongMs": [],
    }
    with running_app(options) as child, sync_playwright() as playwright:
        progress("starting the app")
        child.wait(child.ready)
        browser = playwright.chromium.launch(executable_path=str(path), args=list(QUIET))
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(child.url)
        page.wait_for_function("window.polydraft !== undefined")
        for number, (before, typed) in enumerate(chosen, 1):
            progress(f"typing passage {number} of {len(chosen)}")
            for name, value in _type(page, before, typed).items():
                seen[name] += value
        browser.close()
    return summary(seen)


def passages(texts: list[str], count: int) -> list[tuple[str, str]]:
    """Pairs (what stands there, what is typed) of plain prose that every keyboard can type."""
    found: list[tuple[str, str]] = []
    for place in text.words(texts, 50 * count):
        before, typed = (
            re.sub(r"\s+", " ", part.translate(STRAIGHT))
            for part in (place.before, place.document[place.at : place.at + 2 * KEYS])
        )
        if len(before) >= CONTEXT and len(typed) >= KEYS and typed.isascii():
            found.append((before[-CONTEXT:], typed[:KEYS]))
        if len(found) == count:
            return found
    if not found:
        raise InputError(f"The text is too short to type from: {CONTEXT + 2 * KEYS} characters are needed.")
    return found


def _type(page: Page, before: str, typed: str) -> dict[str, Any]:
    """What the page counted while `typed` was typed at `RATE` behind `before`."""
    box = page.get_by_role("textbox", name="Your text")
    box.evaluate(
        "(box, text) => { box.value = text; box.dispatchEvent(new Event('input', {bubbles: true})) }", before
    )
    box.focus()
    page.keyboard.press("Control+End")
    page.wait_for_function("polydraft.editor.request === null", timeout=60_000)
    page.wait_for_timeout(1000)
    earlier = page.evaluate("structuredClone(polydraft.counters)")
    start = time.perf_counter()
    for i, key in enumerate(typed):
        time.sleep(max(start + i / RATE - time.perf_counter(), 0))
        page.keyboard.press("Space" if key == " " else key)
    page.wait_for_timeout(1500)
    later = page.evaluate("structuredClone(polydraft.counters)")
    counts = {name: later[name] - earlier[name] for name in ("requests", "avoided")}
    times = {name: later[name][len(earlier[name]) :] for name in ("firstMs", "doneMs", "alongMs")}
    return {"keys": len(typed)} | counts | times


def summary(seen: dict[str, Any]) -> Report:
    """Percentiles of what the page counted."""
    report = Report("keystroke")
    for what, times in (
        ("key to first draft", seen["firstMs"]),
        ("key to all drafts", seen["doneMs"]),
        ("key to trimmed drafts, typing along", seen["alongMs"]),
    ):
        shares = {f"p{p}_ms": percentile(times, p) for p in (50, 90, 99)}
        report.rows.append({"what": what, "answered": len(times)} | shares)
    report.rows.append({"what": "keys typed", "answered": seen["keys"]})
    report.rows.append({"what": "requests", "answered": seen["requests"]})
    report.rows.append({"what": "requests avoided by typing along", "answered": seen["avoided"]})
    report.target("p90 key to first draft, ms", percentile(seen["firstMs"], 90), "<= 60")
    report.target("p50 key to all drafts, ms", percentile(seen["doneMs"], 50), "<= 170")
    return report
