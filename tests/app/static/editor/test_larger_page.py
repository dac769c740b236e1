"""The line about larger models on the first screen, and their download in the choice of the model, in Chromium."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, expect

from app.service.service import DraftService
from app.web.site import create_app
from core.models import on_machine, recommended
from core.models.costs import CostCurve
from core.models.recommended import Recommended
from tests.app.static.editor.test_page import Editor
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_drafts import FakeDrafts, Server
from tests.fake_hub import FILE, FakeHub, hub_of_the_page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

ABOUT = 200_000_000  # bytes that the list states: larger than the default model
TINY = Recommended("owner/tiny-GGUF:Q8_0", "Tiny", ABOUT, "For tests.")
OTHER = Recommended("owner/none:Q8_0", "Other", ABOUT - 1, "It is not there.")
HUGE = Recommended("owner/huge-GGUF:Q8_0", "Huge", 10**15, "No computer has so much memory.")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Iterator[FakeHub]:
    with hub_of_the_page(monkeypatch, TINY, OTHER, HUGE) as hub:
        yield hub


@pytest.fixture
def url(hub: FakeHub) -> Iterator[str]:
    """The real server over a scripted model, as a new user starts it."""

    def load(name: str, precision: str = "auto") -> Any:
        drafting = FakeAutocomplete()
        drafting.row_costs = CostCurve((1, 4), (5.0, 8.0))
        return drafting.real()

    service = DraftService(load, "default", pace=0)
    service.start()
    server = Server(create_app(service))
    yield server.url
    server.stop()
    service.close()


@pytest.fixture
def editor(context: BrowserContext, url: str) -> Editor:
    return Editor(context.new_page(), FakeDrafts()).open(url)


def line(editor: Editor) -> Locator:
    return editor.page.locator(".pd-larger")


def opened(editor: Editor) -> Locator:
    """The choice of the model, by the button of the line."""
    line(editor).get_by_role("button").first.click()
    dialog = editor.page.get_by_role("dialog", name="Model")
    expect(dialog.get_by_role("heading", name="Larger models")).to_be_visible()
    return dialog


def test_the_first_screen_says_what_a_larger_model_would_change(editor: Editor, hub: FakeHub) -> None:
    expect(line(editor)).to_contain_text("A larger model makes fewer mistakes and takes a little longer.")
    expect(line(editor)).to_contain_text("Get one, 200 MB…")
    editor.write("a")
    expect(line(editor)).to_be_hidden()
    editor.press("Backspace")
    expect(line(editor)).to_be_visible()
    assert not hub.asked and editor.errors == []


def test_the_line_is_closed_once(editor: Editor) -> None:
    line(editor).get_by_role("button", name="Do not show this again").click()
    expect(line(editor)).to_be_hidden()
    with editor.page.expect_response("**/api/status"):
        editor.reload()
    time.sleep(0.3)
    expect(line(editor)).to_be_hidden()


def test_no_line_where_no_larger_model_suits(browser: Browser, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommended, "RECOMMENDED", (HUGE,))
    with browser.new_context() as context:
        page = context.new_page()
        with page.expect_response("**/api/models/recommended"):
            editor = Editor(page, FakeDrafts()).open(url)
        expect(line(editor)).to_be_hidden()
        editor.open_section("This page")
        page.locator("#pd-models").click()
        expect(page.get_by_text("None of the larger models that Polydraft knows suits this computer")).to_be_visible()
        expect(page.get_by_role("button", name="Download")).to_have_count(0)


def test_one_button_downloads_stops_resumes_and_uses_a_model(editor: Editor, hub: FakeHub) -> None:
    hub.pause = 0.01
    dialog = opened(editor)
    row = dialog.get_by_role("listitem").filter(has_text="For tests.")
    expect(row).to_contain_text("200 MB · about 160 ms a key")
    expect(dialog).to_contain_text(f"connects to {hub.url.split('//')[1]} and gets the file")
    expect(dialog.get_by_text("Huge")).to_have_count(0)
    assert not hub.asked, "nothing connects before the click"
    row.get_by_role("button", name="Download Tiny").click()
    expect(row).to_contain_text(" of 24.0 MB")
    expect(row.get_by_role("progressbar", name="Download of Tiny")).to_be_visible()
    row.get_by_role("button", name="Stop Tiny").click()
    resume = row.get_by_role("button", name="Resume Tiny")
    expect(resume).to_be_focused()
    expect(row).to_contain_text("are on this computer")
    hub.pause = 0
    resume.click()
    use = row.get_by_role("button", name="Use Tiny")
    expect(use).to_be_visible()
    assert hub.ranges[0] is None and str(hub.ranges[1]).startswith("bytes=")
    path = on_machine.models_folder() / "tiny.Q8_0.gguf"
    assert path.read_bytes() == FILE
    use.click()
    expect(dialog).to_contain_text("Tiny drafts now, until Polydraft is closed.")
    expect(dialog).to_contain_text(f"To start with it: polydraft --model {path}")
    expect(dialog.locator(".md-serving")).to_contain_text("tiny.Q8_0")
    editor.press("Escape")
    expect(line(editor)).to_be_hidden()
    assert editor.errors == []


def test_a_download_goes_on_while_one_writes_and_says_when_it_is_there(editor: Editor, hub: FakeHub) -> None:
    hub.pause = 0.005
    opened(editor).get_by_role("button", name="Download Tiny").click()
    expect(editor.page.get_by_role("button", name="Stop Tiny")).to_be_visible()
    editor.press("Escape")
    expect(line(editor)).to_contain_text("Tiny is being downloaded.")
    editor.page.reload()
    dialog = opened(editor)
    expect(dialog.get_by_role("button", name="Stop Tiny")).to_be_visible()
    editor.press("Escape")
    expect(editor.page.get_by_text("Tiny is downloaded. To use it: This page, Model, in the panel")).to_be_visible()


def test_what_fails_is_said_in_the_row_and_can_be_tried_again(editor: Editor, hub: FakeHub) -> None:
    hub.fails = "page"
    dialog = opened(editor)
    dialog.get_by_role("button", name="Download Tiny").click()
    expect(dialog.locator(".md-failed")).to_contain_text("answered with a web page")
    hub.fails = ""
    dialog.get_by_role("button", name="Download Tiny").click()
    expect(dialog.get_by_role("button", name="Use Tiny")).to_be_visible()
    expect(dialog.locator(".md-failed")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_and_is_accessible(browser: Browser, url: str, hub: FakeHub, width: int, scheme: Any) -> None:
    hub.pause = 0.05
    with browser.new_context(viewport={"width": width, "height": 740}, color_scheme=scheme) as context:
        editor = Editor(context.new_page(), FakeDrafts()).open(url)
        expect(line(editor)).to_be_in_viewport(ratio=1)
        found = Axe().run(editor.page, context=".pd-below")
        assert not found.response["violations"], found.generate_report()
        dialog = opened(editor)
        dialog.get_by_role("button", name="Download Tiny").click()
        expect(dialog.get_by_role("progressbar")).to_be_visible()
        dialog.locator("summary").click()
        assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
        found = Axe().run(editor.page, context=".pd-models")
        assert not found.response["violations"], found.generate_report()
        dialog.get_by_role("button", name="Stop Tiny").click()
