"""The embedded editor in Chromium: the example of docs/embedding.md, and what events of Python change in it."""

from __future__ import annotations

import runpy
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import Browser, Page, expect

import polydraft
from tests.fake_autocomplete import FakeAutocomplete
from tests.paths import ROOT
from tests.scripted_editor import launched, scripted_model

pytestmark = pytest.mark.browser

ROWS = ".pd-option-row:not(.pd-empty) .pd-draft"
TEXT = "#pd-text"


@pytest.fixture(scope="module")
def scripted() -> Iterator[FakeAutocomplete]:
    with scripted_model() as made:
        yield made


@pytest.fixture(scope="module")
def example(scripted: FakeAutocomplete) -> Iterator[str]:
    demo = runpy.run_path(str(ROOT / "docs/examples/draft_editor.py"))["demo"]
    with launched(demo) as url:
        yield url


def open_page(browser: Browser, url: str) -> tuple[Page, list[Any]]:
    """A page with its editor, and the requests that it sends."""
    page = browser.new_page()
    sent: list[Any] = []
    page.on("request", lambda request: sent.append(request))
    page.goto(url)
    page.wait_for_function("document.querySelector('#pd-catalogue') !== null")
    return page, sent


def test_the_example_drafts_takes_tells_python_and_follows_its_sliders(
    browser: Browser, example: str, scripted: FakeAutocomplete
) -> None:
    page, sent = open_page(browser, example)
    assert page.evaluate("document.activeElement === document.body")  # the focus stays where it was
    expect(page.locator(TEXT)).to_have_attribute("placeholder", "Write here")
    page.click(TEXT)
    page.keyboard.type("Thank you for")
    drafts = [" ".join([""] + [word] * 10) for word in ("one", "two", "three")]
    expect(page.locator(ROWS)).to_have_text(drafts)
    expect(page.get_by_label("Words", exact=True)).to_have_value("3")  # "change" has reached Python

    page.wait_for_timeout(300)  # a key takes what was read
    best = page.locator("[aria-selected=true] .pd-draft").text_content()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Taken last")).to_have_value(str(best))  # "take", too
    assert page.input_value(TEXT) == f"Thank you for{best}"

    expect(page.locator(ROWS)).to_have_text(drafts)
    sent.clear()
    page.get_by_label("number input for Drafts").fill("2")
    expect(page.locator(ROWS)).to_have_text(drafts[:2])
    bodies = [request.post_data_json for request in sent if request.url.endswith("/polydraft/api/drafts")]
    assert bodies[-1]["settings"]["k"] == 2  # after a last one for rows that were kept
    assert bodies[-1]["settings"]["sampling"]["values"] == {"min_p": 0.1}
    assert not [request for request in sent if "/polydraft/" not in request.url]  # a slider asks Python nothing
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0

    page.goto("about:blank")  # the server forgets the text
    deadline = time.monotonic() + 5
    while scripted.sessions:
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)
    page.close()


def test_what_is_typed_while_the_editor_is_loaded_stays(browser: Browser, example: str) -> None:
    page = browser.new_page()
    held: list[Any] = []
    page.route("**/embedded.js", lambda route: held.append(route))
    page.goto(example)
    page.focus(TEXT)
    page.keyboard.type("Thank ")
    held[0].continue_()
    expect(page.get_by_label("Words", exact=True)).to_have_value("1")
    page.keyboard.type("you")
    expect(page.get_by_label("Words", exact=True)).to_have_value("2")
    expect(page.locator(ROWS)).to_have_count(3)
    page.close()


def test_a_wrong_option_changes_nothing_and_is_named_and_a_page_of_a_former_server_says_what_to_do(
    browser: Browser, example: str
) -> None:
    page, _ = open_page(browser, example)
    page.evaluate("polydraftEditor.set('k', 12)")
    expect(page.locator(".pd-notice")).to_have_text("k 12 given; a whole number from 1 to 9 expected.")
    page.click(TEXT)
    page.keyboard.type("Thank")
    expect(page.locator(ROWS)).to_have_count(3)
    page.evaluate("polydraftEditor.set('k', 1)")
    expect(page.locator(".pd-notice")).to_be_hidden()
    page.route("**/polydraft/api/drafts", lambda route: route.fulfill(status=401))
    page.keyboard.type(" you")
    expect(page.locator(".pd-notice")).to_have_text(
        "The server of this page was started anew. Copy your text, and load the page again."
    )
    page.close()


@pytest.fixture
def with_events() -> Iterator[tuple[str, list[Any]]]:
    """The address of Blocks whose buttons set the editor's text and options, and what has arrived in Python."""
    arrived: list[Any] = []
    with scripted_model():
        with gr.Blocks(analytics_enabled=False) as demo:
            editor = polydraft.DraftEditor("Dear all", options={"k": 3, "length": 2})
            gr.Button("Options").click(lambda: polydraft.DraftEditor(options={"k": 2}), None, editor)
            gr.Button("Text").click(lambda: "Dear you", None, editor)
            gr.Button("Send").click(lambda text: arrived.append(text), editor)

            @editor.drafts
            def note(event: gr.EventData) -> None:
                arrived.append(event.drafts)

        polydraft.attach(demo)
        with launched(demo) as url:
            yield url, arrived


def test_events_of_python_set_the_text_and_the_options_and_get_what_was_just_typed(
    browser: Browser, with_events: tuple[str, list[Any]]
) -> None:
    url, arrived = with_events
    page, _ = open_page(browser, url)
    expect(page.locator(TEXT)).to_have_value("Dear all")
    page.get_by_role("button", name="Text").click()
    expect(page.locator(TEXT)).to_have_value("Dear you")
    page.click(TEXT)
    page.keyboard.press("End")
    page.keyboard.type("!")
    page.get_by_role("button", name="Send").click()  # at once
    expect(page.locator(ROWS)).to_have_text([" one one", " two two", " three three"])
    page.get_by_role("button", name="Options").click()
    usual = 10  # tokens: an option that is not given has its default
    expect(page.locator(ROWS)).to_have_text([" ".join([""] + [word] * usual) for word in ("one", "two")])
    deadline = time.monotonic() + 5
    while not (arrived and len(arrived[-1]) == 2):
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)
    page.close()
    assert "Dear you!" in arrived
    assert {draft["text"] for event in arrived if isinstance(event, list) for draft in event} >= {
        " one one",
        " two two",
    }


def test_a_page_whose_host_is_not_allowed_says_what_to_do(browser: Browser, example: str) -> None:
    page = browser.new_page()
    page.route("**/embedded.js", lambda route: route.fulfill(status=403))
    page.goto(example)
    host = example.removeprefix("http://")
    expect(page.locator(".pd-notice")).to_contain_text(f'polydraft.attach needs allow_host=["{host}"] for a page at')
    page.close()


def test_without_a_server_of_drafts_the_editor_says_so(browser: Browser) -> None:
    with gr.Blocks(analytics_enabled=False) as demo:
        polydraft.DraftEditor()
    with launched(demo) as url:
        page = browser.new_page()
        page.goto(url)
        expect(page.locator(".pd-notice")).to_contain_text("No server of drafts is attached. Call polydraft.attach")
        page.close()
