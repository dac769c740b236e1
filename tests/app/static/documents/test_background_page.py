"""The section *Background* of a document: the model reads it, and it is kept with the document, wherever that is."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from app.documents.folder import DocumentFolder
from tests.app.static.documents.test_documents_page import (
    LETTER,
    STORY,
    context,
    editor,
    fake,
    folder,
    keep_as,
    panel,
    saved,
    server,
    shared,
    tab,
    write_new,
)
from tests.app.static.editor.test_page import Editor

__all__ = ["context", "editor", "fake", "folder", "server", "shared", "tab"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MAIL = "Anna asks whether the wardens may log the tide before noon."


def section(editor: Editor) -> Locator:
    return panel(editor).locator(".dc-background")


def give(editor: Editor, text: str) -> None:
    background = section(editor)
    assert background.get_attribute("open") is None
    background.locator("summary").click()
    background.get_by_role("textbox", name="Background").fill(text)
    panel(editor).get_by_role("button", name="Close").click()


def sent(editor: Editor) -> str | None:
    """The background of the next request."""
    editor.fake.requests.clear()
    editor.box.focus()
    editor.press("Control+End")
    editor.write(" a")
    editor.wait(lambda: editor.fake.requests, "a request")
    return editor.fake.requests[-1].get("background")


def test_requests_send_it_with_this_document_alone_and_it_is_no_part_of_the_text(
    editor: Editor, folder: DocumentFolder
) -> None:
    write_new(editor, LETTER)
    assert sent(editor) is None
    give(editor, MAIL)
    assert sent(editor) == MAIL
    assert MAIL not in editor.text
    saved(editor)
    write_new(editor, STORY)
    expect(section(editor).get_by_role("textbox", name="Background", include_hidden=True)).to_have_value("")
    panel(editor).get_by_role("button", name="Close").click()
    assert sent(editor) is None
    keep_as(editor, "as files on this computer")  # the note of the other document has it, its file not
    notes = [json.loads(path.read_text()) for path in folder.folder.rglob("*.json")]
    assert sorted(note.get("background", "") for note in notes if "id" in note) == ["", MAIL]
    assert all(MAIL not in path.read_text() for path in folder.folder.glob("*.txt"))


def test_it_is_there_again_after_a_reload_and_in_incognito_stays_in_its_tab(
    tab: Callable[..., Editor], folder: DocumentFolder
) -> None:
    editor = tab()
    editor.page.get_by_role("button", name="Incognito").click()
    write_new(editor, LETTER)
    give(editor, MAIL)
    assert sent(editor) == MAIL
    saved(editor)
    editor.reload()
    editor.wait(lambda: editor.text.startswith(LETTER))
    assert sent(editor) == MAIL
    other = tab()
    panel(other)
    stored = """async () => {
        const opened = indexedDB.open("polydraft", 1);
        await new Promise((done) => (opened.onsuccess = done));
        const all = opened.result.transaction("entries").objectStore("entries").getAll();
        await new Promise((done) => (all.onsuccess = done));
        return JSON.stringify(all.result);
    }"""
    assert MAIL not in other.page.evaluate(stored)
    assert editor.errors == other.errors == []
