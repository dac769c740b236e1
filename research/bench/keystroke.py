"""`bench keystroke`: types held-out text into the running app in real Chromium; the page records the times.

*Show drafts* is *Always*, as a newcomer finds it. One more run, with *When they save time*, has the time from the key
to the decision which rows appear; there a request runs on after a key with which its drafts agree, so the decision may
come after the next key.

Every key requests drafts. Times run from the key down event in the browser to a change in the page: to the first draft
if no row agreed with the typed text, to the last freed row filled if some did, and to all drafts complete. A
request that a newer key superseded has no end time; `count` is the number of requests that have one. The server's share
of a core is its CPU time while keys are typed, compared with the same text typed with requests only when no row agrees.
The peer serves the same drafts with a plain `gr.Textbox`.
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from app.web.browser import chromium, open_editor
from core.errors import InputError
from research import texts as text
from research.bench.child import free_port, running, running_app
from research.options import BackendOptions, Passages, TextOptions
from research.report import Progress, Report, counted, percentile

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

KEYS = 60  # typed per passage
CONTEXT = 300  # characters before the caret when typing starts
RATE = 8  # keys a second
SETTLE = 1500  # ms; longer than a set of drafts takes
STRAIGHT = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": "-", "–": "-", "…": "."})

# The peer's page records times as the editor does: key down to the first drafts in the page, and to the last.
WATCH = """() => {
    const counters = { keystrokes: 0, firstMs: [], doneMs: [] }, pressed = new Map();
    const box = document.querySelector("#peer-text textarea");
    let length = 0;
    box.addEventListener("input", () => {
        if (Math.abs(box.value.length - length) > 1) pressed.clear();  // another passage
        length = box.value.length;
    });
    box.addEventListener("keydown", (event) => {
        if (event.key.length > 1) return;
        counters.keystrokes++;
        pressed.set(box.value.length + 1, { at: performance.now(), first: false });
    });
    new MutationObserver(() => {
        const answer = document.querySelector("#peer-drafts [data-length]");
        const key = answer && pressed.get(Number(answer.dataset.length));
        if (!key) return;
        if (!key.first) counters.firstMs.push(performance.now() - key.at);
        key.first = true;
        if (answer.dataset.done !== "True") return;
        counters.doneMs.push(performance.now() - key.at);
        pressed.delete(Number(answer.dataset.length));
    }).observe(document.body, { subtree: true, childList: true, attributes: true });  // the drafts' element comes later
    window.peer = { counters };
}"""


@dataclass(frozen=True)
class KeystrokeOptions(BackendOptions, TextOptions):
    repetitions: Passages = 4


def measure(options: KeystrokeOptions, progress: Progress) -> Report:
    chosen = passages(text.load(options.text), options.repetitions)
    with chromium() as browser:
        progress("starting the app")
        with running_app(options) as child:
            child.wait(child.ready)
            page = open_editor(browser, child.page)
            box, server = page.get_by_role("textbox", name="Your text"), child.process.pid
            ours = type_at_rate(page, "polydraft", box, chosen, progress, server)
            page.evaluate("polydraft.setting.options.refill = false")
            seldom = type_at_rate(page, "polydraft", box, chosen, progress, server)
            page.evaluate("polydraft.setting.options.refill = true; polydraft.showing.choose('time')")
            timely = type_at_rate(page, "polydraft", box, chosen, progress, server)
            page.close()
        progress("starting the peer")
        port = free_port()
        peer = [sys.executable, "-m", __name__.replace("keystroke", "textbox"), str(port)]
        with running([*peer, options.model, options.backend], port) as child:
            child.wait(child.answers)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(child.url)
            box = page.locator("#peer-text textarea")
            box.wait_for()
            page.evaluate(WATCH)
            theirs = type_at_rate(page, "peer", box, chosen, progress)
    return summary(ours, seldom, theirs, timely)


@dataclass
class Typing:
    """What a page counted while passages were typed.

    Attributes:
        typed: seconds of typing.
        cpu: the server's CPU seconds meanwhile; 0 if they were not measured.
        counts, times: increases of the page's counters, and the times in ms that it recorded, by name.
    """

    keys: int = 0
    typed: float = 0.0
    cpu: float = 0.0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    times: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


def passages(files: list[list[str]], count: int) -> list[tuple[str, str]]:
    """Pairs (existing text, typed text) of plain prose that every keyboard can type."""
    chosen: list[tuple[str, str]] = []
    for place in text.words(files, 50 * count):
        before, typed = (
            re.sub(r"\s+", " ", part.translate(STRAIGHT))
            for part in (place.before, place.document[place.at : place.at + 2 * KEYS])
        )
        if len(before) >= CONTEXT and len(typed) >= KEYS and typed.isascii():
            chosen.append((before[-CONTEXT:], typed[:KEYS]))
        if len(chosen) == count:
            return chosen
    if not chosen:
        raise InputError(f"The text is too short to type from: {CONTEXT + 2 * KEYS} characters are needed.")
    return chosen


def type_at_rate(
    page: Page,
    name: str,
    box: Locator,
    chosen: list[tuple[str, str]],
    progress: Progress,
    server: int | None = None,
) -> Typing:
    """Returns the increase of `window[name].counters` while the passages were typed at `RATE`.

    Args:
        server: the process whose CPU seconds are counted, too, while keys are typed.
    """
    seen = Typing()
    for before, typed in counted(chosen, f"{name}: typing passage", progress):
        box.fill(before)
        page.keyboard.press("Control+End")
        page.wait_for_timeout(SETTLE)
        earlier = page.evaluate(f"structuredClone({name}.counters)")
        spent = cpu_seconds(server)
        seen.typed += press_at_rate(page, typed, RATE)
        seen.cpu += cpu_seconds(server) - spent
        page.wait_for_timeout(SETTLE)
        for counter, value in page.evaluate(f"structuredClone({name}.counters)").items():
            if isinstance(value, list):
                seen.times.setdefault(counter, []).extend(value[len(earlier[counter]) :])
            else:
                seen.counts[counter] = seen.counts.get(counter, 0) + value - earlier[counter]
        seen.keys += len(typed)
    return seen


def press_at_rate(page: Page, typed: str, rate: float) -> float:
    """Presses the keys of `typed`, `rate` per second; returns the seconds taken."""
    start = time.perf_counter()
    for i, key in enumerate(typed):
        time.sleep(max(start + i / rate - time.perf_counter(), 0))
        page.keyboard.press("Space" if key == " " else key)
    return time.perf_counter() - start


def cpu_seconds(process: int | None) -> float:
    """Returns the CPU time of a process with all its threads; 0 for None."""
    if process is None:
        return 0.0
    times = psutil.Process(process).cpu_times()
    return times.user + times.system


def summary(
    ours: Typing,
    seldom: Typing | None = None,
    theirs: Typing | None = None,
    timely: Typing | None = None,
) -> Report:
    """Reports percentiles of the times that the pages recorded.

    Args:
        ours: with a request at every key.
        seldom: with requests only when no row agrees.
        theirs: with a `gr.Textbox`.
        timely: as `ours`, with *Show drafts: When they save time*; the others with *Always*.
    """
    report = Report("keystroke")
    lines = [
        ("key to first draft, if none agreed", ours.times["firstMs"]),
        ("key to the last freed row filled", ours.times["fillMs"]),
        ("key to all drafts", ours.times["doneMs"]),
        ("key to trimmed drafts", ours.times["alongMs"]),
    ]
    if theirs is not None:
        lines += [
            ("gr.Textbox: key to first draft", theirs.times["firstMs"]),
            ("gr.Textbox: key to all drafts", theirs.times["doneMs"]),
        ]
    if timely is not None:
        report.rows.append({"what": "When they save time: requests", "count": timely.counts["requests"]})
        lines.append(("When they save time: key to the decision", timely.times["doneMs"]))
    for what, times in lines:
        report.times(what, times, (50, 90, 99))
    report.rows.append({"what": "keys typed", "count": ours.keys})
    report.rows.append({"what": "requests", "count": ours.counts["requests"]})
    core = share_of_a_core(ours)
    report.rows.append({"what": "server's share of a core while typing", "share": core})
    report.target("p90 key to first draft, ms", percentile(ours.times["firstMs"], 90), "<= 60")
    report.target("p50 key to all drafts, ms", percentile(ours.times["doneMs"], 50), "<= 120")
    report.target("p90 filling a freed row, ms", percentile(ours.times["fillMs"], 90), "<= 100")
    if seldom is not None:
        less = share_of_a_core(seldom)
        report.rows.append({"what": "the same, with requests only if no row agrees", "share": less})
        report.rows.append({"what": "requests then", "count": seldom.counts["requests"]})
        report.target("additional share of a core for a request at every key", core - less, "<= 0.5")
    return report


def share_of_a_core(typing: Typing) -> float:
    """Returns the CPU seconds of the server per second of typing."""
    return typing.cpu / typing.typed if typing.typed else float("nan")
