"""`bench stillness`: types held-out text in real Chromium; a MutationObserver records every state of the drafts.

It measures no times. A state is the page after one task of its script. At each rate of typing, it counts:

- states that show as many rows as the settled response: the server leaves out rows when it has chosen the final ones,
  so a state is compared with the settled response for its text, or with the next one;
- vanishings: the list, the hints or the ghost were in the previous state and are missing in this one;
- movements: the list, the hints, or the parts above or below have another position although the text is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.web.browser import chromium, open_editor
from measure.bench.child import running_app
from measure.bench.keystroke import SETTLE, passages, press_at_rate
from measure.report import BenchOptions, Progress, Report, counted
from training import texts as text

if TYPE_CHECKING:
    from playwright.sync_api import Page

PASSAGES = 4
RATES = (8, 4)  # keys a second
PARTS = {"list": ".pd-list", "hints": ".pd-hints", "ghost": ".pd-ghost"}
PLACES = {"list": ".pd-list", "hints": ".pd-hints", "below": ".pd-foot", "above": ".pd-bar", "text": "#pd-text"}

RECORD = """([parts, places]) => {
    const find = (selector) => document.querySelector(selector), { editor } = polydraft;
    const states = window.states = [];
    let waiting = [], settled = { text: null, worth: null };
    editor.root.addEventListener("pd-settled", ({ detail }) => {
        settled = { text: find("#pd-text").value, worth: detail };
        for (const state of waiting) state.worth = detail;
        waiting = [];
    });
    const there = (selector) => !find(selector).closest("[hidden]") && find(selector).textContent.trim() !== "";
    const place = (selector) => {
        const { top, left } = find(selector).getBoundingClientRect();
        return `${Math.round(top)},${Math.round(left)},${find(selector).scrollTop}`;
    };
    new MutationObserver(() => {
        const rows = [...document.querySelectorAll(".pd-option-row:not(.pd-empty)")];
        const state = {
            text: find("#pd-text").value, shown: rows.length, worth: null,
            live: rows.filter((row) => row.ariaDisabled !== "true").length,
            there: Object.fromEntries(Object.entries(parts).map(([name, selector]) => [name, there(selector)])),
            places: Object.fromEntries(Object.entries(places).map(([name, selector]) => [name, place(selector)])),
        };
        states.push(state);
        if (state.text === settled.text) state.worth = settled.worth;
        else waiting.push(state);
    }).observe(editor.root, { subtree: true, childList: true, attributes: true, characterData: true });
}"""


def measure(options: BenchOptions, progress: Progress) -> Report:
    chosen = passages(text.load(options.text), options.repetitions or PASSAGES)
    seen: dict[int, list[list[dict[str, Any]]]] = {}
    with chromium() as browser:
        progress("starting the app")
        with running_app(options) as child:
            child.wait(child.ready)
            for rate in RATES:
                page = open_editor(browser, child.page)
                each = counted(chosen, f"{rate} keys a second: passage", progress)
                seen[rate] = [states_of(page, passage, rate) for passage in each]
                page.close()
    return summary(seen)


def states_of(page: Page, passage: tuple[str, str], rate: float) -> list[dict[str, Any]]:
    """Returns the states of the page while one passage is typed, from its first drafts on."""
    before, typed = passage
    page.get_by_role("textbox", name="Your text").fill(before)
    page.keyboard.press("Control+End")
    page.wait_for_timeout(SETTLE)
    page.evaluate(RECORD, [PARTS, PLACES])
    press_at_rate(page, typed, rate)
    page.wait_for_timeout(SETTLE)
    return page.evaluate("states")


def summary(seen: dict[int, list[list[dict[str, Any]]]]) -> Report:
    """Reports the counts by rate; `seen` has the states of each passage in order."""
    report = Report("stillness")
    for rate, runs in seen.items():
        judged = [state for run in runs for state in run if state["worth"] is not None]
        row: dict[str, Any] = {"keys_a_second": rate, "states": sum(map(len, runs))}
        row["all_rows"] = share(judged, lambda state: state["shown"] >= state["worth"])
        row["all_rows_takeable"] = share(judged, lambda state: state["live"] >= state["worth"])
        for part in PARTS:
            row[f"{part}_vanished"] = sum(
                earlier["there"][part] and not later["there"][part] for earlier, later in steps(runs)
            )
        for place in PLACES:
            row[f"{place}_moved"] = sum(
                earlier["text"] == later["text"] and earlier["places"][place] != later["places"][place]
                for earlier, later in steps(runs)
            )
        report.rows.append(row)
        report.target(f"states with all rows worth showing, {rate} keys/s", row["all_rows"], ">= 0.9")
        for what in ("vanished", "moved"):
            total = sum(count for name, count in row.items() if name.endswith(what))
            report.target(f"parts that {what}, {rate} keys/s", total, "<= 0")
    return report


def steps(runs: list[list[dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Returns the pairs of each state and the next."""
    return [pair for run in runs for pair in itertools.pairwise(run)]


def share(states: list[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> float:
    return sum(map(holds, states)) / len(states) if states else float("nan")
