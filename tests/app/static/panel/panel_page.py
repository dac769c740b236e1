"""The page with the panel as a reader meets it, over a made-up model, and what the core says about the next token."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Locator, Page, expect

from core.samplers.view import look
from tests.app.static.editor.editor_page import ENOUGH, Editor
from tests.fake_drafts import FakeDrafts
from tests.fake_sampling import ShortDrafts, Tokenizer, logits_after

TEXT = "Yesterday she went"
BARS = 12  # of the chart

FAKE = ShortDrafts()


class Panel(Editor):
    """The page, with the panel as a reader meets it. What is used most is found by its id, as `box` is."""

    panel_is_open = True

    def __init__(self, page: Page) -> None:
        super().__init__(page, FakeDrafts())
        self.asked: list[tuple[str, Any]] = []
        page.on("request", self._note)

    def _note(self, request: Any) -> None:
        body = request.post_data if request.method == "POST" else None
        self.asked.append((request.url.split("/", 3)[3], json.loads(body or "{}")))

    def begin(self, url: str) -> Panel:
        self.open(url)
        self.put(TEXT)
        self.rest()
        expect(self.region.locator(".sm-bars tbody tr")).to_have_count(BARS)
        return self

    @property
    def region(self) -> Locator:
        return self.page.locator("#pd-panel")

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def last(self) -> dict[str, Any]:
        """The settings of the newest request for drafts, not for the next word alone."""
        return [body for path, body in self.asked if path == "api/drafts" and "show" in body][-1]["settings"]

    def sampling(self) -> dict[str, Any]:
        """As `last`; a request says nothing about what is as usual."""
        return self.last().get("sampling", {"rule": "none", "mode": "superposed", "values": {}})

    def rest(self) -> None:
        """Until nothing is under way for a moment: neither an event of Gradio, nor drafts, nor charts."""
        assert self.page.evaluate(
            """(enough) => new Promise((done) => {
                const deadline = performance.now() + enough;
                let looks = 0;
                const look = () => {
                    const { drafts, rows } = polydraft, { next, due } = polydraftPanel;
                    const rests = drafts.request === null && !drafts.timers.running.settings && rows.all.length > 0
                        && !next.loading && !next.timers.running.follow && !Object.keys(due).length;
                    looks = rests ? looks + 1 : 0;
                    if (looks > 4 || performance.now() > deadline) done(rests); else setTimeout(look, 20);
                };
                look() })""",
            ENOUGH,
        ), f"Waited in vain for all drafts and charts: drafts {self.drafts()!r}, counters {self.counters()!r}"

    def pick(self, field: str, name: str) -> None:
        """One of a row of buttons."""
        self.page.locator(f"#pd-{field}").get_by_text(name, exact=True).click()
        self.rest()

    def choose(self, label: str, name: str | re.Pattern[str]) -> None:
        """One of a list."""
        box = self.region.get_by_role("combobox", name=label)
        box.click()
        self.page.locator("#pd-panel").get_by_role("option", name=name, exact=isinstance(name, str)).click()
        # A list of which one may choose several stays open, over the buttons above it.
        self.page.evaluate("document.querySelector('#pd-panel :focus')?.blur()")
        self.rest()

    def slider(self, label: str) -> Locator:
        return self.region.get_by_role("slider", name=f"range slider for {label}", exact=True)

    def number(self, label: str) -> Locator:
        return self.region.get_by_role("spinbutton", name=f"number input for {label}", exact=True)

    def slide(self, **values: float) -> None:
        """By the names of the flags, with _ for -."""
        for flag, value in values.items():
            self.page.locator(f"#pd-{flag.replace('_', '-')}").get_by_role("slider").fill(f"{value:g}")
        self.rest()

    def section(self, name: str) -> None:
        self.region.get_by_role("button", name=name).click()

    def chart(self) -> dict[str, Any]:
        """What the page drew, as it can be read: tokens, which are kept, and the line above."""
        return self.page.evaluate(
            """() => ({
                tokens: [...document.querySelectorAll('.sm-bars tbody tr')].map((row) => ({
                    text: row.cells[0].textContent, share: row.cells[1].textContent,
                    kept: row.classList.contains('sm-kept'), said: row.cells[2].textContent })),
                summary: document.querySelector('.sm-summary').textContent,
            })"""
        )

    def wait_for_chart(self, rule: str, values: dict[str, Any] | None = None, temperature: float = 1.0) -> None:
        """Waits until the chart shows exactly what the core computes."""
        view, choice = seen(rule, values, temperature)
        many = f"{choice.count} token{'' if choice.count == 1 else 's'} of {view.possible} kept"
        tokens = [
            {"text": t.text.replace(" ", "␣"), "share": shown(t.probability), "kept": k, "said": said(k)}
            for t, k in zip(view.tokens[:BARS], choice.kept, strict=False)
        ]
        entropy = f"entropy {choice.entropy:.2f} of {view.entropy:.2f} nats"
        expected = {"tokens": tokens, "summary": f"{many} · {shown(choice.mass)} of the probability · {entropy}"}
        self.wait(lambda: self.chart() == expected, f"the chart of {rule}")


def seen(rule: str, values: dict[str, Any] | None = None, temperature: float = 1.0, text: str = TEXT) -> Any:
    """What the core says about the rule here: the view, and its choice."""
    view = look(logits_after(text), Tokenizer(), temperature, {rule: values or {}}, FAKE.geometries)  # pyright: ignore[reportArgumentType]
    return view, view.choices[0]


def said(kept: bool) -> str:
    return "kept" if kept else "dropped"


def shown(p: float) -> str:
    """A probability as the chart writes it."""
    if p >= 0.9995:
        return "100%"
    percent = 100 * p
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.1f}%" if percent >= 0.995 else f"{percent:.2f}%"
