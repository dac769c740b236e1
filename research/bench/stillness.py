"""`bench stillness`: types held-out text in real Chromium; a MutationObserver records every state of the drafts.

It measures no times. A state is the page after one task of its script. For both settings of *Show drafts* that show
drafts while one types, and at each rate of typing, it counts per 100 keys:

- newly shown rows, and their characters: text that is not what remains of a text on the screen before;
- moves of the ghost: another text takes the place of one that still agreed with the typed text;
- replaced rows: the same for the rows of the list.

With *Always* it counts, too:

- states that show as many rows as the settled response for their text, of those after it: before, rows that contradict
  the text are hidden;
- vanishings: the list or the hints were in the previous state and are missing in this one, or the ghost is although it
  agrees with the text;
- movements: the list, the hints, or the parts above or below have another position although the text is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.web.browser import chromium, open_editor
from research import texts as text
from research.bench.child import running_app
from research.bench.keystroke import SETTLE, passages, press_at_rate
from research.options import BackendOptions, Passages, TextOptions
from research.report import Progress, Report, counted

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETTINGS = {"always": "Always", "time": "When they save time"}
KEYS_MS = (120.0, 157.0, 240.0)  # between two keys: fast, desktop and mean typists
TYPICAL_MS = 157.0
MOST_NEW = 22  # newly shown rows per 100 characters at TYPICAL_MS, when they save time
PARTS = {"list": ".pd-list", "hints": ".pd-hints", "ghost": ".pd-ghost"}
GHOST = ".pd-ghost:not([hidden]) .pd-ghost-text"
PLACES = {"list": ".pd-list", "hints": ".pd-hints", "below": ".pd-foot", "above": ".pd-bar", "text": "#pd-text"}

RECORD = """([parts, places, ghost]) => {
    const find = (selector) => document.querySelector(selector), root = find(".polydraft");
    const states = window.states = [];
    let settled = { text: null, worth: null };
    root.addEventListener("pd-settled", ({ detail }) => (settled = { text: find("#pd-text").value, worth: detail }));
    const there = (selector) => !find(selector).closest("[hidden]") && find(selector).textContent.trim() !== "";
    const place = (selector) => {
        const { top, left } = find(selector).getBoundingClientRect();
        return `${Math.round(top)},${Math.round(left)},${find(selector).scrollTop}`;
    };
    new MutationObserver(() => {
        const rows = [...document.querySelectorAll(".pd-option-row:not(.pd-empty)")];
        const text = find("#pd-text").value;
        states.push({
            text, shown: rows.length, worth: text === settled.text ? settled.worth : null,
            rows: Object.fromEntries(rows.map((row) => [row.id, row.dataset.text])),
            ghost: find(ghost)?.textContent.replace("\u200b", "") ?? "",
            there: Object.fromEntries(Object.entries(parts).map(([name, selector]) => [name, there(selector)])),
            places: Object.fromEntries(Object.entries(places).map(([name, selector]) => [name, place(selector)])),
        });
    }).observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
}"""


@dataclass(frozen=True)
class StillnessOptions(BackendOptions, TextOptions):
    repetitions: Passages = 4


def measure(options: StillnessOptions, progress: Progress) -> Report:
    chosen = passages(text.load(options.text), options.repetitions)
    seen: dict[tuple[str, float], list[list[dict[str, Any]]]] = {}
    with chromium() as browser:
        progress("starting the app")
        with running_app(options) as child:
            child.wait(child.ready)
            for setting, key_ms in itertools.product(SETTINGS, KEYS_MS):
                page = open_editor(browser, child.page)
                page.evaluate("(setting) => polydraft.showing.choose(setting)", setting)
                each = counted(chosen, f"{SETTINGS[setting]}, {key_ms:g} ms a key: passage", progress)
                seen[setting, key_ms] = [states_of(page, passage, 1000 / key_ms) for passage in each]
                page.close()
    return summary(seen)


def states_of(page: Page, passage: tuple[str, str], rate: float) -> list[dict[str, Any]]:
    """Returns the states of the page while one passage is typed, from its first drafts on."""
    before, typed = passage
    page.get_by_role("textbox", name="Your text").fill(before)
    page.keyboard.press("Control+End")
    page.wait_for_timeout(SETTLE)
    page.evaluate(RECORD, [PARTS, PLACES, GHOST])
    press_at_rate(page, typed, rate)
    return page.evaluate("states")


def summary(seen: dict[tuple[str, float], list[list[dict[str, Any]]]]) -> Report:
    """Reports the counts; `seen` has the states of each passage in order, by setting and ms a key."""
    report = Report("stillness")
    for (setting, key_ms), runs in seen.items():
        row: dict[str, Any] = {"show_drafts": SETTINGS[setting], "key_ms": key_ms, "states": sum(map(len, runs))}
        row |= changes(runs)
        report.rows.append(row)
        if setting == "time":
            if key_ms == TYPICAL_MS:
                what = f"newly shown rows per 100 keys, {SETTINGS[setting]}, {key_ms:g} ms a key"
                report.target(what, row["new_rows"], f"<= {MOST_NEW}")
            continue
        rated = [state for run in runs for state in run if state["worth"] is not None]
        row["all_rows"] = share(rated, lambda state: state["shown"] >= state["worth"])
        for part in PARTS:
            row[f"{part}_vanished"] = sum(vanished(part, earlier, later) for earlier, later in steps(runs))
        for place in PLACES:
            row[f"{place}_moved"] = sum(
                earlier["text"] == later["text"] and earlier["places"][place] != later["places"][place]
                for earlier, later in steps(runs)
            )
        report.target(f"states with all rows worth showing, {key_ms:g} ms a key", row["all_rows"], ">= 0.9")
        for what in ("vanished", "moved"):
            total = sum(count for name, count in row.items() if name.endswith(what))
            report.target(f"parts that {what}, {key_ms:g} ms a key", total, "<= 0")
    return report


def changes(runs: list[list[dict[str, Any]]]) -> dict[str, float]:
    """Returns what a reader has to follow, per 100 keys."""
    keys = sum(len(run[-1]["text"]) - len(run[0]["text"]) for run in runs if run)
    counts = {"new_rows": 0, "new_characters": 0, "ghost_moves": 0, "replaced_rows": 0}
    for earlier, later in steps(runs):
        typed = later["text"].removeprefix(earlier["text"])
        before = [left(old, typed) for old in (*earlier["rows"].values(), earlier["ghost"])]
        for now in {*later["rows"].values(), later["ghost"]} - {""}:
            known = max(common(now, old) for old in before)
            counts["new_characters"] += len(now) - known
            counts["new_rows"] += known == 0
        old = left(earlier["ghost"], typed)
        counts["ghost_moves"] += bool(old and later["ghost"]) and not agree(old, later["ghost"])
        for row, now in later["rows"].items():
            old = left(earlier["rows"].get(row, ""), typed)
            counts["replaced_rows"] += bool(old) and not agree(old, now)
    return {name: 100 * count / max(keys, 1) for name, count in counts.items()}


def vanished(part: str, earlier: dict[str, Any], later: dict[str, Any]) -> bool:
    """Whether a part is missing in the later state; a ghost only if the text does not contradict it."""
    if part == "ghost" and not left(earlier["ghost"], later["text"].removeprefix(earlier["text"])):
        return False
    return earlier["there"][part] and not later["there"][part]


def left(text: str, typed: str) -> str:
    """What remains of a text on the screen after these letters are typed; "" if it does not agree with them."""
    return text.removeprefix(typed) if text.startswith(typed) else ""


def common(a: str, b: str) -> int:
    """The length of the common beginning."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def agree(a: str, b: str) -> bool:
    return a.startswith(b) or b.startswith(a)


def steps(runs: list[list[dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Returns the pairs of each state and the next."""
    return [pair for run in runs for pair in itertools.pairwise(run)]


def share(states: list[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> float:
    return sum(map(holds, states)) / len(states) if states else float("nan")
