"""Rows that correct a slip of the finger: they show the word struck out, and take its letters away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.app.static.editor.test_page import Editor, fake, server, shared
from tests.fake_drafts import FakeDrafts, Server

__all__ = ["fake", "server", "shared"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

TYPED = "She wrote a long lettwr"
LETTER = "er to her mother"


@pytest.fixture
def page(context: BrowserContext, server: Server, fake: FakeDrafts) -> Iterator[Editor]:
    fake.script = {"lettwr": (LETTER,), "letter": (" to her mother",), "saw teh ": ("he lamp",), "": ()}
    fake.replaces = {LETTER: 2, "he lamp": 3}
    editor = Editor(context.new_page(), fake).open(server.url)
    yield editor
    assert editor.errors == []


def shown_before(page: Editor) -> list[str]:
    """What the row shows before its own text: the struck word, and the letters of it that stay."""
    return page.page.locator(".pd-option-row:not(.pd-empty) .pd-draft").evaluate_all(
        "rows => rows.map((row) => [row, row.firstElementChild]"
        ".map((one) => getComputedStyle(one, '::before').content.replace(/^none$|\"/g, '')).join('|'))"
    )


def typed(page: Editor, text: str, *drafts: str) -> None:
    page.put(text[:-1])
    page.write(text[-1])
    page.wait_for_drafts(*drafts)


WHOLE = """() => {
    const { readable, rows, request } = polydraft.editor, row = readable && rows[readable.i];
    return request === null && row && readable.length >= row.rest.length ? row.rest : "";
}"""


def take(page: Editor, draft: str) -> None:
    """Presses Tab once no answer is on its way, and the whole draft has been shown for as long as Tab demands."""
    page.wait(lambda: page.page.evaluate(WHOLE) == draft, "the whole draft")
    page.press("Tab")


@pytest.mark.parametrize("when", ["always", "time"])
def test_a_row_strikes_the_word_out_and_tab_replaces_its_letters_in_one_step_of_undo(page: Editor, when: str) -> None:
    page.page.evaluate("(when) => polydraft.showing.choose(when)", when)
    typed(page, TYPED, LETTER)
    assert page.fake.requests[-1]["corrects"] is True
    assert shown_before(page) == ["lettwr|lett"]
    struck = page.page.locator(".pd-draft[data-struck]")
    assert "line-through" in struck.evaluate("row => getComputedStyle(row, '::before').textDecorationLine")
    expect(page.options.first).to_have_attribute(
        "title", "In place of “lettwr”. The whole draft: 1%; each word computed on its own"
    )
    assert page.ghost() == ""  # it could not strike letters out
    take(page, LETTER)
    page.wait(lambda: page.text == "She wrote a long letter to her mother")
    page.press("Control+z")
    page.wait(lambda: page.text == TYPED)


def test_the_row_lasts_until_the_next_key_and_is_never_kept(page: Editor) -> None:
    typed(page, TYPED, LETTER)
    page.settle()
    assert all(not request.get("kept") for request in page.fake.requests)
    page.write("x")
    page.wait(lambda: LETTER not in page.drafts())
    page.press("Tab")
    assert page.text.startswith(f"{TYPED}x")


def test_one_word_of_it_is_taken_and_the_rest_stays_in_its_row(page: Editor) -> None:
    typed(page, TYPED, LETTER)
    page.press("Control+ArrowRight")
    page.wait(lambda: page.text == "She wrote a long letter")
    page.wait_for_drafts(" to her mother")
    assert shown_before(page) == ["|"]
    page.press("Tab")
    page.wait(lambda: page.text == "She wrote a long letter to her mother")


def test_a_finished_word_is_offered_in_its_row(page: Editor) -> None:
    typed(page, "I saw teh ", "he lamp")
    assert shown_before(page) == ["teh|t"]
    page.press("Tab")
    page.wait(lambda: page.text == "I saw the lamp")


def test_other_rows_keep_their_stem_and_their_ghost(page: Editor) -> None:
    page.fake.script = {"lettwr": (" in haste", LETTER)}
    typed(page, TYPED, " in haste", LETTER)
    assert shown_before(page) == ["|", "lettwr|lett"]
    assert page.ghost() == " in haste"
    page.press("Alt+ArrowDown")
    page.wait(lambda: page.ghost() == "")
    take(page, LETTER)
    page.wait(lambda: page.text == "She wrote a long letter to her mother")


def test_the_row_keeps_its_length_while_a_pause_makes_drafts_longer(page: Editor) -> None:
    page.fake.ends_after = 3  # words, until the pause
    page.page.evaluate("polydraft.showing.choose('always')")
    typed(page, TYPED, "er to her")
    page.page.evaluate(
        "window.texts = []; new MutationObserver(() => texts.push(polydraft.editor.rows[0].rest))"
        ".observe(document.querySelector('.pd-list'), { subtree: true, childList: true, attributes: true })"
    )
    page.wait_for_drafts(LETTER)
    assert page.fake.requests[-1]["grow"] is True
    shown = page.page.evaluate("texts")
    assert LETTER in shown
    assert all(text.startswith("er to her") for text in shown)
