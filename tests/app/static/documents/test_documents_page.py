"""Documents, the first seconds, and the look of the page, in real Chromium: no text is lost, none replaces another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, FilePayload, expect

from app.documents.folder import DocumentFolder, Entry
from tests.app.static.documents.writer import AS_FILES, IN_BROWSER, LETTER, MAIL, SECRET, STORY, Writer, click, texts
from tests.fake_drafts import HOME, MARKET, RIVER, FakeDrafts, Server, create_app

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

# ---------------------------------------------------------------- saving by itself


def test_the_page_saves_by_itself_and_a_reload_keeps_text_caret_and_scroll_and_closing_the_tab_at_once_loses_nothing(
    tab: Callable[..., Writer],
) -> None:
    one = tab()
    one.put("A line of the story.\n" * 200)
    one.wait(lambda: not one.page.evaluate("polydraft.documents.dirty()"), "the text to be saved")
    one.box.evaluate("box => box.setSelectionRange(2100, 2106)")
    one.page.evaluate("new Promise((drawn) => requestAnimationFrame.soon(() => requestAnimationFrame.soon(drawn)))")
    one.box.evaluate("box => { box.scrollTop = 1500 }")
    one.reload()
    assert one.text == "A line of the story.\n" * 200
    assert one.selection() == [2100, 2106]
    one.wait(lambda: abs(one.box.evaluate("box => box.scrollTop") - 1500) < 5)

    one.write_new(LETTER)
    one.button("New").click()
    expect(one.box).to_have_value("")
    one.page.keyboard.insert_text(STORY)
    one.reload()
    assert one.text == STORY
    one.lists(STORY, "Dear Ms Hollis,", "A line of the story.")
    one.close_panel()
    one.append(" More.")
    one.page.close(run_before_unload=True)
    two = tab()
    two.wait(lambda: two.text == STORY + " More.", "the text of the closed tab")
    two.lists(STORY + " More.", "Dear Ms Hollis,", "A line of the story.")


def test_a_cleared_text_is_in_the_bin_after_a_reload_and_what_was_private_still_is(editor: Writer) -> None:
    click(editor.button("Incognito"))
    editor.page.keyboard.insert_text(STORY)
    click(editor.button("Incognito"))
    editor.saved()
    editor.press("Control+a", "Delete")
    editor.saved()
    editor.reload()
    assert editor.text == ""
    editor.panel().locator(".dc-bin summary").click()
    editor.lists(STORY, where=".dc-binned")
    editor.button(f"Put “{STORY}” back").click()
    editor.wait(lambda: STORY in editor.titles(), "the text to be back")
    editor.open_document(STORY)
    expect(editor.box).to_have_value(STORY)
    assert editor.page.evaluate("polydraft.privacy.ranges") == [[0, len(STORY)]]


def test_while_page_and_model_load_what_is_typed_is_kept_and_a_quiet_line_is_shown(tab: Callable[..., Writer]) -> None:
    notice = "The model is being loaded."
    loading = {"model": "Slow", "backend": "loading", "device": "", "ready": False, "notice": notice}
    loaded = False

    def status(route: Any) -> None:
        route.continue_() if loaded else route.fulfill(json=loading)

    one = tab()
    one.write_new(STORY)
    one.page.route("**/api/status", status)
    one.page.route("**/api/documents", lambda route: (one.page.wait_for_timeout(300), route.continue_()))
    one.page.reload(wait_until="commit")
    one.page.locator("#pd-text").focus()
    one.page.keyboard.insert_text(" And")
    one.page.wait_for_function("window.polydraft !== undefined", polling=20)
    assert one.text == STORY + " And"
    line = one.page.get_by_text("Starting…")
    expect(line).to_be_visible()
    assert one.alert.is_hidden()
    assert "being loaded" not in one.page.get_by_role("group", name="Status").inner_text()
    below = one.page.locator(".pd-below").bounding_box()
    at = line.bounding_box()
    assert at and below and below["y"] <= at["y"] <= below["y"] + below["height"]
    loaded = True
    expect(line).to_be_hidden()


# ---------------------------------------------------------------- several documents


def test_undo_brings_a_document_back_from_the_bin_and_titles_can_be_changed_open_with_a_click_and_keep_their_carets(
    editor: Writer,
) -> None:
    for text in (LETTER, "Third.", STORY):
        editor.write_new(text)

    def put_in_bin(title: str) -> None:
        click(editor.button(f"Move “{title}” to the bin"))
        editor.wait(lambda: title not in editor.titles(), "the bin")

    editor.panel()
    put_in_bin(STORY)
    expect(editor.toast).to_contain_text(f"“{STORY}” is in the bin.")
    expect(editor.box).to_have_value("")
    editor.page.locator(".pd-toast button").click()
    expect(editor.box).to_have_value(STORY)
    editor.wait(lambda: editor.titles() == [STORY, "Third.", "Dear Ms Hollis,"], "the list in this order")
    put_in_bin(STORY)
    put_in_bin("Third.")
    editor.panel().locator(".dc-bin summary").click()
    editor.button("Delete “Third.” for good").click()
    sure = editor.button("This cannot be undone. Delete?")
    expect(sure).to_be_visible()
    editor.lists(STORY, "Third.", where=".dc-binned")
    click(sure)
    editor.lists(STORY, where=".dc-binned")
    editor.button("Empty the bin").click()
    click(sure)
    expect(editor.panel().locator(".dc-bin")).to_be_hidden()
    editor.reload()
    editor.lists("Dear Ms Hollis,")
    expect(editor.panel().locator(".dc-bin")).to_be_hidden()

    editor.write_new(STORY)
    editor.wait(lambda: editor.titles() == [STORY, "Dear Ms Hollis,"], "the list in this order")
    expect(editor.panel().locator("[aria-current] b")).to_have_text(STORY)
    expect(editor.panel().locator("small").first).to_have_text("10 words · just now")
    for old, new in ((STORY, "Storm"), ("Dear Ms Hollis,", "Mail")):  # the one that is open, and another
        click(editor.button(f"Rename “{old}”"))
        expect(editor.page.get_by_role("textbox", name="Title")).to_be_focused()
        editor.write(new)
        editor.press("Enter")
        editor.wait(lambda new=new: new in editor.titles(), "the new title")
    editor.reload()
    assert editor.text == STORY
    editor.lists("Storm", "Mail")
    editor.box.focus()
    editor.box.evaluate("box => box.setSelectionRange(4, 4)")
    editor.write("old ")
    editor.saved()
    editor.open_document("Mail")
    expect(editor.box).to_have_value(LETTER)
    expect(editor.documents).to_be_hidden()
    assert editor.page.title() == "Mail – Polydraft"
    editor.open_document("Storm")
    expect(editor.box).to_have_value(STORY.replace("lighthouse", "old lighthouse"))
    assert editor.selection() == [8, 8]


# ---------------------------------------------------------------- several tabs


def test_two_tabs_never_write_into_one_document_which_opens_here_when_the_other_is_closed(
    tab: Callable[..., Writer],
) -> None:
    one = tab()
    one.write_new(STORY)
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
    one.saved()
    two.saved()
    two.reload()
    one.reload()
    assert (one.text, two.text) == (STORY + " More.", "Something else")
    three = tab()
    expect(three.page.locator(".pd-elsewhere")).to_be_visible()
    one.append(" And more.")
    one.page.close(run_before_unload=True)
    expect(three.box).to_have_value(re.compile("^" + re.escape(STORY + " More.")))
    expect(three.page.locator(".pd-elsewhere")).to_be_hidden()


def test_a_document_opens_in_a_tab_of_its_own_by_its_link_and_can_be_copied_where_it_is_open_elsewhere(
    tab: Callable[..., Writer], server: Server
) -> None:
    one = tab()
    one.write_new(LETTER)
    one.write_new(STORY)
    story = one.panel().locator(".dc-name", has_text=STORY).get_attribute("href")
    link = one.panel().locator(".dc-name", has_text="Hollis").get_attribute("href")
    two = tab("/" + (link or ""))
    assert two.text == LETTER
    assert "#" not in two.page.url
    two.reload()
    assert (one.text, two.text) == (STORY, LETTER)

    two.page.goto("about:blank")
    two.open(server.url + "/" + (story or ""))
    two.button("Open a copy").click()
    expect(two.box).to_have_value(STORY)
    two.append(" Otherwise.")
    two.saved()
    assert one.text == STORY
    two.lists(STORY, f"{STORY} (copy)", "Dear Ms Hollis,")
    expect(two.panel().locator("li", has_text="open in another tab")).to_have_count(1)


# ---------------------------------------------------------------- as files


def test_documents_kept_as_files_are_found_by_another_browser_at_another_port_and_go_back_into_this_one(
    browser: Browser, editor: Writer, fake: FakeDrafts, folder: DocumentFolder
) -> None:
    editor.write_new(LETTER)
    editor.write_new(STORY)
    editor.page.evaluate("polydraft.documents.current.stores.push('default'), polydraft.documents.amended = true")
    editor.keep(AS_FILES)
    assert texts(folder) == {"Dear Ms Hollis,.txt": LETTER, f"{STORY.rstrip('.')}.txt": STORY}
    assert editor.page.evaluate("(async () => (await indexedDB.databases()).length)()") == 1
    editor.close_panel()
    editor.append(" Again.")
    editor.saved()
    assert STORY + " Again." in texts(folder).values()
    other = Server(create_app(fake, documents=folder.folder))
    with browser.new_context() as stranger:
        elsewhere = Writer(stranger.new_page(), fake).open(other.url)
        elsewhere.lists("Dear Ms Hollis,", STORY + " Again.")
        elsewhere.panel().get_by_text("Dear Ms Hollis,").click()
        expect(elsewhere.box).to_have_value(LETTER)
    other.stop()
    editor.keep(IN_BROWSER)
    assert texts(folder) == {}
    editor.reload()
    assert editor.text == STORY + " Again."
    editor.lists("Dear Ms Hollis,", STORY + " Again.")
    assert editor.page.evaluate("polydraft.documents.current.stores") == ["default"]


def test_other_tabs_follow_when_documents_move_and_a_text_changed_by_another_program_is_not_overwritten(
    tab: Callable[..., Writer], folder: DocumentFolder
) -> None:
    one = tab()
    one.write_new(LETTER)
    two = tab()
    two.write_new(STORY)
    one.keep(AS_FILES)
    two.wait(lambda: two.page.evaluate("polydraft.documents.stored.store.where") == "files", "the move")
    two.append(" More.")
    two.saved()
    two.wait(lambda: STORY + " More." in texts(folder).values(), "the other tab's text in its file")
    assert len(texts(folder)) == 2
    (name,) = (name for name, text in texts(folder).items() if text != LETTER)
    (folder.folder / name).write_text("Mended elsewhere.", "utf-8")
    two.page.keyboard.insert_text(" Mine.")
    two.saved()
    expect(two.toast).to_contain_text("This document was changed elsewhere.")
    assert sorted(texts(folder).values()) == sorted([LETTER, "Mended elsewhere.", STORY + " More. Mine."])
    two.page.keyboard.insert_text(" On.")
    two.saved()
    assert sorted(texts(folder).values()) == sorted([LETTER, "Mended elsewhere.", STORY + " More. Mine. On."])
    two.wait(lambda: f"{STORY} More. Mine. (copy)" in two.titles())


def test_while_the_server_is_away_the_text_waits_and_is_saved_later_and_no_failed_script_stays(
    editor: Writer, server: Server, folder: DocumentFolder
) -> None:
    editor.write_new(STORY)
    editor.keep(AS_FILES)
    editor.close_panel()
    alert = editor.alert
    server.stop()
    try:
        editor.append(" Without.")
        expect(alert).to_contain_text("Your text is safe here.")
        expect(alert).to_contain_text("this page will reconnect by itself")
    finally:
        server.start()
    expect(alert).to_be_hidden()
    editor.wait(lambda: STORY + " Without." in texts(folder).values(), "the file")
    shown = editor.page.locator("body").inner_text()
    assert not re.search(r"TypeError|Failed to fetch|could not|Error|[Cc]onnection lost", shown), shown


def test_a_text_that_may_be_private_is_not_learned_until_the_writer_says_that_it_is_not(
    tab: Callable[..., Writer], fake: FakeDrafts, folder: DocumentFolder
) -> None:
    """Private text moved by another program into a new file, together with public text."""
    fake.learning = ["me"]
    folder.keep(True)
    folder.write(Entry("3fa9c2d1-0000", title="Secret", private=[[0, len(SECRET)]]), SECRET, None)
    (folder.folder / "Secret.txt").unlink()
    (folder.folder / "Other.txt").write_text(STORY, "utf-8")
    editor = tab()
    expect(editor.panel().locator(".dc-problems li")).to_contain_text("“Secret” with private text is missing since")
    expect(editor.panel().locator(".dc-name")).to_contain_text("private: another program wrote it")
    editor.open_document("Other")
    band = editor.page.locator(".bd-unsure")
    expect(band).to_contain_text("All of this text counts as private, because another program wrote or changed it.")
    expect(editor.documents).to_be_hidden()
    expect(editor.box).to_be_focused()
    editor.press("Control+End", "Enter")
    editor.page.keyboard.insert_text("Then it is read a third time.")
    editor.press("Enter")
    editor.saved()
    (entry,) = folder.entries()
    assert (entry.private, entry.unsure) == ([[0, len(STORY) + 31]], True)
    editor.reload()
    expect(band).to_be_visible()
    editor.button("Not private").click()
    expect(editor.toast).to_contain_text("“Other” is not private")
    expect(band).to_be_hidden()
    (entry,) = folder.entries()
    assert (entry.private, entry.unsure) == ([], False)
    assert fake.learned == []
    editor.panel().locator(".dc-problems button").click()
    expect(editor.panel().locator(".dc-problems li")).to_have_count(0)
    editor.close_panel()
    editor.press("Control+Home", "End", "Enter")
    editor.wait(lambda: fake.learned == [STORY], "the text that is not private")


def test_of_documents_that_are_not_open_a_damaged_note_can_be_removed_and_one_called_not_private(
    tab: Callable[..., Writer], folder: DocumentFolder
) -> None:
    folder.keep(True)
    folder.write(Entry("3fa9c2d1-0000", title="Letter"), LETTER, None)
    folder.write(Entry("3fa9c2d1-0001", title="Secret", private=[[0, len(SECRET)]]), SECRET, None)
    (folder.notes / "3fa9c2d1-0000.json").write_text("null")
    (folder.folder / "Secret.txt").write_text(STORY, "utf-8")
    editor = tab()
    problem = editor.panel().locator(".dc-problems li")
    expect(problem).to_contain_text("The note 3fa9c2d1-0000.json")
    editor.lists("Letter", "Secret")
    editor.button("Nothing in “Secret” is private").click()
    editor.wait(lambda: folder.read("3fa9c2d1-0001")[0].private == [], "the note")
    assert folder.read("3fa9c2d1-0001")[1] == STORY
    click(problem.get_by_role("button"))  # at once: the list may be drawn anew between a pointer's down and up
    expect(problem).to_have_count(0)
    assert texts(folder) == {"Letter.txt": LETTER, "Secret.txt": STORY}


# ---------------------------------------------------------------- no more room


@pytest.mark.chromium("Playwright can limit a site's storage in Chromium alone.")
def test_a_full_browser_says_so_and_keeps_the_text(editor: Writer, server: Server) -> None:
    devtools = editor.page.context.new_cdp_session(editor.page)
    site = {"origin": server.url}
    devtools.send("Storage.overrideQuotaForOrigin", {**site, "quotaSize": 1000})
    editor.page.keyboard.insert_text(STORY)
    alert = editor.alert
    expect(alert).to_contain_text("Your text could not be saved. This browser has no more room for documents.")
    expect(alert).to_contain_text("copy it, or save it as a file, before you close the page.")
    editor.reload()  # unsaved text is kept elsewhere, where there is room
    expect(alert).to_contain_text("Your text could not be saved.")
    devtools.send("Storage.overrideQuotaForOrigin", site)
    editor.reload()
    assert editor.text == STORY or editor.titles() == [STORY]
    editor.lists(STORY)
    expect(alert).to_be_hidden()


@pytest.mark.chromium("Playwright can limit a site's storage in Chromium alone.")
def test_a_page_without_any_room_left_asks_before_it_closes(editor: Writer, server: Server) -> None:
    devtools = editor.page.context.new_cdp_session(editor.page)
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": server.url, "quotaSize": 1000})
    editor.page.evaluate("""() => {
        for (let size = 1 << 20; size; size >>= 1) {
            try { for (;;) localStorage.setItem(`full.${Math.random()}`, "x".repeat(size)); } catch {}
        }
    }""")
    editor.page.keyboard.insert_text(STORY)
    expect(editor.alert).to_contain_text("no more room")
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


def open_files(editor: Writer, *files: FilePayload) -> None:
    editor.panel()
    with editor.page.expect_file_chooser() as chooser:
        editor.button("Open a file…").click()
    chooser.value.set_files(list(files))


def test_a_document_is_saved_as_a_file_with_its_title_and_all_as_one_file_come_back_where_they_are_gone(
    editor: Writer,
) -> None:
    letter = LETTER + " – naïve 🦊"
    editor.write_new(letter)
    for label, ending in (("Text (.txt)", "txt"), ("Markdown (.md)", "md")):
        editor.panel()
        with editor.page.expect_download() as download:
            editor.button(label).click()
        assert download.value.suggested_filename == f"Dear Ms Hollis,.{ending}"
        assert download.value.path().read_text("utf-8") == letter

    for text in (STORY, "Binned."):
        editor.write_new(text)
    editor.panel()
    editor.button("Move “Binned.” to the bin").click()
    editor.wait(lambda: "Binned." not in editor.titles(), "the bin")
    with editor.page.expect_download() as download:
        editor.button("Save all as one file").click()
    data = download.value.path().read_bytes()
    assert sorted(one["text"] for one in json.loads(data)["documents"]) == ["Binned.", letter, STORY]
    editor.page.evaluate(EMPTY)
    editor.lists()
    editor.lists(where=".dc-binned")
    open_files(editor, payload("All.json", data))
    expect(editor.toast).to_contain_text("Added 3 documents.")
    editor.lists("Dear Ms Hollis,", STORY)
    editor.lists("Binned.", where=".dc-binned")
    editor.panel().get_by_text(STORY).click()
    expect(editor.box).to_have_value(STORY)
    editor.append(" Other.")
    editor.saved()
    open_files(editor, payload("All.json", data))
    expect(editor.toast).to_contain_text("Added 1 document. 2 documents were here already.")
    editor.lists("Dear Ms Hollis,", STORY + " Other.", f"{STORY} (copy)")


# Removes all documents; the page shows none of them.
EMPTY = """async () => {
    const { stored } = polydraft.documents;
    await stored.remove((await stored.list("")).map(({ id }) => id));
}"""


def test_a_file_that_is_opened_or_dropped_is_a_document_and_no_text_is_refused_in_words(editor: Writer) -> None:
    """files.test.mjs has what is read, and what is refused."""
    open_files(editor, payload("picture.png", b"\x89PNG\r\n\0\0\0"))
    expect(editor.toast).to_contain_text("“picture.png” is no text file. Save it as plain text")
    editor.write_new(STORY)
    open_files(editor, payload("Letter.txt", LETTER.encode()))
    expect(editor.box).to_have_value(LETTER)
    editor.lists("Letter", STORY)
    editor.close_panel()
    transfer = editor.page.evaluate_handle(
        "text => { const d = new DataTransfer(); d.items.add(new File([text], 'Dropped.txt')); return d }", SECRET
    )
    editor.box.dispatch_event("dragover", {"dataTransfer": transfer})
    drawn = editor.page.locator("#pd").evaluate("e => getComputedStyle(e, '::after').content")
    assert drawn == '"Drop to open"'
    editor.box.dispatch_event("drop", {"dataTransfer": transfer})
    expect(editor.box).to_have_value(SECRET)
    editor.lists("Dropped", "Letter", STORY)


# ---------------------------------------------------------------- the background


def test_requests_send_a_background_with_its_document_alone_and_it_is_no_part_of_the_text_and_never_learned(
    tab: Callable[..., Writer], fake: FakeDrafts, folder: DocumentFolder
) -> None:
    fake.learning = ["me"]
    editor = tab()
    editor.write_new(LETTER)
    assert editor.sent() is None
    editor.give(MAIL)
    assert editor.sent() == MAIL
    assert MAIL not in editor.text
    editor.press("Enter")
    editor.wait(lambda: "thank you for the photographs. a a" in fake.learned, "the paragraph")
    assert editor.sent() == MAIL
    editor.press("Enter")
    editor.wait(lambda: fake.learned[-1] == "a", "the next one")
    editor.saved()
    editor.write_new(STORY)
    expect(editor.background.get_by_role("textbox", name="Background", include_hidden=True)).to_have_value("")
    editor.close_panel()
    assert editor.sent() is None
    editor.keep(AS_FILES)  # the note of the other document has it, its file not
    notes = [json.loads(path.read_text()) for path in folder.folder.rglob("*.json")]
    assert sorted(note.get("background", "") for note in notes if "id" in note) == ["", MAIL]
    assert all(MAIL not in path.read_text() for path in folder.folder.glob("*.txt"))
    assert MAIL not in "\n".join(fake.learned)


def test_incognito_text_and_background_are_kept_for_their_tab_alone_until_that_is_switched_off(
    tab: Callable[..., Writer],
) -> None:
    one = tab()
    one.button("Incognito").click()
    one.box.focus()
    one.page.keyboard.insert_text(SECRET)
    one.give(MAIL)
    assert one.sent() == MAIL
    one.saved()
    two = tab()
    assert two.titles() == [] and two.text == ""
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
    assert one.sent() == MAIL
    one.saved()
    expect(one.panel().locator(".dc-list small")).to_contain_text("incognito: in this tab only")
    one.close_panel()
    one.button("Incognito").click()
    one.page.evaluate("polydraft.documents.saveNow()")
    two.wait(lambda: two.titles() == [SECRET + " a a"], "the document, once it is public")


def test_the_page_says_that_words_written_in_incognito_go_with_the_tab_and_the_browser_asks_before_they_do(
    editor: Writer,
) -> None:
    editor.write_new(STORY)
    says = editor.page.locator(".pd-desk > .pd-lasts")
    expect(says).to_be_hidden()
    editor.button("Incognito").click()
    expect(says).to_have_text(re.compile("in this tab alone, and is gone when the tab closes"))
    editor.reload()
    expect(says).to_be_visible()
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    editor.page.on("dialog", stay)
    editor.append(SECRET)
    for kept in (False, True):
        if kept:
            editor.saved()  # for this tab
        editor.page.close(run_before_unload=True)
        editor.wait(lambda: asked == ["beforeunload"], "the browser to ask")
        asked.clear()
    editor.write_new("Another page.")  # the words in the other document would be lost as well
    editor.page.close(run_before_unload=True)
    editor.wait(lambda: asked == ["beforeunload"], "the browser to ask")
    editor.button("Incognito").click()
    expect(says).to_be_hidden()
    editor.saved()
    editor.lists("Another page.", STORY + SECRET)
    asked.clear()
    with editor.page.expect_event("close"):
        editor.page.close(run_before_unload=True)
    assert asked == []


def test_the_focus_stays_at_a_renamed_document_and_goes_to_the_next_one_when_one_is_moved_or_deleted(
    editor: Writer,
) -> None:
    for name in ("First", "Second", "Third"):
        editor.write_new(name)
    editor.lists("Third", "Second", "First")

    def focus_of() -> list[str]:
        read = "() => [document.activeElement.closest('li')?.innerText, document.activeElement.ariaLabel]"
        return [str(part or "").split("\n")[0] for part in editor.page.evaluate(read)]

    def at(*expected: str) -> None:
        editor.wait(lambda: focus_of() == list(expected), f"the focus at {expected}, not {focus_of()}")

    editor.button("Rename “First”").focus()
    editor.press("Enter")
    editor.write("Last")
    editor.press("Enter")  # and its row is now the first one
    editor.lists("Last", "Third", "Second")
    at("Last", "Rename “Last”")
    editor.press("Enter", "Escape")
    at("Last", "Rename “Last”")
    for gone in (1, 1, 0):  # there is a next one, only one before it, none
        rows = editor.titles()
        moved = rows.pop(gone)
        editor.button(f"Move “{moved}” to the bin").focus()
        editor.press("Enter")
        editor.lists(*rows)
        if rows:
            at(rows[min(gone, len(rows) - 1)], "")
    expect(editor.documents.get_by_role("button", name="New document")).to_be_focused()
    editor.page.locator(".dc-bin summary").click()
    first, second, third = editor.titles(".dc-binned")
    editor.button(f"Put “{first}” back").focus()
    editor.press("Enter")
    at(second, f"Put “{second}” back")
    editor.button(f"Delete “{third}” for good").focus()
    editor.press("Enter", "Enter")
    at(second, f"Put “{second}” back")
    editor.button("Empty the bin").focus()
    editor.press("Enter", "Enter")
    expect(editor.documents.get_by_role("button", name="New document")).to_be_focused()


# ---------------------------------------------------------------- five megabytes

PARAGRAPH = "The keeper read it twice and then sat down by the window to think about what it said. " * 6 + "\n"
LONG = PARAGRAPH * (500_000 // len(PARAGRAPH))


# Counts what is done with texts that are nearly as long as the whole one: strings made of it, and searches through it;
# and the characters that the hidden copy lays out. A long search counts by its share of the text.
COUNTED = """() => {
    const whole = polydraft.textarea.value.length;
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
    Object.defineProperty(polydraft.textarea, 'value', { configurable: true, get() {
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
        if (drawn) screens.push([drawn.textContent, polydraft.textarea.value.length]);
        if (!screens.length) requestAnimationFrame.soon(look);
    };
    look();
}"""


def test_a_key_in_a_long_text_does_little_with_the_whole_text(editor: Writer) -> None:
    text = LONG
    editor.page.evaluate(SCREENS)
    open_files(editor, payload("Novel.txt", text.encode()))
    editor.wait(lambda: editor.page.evaluate("polydraft.textarea.textLength") == len(text), "the text")
    shown, length = editor.page.evaluate("screens[0]")  # the first screen is drawn before the text is laid out
    assert length == 0
    assert text.startswith(shown)
    assert 2_000 < len(shown) <= 10_000
    expect(editor.page.locator(".pd-preview")).to_have_count(0)
    editor.box.focus()
    editor.box.evaluate("box => box.setSelectionRange(box.value.length / 2, box.value.length / 2)")
    editor.press("x")
    expect(editor.page.locator(".pd-counts")).to_contain_text(f"{len(text.split()):,} words")
    editor.rest()
    editor.page.evaluate(COUNTED)
    metrics = editor.page.context.new_cdp_session(editor.page)
    metrics.send("Performance.enable")

    def layouts() -> float:
        return next(m["value"] for m in metrics.send("Performance.getMetrics")["metrics"] if m["name"] == "LayoutCount")

    before, keys = layouts(), 4
    for _ in range(keys):
        editor.press("x")
        editor.page.wait_for_timeout(200)
    editor.rest()
    work = editor.page.evaluate("work")
    # Most of them are parts of a string, which the browser does not copy.
    assert work["texts"] / keys <= 60, work
    assert work["laidOut"] / keys <= 5_000, work
    assert (layouts() - before) / keys <= 40


# ---------------------------------------------------------------- the first ten seconds


def test_an_empty_page_explains_itself_names_the_key_and_is_no_document(editor: Writer) -> None:
    expect(editor.box).to_have_attribute(
        "placeholder", "Start writing. Grey words are a draft: Tab takes them, any other key ignores them."
    )
    expect(editor.page.get_by_text("Or try an example")).to_be_visible()
    expect(editor.page.get_by_text("It often gets facts wrong.")).to_be_visible()
    expect(editor.panel()).to_contain_text("No documents yet.")
    editor.close_panel()
    editor.page.keyboard.insert_text("Word")
    editor.saved()
    editor.press("Control+a", "Delete")
    editor.saved()
    editor.begin_new()
    editor.wait(lambda: editor.titles() == [], "the empty document to go")


def test_under_the_text_stand_words_and_saved_keys(editor: Writer) -> None:
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
    editor: Writer,
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


def test_one_key_pauses_drafts_which_come_on_demand_then_and_brings_them_back(editor: Writer) -> None:
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


def test_find_goes_from_match_to_match_and_its_mark_is_in_sight(editor: Writer) -> None:
    text = "The sea. A line.\n" * 100 + "Der SEE, the Sea"
    editor.put(text)
    editor.box.evaluate("box => box.setSelectionRange(0, 0)")
    editor.press("Control+f")
    field = editor.page.get_by_role("textbox", name="Find")
    expect(field).to_be_focused()
    editor.write("sea")
    said = editor.page.locator(".fd-matches")
    expect(said).to_have_text("1 of 101")
    assert editor.selection() == [4, 7]
    editor.press("Enter")
    expect(said).to_have_text("2 of 101")
    editor.press("Shift+Enter", "Shift+Enter")
    expect(said).to_have_text("101 of 101")
    assert editor.selection() == [len(text) - 3, len(text)]
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


def test_replacing_goes_match_by_match_and_in_all_is_undone_in_one_step(editor: Writer) -> None:
    editor.put("aXbXc")
    editor.box.evaluate("box => box.setSelectionRange(0, 0)")
    editor.button("Find").click()
    editor.write("x")
    editor.page.get_by_role("textbox", name="Replace with").fill("")
    editor.button("Replace").click()
    assert editor.text == "abXc"
    expect(editor.page.locator(".fd-matches")).to_have_text("1 of 1")
    editor.button("Replace").click()
    assert editor.text == "abc"
    editor.press("Escape")

    editor.put("one two One two ONE")
    editor.press("Control+f")
    editor.write("one")
    editor.page.get_by_role("textbox", name="Replace with").fill("three")
    editor.button("Replace all").click()
    assert editor.text == "three two three two three"
    expect(editor.page.locator(".fd-matches")).to_have_text("3 replaced")
    editor.press("Escape")
    editor.box.focus()
    editor.press("Control+z")
    assert editor.text == "one two One two ONE"


# ---------------------------------------------------------------- looks and access


def test_panels_fit_have_names_and_close_with_a_click_beside_them_and_a_message_leaves_the_buttons_usable(
    editor: Writer,
) -> None:
    editor.page.evaluate("polydraft.notices.toast('A long message. '.repeat(40), { long: true })")
    editor.button("Documents").click(timeout=5000)  # the message is there for 8 s
    expect(editor.page.get_by_role("complementary", name="Documents")).to_be_visible()
    expect(editor.toast).to_be_visible()
    editor.box.click()
    expect(editor.documents).to_be_hidden()
    expect(editor.box).to_be_focused()
    for width in (360, 1280):  # a message beside the open panel covers nothing of it
        editor.page.set_viewport_size({"width": width, "height": 740})
        editor.panel()
        editor.page.evaluate("polydraft.notices.toast('“A long title” is in the bin.', {undo() {}})")
        panel, toast = editor.documents.bounding_box(), editor.toast.bounding_box()
        assert panel and toast
        aside = toast["x"] + toast["width"] <= panel["x"]
        assert aside or panel["y"] + panel["height"] <= toast["y"], width
        editor.close_panel()
    editor.page.keyboard.insert_text("A_very_long_title_without_any_space_" * 6)
    editor.saved()
    for width, height in ((360, 740), (640, 400)):
        editor.page.set_viewport_size({"width": width, "height": height})
        for tool, box in (("Documents", "#pd-documents"), ("Find", ".pd-find")):
            assert_panel_fits(editor, tool, box, width, height)


def assert_panel_fits(editor: Writer, tool: str, box: str, width: int, height: int) -> None:
    menu = editor.page.get_by_role("button", name="Menu")
    if menu.is_visible():
        menu.click()
    editor.button(tool).click()
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
