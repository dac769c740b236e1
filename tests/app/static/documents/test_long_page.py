"""Texts that are too long to be edited, in real Chromium: they can be read, searched, copied, saved and divided."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from app.documents.folder import DocumentFolder, Entry
from tests.app.static.documents.writer import AS_FILES, Writer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

SENTENCE = "The keeper read it twice and then sat down by the window to think about what it said. "
MOST = 512_000  # UTF-16 units of a text that can be edited
PARTS = ["Novel (1)", "Novel (2)", "Novel (3)"]


def novel(length: int) -> str:
    """Numbered paragraphs with an empty line between them."""
    paragraph = len(SENTENCE) * 6 + 9
    return "\n\n".join(f"[{n:06}] {(SENTENCE * 6).strip()}" for n in range(length // paragraph))


TEXT = novel(700_000)
DROP = """(text) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([text], "Novel.txt"));
    polydraft.textarea.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""


def length(editor: Writer) -> int:
    return editor.page.evaluate("polydraft.textarea.textLength")


def opened(editor: Writer, text: str = TEXT) -> Writer:
    editor.page.evaluate(DROP, text)
    editor.wait(lambda: length(editor) == len(text), "the text")
    editor.box.focus()
    return editor


def text_of(editor: Writer) -> str:
    return editor.page.evaluate("polydraft.textarea.value")


def as_files(editor: Writer) -> None:
    editor.keep(AS_FILES)
    editor.close_panel()


def divide(editor: Writer) -> None:
    editor.page.get_by_role("button", name="Divide this document").click()
    editor.wait(lambda: length(editor) < MOST, "the first part")


def paste(editor: Writer, text: str) -> None:
    editor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    editor.page.evaluate("text => navigator.clipboard.writeText(text)", text)
    editor.press("Control+v")


def says(editor: Writer, sentence: str) -> None:
    expect(editor.toast).to_contain_text(sentence)


def listed(folder: DocumentFolder) -> dict[str, str]:
    """The titles of the documents that are not in the bin, with their ids."""
    return {entry.title: entry.id for entry in folder.entries() if entry.binned is None}


def kept(folder: DocumentFolder) -> dict[str, tuple[Entry, str]]:
    return {title: folder.read(id) for title, id in listed(folder).items()}


# ---------------------------------------------------------------- reading


def test_a_text_above_the_bound_is_read_searched_and_copied_and_no_key_changes_it(editor: Writer) -> None:
    editor.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    band = editor.page.locator(".bd-long")
    expect(band).to_be_hidden()
    opened(editor)
    expect(band).to_have_text(
        "This text has more than 512,000 characters, so it can be read and not edited. Divide this document"
    )
    expect(editor.page.locator(".pd-counts")).to_contain_text(f"{len(TEXT.split()):,} words")
    editor.fake.requests.clear()
    editor.press("x", "Enter", "Backspace", "Tab", "Control+End")
    editor.box.click()
    editor.press("Tab", "Shift+Tab", "Control+x")
    assert text_of(editor) == TEXT
    assert editor.fake.requests == []

    editor.press("Control+f")
    editor.page.get_by_role("textbox", name="Find").fill("[000700]")
    expect(editor.page.locator(".fd-matches")).to_have_text("1 of 1")
    place = TEXT.index("[000700]")
    assert editor.box.evaluate("box => [box.selectionStart, box.selectionEnd]") == [place, place + 8]
    for name in ("Replace", "Replace all"):
        editor.page.get_by_role("button", name=name, exact=True).click()
        says(editor, "A text of more than 512,000 characters cannot be edited. Divide this document first.")
    assert text_of(editor) == TEXT
    editor.button("Copy").click()
    says(editor, "Copied")
    assert editor.page.evaluate("navigator.clipboard.readText()") == TEXT
    editor.reload()
    assert text_of(editor) == TEXT
    expect(band).to_be_visible()
    editor.button("New").click()
    expect(band).to_be_hidden()
    editor.write("x")
    assert editor.text == "x"


# ---------------------------------------------------------------- the bound


def test_an_insertion_that_would_cross_the_bound_is_refused_with_the_bound_and_others_are_not(editor: Writer) -> None:
    text = novel(500_000)
    text += "x" * (MOST - 4 - len(text))
    refused = "at most 512,000 characters, so nothing was inserted"
    opened(editor, text)
    expect(editor.page.locator(".bd-long")).to_be_hidden()
    editor.press("Control+End")
    paste(editor, "12345")
    says(editor, refused)
    assert length(editor) == MOST - 4
    paste(editor, "1\r\n34")  # one character less, as a line end counts
    editor.wait(lambda: length(editor) == MOST, "the paste")
    for key in ("x", "Enter"):
        editor.page.evaluate("document.querySelector('.pd-toast').hidden = true")
        editor.press(key)
        says(editor, refused)
    assert text_of(editor) == text + "1\n34"
    editor.press("Shift+ArrowLeft", "y")
    assert text_of(editor) == text + "1\n3y"
    editor.press("Control+f")
    editor.page.get_by_role("textbox", name="Find").fill("[0000")
    editor.page.get_by_role("textbox", name="Replace with").fill("longer")
    for name in ("Replace", "Replace all"):
        editor.page.evaluate("document.querySelector('.pd-toast').hidden = true")
        editor.page.get_by_role("button", name=name, exact=True).click()
        says(editor, refused)
    assert text_of(editor) == text + "1\n3y"
    editor.saved()
    editor.reload()
    assert text_of(editor) == text + "1\n3y"


def test_what_an_input_method_writes_over_the_bound_stays_and_is_saved_and_the_text_is_read_only_then(
    editor: Writer,
) -> None:
    text = novel(500_000)
    text += "x" * (MOST - len(text))
    opened(editor, text)
    editor.press("Control+End")
    keyboard = editor.page.context.new_cdp_session(editor.page)
    keyboard.send("Input.imeSetComposition", {"text": "東京", "selectionStart": 2, "selectionEnd": 2})
    assert not editor.box.evaluate("box => box.readOnly")
    keyboard.send("Input.insertText", {"text": "東京"})
    expect(editor.page.locator(".bd-long")).to_be_visible()
    editor.press("x")
    assert text_of(editor) == text + "東京"
    editor.saved()
    divide(editor)
    editor.lists("Novel (1)", "Novel (2)")


# ---------------------------------------------------------------- dividing


def test_a_document_is_divided_into_parts_with_its_private_text_background_and_stores_and_goes_into_the_bin(
    editor: Writer, folder: DocumentFolder, tab: Callable[..., Writer]
) -> None:
    as_files(editor)
    at = len(TEXT) // 2
    private = [[at, at + 10], [len(TEXT) - 5, len(TEXT)]]
    whole = Entry("3fa9c2d1-0000", title="Novel", private=private, stores=["law.ngram"], background="A storm.")
    folder.write(whole, TEXT, None)
    editor = tab("#/document=3fa9c2d1-0000")
    editor.wait(lambda: length(editor) == len(TEXT), "the text")
    divide(editor)
    says(editor, "This is the first of 3 documents. The original is in the bin.")
    found = kept(folder)
    assert sorted(found) == PARTS
    assert "".join(found[title][1] for title in PARTS) == TEXT
    assert text_of(editor) == found["Novel (1)"][1]
    entry, text = found["Novel (3)"]  # dividing.test.mjs has all parts
    private = [[len(text) - 5, len(text)]]
    assert (entry.private, entry.stores, entry.background) == (private, ["law.ngram"], "A storm.")
    assert folder.read("3fa9c2d1-0000")[0].binned is not None
    editor.box.focus()
    editor.write("x")
    editor.saved()
    assert kept(folder)["Novel (1)"][1].count("x") == 1 + found["Novel (1)"][1].count("x")


def test_a_division_that_fails_leaves_the_original_alone_and_can_be_tried_again(
    editor: Writer, folder: DocumentFolder
) -> None:
    as_files(editor)
    opened(editor)
    editor.saved()
    writes: list[int] = []

    def second_fails(route: Route) -> None:
        writes.append(len(writes))
        if len(writes) == 2:
            route.abort()
        else:
            route.continue_()

    editor.page.route("**/api/documents/write", second_fails)
    editor.page.get_by_role("button", name="Divide this document").click()
    editor.wait(lambda: len(writes) == 2 and [*listed(folder)] == ["Novel"], "the part to be removed")
    assert text_of(editor) == TEXT
    editor.page.unroute("**/api/documents/write")
    divide(editor)
    editor.lists(*PARTS)
    assert editor.titles(".dc-binned") == ["Novel"]


# The second document is never written, whatever becomes of the page.
HANGS = """() => {
    const real = window.fetch;
    window.writes = 0;
    window.fetch = (path, how) =>
        String(path).endsWith('/write') && ++writes > 1 ? new Promise(() => {}) : real(path, how);
}"""


def test_a_tab_that_is_closed_while_it_divides_leaves_the_whole_text(editor: Writer, folder: DocumentFolder) -> None:
    as_files(editor)
    opened(editor)
    editor.saved()
    editor.page.evaluate(HANGS)
    editor.page.get_by_role("button", name="Divide this document").click()
    editor.wait(lambda: editor.page.evaluate("writes") == 2, "the second part")
    editor.page.close()
    found = kept(folder)
    assert found.keys() == {"Novel", "Novel (1)"}
    assert found["Novel"][1] == TEXT


def test_parts_made_in_incognito_are_in_this_tab_alone_and_the_original_stays(
    editor: Writer, folder: DocumentFolder
) -> None:
    as_files(editor)
    opened(editor)
    editor.saved()
    editor.page.locator(".pd-incognito").click()
    divide(editor)
    says(editor, "The original stays beside them")
    editor.lists("Novel", *PARTS)
    assert kept(folder)["Novel"][1] == TEXT
    assert len(folder.entries()) == 1
    editor.page.locator("[data-do=close-documents]").click()
    editor.page.locator(".pd-incognito").click()
    editor.wait(lambda: len(folder.entries()) == 4, "the parts to be stored")
    assert "".join(kept(folder)[title][1] for title in PARTS) == TEXT
