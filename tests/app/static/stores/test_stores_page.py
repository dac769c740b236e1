"""The page's tab of personal stores, end to end: real Chromium, real stores in a temporary folder, scripted drafts."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import FilePayload, Locator, Page, expect

import ngram_builder
from app.learning.personal import PersonalStores
from core.models.adapter import Result, save
from tests.app.learning.test_learner import SAYS
from tests.app.static.editor.editor_page import BEFORE, Editor
from tests.core.models.test_adapter import SHAPES, adapter_for
from tests.fake_drafts import HOME, MARKET, RIVER, ByteTokenizer, Server, scripted_learner
from tests.ngram_tools import WordTokenizer, add_text

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180), pytest.mark.usefixtures("one_reader")]

LETTER = "Thank you for your letter.\nThank you for the flowers, and thank you for your time.\n"
NOTES = "The report is due. Thank you for your patience."
FILES = {
    "letter.txt": LETTER.encode(),
    "notes.md": NOTES.encode(),
    "broken.docx": b"PK\x03\x04 no such thing",
    "half.jsonl": b'{"text": "Dear Anna, all is well."}\n{"text": broken\n',
    "picture.png": b"\x89PNG",
}


# A training that is half done until it is stopped.
TRAINS = SAYS + "stage(0.5, [[0, -4.0], [640, -3.8]])\nsys.stdin.read()\nsay(stopped=True)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


def on_disk(folder: Path) -> PersonalStores:
    """The stores, as another program reads them."""
    return PersonalStores(cast(Any, ByteTokenizer()), folder)


@pytest.fixture(scope="module")
def extras(folder: Path) -> Iterator[dict[str, Any]]:
    learner = scripted_learner(on_disk(folder), TRAINS)
    yield {"stores": folder, "learner": learner}
    learner.close()


@pytest.fixture
def stores(folder: Path) -> PersonalStores:
    """None at first."""
    stores = on_disk(folder)
    for row in stores.list():
        stores.delete(row["store"])
    return stores


@pytest.fixture
def editor(stores: PersonalStores, editor: Editor) -> Editor:
    return editor


@pytest.fixture
def page(editor: Editor) -> Page:
    """The tab, opened."""
    return opened(editor)


def opened(editor: Editor) -> Page:
    editor.page.get_by_role("tab", name="My writing").click()
    expect(editor.page.get_by_role("tabpanel", name="My writing")).to_be_visible()
    return editor.page


def closed(editor: Editor) -> None:
    editor.page.get_by_role("tab", name="Write").click()
    editor.box.focus()


def store(page: Page, name: str) -> Locator:
    return page.locator(f".ps-store[data-store={name}]")


def report(page: Page) -> Locator:
    return page.locator(".ps-report")


def said(tokens: int) -> str:
    """A number of tokens in a writer's words."""
    words = round(tokens * 0.75)
    return f"{words} words" if words < 10 else f"about {float(f'{words:.2g}'):,.0f} words"


def common(page: Page) -> Locator:
    """The page of common phrases, opened."""
    page.get_by_role("button", name="Common phrases").click()
    return page.get_by_role("region", name="Common phrases")


def add(page: Page, *names: str) -> None:
    files = [FilePayload(name=name, mimeType="", buffer=FILES[name]) for name in names]
    page.get_by_label("Files to add").set_input_files(files)


def sure(page: Page, answer: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def typed(stores: PersonalStores, name: str = "me") -> list[str]:
    """The texts learned from use, oldest first."""
    with stores.at(name) as opened:
        return ["".join(text.passages) for text in opened.texts() if text.origin == "typed"]


# ---------------------------------------------------------------- what the model learned


def adapted(stores: PersonalStores, name: str = "me", gain: float = 0.25) -> None:
    """A store with an adapter that was trained on its text."""
    stores.create(name)
    add_text(stores, name, "a.txt", "abc " * 1500)
    add_text(stores, name, "b.txt", "a secret")
    result = Result(96_000, 2400, gain, 0.1, 0.8, -0.02, -4.0)
    with stores.at(name) as opened_store:
        save(replace(adapter_for(SHAPES, ["q_proj"]), result=result), opened_store.learned)


def test_a_click_trains_a_store_and_another_one_stops_it(editor: Editor, stores: PersonalStores) -> None:
    stores.create("me")
    add_text(stores, "me", "a.txt", "abc " * 10)
    page = opened(editor)
    me = store(page, "me")
    learn = me.get_by_role("button", name="Learn my style")
    learn.click()
    expect(me.get_by_role("alert")).to_contain_text("learning needs about 3,000 words. Add text to it first.")
    add_text(stores, "me", "a.txt", "abc " * 1500)
    learn.click()
    expect(me.get_by_role("alert")).to_be_hidden()
    expect(me.locator(".ps-doing")).to_have_text("Step 3 of 4: Training, 50%, 60 s left")
    expect(me.locator(".ps-curve")).to_contain_text("22% more probable per word or part of a word so far")
    expect(me.get_by_role("progressbar")).to_have_attribute("value", "0.5")
    expect(learn).to_be_hidden()
    me.get_by_role("button", name="Stop").click()
    expect(me.locator(".ps-ended")).to_contain_text("Stopped. What is learned so far is kept")
    expect(me.get_by_role("progressbar")).to_be_hidden()
    expect(learn).to_be_visible()
    with stores.at("me") as opened_store:
        opened_store.learned.mkdir()  # the state of the training
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(me.get_by_role("button", name="Go on learning")).to_be_visible()
    expect(me.locator(".ps-adapter")).to_have_text("The model has begun to learn this text, and has not finished.")


def test_the_tab_says_what_an_adapter_brought_sets_its_strength_if_it_helps_and_learns_again_after_forgetting(
    editor: Editor, stores: PersonalStores
) -> None:
    adapted(stores)
    adapted(stores, "other", gain=0.01)
    page = opened(editor)
    me, other = store(page, "me"), store(page, "other")
    expect(me.locator(".ps-adapter")).to_have_text(
        "The model has learned about 72,000 words: each word or part of a word of your newest text, which it has not "
        "read, became 28% more probable, and its loss on text by others grew by 0.5%."
    )
    expect(other.locator(".ps-adapter")).to_contain_text("that is not enough yet to help, so drafts do not use it")
    expect(other.get_by_role("switch", name="other: write in my style")).to_be_hidden()
    expect(other.get_by_role("button", name="Learn what is new")).to_be_visible()
    strength = me.get_by_role("slider", name="me: strength")
    expect(strength).to_have_value("0.8")
    expect(me.locator("output")).to_have_text("0.80, as measured")
    strength.focus()
    strength.press("ArrowLeft")
    expect(me.locator(".ps-adapter")).to_contain_text("(measured at the strength 0.8)")
    expect(me.locator("output")).to_have_text("0.75")
    with stores.at("me") as opened_store:
        assert opened_store.strength == 0.75
    strength.press("ArrowRight")
    expect(me.locator("output")).to_have_text("0.80, as measured")
    me.get_by_role("switch", name="me: write in my style").click()
    expect(strength).to_be_disabled()
    with stores.at("me") as opened_store:
        assert (opened_store.strength, opened_store.adapting) == (None, False)

    me.locator("summary").click()
    me.get_by_role("button", name="Forget b.txt").click()
    sure(page, "Forget")
    expect(report(page)).to_contain_text(
        "What the model had learned from me is deleted; it learns again from what is left."
    )
    expect(me.locator(".ps-doing")).to_contain_text("Text was forgotten: learning again from what is left.")
    expect(me.locator(".ps-adapter")).to_be_hidden()
    me.get_by_role("button", name="Stop").click()
    expect(me.locator(".ps-ended")).to_contain_text("Text was forgotten, so the model began to learn again. Stopped.")


# ---------------------------------------------------------------- common phrases


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A domain's store for the page's tokenizer, and one for another."""
    folder = tmp_path_factory.mktemp("harbour")
    (folder / "manuals.txt").write_text("The quay warden logs every mooring. " * 30)
    ngram_builder.build(
        [str(folder / "manuals.txt")], folder / "harbour.ngram", cast(Any, ByteTokenizer()), name="bytes"
    )
    (folder / "words.txt").write_text("1 2 3 4 " * 30)
    ngram_builder.build([str(folder / "words.txt")], folder / "words.ngram", cast(Any, WordTokenizer()), name="words")
    return folder


def test_a_domains_store_is_added_weighed_and_used_in_the_documents_that_one_chooses(
    editor: Editor, harbour: Path
) -> None:
    def named() -> list[str] | None:
        """The stores that the drafts at this place of this document use beside those of all documents."""
        editor.fake.requests.clear()
        editor.box.focus()
        editor.write("h")
        editor.page.wait_for_function("() => polydraft.counters.requests", polling=20)
        while not editor.fake.requests:
            editor.page.wait_for_timeout(10)
        return editor.fake.requests[-1].get("base_stores")

    store = str(harbour / "harbour.ngram")
    editor.put("The quay warden ")
    assert named() is None
    page = opened(editor)
    section = common(page)
    items, general = section.locator(".ps-base"), section.get_by_label("General English: use in")
    expect(items).to_have_count(1)
    expect(items.first).to_contain_text("General English")
    expect(items.first).to_contain_text("was built for the tokenizer of SmolLM2-135M-Instruct")  # what to do
    section.get_by_role("textbox", name="Add a store").fill(str(harbour / "words.ngram"))
    section.get_by_role("button", name="Add store").click()
    error = section.get_by_role("alert").filter(has_text="polydraft ngram build SOURCE -o FILE --tokenizer MODEL")
    expect(error).to_be_visible()
    section.get_by_role("textbox", name="Add a store").fill(store)
    section.get_by_role("button", name="Add store").click()
    expect(items).to_have_count(2)
    expect(items.nth(1)).to_contain_text("tokenizer of bytes")
    expect(items.nth(1)).to_contain_text("manuals.txt")
    expect(items.nth(1)).to_contain_text("kB")
    section.get_by_label("harbour: use in").select_option("this document")
    weight = section.get_by_role("slider", name="harbour: weight")
    expect(weight).to_be_enabled()
    weight.fill("0.4")
    page.wait_for_function("() => !polydraft.documents.dirty()", polling=20)
    general.select_option("this document")
    page.wait_for_function(
        "() => polydraft.documents.current.stores.length === 2 && !polydraft.documents.dirty()", polling=20
    )
    closed(editor)
    assert named() == [store, "default"]
    first = editor.text
    page.get_by_role("button", name="New", exact=True).click()
    expect(editor.box).to_have_value("")
    editor.put("Dear Anna ")
    assert named() is None
    page.get_by_role("tab", name="My writing").click()
    expect(section.get_by_label("harbour: use in")).to_have_value("")
    expect(weight).to_be_disabled()
    closed(editor)
    page.get_by_role("button", name="Documents", exact=True).click()
    page.locator(".dc-name").filter(has_text=first).click()
    expect(editor.box).to_have_value(first)
    editor.reload()
    expect(editor.box).to_have_value(first)
    assert named() == [store, "default"]
    common(opened(editor))
    expect(weight).to_have_value("0.4")
    general.select_option("all documents")
    expect(general).to_have_value("all")
    page.get_by_role("button", name="Remove harbour").click()
    expect(items).to_have_count(1)


def test_a_damaged_entry_of_the_choice_can_only_be_removed(editor: Editor, folder: Path, harbour: Path) -> None:
    choice = [{"file": str(harbour / "harbour.ngram"), "weight": 1, "on": True}, {"file": 3}]
    (folder / "base-stores.json").write_text(json.dumps({"version": 1, "stores": choice}))
    section = common(opened(editor))
    items = section.locator(".ps-base")
    expect(items).to_have_count(2)
    expect(items.nth(0)).to_contain_text("manuals.txt")
    expect(items.nth(1)).to_contain_text("is no base store")
    expect(items.nth(1).get_by_role("combobox")).to_have_count(0)
    section.get_by_role("button", name="Remove Damaged entry").click()
    expect(items).to_have_count(1)
    section.get_by_role("button", name="Remove harbour").click()
    (folder / "base-stores.json").unlink()


# ---------------------------------------------------------------- the tab


def test_the_tab_is_loaded_when_it_is_opened_and_the_text_stays_also_without_the_server(editor: Editor) -> None:
    def asked() -> set[str]:
        return set(
            editor.page.evaluate("performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname)")
        )

    assert asked() and not any("stores" in path for path in asked())
    write, mine = (editor.page.get_by_role("tab", name=name) for name in ("Write", "My writing"))
    expect(write).to_have_attribute("aria-selected", "true")
    expect(editor.box).to_be_focused()
    editor.put(BEFORE)
    editor.page.route("**/api/stores", lambda route: route.abort())
    mine.click()
    expect(editor.page.locator(".pd-toast")).to_contain_text("My writing cannot be opened")
    expect(editor.box).to_be_visible()
    editor.page.unroute("**/api/stores")
    write.focus()
    editor.press("ArrowRight")
    expect(editor.page.get_by_role("tabpanel", name="My writing")).to_be_visible()
    expect(mine).to_be_focused()
    files = {f"/page/stores/stores.{ending}" for ending in ("js", "html", "css")}
    assert {*files, "/api/stores"} <= asked()
    expect(editor.box).to_be_hidden()
    editor.press("ArrowLeft")
    expect(editor.box).to_be_visible()
    assert editor.text == BEFORE
    editor.wait_for_drafts(MARKET, RIVER, HOME)


def test_a_store_is_made_listed_and_deleted_but_not_under_a_name_that_is_none(
    page: Page, stores: PersonalStores, folder: Path
) -> None:
    expect(page.get_by_text("No collections yet")).to_be_visible()
    field = page.get_by_role("textbox", name="New collection")
    field.fill("../evil")
    page.get_by_role("button", name="Create").click()
    error = page.get_by_role("alert").filter(has_text="'../evil' given as the name of a store")
    expect(error).to_be_visible()
    expect(field).to_be_focused()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile("name of a store"))
    page.keyboard.type("x")
    expect(error).to_be_hidden()
    expect(field).not_to_have_attribute("aria-invalid", "true")
    field.fill("work")
    page.get_by_role("button", name="Create").click()
    expect(store(page, "work")).to_contain_text("0 words · ")
    expect(store(page, "work")).to_contain_text("changed just now")
    expect(page.get_by_text("No collections yet")).to_be_hidden()
    for answer, left in (("Cancel", 1), ("Delete", 0)):
        if not store(page, "work").locator("details[open]").count():
            store(page, "work").locator("summary").click()
        page.get_by_role("button", name="Delete this collection").click()
        sure(page, answer)
        expect(store(page, "work")).to_have_count(left)
        assert len(stores.list()) == left
    (folder / "junk.sqlite").write_text("junk" * 2000)
    page.evaluate("dispatchEvent(new Event('focus'))")  # what others made shows when the reader comes back
    expect(store(page, "junk")).to_contain_text("damaged or not a personal store")
    store(page, "junk").get_by_role("button", name="Delete this collection").click()
    sure(page, "Delete")
    expect(store(page, "junk")).to_have_count(0)


# ---------------------------------------------------------------- adding


def test_files_and_a_phrase_go_in_and_what_is_damaged_is_named_and_replaces_nothing(
    page: Page, stores: PersonalStores
) -> None:
    def row() -> Any:
        return next(row for row in stores.list() if row["store"] == "me")

    stores.create("letters")
    stores.create("me")
    add_text(stores, "me", "broken.docx", "An intact letter.")
    page.evaluate("dispatchEvent(new Event('focus'))")
    page.get_by_label("Collection to add to").select_option("me")
    add(page, *FILES)
    expect(report(page)).to_contain_text(re.compile(r"Added 3 files \(about \d+ words\) to me\. 3 problems:"))
    told = report(page).get_by_role("listitem").all_text_contents()
    assert [line.split(" ", 1)[0].rstrip(",") for line in told] == ["broken.docx", "half.jsonl", "picture.png"]
    assert "not an intact Word document" in told[0]
    assert "line 2 not JSON" in told[1]
    assert "is not of a supported kind" in told[2]
    kept = {"letter.txt", "notes.md", "half.jsonl", "broken.docx"}
    assert {document["origin"] for document in row()["documents"]} == kept
    expect(store(page, "me")).to_contain_text("4 sources")
    expect(page.get_by_label("Files to add")).to_have_value("")
    page.get_by_role("button", name="Dismiss").click()
    expect(report(page)).to_be_hidden()
    page.get_by_role("textbox", name="Or add a phrase").fill("Yours ever, Wilhelmina")
    page.get_by_label("Collection to add to").select_option("letters")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(report(page)).to_contain_text("Added “Yours ever, Wilhelmina” to letters; drafts will use it from now on.")
    assert typed(stores, "letters") == ["Yours ever, Wilhelmina"]
    page.get_by_label("Collection to add to").select_option("me")
    tokens = row()["tokens"]
    add(page, "broken.docx")
    expect(report(page)).to_contain_text("Nothing was added to me. 1 problem:")
    assert row()["tokens"] == tokens
    for text in ("one two three", "one"):
        page.locator(".ps-drop").evaluate(
            """(field, text) => {
                const dataTransfer = new DataTransfer();
                dataTransfer.items.add(new File([text], "dropped.txt"));
                for (const name of ["dragenter", "dragover", "drop"]) {
                    field.dispatchEvent(new DragEvent(name, { dataTransfer, bubbles: true, cancelable: true }));
                }
            }""",
            text,
        )
        expect(report(page)).to_contain_text(f"Added 1 file ({said(len(text))}) to me.")
    assert row()["tokens"] == tokens + len("one")


class Held(threading.Event):
    """Until it is set, adding waits half-way. Then it continues, after `patience` seconds in which it reports progress,
    as a larger file would, so that a stop is noticed."""

    patience = 0.0


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    go, add_file = Held(), PersonalStores.add_file

    def slowly(self: PersonalStores, name: str, path: Path, origin: str, progress: Callable[[float], None]) -> Any:
        def halfway(share: float) -> None:
            progress(min(share, 0.5))
            if share:
                go.wait(60)
                until = time.monotonic() + go.patience
                while time.monotonic() < until:
                    progress(0.5)
                    time.sleep(0.05)
                progress(1.0)

        return add_file(self, name, path, origin, halfway)

    monkeypatch.setattr(PersonalStores, "add_file", slowly)
    yield go
    go.set()


def test_adding_can_be_stopped_and_leaves_nothing_half_and_what_was_added_before_is_reported(
    page: Page, held: Held, stores: PersonalStores
) -> None:
    half = len(FILES["letter.txt"]) / 2 / (len(FILES["letter.txt"]) + len(FILES["notes.md"]))
    bar = page.get_by_role("progressbar", name="letter.txt, 1 of 2")
    held.patience = 30
    add(page, "letter.txt", "notes.md")
    expect(bar).to_have_js_property("value", half)
    page.get_by_role("button", name="Stop").click()
    held.set()
    expect(report(page)).to_contain_text("letter.txt not added: stopped")
    expect(report(page)).to_contain_text("1 file not added: stopped")
    expect(bar).to_be_hidden()
    assert stores.list()[0]["documents"] == []

    held.clear()
    held.patience = 0
    add(page, "letter.txt", "notes.md")
    expect(bar).to_be_visible()
    with page.expect_request("**/api/stores/stop"):
        page.route("**/api/stores/stop", lambda route: route.fulfill(json={}))  # it comes too late
        page.get_by_role("button", name="Stop").click()
    held.set()
    expect(report(page)).to_contain_text(re.compile(r"Added 1 file .* to me\. 1 problem"))
    expect(report(page)).to_contain_text("1 file not added: stopped")
    assert [document["origin"] for document in stores.list()[0]["documents"]] == ["letter.txt"]


# ---------------------------------------------------------------- searching and forgetting


@pytest.fixture
def filled(stores: PersonalStores, page: Page) -> Page:
    stores.create("me")
    add_text(stores, "me", "/home/ada/letter.txt", LETTER)
    add_text(stores, "me", "/home/ada/notes.md", NOTES)
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(store(page, "me")).to_contain_text("2 sources")
    return page


def search(page: Page, text: str) -> None:
    page.get_by_role("searchbox", name="Words to look for").fill(text)
    page.get_by_role("button", name="Search", exact=True).click()


def test_search_shows_continuations_counts_and_sources_and_what_is_found_is_forgotten(
    filled: Page, stores: PersonalStores
) -> None:
    search(filled, "we thank you for")
    found = filled.locator(".ps-result")
    expect(found).to_contain_text("The whole phrase is not in it. “thank you for” is followed by:")
    search(filled, "zebra")
    expect(filled.locator(".ps-found")).to_contain_text("“zebra” is in none of your stores.")
    search(filled, "thank  YOU for")
    expect(found).to_contain_text("Found 4 times: letter.txt (3), notes.md (1).")
    rows = [row.locator("th, td").all_text_contents() for row in found.get_by_role("row").all()]
    assert rows == [["your", "3 ×", "letter.txt (2), notes.md (1)"], ["the", "1 ×", "letter.txt"]]

    search(filled, "thank you for")
    filled.get_by_role("button", name="Forget “thank you for”", exact=True).click()  # not that of “thank  YOU for”
    dialog = filled.get_by_role("dialog")
    expect(dialog).to_contain_text("4 places with 52 characters, in 2 passages of me, will be removed")
    expect(dialog).to_contain_text("You can undo this until you close the page.")
    sure(filled, "Forget")
    expect(report(filled)).to_contain_text("Forgot “thank you for”: removed 4 places.")
    expect(filled.locator(".ps-found")).to_contain_text("“thank you for” is in none of your stores.")
    assert stores.search("thank you for") == []
    expect(filled.get_by_role("searchbox", name="Words to look for")).to_be_focused()

    store(filled, "me").locator("summary").click()
    filled.get_by_role("button", name="Forget letter.txt").click()
    expect(dialog).to_contain_text("3 passages of me with 44 characters will be removed")
    sure(filled, "Forget")
    expect(filled.get_by_role("button", name="Forget notes.md")).to_be_focused()
    expect(report(filled)).to_contain_text("Forgot letter.txt: removed 1 document.")
    expect(store(filled, "me").locator(".ps-name")).to_have_text(["notes.md"])
    assert [document["origin"] for document in stores.list()[0]["documents"]] == ["/home/ada/notes.md"]


def test_forgetting_is_undone_by_a_click_until_the_page_is_closed(
    filled: Page, stores: PersonalStores, editor: Editor
) -> None:
    def texts() -> list[str]:
        with stores.at("me") as opened_store:
            return ["".join(text.passages) for text in opened_store.texts()]

    before = texts()
    undo, box = filled.get_by_role("button", name="Undo", exact=True), filled.locator(".ps-forgotten")
    expect(box).to_be_hidden()
    store(filled, "me").locator("summary").click()
    filled.get_by_role("button", name="Forget letter.txt").click()
    sure(filled, "Forget")
    search(filled, "report")
    filled.get_by_role("button", name="Forget “report”").click()
    sure(filled, "Forget")
    expect(box).to_contain_text("“report” was forgotten. You can undo this until you close the page.")
    undo.click()
    expect(report(filled)).to_contain_text("“report” is back.")
    expect(box).to_contain_text("letter.txt was forgotten.")
    undo.press("Enter")
    expect(box).to_be_hidden()
    expect(filled.get_by_role("searchbox", name="Words to look for")).to_be_focused()
    expect(store(filled, "me").locator(".ps-name")).to_have_text(["notes.md", "letter.txt"])
    assert texts() == before

    filled.get_by_role("button", name="Forget letter.txt").click()
    sure(filled, "Forget")
    expect(undo).to_be_visible()
    with stores.at("me") as opened_store:
        opened_store.forget_phrase("thank you")
    undo.click()
    expect(box.get_by_role("alert")).to_contain_text("other text of me was removed")
    editor.reload()
    editor.wait(lambda: editor.fake.left, "the server to drop it")
    filled.get_by_role("tab", name="My writing").click()
    expect(store(filled, "me")).to_contain_text("1 source")
    expect(box).to_be_hidden()


# ---------------------------------------------------------------- what other tabs hold of it


WAYS_TO_TELL = {
    "Yesterday she went": "by the list of stores that learn, when the tab is used again",
    "Today he went": "by the next answer",
    "At last they went": "by the tab that forgets",
}


def test_another_tab_drops_the_drafts_that_may_contain_it(
    editor: Editor, stores: PersonalStores, server: Server
) -> None:
    stores.create("me")
    secret = " to Featherstonehaugh"
    holds = """polydraft.revisiting.list.length + [...polydraft.drafts.answers.kept.values()]
        .filter((rows) => JSON.stringify(rows).includes('Feather')).length"""
    for text, told in WAYS_TO_TELL.items():
        add_text(stores, "me", "letter.txt", "He went to Featherstonehaugh.")
        editor.fake.script["went"] = (secret, RIVER, HOME)
        editor.put(text)
        editor.wait_for_drafts(secret, RIVER, HOME)
        editor.press("Tab")
        expect(editor.box).to_have_value(text + secret)  # its list can be shown again
        editor.press("Control+z")
        editor.wait_for_drafts(secret, RIVER, HOME)
        assert editor.page.evaluate(holds) > 0, told
        editor.fake.script["went"] = (MARKET, RIVER, HOME)
        if told == "by the tab that forgets":
            other = opened(Editor(editor.page.context.new_page(), editor.fake).open(server.url))
            store(other, "me").locator("summary").click()
            other.get_by_role("button", name="Forget letter.txt").click()
            sure(other, "Forget")
        elif told == "by the next answer":
            editor.fake.removed, asked = "b", len(editor.fake.requests)
            editor.write(" t")  # a letter with which the row still agrees
            editor.wait_for_drafts("o the market and bought some bread", "o the river with a lantern")
            assert editor.fake.requests[asked]["removed"] == "a", "the server drops the row too"
        else:
            editor.page.evaluate("polydraft.learning.refresh({ anew: true })")
            with stores.at("me") as opened_store:
                opened_store.forget_document("letter.txt")
            editor.page.evaluate("dispatchEvent(new Event('focus'))")  # the writer comes back to this tab
        editor.wait(lambda: editor.drafts() and not any("Feather" in row for row in editor.drafts()), f"rows {told}")
        assert editor.page.evaluate(holds) == 0, told


# ---------------------------------------------------------------- folders and names


def test_the_folders_of_a_store_their_problems_and_whose_mails_it_learns_are_seen_and_set(
    page: Page, stores: PersonalStores, tmp_path: Path
) -> None:
    from ngram_builder.folders import changes, step

    stores.create("me")
    (tmp_path / "a.txt").write_text("The harbour at dawn.")
    (tmp_path / "b.txt").write_bytes(b"\x00\x01\x02\xff" * 64)
    with stores.at("me") as kept:
        step(kept, changes(kept, tmp_path, ["*.bak"]))
    page.evaluate("dispatchEvent(new Event('focus'))")
    me = store(page, "me")
    me.locator("summary").click()
    expect(me.locator(".ps-folders")).to_contain_text(f"In step with {tmp_path}, without *.bak: 2 files.")
    expect(me.locator(".ps-folders li li")).to_have_text(re.compile("^b.txt: "))
    names = me.get_by_label("Your names and addresses in mails and chats")
    names.fill("Ann Lee, ann@example.org")
    me.get_by_role("button", name="Save").click()
    expect(page.locator(".ps-status")).to_have_text("me learns what Ann Lee and ann@example.org wrote.")
    with stores.at("me") as kept:
        assert kept.senders == ["Ann Lee", "ann@example.org"]
    mail = tmp_path / "bob.eml"
    mail.write_text("From: bob@example.org\n\nNot mine.\n")
    assert stores.add_file("me", mail, "bob.eml", lambda _: None).tokens == 0


# ---------------------------------------------------------------- switches


def test_nothing_is_learned_until_stores_are_switched_on_several_at_once(
    editor: Editor, stores: PersonalStores
) -> None:
    stores.create("private")
    stores.create("work")
    sent: list[str] = []
    editor.page.on("request", lambda request: sent.append(request.url))
    editor.write("Mine.\nOn\nso")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    assert not any(url.endswith("/learn") for url in sent)
    expect(editor.page.locator(".pd-learns")).to_be_hidden()
    page = opened(editor)
    for name in ("private", "work"):
        expect(page.get_by_role("switch", name=f"{name}: use in drafts")).to_be_checked()
        expect(page.get_by_role("switch", name=f"{name}: learn as I write")).not_to_be_checked()
        page.get_by_role("switch", name=f"{name}: learn as I write").check()
    expect(page.locator(".pd-learns")).to_have_text("Learning into private, work")
    page.get_by_role("switch", name="private: use in drafts").focus()
    editor.press("Space")
    expect(page.get_by_role("switch", name="private: learn as I write")).to_be_disabled()
    expect(page.locator(".pd-learns")).to_have_text("Learning into work")
    assert [(row["store"], row["enabled"]) for row in stores.list()] == [("private", False), ("work", True)]
    assert stores.followed()["learning"] == ["work"]
    closed(editor)
    editor.press("Control+End")
    editor.write("o\n")
    editor.wait(lambda: typed(stores, "work"), "what is finished now")
    assert (typed(stores, "work"), typed(stores, "private")) == (["soo"], [])


# ---------------------------------------------------------------- learning from use


@pytest.fixture
def learner(editor: Editor, stores: PersonalStores) -> Editor:
    """An editor whose store learns."""
    stores.create("me")
    with stores.at("me") as store:
        store.switch_learning(True)
    editor.write("x")
    expect(editor.page.locator(".pd-learns")).to_have_text("Learning into me")
    editor.press("Backspace")
    return editor


def test_drafts_that_are_taken_and_finished_paragraphs_are_learned_and_in_the_next_drafts(
    learner: Editor, stores: PersonalStores
) -> None:
    """learning.test.mjs has when each is sent."""
    learner.put(BEFORE)
    learner.wait_for_drafts(MARKET, RIVER, HOME)
    learner.press("Tab")
    assert typed(stores) == []
    learner.write(" and")
    learner.wait(lambda: typed(stores) == [BEFORE + MARKET], "the draft")
    learner.page.get_by_role("button", name="New", exact=True).click()
    expect(learner.box).to_have_value("")
    learner.put("He wrote")
    learner.wait_for_drafts(MARKET, RIVER, HOME)
    learner.fake.script["He wrote"] = (" to Wilhelmina", " on", " again")
    learner.write(" x\n")
    learner.wait(lambda: typed(stores)[-1] == "He wrote x", "the paragraph")
    learner.wait(
        lambda: learner.page.evaluate("!polydraft.drafts.answers.kept.has('He wrote')"),
        "old answers to be dropped",
    )
    learner.write("He wrote")
    learner.wait_for_drafts(" to Wilhelmina", " on", " again")
    learner.page.get_by_role("button", name="Copy").click()
    learner.wait(lambda: typed(stores) == [BEFORE + MARKET, "He wrote x", "He wrote"], "the last one, once copied")


# ---------------------------------------------------------------- looks and access


def test_nothing_overflows(editor: Editor, stores: PersonalStores) -> None:
    """test_access_page.py looks for names and contrast."""
    stores.create("a store with quite a long name for what it is")
    add_text(stores, "a store with quite a long name for what it is", "/a/" + "very-long-name" * 9 + ".txt", LETTER)
    page = opened(editor)
    page.locator("summary", has_text="source").click()
    search(page, "thank you for")
    expect(page.locator(".ps-result")).to_be_visible()
    for width, height in ((360, 740), (768, 1024), (1600, 900)):
        page.set_viewport_size({"width": width, "height": height})
        outside = """() => [...document.querySelectorAll('#pd *')]
            .filter((e) => e.checkVisibility() && !e.closest('.pd-unseen'))
            .filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 90))"""
        assert page.evaluate(outside) == [], width
