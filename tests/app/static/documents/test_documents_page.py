"""Documents, the first seconds, and the look of the page, in real Chromium: no text is lost, none replaces another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, FilePayload, Locator, expect

from app.documents.folder import DocumentFolder, Entry
from tests.app.static.editor.editor_page import Editor
from tests.fake_drafts import HOME, MARKET, RIVER, FakeDrafts, Server, create_app

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

LETTER = "Dear Ms Hollis,\nthank you for the photographs."
STORY = "The lighthouse keeper opened the letter and read it twice."
SECRET = "Nobody else may know."


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, FakeDrafts, Path]]:
    fake, folder = FakeDrafts(), tmp_path_factory.mktemp("data") / "documents"
    server = Server(create_app(fake, documents=folder))
    yield server, fake, folder
    server.stop()


@pytest.fixture
def server(shared: tuple[Server, FakeDrafts, Path]) -> Server:
    return shared[0]


@pytest.fixture
def fake(shared: tuple[Server, FakeDrafts, Path]) -> FakeDrafts:
    shared[1].__dict__.update(FakeDrafts().__dict__)
    return shared[1]


@pytest.fixture
def folder(shared: tuple[Server, FakeDrafts, Path]) -> DocumentFolder:
    """An empty folder; documents are kept in the browser."""
    folder = DocumentFolder(shared[2])
    for entry in folder.entries():
        folder.remove(entry.id)
    for problem in folder.listing().problems:
        folder.set_aside(problem.note)
    folder.keep(False)
    return folder


@pytest.fixture
def context(context: BrowserContext, folder: DocumentFolder) -> BrowserContext:
    return context


@pytest.fixture
def tab(context: BrowserContext, server: Server, fake: FakeDrafts) -> Callable[..., Editor]:
    """Opens a tab with the page, or with this part of it."""
    return lambda part="": Editor(context.new_page(), fake).open(server.url + part)


@pytest.fixture
def editor(tab: Callable[..., Editor]) -> Iterator[Editor]:
    editor = tab()
    yield editor
    assert editor.errors == []


def saved(editor: Editor) -> None:
    """The page saves at once what it would save half a second after the last key."""
    editor.page.evaluate("polydraft.documents.saveNow()")
    editor.wait(lambda: not editor.page.evaluate("polydraft.documents.dirty()"), "the text to be saved")


def click(at: Locator) -> None:
    """Without the pointer, whose way there takes twice the processor time; other tests click these with it."""
    at.dispatch_event("click")


def panel(editor: Editor) -> Locator:
    """Opens it. Its role and name, which take long to find, are in another test."""
    panel = panel_of(editor)
    if not panel.is_visible():
        click(editor.page.locator("[data-do=documents]"))
        panel.locator(".dc-none:not([hidden]), .dc-list b").first.wait_for()
    return panel


def panel_of(editor: Editor) -> Locator:
    return editor.page.locator("#pd-documents")


def close_panel(editor: Editor) -> None:
    click(editor.page.locator("[data-do=close-documents]"))
    expect(panel_of(editor)).to_be_hidden()
    expect(editor.box).to_be_focused()


def button(editor: Editor, name: str) -> Locator:
    return editor.page.get_by_role("button", name=name, exact=True)


def titles(editor: Editor, where: str = ".dc-list") -> list[str]:
    return panel(editor).locator(f"{where} b").all_text_contents()


def lists(editor: Editor, *expected: str, where: str = ".dc-list") -> None:
    """Waits until the panel lists these documents, in any order."""
    editor.wait(lambda: sorted(titles(editor, where)) == sorted(expected), f"the list {expected}")


def begin_new(editor: Editor) -> None:
    """Waits for the last step, which closes the panel. The box may be empty, and have the focus, before all of them."""
    panel_of(editor).evaluate("panel => { panel.hidden = false }")
    click(editor.page.locator(".pd-tools [data-do=new]"))
    expect(panel_of(editor)).to_be_hidden()


def write_new(editor: Editor, text: str) -> None:
    begin_new(editor)
    expect(editor.box).to_be_focused()
    editor.page.keyboard.insert_text(text)
    editor.page.evaluate("polydraft.documents.saveNow()")
    assert not editor.page.evaluate("polydraft.documents.dirty()")


def caret(editor: Editor) -> list[int]:
    return editor.box.evaluate("box => [box.selectionStart, box.selectionEnd]")


# ---------------------------------------------------------------- saving by itself


def test_the_page_saves_by_itself_and_a_reload_keeps_text_caret_and_scroll_and_closing_the_tab_at_once_loses_nothing(
    tab: Callable[..., Editor],
) -> None:
    one = tab()
    one.put("A line of the story.\n" * 200)
    one.wait(lambda: not one.page.evaluate("polydraft.documents.dirty()"), "the text to be saved")
    one.box.evaluate("box => box.setSelectionRange(2100, 2106)")
    one.page.evaluate("new Promise((drawn) => requestAnimationFrame.soon(() => requestAnimationFrame.soon(drawn)))")
    one.box.evaluate("box => { box.scrollTop = 1500 }")
    one.reload()
    assert one.text == "A line of the story.\n" * 200
    assert caret(one) == [2100, 2106]
    one.wait(lambda: abs(one.box.evaluate("box => box.scrollTop") - 1500) < 5)

    write_new(one, LETTER)
    button(one, "New").click()
    expect(one.box).to_have_value("")
    one.page.keyboard.insert_text(STORY)
    one.reload()
    assert one.text == STORY
    lists(one, STORY, "Dear Ms Hollis,", "A line of the story.")
    close_panel(one)
    one.press("Control+End")
    one.page.keyboard.insert_text(" More.")
    one.page.close(run_before_unload=True)
    two = tab()
    two.wait(lambda: two.text == STORY + " More.", "the text of the closed tab")
    lists(two, STORY + " More.", "Dear Ms Hollis,", "A line of the story.")


def test_a_cleared_text_is_in_the_bin_after_a_reload_and_what_was_private_still_is(editor: Editor) -> None:
    click(button(editor, "Incognito"))
    editor.page.keyboard.insert_text(STORY)
    click(button(editor, "Incognito"))
    saved(editor)
    editor.press("Control+a", "Delete")
    saved(editor)
    editor.reload()
    assert editor.text == ""
    panel(editor).locator(".dc-bin summary").click()
    lists(editor, STORY, where=".dc-binned")
    button(editor, f"Put “{STORY}” back").click()
    editor.wait(lambda: STORY in titles(editor), "the text to be back")
    panel(editor).get_by_text(STORY, exact=True).click()
    expect(editor.box).to_have_value(STORY)
    assert editor.page.evaluate("polydraft.editor.privacy.ranges") == [[0, len(STORY)]]


def test_while_page_and_model_load_what_is_typed_is_kept_and_a_quiet_line_is_shown(tab: Callable[..., Editor]) -> None:
    loading = {
        "model": "Slow",
        "backend": "loading",
        "device": "",
        "ready": False,
        "notice": "The model is being loaded.",
    }
    loaded = False

    def status(route: Any) -> None:
        route.continue_() if loaded else route.fulfill(json=loading)

    one = tab()
    write_new(one, STORY)
    one.page.route("**/api/status", status)
    one.page.route("**/api/documents", lambda route: (one.page.wait_for_timeout(300), route.continue_()))
    one.page.reload(wait_until="commit")
    one.page.locator("#pd-text").focus()
    one.page.keyboard.insert_text(" And")
    one.page.wait_for_function("window.polydraft !== undefined", polling=20)
    assert one.text == STORY + " And"
    line = one.page.get_by_text("Starting…")
    expect(line).to_be_visible()
    assert one.page.get_by_role("alert").is_hidden()
    assert "being loaded" not in one.page.get_by_role("group", name="Status").inner_text()
    below = one.page.locator(".pd-below").bounding_box()
    at = line.bounding_box()
    assert at and below and below["y"] <= at["y"] <= below["y"] + below["height"]
    loaded = True
    expect(line).to_be_hidden()


# ---------------------------------------------------------------- several documents


def test_undo_brings_a_document_back_from_the_bin_and_titles_can_be_changed_open_with_a_click_and_keep_their_carets(
    editor: Editor,
) -> None:
    for text in (LETTER, "Third.", STORY):
        write_new(editor, text)

    def put_in_bin(title: str) -> None:
        click(button(editor, f"Move “{title}” to the bin"))
        editor.wait(lambda: title not in titles(editor), "the bin")

    panel(editor)
    put_in_bin(STORY)
    expect(editor.page.locator(".pd-toast")).to_contain_text(f"“{STORY}” is in the bin.")
    expect(editor.box).to_have_value("")
    editor.page.locator(".pd-toast button").click()
    expect(editor.box).to_have_value(STORY)
    editor.wait(lambda: titles(editor) == [STORY, "Third.", "Dear Ms Hollis,"], "the list in this order")
    put_in_bin(STORY)
    put_in_bin("Third.")
    panel(editor).locator(".dc-bin summary").click()
    button(editor, "Delete “Third.” for good").click()
    sure = button(editor, "This cannot be undone. Delete?")
    expect(sure).to_be_visible()
    lists(editor, STORY, "Third.", where=".dc-binned")
    click(sure)
    lists(editor, STORY, where=".dc-binned")
    button(editor, "Empty the bin").click()
    click(sure)
    expect(panel(editor).locator(".dc-bin")).to_be_hidden()
    editor.reload()
    lists(editor, "Dear Ms Hollis,")
    expect(panel(editor).locator(".dc-bin")).to_be_hidden()

    write_new(editor, STORY)
    editor.wait(lambda: titles(editor) == [STORY, "Dear Ms Hollis,"], "the list in this order")
    expect(panel(editor).locator("[aria-current] b")).to_have_text(STORY)
    expect(panel(editor).locator("small").first).to_have_text("10 words · just now")
    for old, new in ((STORY, "Storm"), ("Dear Ms Hollis,", "Mail")):  # the one that is open, and another
        click(button(editor, f"Rename “{old}”"))
        expect(editor.page.get_by_role("textbox", name="Title")).to_be_focused()
        editor.write(new)
        editor.press("Enter")
        editor.wait(lambda new=new: new in titles(editor), "the new title")
    editor.reload()
    assert editor.text == STORY
    lists(editor, "Storm", "Mail")
    editor.box.focus()
    editor.box.evaluate("box => box.setSelectionRange(4, 4)")
    editor.write("old ")
    saved(editor)
    panel(editor).get_by_text("Mail", exact=True).click()
    expect(editor.box).to_have_value(LETTER)
    expect(panel_of(editor)).to_be_hidden()
    assert editor.page.title() == "Mail – Polydraft"
    panel(editor).get_by_text("Storm", exact=True).click()
    expect(editor.box).to_have_value(STORY.replace("lighthouse", "old lighthouse"))
    assert caret(editor) == [8, 8]


# ---------------------------------------------------------------- several tabs


def test_two_tabs_never_write_into_one_document_which_opens_here_when_the_other_is_closed(
    tab: Callable[..., Editor],
) -> None:
    one = tab()
    write_new(one, STORY)
    two = tab()
    expect(
        two.page.get_by_text(f"“{STORY}” is open in another tab. Close it there, and it opens here.")
    ).to_be_visible()
    assert two.text == ""
    assert two.box.evaluate("e => getComputedStyle(e, '::placeholder').color") == "rgba(0, 0, 0, 0)"
    expect(two.page.get_by_text("Or try an example")).to_be_hidden()
    two.page.keyboard.insert_text("Something else")
    expect(two.page.locator(".pd-elsewhere")).to_be_hidden()
    one.box.focus()
    one.page.keyboard.insert_text(" More.")
    saved(one)
    saved(two)
    two.reload()
    one.reload()
    assert (one.text, two.text) == (STORY + " More.", "Something else")
    three = tab()
    expect(three.page.locator(".pd-elsewhere")).to_be_visible()
    one.press("Control+End")
    one.page.keyboard.insert_text(" And more.")
    one.page.close(run_before_unload=True)
    expect(three.box).to_have_value(re.compile("^" + re.escape(STORY + " More.")))
    expect(three.page.locator(".pd-elsewhere")).to_be_hidden()


def test_a_document_opens_in_a_tab_of_its_own_by_its_link_and_can_be_copied_where_it_is_open_elsewhere(
    tab: Callable[..., Editor], server: Server
) -> None:
    one = tab()
    write_new(one, LETTER)
    write_new(one, STORY)
    story = panel(one).locator(".dc-name", has_text=STORY).get_attribute("href")
    link = panel(one).locator(".dc-name", has_text="Hollis").get_attribute("href")
    two = tab("/" + (link or ""))
    assert two.text == LETTER
    assert "#" not in two.page.url
    two.reload()
    assert (one.text, two.text) == (STORY, LETTER)

    two.page.goto("about:blank")
    two.open(server.url + "/" + (story or ""))
    button(two, "Open a copy").click()
    expect(two.box).to_have_value(STORY)
    two.box.focus()
    two.press("Control+End")
    two.page.keyboard.insert_text(" Otherwise.")
    saved(two)
    assert one.text == STORY
    lists(two, STORY, f"{STORY} (copy)", "Dear Ms Hollis,")
    expect(panel(two).locator("li", has_text="open in another tab")).to_have_count(1)


# ---------------------------------------------------------------- as files


def keep_as(editor: Editor, words: str) -> None:
    radio = panel(editor).get_by_role("radio", name=words)
    radio.click()  # not `check`: the page may draw the choice again before the documents have moved
    said = "Your documents are now " + ("files in" if "files" in words else "kept in this browser.")
    expect(editor.page.locator(".pd-toast")).to_contain_text(said)
    expect(radio).to_be_checked()


def texts(folder: DocumentFolder) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.folder.glob("*.txt")}


def test_documents_kept_as_files_are_found_by_another_browser_at_another_port_and_go_back_into_this_one(
    browser: Browser, editor: Editor, fake: FakeDrafts, folder: DocumentFolder
) -> None:
    write_new(editor, LETTER)
    write_new(editor, STORY)
    editor.page.evaluate("polydraft.documents.current.stores.push('default'), polydraft.documents.amended = true")
    keep_as(editor, "as files on this computer")
    assert texts(folder) == {"Dear Ms Hollis,.txt": LETTER, f"{STORY.rstrip('.')}.txt": STORY}
    assert editor.page.evaluate("(async () => (await indexedDB.databases()).length)()") == 1
    close_panel(editor)
    editor.press("Control+End")
    editor.page.keyboard.insert_text(" Again.")
    saved(editor)
    assert STORY + " Again." in texts(folder).values()
    other = Server(create_app(fake, documents=folder.folder))
    with browser.new_context() as stranger:
        elsewhere = Editor(stranger.new_page(), fake).open(other.url)
        lists(elsewhere, "Dear Ms Hollis,", STORY + " Again.")
        panel(elsewhere).get_by_text("Dear Ms Hollis,").click()
        expect(elsewhere.box).to_have_value(LETTER)
    other.stop()
    keep_as(editor, "in this browser")
    assert texts(folder) == {}
    editor.reload()
    assert editor.text == STORY + " Again."
    lists(editor, "Dear Ms Hollis,", STORY + " Again.")
    assert editor.page.evaluate("polydraft.documents.current.stores") == ["default"]


def test_other_tabs_follow_when_documents_move_and_a_text_changed_by_another_program_is_not_overwritten(
    tab: Callable[..., Editor], folder: DocumentFolder
) -> None:
    one = tab()
    write_new(one, LETTER)
    two = tab()
    write_new(two, STORY)
    keep_as(one, "as files on this computer")
    two.wait(lambda: two.page.evaluate("polydraft.documents.stored.store.where") == "files", "the move")
    two.box.focus()
    two.press("Control+End")
    two.page.keyboard.insert_text(" More.")
    saved(two)
    two.wait(lambda: STORY + " More." in texts(folder).values(), "the other tab's text in its file")
    assert len(texts(folder)) == 2
    (name,) = (name for name, text in texts(folder).items() if text != LETTER)
    (folder.folder / name).write_text("Mended elsewhere.", "utf-8")
    two.page.keyboard.insert_text(" Mine.")
    saved(two)
    expect(two.page.locator(".pd-toast")).to_contain_text("This document was changed elsewhere.")
    assert sorted(texts(folder).values()) == sorted([LETTER, "Mended elsewhere.", STORY + " More. Mine."])
    two.page.keyboard.insert_text(" On.")
    saved(two)
    assert sorted(texts(folder).values()) == sorted([LETTER, "Mended elsewhere.", STORY + " More. Mine. On."])
    two.wait(lambda: f"{STORY} More. Mine. (copy)" in titles(two))
    assert one.errors == two.errors == []


def test_while_the_server_is_away_the_text_waits_and_is_saved_later_and_no_failed_script_stays(
    editor: Editor, server: Server, folder: DocumentFolder
) -> None:
    write_new(editor, STORY)
    keep_as(editor, "as files on this computer")
    close_panel(editor)
    alert = editor.page.get_by_role("alert")
    server.stop()
    try:
        editor.press("Control+End")
        editor.page.keyboard.insert_text(" Without.")
        expect(alert).to_contain_text("Your text is safe here.")
        expect(alert).to_contain_text("this page will reconnect by itself")
    finally:
        server.start()
    expect(alert).to_be_hidden()
    editor.wait(lambda: STORY + " Without." in texts(folder).values(), "the file")
    shown = editor.page.locator("body").inner_text()
    assert not re.search(r"TypeError|Failed to fetch|could not|Error|[Cc]onnection lost", shown), shown


def test_a_text_that_may_be_private_is_not_learned_until_the_writer_says_that_it_is_not(
    tab: Callable[..., Editor], fake: FakeDrafts, folder: DocumentFolder
) -> None:
    """Private text moved by another program into a new file, together with public text."""
    fake.learning = ["me"]
    folder.keep(True)
    folder.write(Entry("3fa9c2d1-0000", title="Secret", private=[[0, len(SECRET)]]), SECRET, None)
    (folder.folder / "Secret.txt").unlink()
    (folder.folder / "Other.txt").write_text(STORY, "utf-8")
    editor = tab()
    expect(panel(editor).locator(".dc-problems li")).to_contain_text("“Secret” with private text is missing since")
    expect(panel(editor).locator(".dc-name")).to_contain_text("private: another program wrote it")
    panel(editor).get_by_text("Other", exact=True).click()
    band = editor.page.locator(".bd-unsure")
    expect(band).to_contain_text("All of this text counts as private, because another program wrote or changed it.")
    expect(panel_of(editor)).to_be_hidden()
    expect(editor.box).to_be_focused()
    editor.press("Control+End", "Enter")
    editor.page.keyboard.insert_text("Then it is read a third time.")
    editor.press("Enter")
    saved(editor)
    (entry,) = folder.entries()
    assert (entry.private, entry.unsure) == ([[0, len(STORY) + 31]], True)
    editor.reload()
    expect(band).to_be_visible()
    button(editor, "Not private").click()
    expect(editor.page.locator(".pd-toast")).to_contain_text("“Other” is not private")
    expect(band).to_be_hidden()
    (entry,) = folder.entries()
    assert (entry.private, entry.unsure) == ([], False)
    assert fake.learned == []
    panel(editor).locator(".dc-problems button").click()
    expect(panel(editor).locator(".dc-problems li")).to_have_count(0)
    close_panel(editor)
    editor.press("Control+Home", "End", "Enter")
    editor.wait(lambda: fake.learned == [STORY], "the text that is not private")
    assert editor.errors == []


def test_of_documents_that_are_not_open_a_damaged_note_can_be_removed_and_one_called_not_private(
    tab: Callable[..., Editor], folder: DocumentFolder
) -> None:
    folder.keep(True)
    folder.write(Entry("3fa9c2d1-0000", title="Letter"), LETTER, None)
    folder.write(Entry("3fa9c2d1-0001", title="Secret", private=[[0, len(SECRET)]]), SECRET, None)
    (folder.notes / "3fa9c2d1-0000.json").write_text("null")
    (folder.folder / "Secret.txt").write_text(STORY, "utf-8")
    editor = tab()
    problem = panel(editor).locator(".dc-problems li")
    expect(problem).to_contain_text("The note 3fa9c2d1-0000.json")
    lists(editor, "Letter", "Secret")
    button(editor, "Nothing in “Secret” is private").click()
    editor.wait(lambda: folder.read("3fa9c2d1-0001")[0].private == [], "the note")
    assert folder.read("3fa9c2d1-0001")[1] == STORY
    click(problem.get_by_role("button"))  # at once: the list may be drawn anew between a pointer's down and up
    expect(problem).to_have_count(0)
    assert texts(folder) == {"Letter.txt": LETTER, "Secret.txt": STORY}
    assert editor.errors == []


# ---------------------------------------------------------------- no more room


@pytest.mark.chromium("Playwright can limit a site's storage in Chromium alone.")
def test_a_full_browser_says_so_and_keeps_the_text(editor: Editor, server: Server) -> None:
    devtools = editor.page.context.new_cdp_session(editor.page)
    site = {"origin": server.url}
    devtools.send("Storage.overrideQuotaForOrigin", {**site, "quotaSize": 1000})
    editor.page.keyboard.insert_text(STORY)
    alert = editor.page.get_by_role("alert")
    expect(alert).to_contain_text("Your text could not be saved. This browser has no more room for documents.")
    expect(alert).to_contain_text("copy it, or save it as a file, before you close the page.")
    editor.reload()  # unsaved text is kept elsewhere, where there is room
    expect(alert).to_contain_text("Your text could not be saved.")
    devtools.send("Storage.overrideQuotaForOrigin", site)
    editor.reload()
    assert editor.text == STORY or titles(editor) == [STORY]
    lists(editor, STORY)
    expect(alert).to_be_hidden()


@pytest.mark.chromium("Playwright can limit a site's storage in Chromium alone.")
def test_a_page_without_any_room_left_asks_before_it_closes(editor: Editor, server: Server) -> None:
    devtools = editor.page.context.new_cdp_session(editor.page)
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": server.url, "quotaSize": 1000})
    editor.page.evaluate("""() => {
        for (let size = 1 << 20; size; size >>= 1) {
            try { for (;;) localStorage.setItem(`full.${Math.random()}`, "x".repeat(size)); } catch {}
        }
    }""")
    editor.page.keyboard.insert_text(STORY)
    expect(editor.page.get_by_role("alert")).to_contain_text("no more room")
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    editor.page.on("dialog", stay)
    editor.page.close(run_before_unload=True)
    editor.wait(lambda: asked == ["beforeunload"], "the browser to ask")
    assert editor.text == STORY


# ---------------------------------------------------------------- files in and out


def payload(name: str, data: bytes) -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": data}


def open_files(editor: Editor, *files: FilePayload) -> None:
    panel(editor)
    with editor.page.expect_file_chooser() as chooser:
        button(editor, "Open a file…").click()
    chooser.value.set_files(list(files))


def test_a_document_is_saved_as_a_file_with_its_title_and_all_as_one_file_come_back_where_they_are_gone(
    editor: Editor,
) -> None:
    letter = LETTER + " – naïve 🦊"
    write_new(editor, letter)
    for label, ending in (("Text (.txt)", "txt"), ("Markdown (.md)", "md")):
        panel(editor)
        with editor.page.expect_download() as download:
            button(editor, label).click()
        assert download.value.suggested_filename == f"Dear Ms Hollis,.{ending}"
        assert download.value.path().read_text("utf-8") == letter

    for text in (STORY, "Binned."):
        write_new(editor, text)
    panel(editor)
    button(editor, "Move “Binned.” to the bin").click()
    editor.wait(lambda: "Binned." not in titles(editor), "the bin")
    with editor.page.expect_download() as download:
        button(editor, "Save all as one file").click()
    data = download.value.path().read_bytes()
    assert sorted(one["text"] for one in json.loads(data)["documents"]) == ["Binned.", letter, STORY]
    editor.page.evaluate(EMPTY)
    lists(editor)
    lists(editor, where=".dc-binned")
    open_files(editor, payload("All.json", data))
    expect(editor.page.locator(".pd-toast")).to_contain_text("Added 3 documents.")
    lists(editor, "Dear Ms Hollis,", STORY)
    lists(editor, "Binned.", where=".dc-binned")
    panel(editor).get_by_text(STORY).click()
    expect(editor.box).to_have_value(STORY)
    editor.press("Control+End")
    editor.page.keyboard.insert_text(" Other.")
    saved(editor)
    open_files(editor, payload("All.json", data))
    expect(editor.page.locator(".pd-toast")).to_contain_text("Added 1 document. 2 documents were here already.")
    lists(editor, "Dear Ms Hollis,", STORY + " Other.", f"{STORY} (copy)")


# Removes all documents; the page shows none of them.
EMPTY = """async () => {
    const { stored } = polydraft.documents;
    await stored.remove((await stored.list("")).map(({ id }) => id));
}"""


def test_a_file_that_is_opened_or_dropped_is_a_document_and_no_text_is_refused_in_words(editor: Editor) -> None:
    """files.test.mjs has what is read, and what is refused."""
    open_files(editor, payload("picture.png", b"\x89PNG\r\n\0\0\0"))
    expect(editor.page.locator(".pd-toast")).to_contain_text("“picture.png” is no text file. Save it as plain text")
    write_new(editor, STORY)
    open_files(editor, payload("Letter.txt", LETTER.encode()))
    expect(editor.box).to_have_value(LETTER)
    lists(editor, "Letter", STORY)
    close_panel(editor)
    transfer = editor.page.evaluate_handle(
        "text => { const d = new DataTransfer(); d.items.add(new File([text], 'Dropped.txt')); return d }", SECRET
    )
    editor.box.dispatch_event("dragover", {"dataTransfer": transfer})
    drawn = editor.page.locator("#pd").evaluate("e => getComputedStyle(e, '::after').content")
    assert drawn == '"Drop to open"'
    editor.box.dispatch_event("drop", {"dataTransfer": transfer})
    expect(editor.box).to_have_value(SECRET)
    lists(editor, "Dropped", "Letter", STORY)


# ---------------------------------------------------------------- the background

MAIL = "Anna asks whether the wardens may log the tide before noon."


def background(editor: Editor) -> Locator:
    return panel(editor).locator(".dc-background")


def give(editor: Editor, text: str) -> None:
    section = background(editor)
    assert section.get_attribute("open") is None
    section.locator("summary").click()
    section.get_by_role("textbox", name="Background").fill(text)
    close_panel(editor)


def sent(editor: Editor) -> str | None:
    """The background of the next request."""
    editor.fake.requests.clear()
    editor.box.focus()
    editor.press("Control+End")
    editor.write(" a")
    editor.wait(lambda: editor.fake.requests, "a request")
    return editor.fake.requests[-1].get("background")


def test_requests_send_a_background_with_its_document_alone_and_it_is_no_part_of_the_text_and_never_learned(
    tab: Callable[..., Editor], fake: FakeDrafts, folder: DocumentFolder
) -> None:
    fake.learning = ["me"]
    editor = tab()
    write_new(editor, LETTER)
    assert sent(editor) is None
    give(editor, MAIL)
    assert sent(editor) == MAIL
    assert MAIL not in editor.text
    editor.press("Enter")
    editor.wait(lambda: "thank you for the photographs. a a" in fake.learned, "the paragraph")
    assert sent(editor) == MAIL
    editor.press("Enter")
    editor.wait(lambda: fake.learned[-1] == "a", "the next one")
    saved(editor)
    write_new(editor, STORY)
    expect(background(editor).get_by_role("textbox", name="Background", include_hidden=True)).to_have_value("")
    close_panel(editor)
    assert sent(editor) is None
    keep_as(editor, "as files on this computer")  # the note of the other document has it, its file not
    notes = [json.loads(path.read_text()) for path in folder.folder.rglob("*.json")]
    assert sorted(note.get("background", "") for note in notes if "id" in note) == ["", MAIL]
    assert all(MAIL not in path.read_text() for path in folder.folder.glob("*.txt"))
    assert MAIL not in "\n".join(fake.learned)
    assert editor.errors == []


def test_incognito_text_and_background_are_kept_for_their_tab_alone_until_that_is_switched_off(
    tab: Callable[..., Editor],
) -> None:
    one = tab()
    button(one, "Incognito").click()
    one.box.focus()
    one.page.keyboard.insert_text(SECRET)
    give(one, MAIL)
    assert sent(one) == MAIL
    saved(one)
    two = tab()
    assert titles(two) == [] and two.text == ""
    stored = """async () => {
        const opened = indexedDB.open("polydraft", 1);
        await new Promise((done) => (opened.onsuccess = done));
        const all = opened.result.transaction("entries").objectStore("entries").getAll();
        await new Promise((done) => (all.onsuccess = done));
        return JSON.stringify(all.result);
    }"""
    kept = two.page.evaluate(stored)
    assert SECRET not in kept and MAIL not in kept
    one.reload()
    assert one.text == SECRET + " a"
    assert sent(one) == MAIL
    saved(one)
    expect(panel(one).locator(".dc-list small")).to_contain_text("incognito: in this tab only")
    close_panel(one)
    button(one, "Incognito").click()
    one.page.evaluate("polydraft.documents.saveNow()")
    two.wait(lambda: titles(two) == [SECRET + " a a"], "the document, once it is public")
    assert one.errors == two.errors == []


def test_the_page_says_that_words_written_in_incognito_go_with_the_tab_and_the_browser_asks_before_they_do(
    editor: Editor,
) -> None:
    write_new(editor, STORY)
    says = editor.page.locator(".pd-desk > .pd-lasts")
    expect(says).to_be_hidden()
    button(editor, "Incognito").click()
    expect(says).to_have_text(re.compile("in this tab alone, and is gone when the tab closes"))
    editor.reload()
    expect(says).to_be_visible()
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    editor.page.on("dialog", stay)
    editor.box.focus()
    editor.press("Control+End")
    editor.page.keyboard.insert_text(SECRET)
    for kept in (False, True):
        if kept:
            saved(editor)  # for this tab
        editor.page.close(run_before_unload=True)
        editor.wait(lambda: asked == ["beforeunload"], "the browser to ask")
        asked.clear()
    write_new(editor, "Another page.")  # the words in the other document would be lost as well
    editor.page.close(run_before_unload=True)
    editor.wait(lambda: asked == ["beforeunload"], "the browser to ask")
    button(editor, "Incognito").click()
    expect(says).to_be_hidden()
    saved(editor)
    lists(editor, "Another page.", STORY + SECRET)
    asked.clear()
    with editor.page.expect_event("close"):
        editor.page.close(run_before_unload=True)
    assert asked == []


def test_the_focus_stays_at_a_renamed_document_and_goes_to_the_next_one_when_one_is_moved_or_deleted(
    editor: Editor,
) -> None:
    for name in ("First", "Second", "Third"):
        write_new(editor, name)
    lists(editor, "Third", "Second", "First")

    def focus_of() -> list[str]:
        read = "() => [document.activeElement.closest('li')?.innerText, document.activeElement.ariaLabel]"
        return [str(part or "").split("\n")[0] for part in editor.page.evaluate(read)]

    def at(*expected: str) -> None:
        editor.wait(lambda: focus_of() == list(expected), f"the focus at {expected}, not {focus_of()}")

    button(editor, "Rename “First”").focus()
    editor.press("Enter")
    editor.write("Last")
    editor.press("Enter")  # and its row is now the first one
    lists(editor, "Last", "Third", "Second")
    at("Last", "Rename “Last”")
    editor.press("Enter", "Escape")
    at("Last", "Rename “Last”")
    for gone in (1, 1, 0):  # there is a next one, only one before it, none
        rows = titles(editor)
        moved = rows.pop(gone)
        button(editor, f"Move “{moved}” to the bin").focus()
        editor.press("Enter")
        lists(editor, *rows)
        if rows:
            at(rows[min(gone, len(rows) - 1)], "")
    expect(panel_of(editor).get_by_role("button", name="New document")).to_be_focused()
    editor.page.locator(".dc-bin summary").click()
    first, second, third = titles(editor, ".dc-binned")
    button(editor, f"Put “{first}” back").focus()
    editor.press("Enter")
    at(second, f"Put “{second}” back")
    button(editor, f"Delete “{third}” for good").focus()
    editor.press("Enter", "Enter")
    at(second, f"Put “{second}” back")
    button(editor, "Empty the bin").focus()
    editor.press("Enter", "Enter")
    expect(panel_of(editor).get_by_role("button", name="New document")).to_be_focused()


# ---------------------------------------------------------------- five megabytes

PARAGRAPH = "The keeper read it twice and then sat down by the window to think about what it said. " * 6 + "\n"
LONG = PARAGRAPH * (500_000 // len(PARAGRAPH))


# Counts what is done with texts that are nearly as long as the whole one: strings made of it, and searches through it;
# and the characters that the hidden copy lays out. A long search counts by its share of the text.
COUNTED = """() => {
    const whole = polydraft.editor.text.length;
    window.work = { texts: 0, laidOut: 0 };
    const wrap = (owner, name, cost) => {
        const original = owner[name];
        owner[name] = function (...given) {
            const found = original.apply(this, given);
            const n = cost(this, found, given);
            if (n > 50_000) window.work.texts += n / whole;
            return found;
        };
    };
    const text = (of) => (typeof of === 'string' || of instanceof String ? of.length : 0);
    for (const name of ['slice', 'trim', 'trimEnd']) wrap(String.prototype, name, (_, found) => text(found));
    for (const name of ['match', 'search', 'replace', 'split']) wrap(String.prototype, name, text);
    for (const name of ['startsWith', 'endsWith']) wrap(String.prototype, name, (_, found, [part]) => text(part));
    for (const name of ['indexOf', 'lastIndexOf']) {
        wrap(String.prototype, name, (of, found, [, from]) => Math.abs((found < 0 ? 0 : found) - (from ?? 0)));
    }
    const value = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').get;
    Object.defineProperty(polydraft.editor.textarea, 'value', { configurable: true, get() {
        const text = value.call(this);
        window.work.texts += text.length / whole;
        return text;
    } });
    const mirror = document.querySelector('.pd-mirror');
    new MutationObserver((changes) => {
        for (const { target } of changes) window.work.laidOut += text(target.data);
    }).observe(mirror, { characterData: true, subtree: true });
}"""


# Notes what is drawn of a text, and how much of it is in the field then.
SCREENS = """() => {
    window.screens = [];
    const look = () => {
        const drawn = document.querySelector('.pd-preview');
        if (drawn) screens.push([drawn.textContent, polydraft.editor.textarea.value.length]);
        if (!screens.length) requestAnimationFrame.soon(look);
    };
    look();
}"""


def test_a_key_in_a_long_text_does_little_with_the_whole_text(editor: Editor) -> None:
    text = LONG
    editor.page.evaluate(SCREENS)
    open_files(editor, payload("Novel.txt", text.encode()))
    editor.wait(lambda: editor.page.evaluate("polydraft.editor.textarea.textLength") == len(text), "the text")
    shown, length = editor.page.evaluate("screens[0]")  # the first screen is drawn before the text is laid out
    assert length == 0
    assert text.startswith(shown)
    assert 2_000 < len(shown) <= 10_000
    expect(editor.page.locator(".pd-preview")).to_have_count(0)
    editor.box.focus()
    editor.box.evaluate("box => box.setSelectionRange(box.value.length / 2, box.value.length / 2)")
    editor.press("x")
    expect(editor.page.locator(".pd-counts")).to_contain_text(f"{len(text.split()):,} words")
    editor.wait(lambda: editor.page.evaluate("!polydraft.editor.request"), "the drafts")
    editor.page.evaluate(COUNTED)
    metrics = editor.page.context.new_cdp_session(editor.page)
    metrics.send("Performance.enable")

    def layouts() -> float:
        return next(m["value"] for m in metrics.send("Performance.getMetrics")["metrics"] if m["name"] == "LayoutCount")

    before, keys = layouts(), 4
    for _ in range(keys):
        editor.press("x")
        editor.page.wait_for_timeout(200)
    editor.wait(lambda: editor.page.evaluate("!polydraft.editor.request"), "the drafts")
    work = editor.page.evaluate("work")
    # Most of them are parts of a string, which the browser does not copy.
    assert work["texts"] / keys <= 60, work
    assert work["laidOut"] / keys <= 5_000, work
    assert (layouts() - before) / keys <= 40


# ---------------------------------------------------------------- the first ten seconds


def test_an_empty_page_explains_itself_names_the_key_and_is_no_document(editor: Editor) -> None:
    expect(editor.box).to_have_attribute(
        "placeholder", "Start writing. Grey words are a draft: Tab takes them, any other key ignores them."
    )
    expect(editor.page.get_by_text("Or try an example")).to_be_visible()
    expect(editor.page.get_by_text("It often gets facts wrong.")).to_be_visible()
    expect(panel(editor)).to_contain_text("No documents yet.")
    close_panel(editor)
    editor.page.keyboard.insert_text("Word")
    saved(editor)
    editor.press("Control+a", "Delete")
    saved(editor)
    begin_new(editor)
    editor.wait(lambda: titles(editor) == [], "the empty document to go")


def test_under_the_text_stand_words_and_saved_keys(editor: Editor) -> None:
    counts = editor.page.locator(".pd-counts")
    expect(counts).to_have_text("0 words")
    editor.write("Yesterday she went")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    expect(counts).to_have_text("3 words")
    editor.press("Tab")
    # 18 letters and Tab, in place of 18 and 36 letters: 35 of 54 keys saved
    expect(counts).to_have_text("10 words · 65\u00a0% of keys saved")
    counts.hover()
    expect(counts).to_have_attribute("title", re.compile(r"Scripted · none · first draft 4 ms · per token 4.0 ms"))
    expect(editor.page.locator(".pd-technical")).to_be_hidden()
    counts.click()
    expect(editor.page.locator(".pd-technical")).to_be_visible()
    editor.reload()
    expect(counts).to_have_text("10 words · 65\u00a0% of keys saved")


def test_words_are_counted_around_a_change_and_a_draft_that_is_undone_saves_no_keys_and_pasted_text_counts_nowhere(
    editor: Editor,
) -> None:
    editor.enter("Yesterday she went")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.press("Tab", "Control+z")
    expect(editor.page.locator(".pd-counts")).to_have_text("3 words")
    editor.page.evaluate("document.execCommand('insertText', false, '')")
    keys = editor.page.evaluate("polydraft.documents.current.keys")
    assert (keys["taken"], keys["takes"]) == (0, 0)

    words = editor.page.locator(".pd-counts")
    for text, caret, keys, count in (
        ("one two three", 3, "x y", 4),
        ("one two three", 3, "Delete", 2),
        ("word " * 500, 1000, " ", 500),
        ("x" * 3000, 1500, " ", 2),
    ):
        editor.put(text, caret)
        expect(words).to_contain_text(f"{len(text.split()):,} word")
        if keys == "Delete":
            editor.press(keys)
        else:
            editor.write(keys)
        expect(words).to_contain_text(f"{count:,} word")


# ---------------------------------------------------------------- pause


def test_one_key_pauses_drafts_which_come_on_demand_then_and_brings_them_back(editor: Editor) -> None:
    editor.enter("Yesterday she went")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.press("Alt+0")
    assert editor.drafts() == [] and editor.ghost() == ""
    expect(editor.page.get_by_text("Drafts are paused. Alt 0 brings them back.")).to_be_visible()
    asked = len(editor.fake.requests)
    editor.write(" on")
    editor.settle()
    assert len(editor.fake.requests) == asked
    editor.press("Backspace", "Backspace", "Backspace")
    assert editor.drafts() == []
    editor.press("Alt+ArrowDown")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.press("Escape")
    assert editor.drafts() == []
    editor.press("Alt+0")
    expect(editor.page.get_by_text("Drafts are paused.")).to_be_hidden()
    editor.write(" ")
    editor.wait(lambda: len(editor.drafts()) == 3, "drafts")


# ---------------------------------------------------------------- finding


def test_find_goes_from_match_to_match_and_its_mark_is_in_sight(editor: Editor) -> None:
    text = "The sea. A line.\n" * 100 + "Der SEE, the Sea"
    editor.put(text)
    editor.box.evaluate("box => box.setSelectionRange(0, 0)")
    editor.press("Control+f")
    field = editor.page.get_by_role("textbox", name="Find")
    expect(field).to_be_focused()
    editor.write("sea")
    said = editor.page.locator(".fd-matches")
    expect(said).to_have_text("1 of 101")
    assert caret(editor) == [4, 7]
    editor.press("Enter")
    expect(said).to_have_text("2 of 101")
    editor.press("Shift+Enter", "Shift+Enter")
    expect(said).to_have_text("101 of 101")
    assert caret(editor) == [len(text) - 3, len(text)]
    mark = editor.page.locator(".fd-layer div").bounding_box()
    sheet = editor.page.locator(".pd-sheet").bounding_box()
    assert mark and sheet and sheet["y"] <= mark["y"] <= sheet["y"] + sheet["height"]
    expect(field).to_be_focused()
    editor.write("x")
    expect(said).to_have_text("Not found")
    editor.press("Escape")
    expect(field).to_be_hidden()
    expect(editor.box).to_be_focused()
    assert editor.text == text


def test_replacing_goes_match_by_match_and_in_all_is_undone_in_one_step(editor: Editor) -> None:
    editor.put("aXbXc")
    editor.box.evaluate("box => box.setSelectionRange(0, 0)")
    button(editor, "Find").click()
    editor.write("x")
    editor.page.get_by_role("textbox", name="Replace with").fill("")
    button(editor, "Replace").click()
    assert editor.text == "abXc"
    expect(editor.page.locator(".fd-matches")).to_have_text("1 of 1")
    button(editor, "Replace").click()
    assert editor.text == "abc"
    editor.press("Escape")

    editor.put("one two One two ONE")
    editor.press("Control+f")
    editor.write("one")
    editor.page.get_by_role("textbox", name="Replace with").fill("three")
    button(editor, "Replace all").click()
    assert editor.text == "three two three two three"
    expect(editor.page.locator(".fd-matches")).to_have_text("3 replaced")
    editor.press("Escape")
    editor.box.focus()
    editor.press("Control+z")
    assert editor.text == "one two One two ONE"


# ---------------------------------------------------------------- looks and access


def test_panels_fit_have_names_and_close_with_a_click_beside_them_and_a_message_leaves_the_buttons_usable(
    editor: Editor,
) -> None:
    editor.page.evaluate("polydraft.editor.notices.toast('A long message. '.repeat(40), { long: true })")
    button(editor, "Documents").click(timeout=5000)  # the message is there for 8 s
    expect(editor.page.get_by_role("complementary", name="Documents")).to_be_visible()
    expect(editor.page.locator(".pd-toast")).to_be_visible()
    editor.box.click()
    expect(panel_of(editor)).to_be_hidden()
    expect(editor.box).to_be_focused()
    editor.page.locator(".pd-toast").evaluate("e => e.remove()")
    editor.page.keyboard.insert_text("A_very_long_title_without_any_space_" * 6)
    saved(editor)
    for width, height in ((360, 740), (640, 400)):
        editor.page.set_viewport_size({"width": width, "height": height})
        for tool, box in (("Documents", "#pd-documents"), ("Find", ".pd-find")):
            assert_panel_fits(editor, tool, box, width, height)


def assert_panel_fits(editor: Editor, tool: str, box: str, width: int, height: int) -> None:
    menu = editor.page.get_by_role("button", name="Menu")
    if menu.is_visible():
        menu.click()
    button(editor, tool).click()
    expect(editor.page.locator(box)).to_be_visible()
    editor.page.wait_for_timeout(100)
    outside, nameless = editor.page.evaluate(
        """(box) => {
            const shown = [...document.querySelectorAll(`${box}, ${box} *`)].filter((e) => e.checkVisibility());
            const outside = shown.filter((e) => {
                const { left, right } = e.getBoundingClientRect();
                return left < -0.5 || right > innerWidth + 0.5;
            });
            const nameless = shown.filter((e) => e.matches('button, input, summary, a')
                && !(e.ariaLabel || e.textContent.trim() || e.labels?.length));
            return [outside, nameless].map((found) => found.map((e) => e.outerHTML.slice(0, 90)));
        }""",
        box,
    )
    assert (outside, nameless) == ([], []), (tool, width)
    bottom = editor.page.locator(box).bounding_box()
    assert bottom and bottom["y"] + bottom["height"] <= height, (tool, width)
    editor.press("Escape")
    expect(editor.page.locator(box)).to_be_hidden()
    expect(editor.box).to_be_focused()
