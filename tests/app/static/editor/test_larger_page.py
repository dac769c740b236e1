"""The choice of the model in Chromium: the line about larger ones on the first screen, their download, the models of
this computer, and the field for one where none is loaded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, expect

from core.autocomplete import Autocomplete
from core.errors import ModelNotFound
from core.models import on_machine, recommended
from core.models.costs import CostCurve
from core.models.recommended import Recommended
from tests.app.static.editor.editor_page import Editor
from tests.app.web.routes.test_model_file import GOOD, alone, load
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_drafts import FakeDrafts, serving
from tests.fake_hub import FILE, FakeHub, hub_of_the_page
from tests.tiny_gguf import tiny

__all__ = ["alone"]  # a fixture
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

ABOUT = 200_000_000  # bytes that the list states: larger than the default model
TINY = Recommended("owner/tiny-GGUF:Q8_0", "Tiny", ABOUT, "For tests.")
OTHER = Recommended("owner/none:Q8_0", "Other", ABOUT - 1, "It is not there.")
HUGE = Recommended("owner/huge-GGUF:Q8_0", "Huge", 10**15, "No computer has so much memory.")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Iterator[FakeHub]:
    with hub_of_the_page(monkeypatch, TINY, OTHER, HUGE) as hub:
        yield hub


def timed() -> FakeAutocomplete:
    """A model whose rows were timed."""
    drafting = FakeAutocomplete()
    drafting.row_costs = CostCurve((1, 4), (5.0, 8.0))
    return drafting


@pytest.fixture
def url(hub: FakeHub) -> Iterator[str]:
    """The real server over a scripted model, as a new user starts it."""
    with serving(lambda *_: timed().real()) as (_, server):
        yield server.url


@pytest.fixture
def editor(context: BrowserContext, without_gradio: None, url: str) -> Editor:
    return Editor(context.new_page(), FakeDrafts()).open(url)


def line(editor: Editor) -> Locator:
    return editor.page.locator(".pd-larger")


def opened(editor: Editor) -> Locator:
    """The choice of the model, by the button of the line."""
    line(editor).get_by_role("button").first.click()
    dialog = editor.page.get_by_role("dialog", name="Model")
    expect(dialog.get_by_role("heading", name="Larger models")).to_be_visible()
    return dialog


def by_settings(editor: Editor) -> Locator:
    """The same, by the panel."""
    editor.open_section("This page")
    editor.page.locator("#pd-models").click()
    return editor.page.get_by_role("dialog", name="Model")


def test_the_first_screen_says_what_a_larger_model_would_change_until_one_writes_or_closes_the_line(
    editor: Editor, hub: FakeHub
) -> None:
    expect(line(editor)).to_contain_text("A larger model makes fewer mistakes and takes a little longer.")
    expect(line(editor)).to_contain_text("Get one, 200 MB…")
    editor.write("a")
    expect(line(editor)).to_be_hidden()
    editor.press("Backspace")
    expect(line(editor)).to_be_visible()
    line(editor).get_by_role("button", name="Do not show this again").click()
    expect(line(editor)).to_be_hidden()
    with editor.page.expect_response("**/api/status"):
        editor.reload()
    time.sleep(0.3)
    expect(line(editor)).to_be_hidden()
    assert not hub.asked and editor.errors == []


def test_no_line_where_no_larger_model_suits(
    context: BrowserContext, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommended, "RECOMMENDED", (HUGE,))
    page = context.new_page()
    with page.expect_response("**/api/models/recommended"):
        editor = Editor(page, FakeDrafts()).open(url)
    expect(line(editor)).to_be_hidden()
    by_settings(editor)
    expect(page.get_by_text("None of the larger models that Polydraft knows suits this computer")).to_be_visible()
    expect(page.get_by_role("button", name="Download")).to_have_count(0)


def test_one_button_downloads_stops_resumes_and_uses_a_model(context: BrowserContext, url: str, hub: FakeHub) -> None:
    editor = Editor(context.new_page(), FakeDrafts()).open(url)
    dialog = opened(editor)
    row = dialog.get_by_role("listitem").filter(has_text="For tests.")
    expect(row).to_contain_text("200 MB · about 160 ms a key")
    expect(dialog).to_contain_text(f"connects to {hub.url.split('//')[1]} and gets the file")
    expect(dialog.get_by_text("Huge")).to_have_count(0)
    assert not hub.asked, "nothing connects before the click"
    hub.fails = "page"
    download = row.get_by_role("button", name="Download Tiny")
    download.click()
    expect(dialog.locator(".md-failed")).to_contain_text("answered with a web page")

    hub.fails, hub.pause = "", 0.02
    download.click()
    expect(dialog.locator(".md-failed")).to_have_count(0)
    expect(row).to_contain_text(" of 24.0 MB")
    expect(row.get_by_role("progressbar", name="Download of Tiny")).to_be_visible()
    editor.press("Escape")
    expect(line(editor)).to_contain_text("Tiny is being downloaded.")
    editor.page.reload()
    opened(editor)
    row.get_by_role("button", name="Stop Tiny").click()
    resume = row.get_by_role("button", name="Resume Tiny")
    expect(resume).to_be_focused()
    expect(row).to_contain_text("are on this computer")
    hub.pause = 0.002
    resume.click()
    editor.press("Escape")
    expect(editor.page.get_by_text("Tiny is downloaded. To use it: This page, Model, in the panel")).to_be_visible()
    assert hub.ranges[0] is None and str(hub.ranges[1]).startswith("bytes=")
    path = on_machine.models_folder() / "tiny.Q8_0.gguf"
    assert path.read_bytes() == FILE

    by_settings(editor)
    row.get_by_role("button", name="Use Tiny").click()
    expect(dialog).to_contain_text("Tiny drafts now, until Polydraft is closed.")
    expect(dialog).to_contain_text(f"To start with it: polydraft --model {path}")
    expect(dialog.locator(".md-serving")).to_contain_text("tiny.Q8_0")
    editor.press("Escape")
    expect(line(editor)).to_be_hidden()
    assert editor.errors == []


def test_it_fits_and_is_accessible(editor: Editor, hub: FakeHub) -> None:
    hub.pause = 0.05
    page = editor.page

    def looked(part: str) -> None:
        found = Axe().run(page, context=part)
        assert not found.response["violations"], found.generate_report()

    page.set_viewport_size({"width": 360, "height": 740})
    expect(line(editor)).to_be_in_viewport(ratio=1)
    looked(".pd-below")
    dialog = opened(editor)
    dialog.get_by_role("button", name="Download Tiny").click()
    expect(dialog.get_by_role("progressbar")).to_be_visible()
    dialog.locator("summary").click()
    for width, scheme in ((360, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 740})
        page.emulate_media(color_scheme=cast(Any, scheme), reduced_motion="reduce")
        assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
        looked(".pd-models")
    dialog.get_by_role("button", name="Stop Tiny").click()


# ---------------------------------------------------------------- a model of this computer


def test_a_model_from_the_folder_is_loaded_while_the_old_one_drafts(context: BrowserContext, alone: Path) -> None:
    (alone / "newer.gguf").write_bytes(tiny().written())
    (alone / "broken.gguf").write_bytes(b"x")
    (alone.parent / "ollama").mkdir()
    (alone.parent / "ollama" / "other.gguf").write_bytes(b"x")
    ready = threading.Event()

    def by_name(name: str, precision: str = "auto") -> Autocomplete:
        if precision == "file":
            raise ModelNotFound(f"{name} is not there with exact numbers.")
        if name == "default":
            return timed().real()
        if name.endswith("broken.gguf"):
            raise ModelNotFound(f"{name} is no model file.")
        ready.wait(20)
        newer = FakeAutocomplete()
        newer.model.name = "Newer"
        return newer.real()

    with serving(by_name) as (service, server):
        editor = Editor(context.new_page(), FakeDrafts()).open(server.url)
        dialog = by_settings(editor)
        listed = dialog.get_by_role("list", name="Models", exact=True).get_by_role("listitem")
        expect(listed).to_have_count(4)
        expect(listed.last).to_contain_text("of Ollama")
        expect(listed.first).to_contain_text("drafting now")
        expect(listed.first).to_contain_text("Q4_1 · llama · compiled · about 77 ms a key")
        expect(listed.nth(1)).to_contain_text("It is not a GGUF file")
        expect(listed.nth(2)).to_contain_text("Q8_0 · llama · compiled")
        dialog.get_by_role("button", name="Load broken").click()
        expect(dialog.get_by_text("broken.gguf is no model file.")).to_be_visible()
        dialog.get_by_role("checkbox", name="Exact numbers").check()
        dialog.get_by_role("button", name="Load newer").click()
        expect(dialog.get_by_text("newer.gguf is not there with exact numbers.")).to_be_visible()
        dialog.get_by_role("checkbox", name="Exact numbers").uncheck()
        dialog.get_by_role("button", name="Load newer").click()
        expect(dialog.get_by_text("The model is being loaded.")).to_be_visible()
        assert service.status()["model"] == "Scripted"  # it goes on drafting
        ready.set()
        expect(listed.nth(2)).to_contain_text("drafting now")
        expect(editor.page.locator(".pd-model")).to_contain_text("Newer")
        assert editor.errors == []


def test_the_field_loads_another_model_and_goes(context: BrowserContext, without_gradio: None) -> None:
    with serving(load, "gone.gguf") as (_, server):
        editor = Editor(context.new_page(), FakeDrafts()).open(server.url)
        field = editor.page.get_by_role("textbox", name="Model file")
        expect(field).to_be_visible()
        expect(editor.page.get_by_role("group", name="Status")).to_contain_text("There is no model at gone.gguf.")
        field.fill("/models/bad.gguf")
        field.press("Enter")
        expect(editor.page.get_by_text("There is no model at /models/bad.gguf.")).to_be_visible()
        field.fill(GOOD)
        editor.page.get_by_role("button", name="Load").click()
        expect(field).to_have_count(0)
        editor.box.focus()
        editor.write("Once")
        editor.wait(lambda: len(editor.drafts()) == 3, "drafts of the new model")
        assert editor.errors == []
