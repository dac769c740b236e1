"""What a key inserts: the text that stood on the page when the writer decided, whatever has arrived since, of which
taking.test.mjs tries thousands of cases; and what the page shows while the server is slow."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.app.static.editor.editor_page import BEFORE, Editor
from tests.fake_drafts import HOME, MARKET, RIVER

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def drafting(editor: Editor, text: str) -> None:
    """Text, and every row with the first word of its draft for long enough to be read."""
    editor.fake.held_after = 1
    editor.enter(text)
    editor.wait_for_drafts(" to", " to", " home")
    editor.read()


# Presses a key as soon as the first row shows another text.
AT_CHANGE = """(key) => {
  window.took = null;
  const row = document.querySelector("#pd-draft-1 .pd-draft"), old = row.textContent;
  const watch = new MutationObserver(() => {
    if (row.textContent === old) return;
    watch.disconnect();
    const box = document.querySelector("#pd-text");
    box.dispatchEvent(new KeyboardEvent("keydown", { ...key, bubbles: true, cancelable: true }));
    window.took = [row.textContent, box.value];
  });
  watch.observe(document.querySelector(".pd-list"), { subtree: true, childList: true, characterData: true });
}"""

TAB = {"key": "Tab", "code": "Tab"}
FIRST = {"key": "1", "code": "Digit1", "altKey": True}


def test_what_grows_when_the_key_comes_is_a_draft_afterwards_for_each_key(editor: Editor) -> None:
    for n, key in enumerate((TAB, FIRST)):
        text = f"{n} {BEFORE}"
        drafting(editor, text)
        editor.page.evaluate(AT_CHANGE, key)
        editor.fake.held_after = None
        editor.wait(lambda: editor.page.evaluate("took") is not None, "the key")
        shown, inserted = editor.page.evaluate("took")
        assert shown.startswith(" the")
        assert inserted == f"{text} to"
        editor.wait(lambda: editor.ghost() == MARKET.removeprefix(" to"), "the rest as a draft")
        editor.press("Tab")
        assert editor.text == text + MARKET


def test_a_row_that_is_replaced_when_the_key_comes_gives_what_was_read_and_one_that_was_never_read_nothing(
    editor: Editor,
) -> None:
    editor.fake.first_thought, editor.fake.held_after, editor.fake.settles_after = " perhaps", 1, 2
    editor.enter(BEFORE)
    editor.wait_for_drafts(" perhaps", " perhaps", " perhaps")
    editor.read()
    editor.page.evaluate(AT_CHANGE, FIRST)
    editor.fake.held_after = None
    editor.wait(lambda: editor.page.evaluate("took") is not None, "the key")
    assert editor.page.evaluate("took")[1] == f"{BEFORE} perhaps"

    editor.put("")
    editor.wait(lambda: editor.drafts() == [], "no drafts")
    editor.fake.first_thought = ""
    drafting(editor, f"Then {BEFORE}")
    editor.page.evaluate(AT_CHANGE, FIRST)
    editor.fake.script = {",": (" along the road",)}
    editor.write(",")
    editor.wait(lambda: editor.page.evaluate("took") is not None, "the key")
    assert editor.page.evaluate("took") == [" along", f"Then {BEFORE},"]
    expect(editor.page.get_by_text("Just changed: press again")).to_be_visible()
    editor.fake.held_after = None
    editor.wait_for_drafts(" along the road")
    editor.press("Alt+Digit1")
    assert editor.text == f"Then {BEFORE}, along the road"


# ---------------------------------------------------------------- a slow server

# Types a letter, and reads the page before it is drawn.
CONTRADICT = """(letter) => {
  document.execCommand("insertText", false, letter);
  const ghost = document.querySelector(".pd-ghost"), rows = [...document.querySelectorAll(".pd-option-row")];
  return [ghost.hidden, rows.filter((row) => getComputedStyle(row).visibility !== "hidden").length];
}"""


# One call, because the page takes the mark away with the next answer.
OPACITY = """slow => {
  document.querySelector("#pd").toggleAttribute("data-slow", slow);
  return +getComputedStyle(document.querySelector(".pd-option-row")).opacity;
}"""


def test_grey_text_and_rows_that_no_longer_fit_are_hidden_before_the_next_frame_and_nothing_moves(
    editor: Editor,
) -> None:
    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.settle()
    hints = editor.page.locator(".pd-hints").bounding_box()
    editor.fake.held_after = 0
    assert editor.page.evaluate(CONTRADICT, " ") == [False, 3]
    assert editor.page.evaluate(CONTRADICT, "h") == [False, 1]
    assert editor.ghost() == HOME.removeprefix(" h")
    assert editor.page.evaluate(CONTRADICT, "x") == [True, 0]
    assert editor.page.locator(".pd-hints").bounding_box() == hints
    editor.press("Tab")
    assert editor.text == f"{BEFORE} hx"
    editor.box.focus()
    editor.press("Backspace")
    assert editor.ghost() == HOME.removeprefix(" h")  # back where it agrees


def test_while_the_server_is_slow_rows_are_dim_and_where_text_follows_a_word_stands_in_the_line_of_the_caret(
    editor: Editor,
) -> None:
    """slow.test.mjs has when; here also while the text scrolls."""
    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.wait(lambda: editor.page.evaluate(OPACITY, True) == 0.5, "dim rows")
    editor.wait(lambda: editor.page.evaluate(OPACITY, False) == 1, "rows as usual")
    lines = "It was late when the bell rang, and nobody came.\n" * 40
    editor.put(lines + BEFORE + "\n" + lines, caret=len(lines + BEFORE))
    editor.box.evaluate("box => { box.blur(); box.focus() }")  # which scrolls to the caret
    editor.fake.held_after = 0
    editor.write(" t")
    slow = editor.page.get_by_text("Slow …")
    expect(slow).to_be_visible()
    inside = """() => {
        const { map, textarea } = polydraft, { top, lineHeight } = map.column();
        const y = textarea.getBoundingClientRect().top + top + map.locate(textarea.value, textarea.selectionEnd).y;
        const word = document.querySelector(".pd-slow").getBoundingClientRect();
        const middle = (word.top + word.bottom) / 2 - y + textarea.scrollTop;
        const seen = document.elementFromPoint((word.left + word.right) / 2, (word.top + word.bottom) / 2);
        return 0 <= middle && middle <= lineHeight && seen?.className === "pd-slow";
    }"""
    assert editor.page.evaluate(inside)
    editor.box.evaluate("box => { box.scrollTop -= 60 }")
    editor.wait(lambda: editor.page.evaluate(inside), "the word to follow the text")
    editor.fake.held_after = None
    expect(slow).to_be_hidden()
