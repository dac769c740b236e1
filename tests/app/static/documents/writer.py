"""The page as a reader meets it who writes several documents."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from app.documents.folder import DocumentFolder
from tests.app.static.editor.editor_page import Editor

LETTER = "Dear Ms Hollis,\nthank you for the photographs."
STORY = "The lighthouse keeper opened the letter and read it twice."
SECRET = "Nobody else may know."
MAIL = "Anna asks whether the wardens may log the tide before noon."
AS_FILES, IN_BROWSER = "as files on this computer", "in this browser"


def texts(folder: DocumentFolder) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.folder.glob("*.txt")}


def click(at: Locator) -> None:
    """Without the pointer, whose way there takes twice the processor time; other tests click these with it."""
    at.dispatch_event("click")


class Writer(Editor):
    def saved(self) -> None:
        """The page saves at once what it would save half a second after the last key."""
        self.page.evaluate("polydraft.documents.saveNow()")
        self.wait(lambda: not self.page.evaluate("polydraft.documents.dirty()"), "the text to be saved")

    def append(self, text: str) -> None:
        self.box.focus()
        self.press("Control+End")
        self.page.keyboard.insert_text(text)

    @property
    def toast(self) -> Locator:
        return self.page.locator(".pd-toast")

    @property
    def alert(self) -> Locator:
        return self.page.get_by_role("alert")

    @property
    def documents(self) -> Locator:
        """The panel, open or not. Its role and name, which take long to find, are in another test."""
        return self.page.locator("#pd-documents")

    def panel(self) -> Locator:
        """Opens it."""
        if not self.documents.is_visible():
            click(self.page.locator("[data-do=documents]"))
            self.documents.locator(".dc-none:not([hidden]), .dc-list b").first.wait_for()
        return self.documents

    def close_panel(self) -> None:
        click(self.page.locator("[data-do=close-documents]"))
        expect(self.documents).to_be_hidden()
        expect(self.box).to_be_focused()

    def open_document(self, title: str) -> None:
        self.panel().get_by_text(title, exact=True).click()

    def titles(self, where: str = ".dc-list") -> list[str]:
        return self.panel().locator(f"{where} b").all_text_contents()

    def lists(self, *expected: str, where: str = ".dc-list") -> None:
        """Waits until the panel lists these documents, in any order."""
        self.wait(lambda: sorted(self.titles(where)) == sorted(expected), f"the list {expected}")

    def begin_new(self) -> None:
        """Waits for the last step, which closes the panel. Before it the box may be empty, and have the focus."""
        self.documents.evaluate("panel => { panel.hidden = false }")
        click(self.page.locator(".pd-tools [data-do=new]"))
        expect(self.documents).to_be_hidden()

    def write_new(self, text: str) -> None:
        self.begin_new()
        expect(self.box).to_be_focused()
        self.page.keyboard.insert_text(text)
        self.page.evaluate("polydraft.documents.saveNow()")
        assert not self.page.evaluate("polydraft.documents.dirty()")

    def selection(self) -> list[int]:
        return self.box.evaluate("box => [box.selectionStart, box.selectionEnd]")

    def keep(self, words: str) -> None:
        """As files, or in the browser."""
        radio = self.panel().get_by_role("radio", name=words)
        radio.click()  # not `check`: the page may draw the choice again before the documents have moved
        said = "Your documents are now " + ("files in" if words == AS_FILES else "kept in this browser.")
        expect(self.toast).to_contain_text(said)
        expect(radio).to_be_checked()

    @property
    def background(self) -> Locator:
        return self.panel().locator(".dc-background")

    def give(self, text: str) -> None:
        """A background, as the writer gives it."""
        section = self.background
        assert section.get_attribute("open") is None
        section.locator("summary").click()
        section.get_by_role("textbox", name="Background").fill(text)
        self.close_panel()

    def sent(self) -> str | None:
        """The background of the next request."""
        self.fake.requests.clear()
        self.box.focus()
        self.press("Control+End")
        self.write(" a")
        self.wait(lambda: self.fake.requests, "a request")
        return self.fake.requests[-1].get("background")
