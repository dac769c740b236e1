"""Other words for those in the text: Alt+↑, a digit, and the text as it was after one step of undo. words.test.mjs has
which words are meant, tests/core/test_rewording.py which others are found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.app.static.editor.editor_page import Editor, fake, server, shared
from tests.fake_drafts import FakeDrafts, Server

__all__ = ["fake", "server", "shared"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

TEXT = "He gave a quick answer.\nNobody had asked him."


@pytest.fixture
def page(context: BrowserContext, server: Server, fake: FakeDrafts) -> Iterator[Editor]:
    editor = Editor(context.new_page(), fake).open(server.url)
    yield editor
    assert editor.errors == []


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


def opened(page: Editor, caret: int = 13) -> None:
    """The box for the word at the caret, by default “quick”."""
    page.put(TEXT, caret)
    page.press("Alt+ArrowUp")


def selected(page: Editor) -> list[int]:
    return page.box.evaluate("box => [box.selectionStart, box.selectionEnd]")


def test_a_digit_replaces_the_word_and_one_undo_brings_it_back(page: Editor) -> None:
    opened(page)
    box = page.page.locator(".pd-rewording")
    expect(box.get_by_role("option")).to_have_text(["1slow25%", "2careful17%", "3last13%"])
    expect(box).to_contain_text("In place of “quick” · 50%")
    asked = page.fake.requests[-1]
    assert (asked["before"], asked["words"]) == ("He gave a ", "quick")
    assert asked["after"].startswith(" answer.\nNobody")
    assert selected(page) == [10, 15]
    page.press("Digit2")
    assert page.text == TEXT.replace("quick", "careful")
    expect(box).to_be_hidden()
    page.press("Control+z")
    assert page.text == TEXT


def test_arrows_and_enter_or_a_click_take_one_and_another_key_is_written_where_the_caret_was(page: Editor) -> None:
    opened(page)
    box = page.page.locator(".pd-rewording")
    expect(box.get_by_role("option")).to_have_count(3)
    page.press("ArrowUp")
    page.read()
    page.press("Enter")
    assert page.text == TEXT.replace("quick", "last")
    opened(page)
    expect(box.get_by_role("option")).to_have_count(3)
    page.page.evaluate(AT_ONCE)
    assert page.text == TEXT  # nobody can have read it
    box.get_by_role("option").nth(1).click()
    assert page.text == TEXT.replace("quick", "careful")
    opened(page)
    expect(box.get_by_role("option")).to_have_count(3)
    page.press("x")
    assert page.text == TEXT.replace("quick", "quixck")
    expect(box).to_be_hidden()
    opened(page)
    page.press("Escape")
    expect(box).to_be_hidden()
    assert (page.text, selected(page)) == (TEXT, [13, 13])


def test_a_place_without_a_word_a_busy_model_an_error_and_no_other_words_are_said_in_a_sentence(page: Editor) -> None:
    page.put("one, — two", caret=5)
    page.press("Alt+ArrowUp")
    expect(page.page.locator(".pd-toast")).to_contain_text("Put the caret on a word, or select up to eight words.")
    said = page.page.locator(".pd-rewording p")
    page.fake.held_after = 0
    opened(page)
    expect(said).to_contain_text("The model is busy.")
    page.fake.held_after, page.fake.others = None, ()
    expect(said).to_have_text("Nothing else is likely in place of “quick”.")
    page.press("Escape")
    page.fake.error_line = ("The model could not be loaded.", "Choose another.")
    opened(page)
    expect(said).to_have_text("The model could not be loaded. Choose another.")
    page.press("Escape")
    page.box.evaluate("box => { box.readOnly = true }")
    page.press("Alt+ArrowUp")
    expect(page.page.locator(".pd-toast")).to_contain_text("cannot be edited")
    page.box.evaluate("box => { box.readOnly = false }")


# Whether the box is inside the desk, and below or above the line of the words.
IN_SIGHT = """() => {
  const box = document.querySelector(".pd-rewording").getBoundingClientRect();
  const desk = document.querySelector(".pd-desk").getBoundingClientRect();
  const { map, textarea } = polydraft.editor, { top, lineHeight } = map.column();
  const { y } = map.locate(textarea.value, textarea.selectionStart);
  const line = textarea.getBoundingClientRect().top + top + y - textarea.scrollTop;
  const inside = box.top >= desk.top && box.bottom <= desk.bottom + 1 && box.left >= 0 && box.right <= innerWidth;
  return inside && (box.top >= line + lineHeight || box.bottom <= line);
}"""


@pytest.mark.parametrize(("width", "height"), [(360, 640), (1280, 800)])
def test_the_box_is_in_sight_and_does_not_cover_the_words(page: Editor, width: int, height: int) -> None:
    page.page.set_viewport_size({"width": width, "height": height})
    page.fake.others = tuple(f"word{n}" for n in range(9))
    lines = "It was late when the bell rang, and nobody came.\n" * 60
    for text in (TEXT, lines + TEXT, lines + TEXT + lines):
        page.put(text, text.index("quick") + 1)
        page.box.evaluate("box => { box.blur(); box.focus() }")  # which scrolls to the caret
        page.press("Alt+ArrowUp")
        expect(page.page.locator(".pd-rewording [role=option]")).to_have_count(9)
        assert page.page.evaluate(IN_SIGHT), text[:40]
        page.press("Escape")
