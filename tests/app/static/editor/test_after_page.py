"""The page and the text after the caret: it is sent, it belongs to the answers, and the best draft leads to it."""

from __future__ import annotations

import pytest

from tests.app.static.editor.test_page import BEFORE, Editor, editor, fake, server, shared
from tests.fake_drafts import HOME, MARKET, RIVER

__all__ = ["editor", "fake", "server", "shared"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


def test_the_page_sends_the_beginning_of_the_text_after_the_caret(editor: Editor) -> None:
    editor.put("She  and so on" + "." * 1000, 4)
    editor.write("w")
    editor.wait(lambda: editor.ghost() == MARKET)
    assert editor.fake.requests[-1]["after"] == " and so on" + "." * 246
    editor.put("She went. \n", 8)
    editor.press("Alt+ArrowDown")
    editor.wait(lambda: editor.fake.requests[-1]["before"] == "She went")
    assert editor.fake.requests[-1]["after"] == ". \n"
    editor.put("She went \n ", 8)
    editor.press("Alt+ArrowDown")
    editor.wait(lambda: "after" not in editor.fake.requests[-1])


def test_drafts_for_another_text_after_the_caret_are_requested_again(editor: Editor) -> None:
    def write_before(after: str) -> int:
        editor.put(BEFORE[:-1] + after, len(BEFORE) - 1)
        editor.write(BEFORE[-1])
        editor.wait(lambda: editor.ghost() == MARKET)
        editor.wait(lambda: editor.page.evaluate("polydraft.editor.request") is None)
        return len([request for request in editor.fake.requests if request["before"] == BEFORE])

    assert [write_before(after) for after in (" home.", " away.", " home.")] == [1, 2, 2]


def test_the_ghost_is_the_draft_that_leads_to_the_text_after_the_caret(editor: Editor) -> None:
    editor.fake.gains = {0: -1.0, 1: 2.0, 2: 1.0}
    editor.put(BEFORE[:-1] + " in her hand.", len(BEFORE) - 1)
    editor.write(BEFORE[-1])
    editor.wait(lambda: editor.ghost() == RIVER)
    editor.press("Alt+ArrowDown")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    assert editor.ghost() == RIVER, "rows keep their places"


def test_drafts_that_the_writer_asks_for_are_shown_whatever_follows(editor: Editor) -> None:
    editor.put(f"{BEFORE} home.", len(BEFORE))
    editor.press("Alt+ArrowDown")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    assert editor.fake.requests[-1]["all"] is True
    editor.write("x")
    editor.wait(lambda: editor.fake.requests[-1]["before"] == BEFORE + "x")
    assert "all" not in editor.fake.requests[-1]
