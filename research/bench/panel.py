"""`bench panel`: times of the panel in real Chromium: from a slider's move to the chart and to the new drafts,
and typing with the panel open and closed.

A move is the slider's input event. The chart is complete when the line above it has changed, the drafts when the first
response to the move's request has been drawn. The text does not change, so no pass of the model is included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.web.browser import chromium, open_editor
from research import texts as text
from research.bench import keystroke
from research.bench.child import running_app
from research.options import BackendOptions, Passages, TextOptions
from research.report import Progress, Report, percentile

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOVES = 40  # of each slider
PAUSE = 250  # ms between two moves, so that drafts are still being computed at the next one
SLIDERS = (("top-p", "top-p"), ("top-n-sigma", "n-sigma"), ("top-w", "beta"))  # a rule, and the flag of its slider

# Moves a slider back and forth; returns ms to the chart and ms to the drafts, one of each per move with an effect.
MOVE = """([flag, moves, pause]) => new Promise((done) => {
    const slider = document.querySelector(`#pd-${flag} input[type=range]`), { drafts: requests } = polydraft;
    const root = document.querySelector("#pd"), summary = document.querySelector(".sm-summary");
    const chart = [], drafts = [];
    let at = null, before = 0, drawn = true;
    new MutationObserver(() => { if (!drawn) { chart.push(performance.now() - at); drawn = true; } })
        .observe(summary, { childList: true, subtree: true, characterData: true });
    root.addEventListener("pd-drafts", () => {
        if (requests.n > before) requestAnimationFrame.soon(() => { drafts.push(performance.now() - at); });
        before = requests.n;
    });
    const low = Number(slider.min), span = Number(slider.max) - low;
    let n = 0;
    const timer = setInterval(() => {
        if (n++ === moves) { clearInterval(timer); setTimeout(() => done([chart, drafts]), 500); return; }
        slider.value = String(low + span * (0.35 + 0.3 * Math.abs(((n * 7) % 20) / 10 - 1)));
        at = performance.now(); before = requests.n; drawn = false;
        slider.dispatchEvent(new Event("input", { bubbles: true }));
    }, pause);
})"""
SHOW = "(open) => polydraftPanel.open === open || polydraftPanel.toggle()"
FRAMES = """() => { const seen = window.frames_ = []; let last = performance.now();
    const tick = (now) => { seen.push(now - last); last = now; requestAnimationFrame.soon(tick); };
    requestAnimationFrame.soon(tick); }"""


@dataclass(frozen=True)
class PanelOptions(BackendOptions, TextOptions):
    repetitions: Passages = 2


def measure(options: PanelOptions, progress: Progress) -> Report:
    chosen = keystroke.passages(text.load(options.text), options.repetitions)
    with chromium() as browser:
        progress("starting the app")
        with running_app(options) as child:
            child.wait(child.ready)
            page = open_editor(browser, child.page)
            box = page.get_by_role("textbox", name="Your text")
            page.evaluate(SHOW, False)
            closed = keystroke.type_at_rate(page, "polydraft", box, chosen, progress)
            page.evaluate(SHOW, True)
            page.wait_for_selector(".sm-bars tbody tr")
            moved = {rule: _moved(page, rule, flag, progress) for rule, flag in SLIDERS}
            page.evaluate("polydraftPanel.choose('none')")
            page.evaluate(FRAMES)
            views = page.evaluate("polydraftPanel.next.counters.viewMs.length")
            opened = keystroke.type_at_rate(page, "polydraft", box, chosen, progress)
            frames = page.evaluate("frames_")
            charts = page.evaluate("(n) => polydraftPanel.next.counters.viewMs.slice(n)", views)
    return summary(moved, closed, opened, charts, frames)


def _moved(page: Page, rule: str, flag: str, progress: Progress) -> tuple[list[float], list[float]]:
    progress(f"moving {rule}'s slider")
    page.evaluate("(rule) => polydraftPanel.choose(rule)", rule)
    page.wait_for_timeout(keystroke.SETTLE)
    chart, drafts = page.evaluate(MOVE, [flag, MOVES, PAUSE])
    return chart, drafts


def summary(
    moved: dict[str, tuple[list[float], list[float]]],
    closed: keystroke.Typing,
    opened: keystroke.Typing,
    charts: list[float],
    frames: list[float],
) -> Report:
    """Reports percentiles of the times that the page recorded, in ms."""
    report = Report("panel")
    lines: list[tuple[str, list[float]]] = []
    for rule, (chart, drafts) in moved.items():
        lines += [(f"{rule}: slider to chart", chart), (f"{rule}: slider to drafts", drafts)]
    lines += [
        ("typing, closed: key to first draft", closed.times["firstMs"]),
        ("typing, open: key to first draft", opened.times["firstMs"]),
        ("typing, open: chart request to chart drawn", charts),
        ("typing, open: from one frame to the next", frames),
    ]
    for what, times in lines:
        report.times(what, times, (50, 90, 99))
    for rule, (chart, drafts) in moved.items():
        report.target(f"{rule}: p90 slider to chart, ms", percentile(chart, 90), "<= 100")
        report.target(f"{rule}: p90 slider to drafts, ms", percentile(drafts, 90), "<= 50")
    report.target("p99 from one frame to the next while typing, ms", percentile(frames, 99), "<= 50")
    return report
