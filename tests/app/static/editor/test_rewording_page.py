"""Other words for those in the text: Alt+↑, a digit, and the text as it was after one step of undo. words.test.mjs has
which words are meant, tests/core/test_rewording.py which others are found."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.app.static.editor.editor_page import Editor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

TEXT = "He gave a quick answer.\nNobody had asked him."


# Opens the box anew, and presses a digit as soon as it has words.
AT_ONCE = """() => {
  const box = document.querySelector("#pd-text");
  const press = (key) => box.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, cancelable: true, ...key }));
  press({ key: "Escape", code: "Escape" });
  press({ key: "ArrowUp", code: "ArrowUp", altKey: true });
  const one = { key: "1", code: "Digit1" };
  press(one); // while the answer is awaited
  return new Promise((done) => new MutationObserver(() => {
    if (!document.querySelector(".rw-choice")) return;
    press(one);
    done();
  }).observe(document.querySelector(".pd-rewording"), { subtree: true, childList: true }));
}"""


def opened(editor: Editor, caret: int = 13) -> None:
    """The box for the word at the caret, by default “quick”."""
    editor.put(TEXT, caret)
    editor.press("Alt+ArrowUp")


def selected(editor: Editor) -> list[int]:
    return editor.box.evaluate("box => [box.selectionStart, box.selectionEnd]")


def test_a_digit_replaces_the_word_and_one_undo_brings_it_back(editor: Editor) -> None:
    opened(editor)
    box = editor.page.locator(".pd-rewording")
    expect(box.get_by_role("option")).to_have_text(["1slow25%", "2careful17%", "3last13%"])
    expect(box).to_contain_text("In place of “quick” · 50%")
    asked = editor.fake.requests[-1]
    assert (asked["before"], asked["words"]) == ("He gave a ", "quick")
    assert asked["after"].startswith(" answer.\nNobody")
    assert selected(editor) == [10, 15]
    editor.press("Digit2")
    assert editor.text == TEXT.replace("quick", "careful")
    expect(box).to_be_hidden()
    editor.press("Control+z")
    assert editor.text == TEXT


def test_arrows_and_enter_or_a_click_take_one_and_another_key_is_written_where_the_caret_was(editor: Editor) -> None:
    opened(editor)
    box = editor.page.locator(".pd-rewording")
    expect(box.get_by_role("option")).to_have_count(3)
    editor.press("ArrowUp")
    editor.read()
    editor.press("Enter")
    assert editor.text == TEXT.replace("quick", "last")
    opened(editor)
    expect(box.get_by_role("option")).to_have_count(3)
    editor.page.evaluate(AT_ONCE)
    assert editor.text == TEXT  # nobody can have read it
    box.get_by_role("option").nth(1).click()
    assert editor.text == TEXT.replace("quick", "careful")
    opened(editor)
    expect(box.get_by_role("option")).to_have_count(3)
    editor.press("x")
    assert editor.text == TEXT.replace("quick", "quixck")
    expect(box).to_be_hidden()
    opened(editor)
    editor.press("Escape")
    expect(box).to_be_hidden()
    assert (editor.text, selected(editor)) == (TEXT, [13, 13])


def test_a_place_without_a_word_a_busy_model_an_error_and_no_other_words_are_said_in_a_sentence(editor: Editor) -> None:
    editor.put("one, — two", caret=5)
    editor.press("Alt+ArrowUp")
    expect(editor.page.locator(".pd-toast")).to_contain_text("Put the caret on a word, or select up to eight words.")
    said = editor.page.locator(".pd-rewording p")
    editor.fake.held_after = 0
    opened(editor)
    expect(said).to_contain_text("The model is busy.")
    editor.fake.held_after, editor.fake.others = None, ()
    expect(said).to_have_text("Nothing else is likely in place of “quick”.")
    editor.press("Escape")
    editor.fake.error_line = ("The model could not be loaded.", "Choose another.")
    opened(editor)
    expect(said).to_have_text("The model could not be loaded. Choose another.")
    editor.press("Escape")
    editor.box.evaluate("box => { box.readOnly = true }")
    editor.press("Alt+ArrowUp")
    expect(editor.page.locator(".pd-toast")).to_contain_text("cannot be edited")
    editor.box.evaluate("box => { box.readOnly = false }")


# Whether the box is inside the desk, and below or above the line of the words.
IN_SIGHT = """() => {
  const box = document.querySelector(".pd-rewording").getBoundingClientRect();
  const desk = document.querySelector(".pd-desk").getBoundingClientRect();
  const { map, textarea } = polydraft, { top, lineHeight } = map.column();
  const { y } = map.locate(textarea.value, textarea.selectionStart);
  const line = textarea.getBoundingClientRect().top + top + y - textarea.scrollTop;
  const inside = box.top >= desk.top && box.bottom <= desk.bottom + 1 && box.left >= 0 && box.right <= innerWidth;
  return inside && (box.top >= line + lineHeight || box.bottom <= line);
}"""


@pytest.mark.parametrize(("width", "height"), [(360, 640), (1280, 800)])
def test_the_box_is_in_sight_and_does_not_cover_the_words(editor: Editor, width: int, height: int) -> None:
    editor.page.set_viewport_size({"width": width, "height": height})
    editor.fake.others = tuple(f"word{n}" for n in range(9))
    lines = "It was late when the bell rang, and nobody came.\n" * 60
    for text in (TEXT, lines + TEXT, lines + TEXT + lines):
        editor.put(text, text.index("quick") + 1)
        editor.box.evaluate("box => { box.blur(); box.focus() }")  # which scrolls to the caret
        editor.press("Alt+ArrowUp")
        expect(editor.page.locator(".pd-rewording [role=option]")).to_have_count(9)
        assert editor.page.evaluate(IN_SIGHT), text[:40]
        editor.press("Escape")
