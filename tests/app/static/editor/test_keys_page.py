"""Keys that the writer changes, and what Tab and Enter do in lists and at the beginning of a line."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.app.static.editor.test_page import BEFORE, Editor, drafting, editor, fake, server, shared
from tests.fake_drafts import HOME, MARKET, RIVER

__all__ = ["drafting", "editor", "fake", "server", "shared"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def keys(editor: Editor) -> Locator:
    editor.page.get_by_role("button", name="Keys", exact=True).click()
    return editor.page.get_by_role("dialog", name="Keys")


def change(dialog: Locator, does: str) -> None:
    dialog.get_by_role("button", name=f"Change the key: {does}").click()


def test_each_action_can_have_another_key_and_conflicts_are_named(drafting: Editor) -> None:
    dialog = keys(drafting)
    told = dialog.get_by_role("status")
    change(dialog, "Take the best draft")
    expect(told).to_contain_text("Esc cancels")
    drafting.press("Alt+2")
    expect(told).to_have_text("Alt+2 is “Take the draft with that number”. Change that one first.")
    drafting.press("x")
    expect(told).to_contain_text("The text itself needs that key.")
    drafting.press("Control+c")
    expect(told).to_contain_text("uses that key already")
    drafting.press("Control+Enter")
    expect(told).to_have_text("")
    change(dialog, "Take the draft with that number")
    drafting.press("Control+j")
    expect(told).to_contain_text("needs a digit")
    drafting.press("Control+5")
    change(dialog, "Dismiss")
    drafting.page.get_by_role("button", name="Cancel", exact=True).click()
    dialog.get_by_role("button", name="Close").click()

    expect(drafting.page.locator(".pd-hints")).to_contain_text(re.compile("Ctrl Enter take.*Ctrl 1…9 that one"))
    expect(drafting.box).to_be_focused()
    assert drafting.caret() == len(BEFORE)
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    drafting.press("Alt+2")
    assert drafting.text == BEFORE
    drafting.press("Control+2")
    assert drafting.text == BEFORE + RIVER
    drafting.press("Control+z")
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    drafting.page.wait_for_timeout(200)  # nobody takes what could not be read
    drafting.press("Control+Enter")
    assert drafting.text == BEFORE + MARKET

    drafting.reload()  # they are kept; the usual ones come back
    dialog = keys(drafting)
    expect(dialog.get_by_text("Take the best draft").locator("xpath=../..")).to_contain_text("Ctrl Enter")
    dialog.get_by_role("button", name="Usual keys").click()
    expect(dialog.get_by_text("Take the best draft").locator("xpath=../..")).to_contain_text("Tab")


def test_the_line_of_keys_is_short_after_ten_takes(drafting: Editor) -> None:
    hints = drafting.page.locator(".pd-hints")
    expect(hints).to_contain_text("dismiss")
    drafting.page.evaluate(
        """for (let n = 0; n < 10; n++) {
            const taken = new CustomEvent('pd-taken', {detail: {before: '', text: ''}});
            document.querySelector('#pd').dispatchEvent(taken);
        }"""
    )
    expect(hints.locator(".pd-few")).to_have_text("Tab · Alt 1…9 · ?")
    hints.get_by_text("?").click()
    expect(drafting.page.get_by_role("dialog", name="Keys")).to_be_visible()
    drafting.reload()
    expect(hints.locator(".pd-few")).to_have_count(1)


def test_tab_at_the_beginning_of_a_line_indents_unless_a_draft_was_chosen(drafting: Editor) -> None:
    drafting.press("Enter")
    drafting.wait(lambda: drafting.drafts() and drafting.page.evaluate("polydraft.editor.request") is None)
    drafting.press("Tab")
    assert drafting.text == BEFORE + "\n\t"
    drafting.wait(drafting.drafts)
    drafting.press("Alt+ArrowDown", "Tab")
    assert drafting.text.startswith(BEFORE + "\n\t") and len(drafting.text) > len(BEFORE) + 2
    drafting.press("Enter", "Escape", "Tab")  # no trap for who moves by keyboard
    expect(drafting.box).not_to_be_focused()


def test_enter_goes_on_with_lists(editor: Editor) -> None:
    for first, second in (("- eggs", "- milk"), ("9. eggs", "10. milk"), ("  a) x", None)):
        editor.put(first)
        editor.press("Enter")
        editor.write("milk")
        assert editor.text == f"{first}\n{second or 'milk'}"
    editor.put("- eggs")
    editor.press("Enter", "Enter")
    assert editor.text == "- eggs\n"
    editor.write("So")
    editor.press("Enter")
    assert editor.text == "- eggs\nSo\n"
