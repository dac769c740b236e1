"""Documents that a store refuses, or whose server sleeps, in real Chromium: the page says why, and no text is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Request, Route, expect

from app.documents.folder import DocumentFolder, Entry
from app.documents.notes import MOST_BACKGROUND
from app.wire.refusals import MAX_BODY
from tests.app.static.documents.writer import AS_FILES, IN_BROWSER, LETTER, MAIL, STORY, Writer, texts
from tests.fake_drafts import HOME, MARKET, RIVER, FakeDrafts, Server
from tests.paths import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

BAD, GOOD = "3fa9c2d1-0000-4000-8000-00000000000b", "3fa9c2d1-0000-4000-8000-00000000000c"
LONG = "t" * 1001  # a title that the server refuses
LOCKS = "async () => (await navigator.locks.query()).held.map(({ name }) => name)"
REFUSED = "title is longer than 1000 characters."


def leave(editor: Writer, **fields: Any) -> None:
    """As a page that was closed before it could save."""
    editor.page.evaluate(
        """(fields) => {
          const fresh = { ...polydraft.documents.current, revision: "", title: "", text: "", background: "" };
          localStorage.setItem(`polydraft.unsaved.${fields.id}`, JSON.stringify({ ...fresh, ...fields }));
        }""",
        fields,
    )


def unsaved(editor: Writer) -> list[str]:
    keys = "Object.keys(localStorage).filter((key) => key.startsWith('polydraft.unsaved.'))"
    return [key.removeprefix("polydraft.unsaved.") for key in editor.page.evaluate(keys)]


def store(editor: Writer, *documents: dict[str, Any]) -> None:
    """Stores documents, as the page has them."""
    editor.page.evaluate(
        """async (all) => {
          const { current, stored } = polydraft.documents;
          for (const one of all) {
            const fresh = { ...current, id: crypto.randomUUID(), title: "", text: "", background: "" };
            const text = one.units ? String.fromCharCode(...one.units) : one.text;
            await stored.opened().write({ ...fresh, ...one, text }, "");
          }
        }""",
        documents,
    )


# ---------------------------------------------------------------- what an earlier page left


def test_a_text_that_the_server_refuses_blocks_no_start_and_no_lock_and_is_listed_with_the_reason(
    tab: Callable[..., Writer], folder: DocumentFolder
) -> None:
    folder.keep(True)
    folder.write(Entry("3fa9c2d1-0000", title="Letter"), LETTER, None)
    one = tab()
    leave(one, id=BAD, title=LONG, text=STORY)
    leave(one, id=GOOD, title="Good", text="Good.")
    one.page.evaluate("localStorage.setItem('polydraft.unsaved.damaged', '{')")
    one.reload()
    one.lists("Letter", LONG, "Good")
    expect(one.panel().locator("li", has_text=LONG)).to_contain_text(f"not saved: {REFUSED}")
    assert sorted(texts(folder)) == ["Good.txt", "Letter.txt"]
    assert unsaved(one) == ["damaged", BAD] or unsaved(one) == [BAD, "damaged"]
    assert not any(BAD in name or GOOD in name for name in one.page.evaluate(LOCKS))

    one.open_document("Letter")
    expect(one.box).to_have_value(LETTER)
    one.open_document(LONG)
    expect(one.box).to_have_value(STORY)
    expect(one.alert).to_contain_text(f"Your text could not be saved. {REFUSED}")
    one.append(" More.")
    one.reload()
    assert one.text == STORY + " More."
    one.write_new("Third.")  # another document can be begun
    expect(one.alert).to_be_hidden()
    one.lists("Letter", LONG, "Good", "Third.")

    one.button(f"Rename “{LONG}”").click()
    one.page.get_by_role("textbox", name="Title").fill("Short")
    one.press("Enter")
    one.lists("Letter", "Short", "Good", "Third.")
    assert texts(folder)["Short.txt"] == STORY + " More."
    assert unsaved(one) == ["damaged"]


def test_a_failed_opening_keeps_no_lock(tab: Callable[..., Writer], server: Server, folder: DocumentFolder) -> None:
    folder.keep(True)
    folder.write(Entry(GOOD, title="Letter"), LETTER, None)
    one = tab()
    held = "polydraft.document." + GOOD
    broken = re.compile(f"/api/documents/{GOOD}")
    one.page.route(
        broken, lambda route: route.fulfill(status=409, json={"message": "It could not be read.", "fix": ""})
    )
    one.open_document("Letter")
    expect(one.toast).to_contain_text("It could not be read.")
    assert held not in one.page.evaluate(LOCKS)
    one.page.goto("about:blank")  # so that the next address is opened anew
    one.open(f"{server.url}/#document={GOOD}")
    expect(one.toast).to_contain_text("It could not be read.")
    assert held not in one.page.evaluate(LOCKS)
    one.page.unroute(broken)
    one.open_document("Letter")
    expect(one.box).to_have_value(LETTER)
    assert held in one.page.evaluate(LOCKS)


def test_a_server_that_refuses_loses_no_text(tab: Callable[..., Writer], folder: DocumentFolder) -> None:
    folder.keep(True)
    editor = tab()
    editor.write_new(LETTER)
    answer = {"status": 500, "body": "a proxy's page"}

    def refuse(route: Route) -> None:
        route.fulfill(**answer) if "tide" in (route.request.post_data or "") else route.continue_()

    editor.page.route("**/api/documents/write", refuse)
    editor.append(" The tide")
    alert = editor.alert
    expect(alert).to_contain_text("Your text could not be saved. The server answered with an error (500).")
    answer |= {"status": 409, "body": json.dumps({"message": "No space left on device.", "fix": ""})}
    editor.page.keyboard.insert_text(".")
    expect(alert).to_contain_text("Your text could not be saved. No space left on device.")
    editor.write_new(STORY)
    assert sorted(texts(folder).values()) == sorted([LETTER, STORY])
    expect(editor.panel().locator("li", has_text="Hollis")).to_contain_text("not saved:")
    editor.open_document("Dear Ms Hollis,")
    expect(editor.box).to_have_value(LETTER + " The tide.")
    editor.append(" It ebbs.")
    editor.reload()
    assert editor.text == LETTER + " The tide. It ebbs."
    editor.page.unroute("**/api/documents/write")
    editor.reload()
    editor.wait(lambda: LETTER + " The tide. It ebbs." in texts(folder).values(), "the file")
    assert unsaved(editor) == []
    assert len(texts(folder)) == 2


def test_what_was_typed_in_incognito_is_kept_if_its_document_was_changed_elsewhere(
    editor: Writer, folder: DocumentFolder
) -> None:
    editor.write_new(STORY)
    editor.keep(AS_FILES)
    editor.close_panel()
    editor.button("Incognito").click()
    editor.append(" Mine.")
    editor.saved()
    (name,) = texts(folder)
    (folder.folder / name).write_text("Mended elsewhere.", "utf-8")
    editor.button("Incognito").click()
    editor.page.evaluate("polydraft.documents.saveNow()")
    editor.wait(lambda: len(texts(folder)) == 2, "the copy")
    assert sorted(texts(folder).values()) == ["Mended elsewhere.", STORY + " Mine."]


# ---------------------------------------------------------------- moving

ODD = ["\ufeffBegins with a mark", "a\0b", "a\u2028b\x85c", "a\r\nb\rc", "\ufffe"]


def test_odd_texts_become_files_once_and_are_shown_as_they_were(editor: Writer, folder: DocumentFolder) -> None:
    store(editor, *({"title": f"Odd {n}", "text": text} for n, text in enumerate(ODD)))
    store(editor, {"title": "Half", "units": [97, 0xD83D, 98]})
    editor.keep(AS_FILES)
    lines = {f"Odd {n}": re.sub("\r\n?", "\n", text) for n, text in enumerate(ODD)} | {"Half": "a\ufffdb"}
    for _ in range(2):
        assert {entry.title: folder.read(entry.id)[1] for entry in folder.entries()} == lines
        editor.reload()
        assert editor.page.evaluate("polydraft.documents.stored.problems") == []
    for title, text in lines.items():
        editor.open_document(title)
        expect(editor.box).to_have_value(text)
        expect(editor.documents).to_be_hidden()
        assert not editor.page.evaluate("polydraft.documents.dirty()")


def test_a_file_with_line_ends_of_windows_is_only_changed_by_typing(
    tab: Callable[..., Writer], folder: DocumentFolder
) -> None:
    folder.keep(True)
    file = folder.folder / "Their.txt"
    file.write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.\r\n")
    editor = tab()
    editor.open_document("Their")
    expect(editor.box).to_have_value("One.\nTwo.\n")
    editor.page.evaluate("polydraft.documents.saveNow()")
    editor.reload()
    assert file.read_bytes() == b"\xef\xbb\xbfOne.\r\nTwo.\r\n"
    editor.append("Three.")
    editor.saved()
    assert file.read_bytes() == b"\xef\xbb\xbfOne.\r\nTwo.\r\nThree."


def test_a_document_that_cannot_become_a_file_stays_where_it_is_and_the_others_move(
    editor: Writer, folder: DocumentFolder
) -> None:
    store(
        editor, {"title": "First", "text": "First."}, {"title": LONG, "text": STORY}, {"title": "Last", "text": "Last."}
    )
    editor.keep(AS_FILES)
    problem = editor.panel().locator(".dc-problems li")
    for _ in range(2):
        expect(problem).to_contain_text(f"“{LONG}” could not be moved, and is still in this browser. {REFUSED}")
        editor.lists("First", "Last")
        assert texts(folder) == {"First.txt": "First.", "Last.txt": "Last."}
        editor.reload()
        editor.panel()
    editor.keep(IN_BROWSER)
    editor.lists("First", "Last", LONG)
    expect(problem).to_have_count(0)


# ---------------------------------------------------------------- many documents


def test_one_unreadable_file_keeps_no_other_from_the_export(editor: Writer, folder: DocumentFolder) -> None:
    store(editor, {"title": "First", "text": "First."}, {"id": BAD, "title": "Bad", "text": "Bad."})
    editor.keep(AS_FILES)
    refused = {"message": "It could not be read.", "fix": ""}
    editor.page.route(re.compile(f"/api/documents/{BAD}"), lambda route: route.fulfill(status=409, json=refused))
    with editor.page.expect_download() as download:
        editor.button("Save all as one file").click()
    assert [one["title"] for one in json.loads(download.value.path().read_bytes())["documents"]] == ["First"]
    expect(editor.toast).to_contain_text("“Bad” could not be read. It could not be read.")


# ---------------------------------------------------------------- a long background


def paste(section: Locator, text: str) -> None:
    section.get_by_role("textbox", name="Background", include_hidden=True).evaluate(
        "(box, text) => { box.value = text; box.dispatchEvent(new Event('input')); }", text
    )


def test_a_background_of_90_000_letters_of_any_script_is_kept_and_its_end_is_sent(
    editor: Writer, server: Server, folder: DocumentFolder
) -> None:
    folder.keep(True)
    editor.reload()
    editor.write_new(LETTER)
    sizes: list[int] = []

    def see(request: Request) -> None:
        if request.url.endswith("/api/drafts"):
            sizes.append(len(request.post_data_buffer or b""))

    editor.page.on("request", see)
    for text in ("🦊" * 90_000 + ".", "\x01" * 90_000 + "."):
        paste(editor.background, text)
        editor.close_panel()
        read = editor.sent()
        assert read and text.endswith(read) and len(read) >= 16_000
        editor.saved()
        assert folder.entries()[0].background == text
    assert sizes and max(sizes) <= MAX_BODY, "more would be refused at every key"


def test_a_background_that_is_too_long_says_so_and_the_earlier_one_stays(editor: Writer) -> None:
    editor.write_new(LETTER)
    editor.give(MAIL)
    section = editor.background
    paste(section, "x" * (MOST_BACKGROUND + 1))
    said = section.get_by_role("alert")
    expect(said).to_have_text(
        "This text has 262,145 characters, and a background at most 262,144. Shorten it; until then the earlier one is"
        " used and kept."
    )
    editor.close_panel()
    assert editor.sent() == MAIL
    editor.saved()
    box = editor.background.get_by_role("textbox", name="Background")
    assert len(box.input_value()) == MOST_BACKGROUND + 1, "what was pasted is still there"
    paste(section, "x" * MOST_BACKGROUND)
    expect(said).to_be_hidden()
    editor.saved()
    editor.reload()
    assert len(editor.page.evaluate("polydraft.documents.current.background")) == MOST_BACKGROUND


# ---------------------------------------------------------------- a server that sleeps

WALKED = "The keeper walked"
IDLE = 1  # seconds after which the server closes idle connections; all its timers are due when it wakes

SERVES = """
    import functools, sys
    from pathlib import Path
    from tests import fake_drafts
    from tests.fake_drafts import FakeDrafts, Server, create_app

    fake_drafts.configured = functools.partial(fake_drafts.configured, timeout_keep_alive=int(sys.argv[2]))
    server = Server(create_app(FakeDrafts(step_s=0.25), documents=Path(sys.argv[1])))
    print(server.url, flush=True)
    server.thread.join()
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A server in a process of its own, which writes its address. A draft takes nearly two seconds, so that also a busy
    machine stops the server in the middle of one."""
    command = [sys.executable, "-c", textwrap.dedent(SERVES), str(tmp_path / "documents"), str(IDLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot stop a process")
def test_after_a_sleep_in_the_middle_of_a_stream_the_page_goes_on_and_loses_nothing(
    sleeper: subprocess.Popen[str], context: BrowserContext, tmp_path: Path
) -> None:
    assert sleeper.stdout
    editor = Writer(context.new_page(), FakeDrafts()).open(sleeper.stdout.readline().strip())
    editor.write_new(WALKED)
    editor.keep(AS_FILES)
    editor.page.get_by_role("button", name="Close").first.click()
    editor.press("Control+End")
    editor.write("e")
    editor.wait(lambda: editor.drafts(), "the first words")
    os.kill(sleeper.pid, signal.SIGSTOP)
    editor.page.wait_for_timeout(500)
    before = editor.drafts()
    os.kill(sleeper.pid, signal.SIGCONT)
    editor.wait_for_drafts(MARKET, RIVER, HOME)  # the same stream went on
    assert before != editor.drafts()
    editor.write("d")
    editor.wait(lambda: editor.drafts(), "the first words")
    os.kill(sleeper.pid, signal.SIGSTOP)
    editor.write(" on and on")
    assert editor.text == WALKED + "ed on and on"
    editor.page.wait_for_timeout(2000 * IDLE)
    os.kill(sleeper.pid, signal.SIGCONT)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.saved()
    file = tmp_path / "documents" / f"{WALKED}ed on and on.txt"
    editor.wait(
        lambda: file.exists() and file.read_text("utf-8") == WALKED + "ed on and on", "the whole text in its file"
    )
    expect(editor.alert).to_be_hidden()
