"""The mark in the margin where the model begins to read."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.app.static.editor.editor_page import Editor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

LINE = "It was late 🌊 when the bell rang, and nobody came.\n"

# Whether the mark is in the margin, beside the line in which a text begins.
BESIDE = """(text) => {
  const mark = document.querySelector(".pd-reads").getBoundingClientRect();
  const { map, textarea } = polydraft, { top, left, lineHeight } = map.column();
  const box = textarea.getBoundingClientRect();
  const line = box.top + top + map.locate(textarea.value, textarea.value.indexOf(text)).y - textarea.scrollTop;
  return mark.left >= 0 && mark.right <= box.left + left && mark.top >= line - 1 && mark.bottom <= line + lineHeight;
}"""


@pytest.mark.parametrize("width", [360, 1280])
def test_the_mark_stands_where_reading_begins_and_says_what_that_means(editor: Editor, width: int) -> None:
    editor.page.set_viewport_size({"width": width, "height": 700})
    mark = editor.page.locator(".pd-reads")
    editor.enter("Yesterday she went")
    editor.rest()
    expect(mark).to_be_hidden()

    lines = LINE * 20
    editor.fake.skipped = len(lines)
    editor.enter(f"{lines}Here it begins.\nYesterday she went")
    expect(mark).to_be_visible()
    editor.wait(lambda: editor.page.evaluate(BESIDE, "Here it begins"), "the mark beside the line")
    expect(mark).to_have_attribute("title", (
        "The model reads from here to the caret, 6 words; what stands above does not change the drafts. It reads at "
        "most 1,024 tokens."
    ))  # fmt: skip
    editor.box.evaluate("box => { box.scrollTop -= 90 }")
    editor.wait(lambda: editor.page.evaluate(BESIDE, "Here it begins"), "the mark to follow the text")

    editor.fake.skipped, editor.fake.background_skipped = 0, 12_345
    editor.put("")
    editor.enter("Dear Anna, I")
    expect(mark).to_have_attribute("title", (
        "The model reads your text from here on. Of the background it does not read the first 12,345 characters. It "
        "reads at most 1,024 tokens."
    ))  # fmt: skip
    mark.click()
    expect(editor.page.locator(".pd-toast")).to_contain_text("12,345 characters")
