"""The page as a reader meets it, over scripted drafts: what the tests of pages share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from playwright.sync_api import Locator, Page, expect

from tests.fake_drafts import FakeDrafts

BEFORE = "Yesterday she went"
ENOUGH = 60_000  # ms; generous: the machine may be busy
expect.set_options(timeout=ENOUGH)

PARAGRAPH = (
    "The lighthouse keeper opened the letter and read it twice, standing, before he sat down at the table. "
    "Outside the gulls were arguing about the wind, and the lamp above him had not been lit for days."
)
HEBREW = "בלילה ההוא ישב שומר המגדלור ליד החלון וקרא את המכתב פעם נוספת, לאט, כאילו המילים עלולות להשתנות."


class Editor:
    """The page as a reader meets it."""

    def __init__(self, page: Page, fake: FakeDrafts) -> None:
        self.page = page
        self.fake = fake
        self.errors: list[str] = []
        page.set_default_timeout(ENOUGH)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def watch_hosts(self) -> set[str]:
        """The hosts that the page requests from now on."""
        hosts: set[str] = set()
        self.page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        return hosts

    panel_is_open = False  # at the first visit; its charts request the next word

    def open(self, url: str) -> Self:
        if not self.panel_is_open:
            self.page.add_init_script("try { localStorage['polydraft.panel'] ??= '{\"open\": false}' } catch {}")
        self.page.goto(url)
        self.wait_for_script()
        self.box.focus()
        return self

    def reload(self) -> None:
        self.page.reload()
        self.wait_for_script()

    def wait_for_script(self) -> None:
        self.page.wait_for_function("window.polydraft !== undefined", polling=20)
        self.page.evaluate("polydraft.setting.options.refill ??= true")

    def ask_only_where_nothing_agrees(self) -> None:
        self.page.evaluate("polydraft.setting.options.refill = false")

    def open_section(self, name: str) -> None:
        """A part of the panel."""
        if self.page.locator("[data-do=panel]").get_attribute("aria-expanded") == "false":
            self.page.locator("[data-do=panel]").click()
        self.page.locator("#pd-panel").get_by_role("button", name=name).click()

    @property
    def box(self) -> Locator:
        """Found by its id, because finding roles takes several times as long; another test checks its role and name."""
        return self.page.locator("#pd-text")

    @property
    def options(self) -> Locator:
        return self.page.get_by_role("option")

    @property
    def text(self) -> str:
        return self.box.input_value()

    def drafts(self) -> list[str]:
        """The drafts that can be taken."""
        return self.page.locator(".pd-option-row:not(.pd-empty) .pd-draft").all_text_contents()

    def caret(self) -> int:
        return self.box.evaluate("box => box.selectionStart")

    def ghost(self) -> str:
        shown = self.page.locator(".pd-ghost:not([hidden]) .pd-ghost-text").all_text_contents()
        return "".join(shown).removeprefix("\u200b")

    def counters(self) -> dict[str, Any]:
        return self.page.evaluate("window.polydraft.counters")

    def press(self, *keys: str) -> None:
        for key in keys:
            if key in ("Tab", "Control+ArrowRight") or "Digit" in key:
                self.read()
            self.page.keyboard.press(key)

    def read(self) -> None:
        """Waits as long as rows must have stood before a key or a click takes them."""
        self.page.wait_for_timeout(230)

    def write(self, text: str) -> None:
        self.page.keyboard.type(text)

    def put(self, text: str, caret: int | None = None) -> None:
        """Text in one go, the caret at `caret` (default: the end)."""
        self.box.evaluate(
            "(box, text) => { box.value = text; box.dispatchEvent(new Event('input', {bubbles: true})) }", text
        )
        if caret is not None:
            self.box.evaluate("(box, at) => box.setSelectionRange(at, at)", caret)

    def enter(self, text: str) -> None:
        """Text of which only the last letter is typed, because every typed letter costs processor time for a request
        and its answer."""
        self.put(text[:-1])
        self.write(text[-1])

    def wait(self, condition: Callable[[], Any], what: str = "the page to change") -> None:
        deadline = time.monotonic() + ENOUGH / 1000
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"Waited in vain for {what}: text …{self.text[-60:]!r}, drafts {self.drafts()!r}, "
                    f"ghost {self.ghost()!r}, counters {self.counters()!r}"
                )
            self.page.wait_for_timeout(50)

    def wait_for_drafts(self, *texts: str) -> None:
        self.wait(lambda: self.drafts() == list(texts), f"the drafts {texts}")

    def rest(self) -> None:
        """Waits until no answer is on its way."""
        self.wait(lambda: not self.page.evaluate("polydraft.drafts.request"), "the answer")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def settle(self) -> None:
        """Waits longer than any timer of the editor that requests drafts."""
        self.page.wait_for_timeout(700)
