"""Incognito in real Chromium: text typed while it is on never reaches the stores.

These tests type Greek in incognito, and Latin otherwise, so a Greek letter in learned text is a leak.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from tests.app.static.editor.editor_page import Editor
from tests.fake_drafts import FakeDrafts, Server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

GREEK = re.compile("[α-ω]")
SECRET = ("μυστικό", "κρυφό κείμενο", "α", "ένα δύο τρία", " ω")
PUBLIC = ("open words", "a", " and more.", "It was said", " x")
DRAFTS, SECRET_DRAFTS = (" on and on", " again", " no more"), (" και πάλι", " ποτέ ξανά", " πια")


class Learner(Editor):
    """A page whose store learns; `learned` lists the texts that reached it."""

    @property
    def learned(self) -> list[str]:
        return self.fake.learned

    def incognito(self, on: bool) -> None:
        self.fake.script = {"": SECRET_DRAFTS if on else DRAFTS}  # first, because switching may request drafts
        self.page.evaluate(
            "on => { const switch_ = document.querySelector('.pd-incognito');"
            " if ((switch_.ariaPressed === 'true') !== on) switch_.click(); }",
            on,
        )

    def write(self, text: str) -> None:
        """Only the last two letters are typed, because each costs processor time for a request and its answer."""
        if text[:-2]:
            self.page.keyboard.insert_text(text[:-2])
        super().write(text[-2:])

    def copy(self) -> None:
        """A click on the button, without the pointer."""
        self.page.locator("[data-do=copy]").dispatch_event("click")

    def secret(self, text: str) -> None:
        self.incognito(True)
        self.write(text)
        self.incognito(False)


@pytest.fixture
def learner(context: BrowserContext, server: Server, fake: FakeDrafts) -> Iterator[Learner]:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    fake.learning = ["me"]
    learner = Learner(context.new_page(), fake)
    learner.open(server.url)
    learner.incognito(False)
    learner.write("x")
    learner.wait(lambda: learner.page.locator(".pd-learns").text_content() == "Learning into me", "a store that learns")
    learner.press("Backspace")
    learner.page.evaluate("navigator.clipboard.writeText('copied elsewhere')")  # replaces the copy of another test
    yield learner
    assert learner.errors == []
    assert not [text for text in learner.learned if GREEK.search(text)]


def finish(learner: Learner, end: str = "The end is open.") -> None:
    """Everything that makes a paragraph count as finished. A tab learns the same `end` once."""
    learner.incognito(False)
    learner.box.focus()
    learner.press("Control+End")
    learner.page.keyboard.insert_text(" done")
    learner.copy()
    learner.press("Enter")
    learner.page.keyboard.insert_text(end)
    learner.press("Enter")
    learner.wait(lambda: learner.learned and learner.learned[-1] == end, "what is public")


def begin_another(learner: Learner) -> None:
    """An empty document in the same tab, which takes less processor time than to open the page again."""
    learner.page.locator("[data-do=new]").first.dispatch_event("click")
    learner.wait(lambda: learner.text == "", "the empty page")
    learner.box.focus()


def test_every_match_is_replaced_around_private_text(learner: Learner) -> None:
    """The browser reports one edit, from the first match to the last."""
    learner.write("an open word and ")
    learner.secret("ένα μυστικό")
    learner.write(" open word")
    learner.press("Control+f")
    learner.page.get_by_role("textbox", name="Find").fill("word")
    learner.page.get_by_role("textbox", name="Replace with").fill("phrase")
    learner.page.get_by_role("button", name="Replace all").click()
    assert learner.text == "an open phrase and ένα μυστικό open phrase"
    learner.page.get_by_role("button", name="Close", exact=True).click()
    learner.press("Control+z", "Control+y")
    finish(learner)


def test_enter_inside_the_paragraph_and_in_another_deleted_and_undone_then_cut_and_pasted_with_more_around_it(
    learner: Learner,
) -> None:
    learner.write("Begun openly, ")
    learner.secret("μυστικό κείμενο")
    learner.write(" and openly ended.")
    for _ in range(4):
        learner.press("Control+ArrowLeft")
    learner.press("Enter")
    learner.page.wait_for_timeout(100)
    finish(learner)

    begin_another(learner)
    learner.write("Before ")
    learner.secret("μυστικό")
    learner.press(*["Backspace"] * 7, "Control+z", "Control+z")
    assert GREEK.search(learner.text)
    learner.press("Control+End")
    learner.write(" after")
    learner.press("Control+a", "Control+x", "Control+v")
    assert GREEK.search(learner.text)
    finish(learner, "This end is open, too.")


def test_a_draft_taken_behind_it_and_one_made_in_incognito_is_private_if_it_is_taken_and_gone_if_it_is_not(
    learner: Learner,
) -> None:
    learner.secret("ένα μυστικό")
    learner.write(" so")
    learner.wait_for_drafts(*DRAFTS)
    learner.press("Tab")
    learner.write("!")
    learner.wait(lambda: learner.learned == ["so on and on"], "the public part of what stands before the draft")

    begin_another(learner)
    learner.write("Openly")
    learner.incognito(True)
    learner.write(" ")
    learner.press("Backspace")
    learner.wait_for_drafts(*SECRET_DRAFTS)
    learner.incognito(False)
    learner.box.focus()
    learner.wait_for_drafts(*DRAFTS)
    assert learner.page.evaluate("polydraft.revisiting.list.length") == 0
    learner.incognito(True)
    learner.wait_for_drafts(*SECRET_DRAFTS)
    learner.press("Tab")
    learner.wait(lambda: GREEK.search(learner.text), "the draft in the text")
    finish(learner, "This end is open, too.")


def test_copied_by_the_button_and_pasted_here_and_in_another_tab(learner: Learner, context: BrowserContext) -> None:
    learner.write("Openly ")
    learner.secret("μυστικό")
    learner.page.get_by_role("button", name="Copy", exact=True).click()
    other = Learner(context.new_page(), learner.fake)
    other.open(learner.page.url)
    other.write("There: ")
    other.press("Control+v")
    assert other.text == "There: Openly μυστικό"
    assert_covered(other)
    other.page.close()
    learner.box.focus()
    learner.press("Control+a", "Delete", "Control+v")
    assert GREEK.search(learner.text)
    finish(learner)


def test_a_letter_pasted_where_its_surroundings_stand_already_and_a_text_behind_the_same_ending(
    learner: Learner,
) -> None:
    learner.secret("αω")
    learner.press("Control+a", "Control+x")
    learner.write("so")
    learner.press("Control+v", "Backspace", "Control+a", "Control+v")
    learner.press("Backspace", "Shift+Home", "Control+v")  # "αω" in place of "α": one letter is new
    assert learner.text == "αω"
    finish(learner)

    begin_another(learner)
    learner.secret("μυστικό")
    learner.write(" word")
    learner.press("Control+a", "Control+c", "Control+End", "Control+v")
    assert learner.text == "μυστικό word" * 2
    assert_covered(learner)
    finish(learner, "This end is open, too.")


def test_after_a_reload_copied_and_its_first_word_changed_then_pasted_whole_and_when_another_program_has_had_it(
    learner: Learner,
) -> None:
    learner.secret("ένα μυστικό")
    learner.page.evaluate("polydraft.documents.saveNow()")
    learner.reload()
    assert learner.text == "ένα μυστικό"
    learner.copy()
    learner.box.focus()
    learner.press("Home")
    learner.write("Now ")
    finish(learner)
    assert learner.learned == ["The end is open."]

    begin_another(learner)
    learner.write("Openly ")
    learner.secret("μυστικό")
    learner.write(" and on")
    learner.press("Control+a", "Control+x")
    learner.page.evaluate("polydraft.documents.saveNow()")
    learner.reload()
    assert learner.text == ""
    learner.write("Before: ")
    learner.press("Control+v", "Control+v")
    assert learner.text == "Before: " + "Openly μυστικό and on" * 2
    assert_covered(learner)
    hidden = "".join(learner.text[start:end] for start, end in learner.page.evaluate("polydraft.privacy.ranges"))
    assert hidden == "μυστικό" * 2  # and nothing else
    learner.page.evaluate("navigator.clipboard.writeText('> μυστικό')")  # text alone
    learner.press("Control+v")
    assert learner.text.endswith("> μυστικό")
    assert_covered(learner)
    finish(learner, "This end is open, too.")


def test_dragged_within_the_text_and_a_paste_with_unreadable_ranges_is_private(learner: Learner) -> None:
    learner.write("Openly ")
    learner.secret("μυστικό")
    learner.box.evaluate(
        """box => {
            const data = new DataTransfer(), all = { dataTransfer: data, bubbles: true, cancelable: true };
            box.setSelectionRange(7, 14);
            box.dispatchEvent(new DragEvent("dragstart", all));
            data.setData("text/plain", box.value.slice(7, 14));
            box.dispatchEvent(new DragEvent("drop", all));
            const type = (inputType) => box.dispatchEvent(new InputEvent("input", { inputType, bubbles: true }));
            box.setRangeText("", 7, 14, "end");
            type("deleteByDrag");
            box.setRangeText(data.getData("text/plain"), 0, 0, "end");
            type("insertFromDrop");
        }"""
    )
    assert learner.text == "μυστικόOpenly "
    assert_covered(learner)
    finish(learner)

    begin_another(learner)
    for carried in ("7", "[[0]]", "[[0,1.5]]", "null", "x", '[["0","7"]]', "{}"):
        learner.put("")
        learner.page.keyboard.insert_text("Openly ")
        learner.box.evaluate(
            """(box, carried) => {
                const data = new DataTransfer();
                data.setData("application/x-polydraft-private", carried);
                data.setData("text/plain", "copied");
                box.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
                box.setRangeText("copied", 7, 7, "end");
                box.dispatchEvent(new InputEvent("input", { inputType: "insertFromPaste", bubbles: true }));
            }""",
            carried,
        )
        assert learner.page.evaluate("polydraft.privacy.ranges") == [[7, 13]], carried


def assert_covered(learner: Learner) -> None:
    """Every Greek letter of the text is in one of the private ranges."""
    text, ranges = learner.page.evaluate("[polydraft.textarea.value, polydraft.privacy.ranges]")
    letters = (match.start() for match in GREEK.finditer(text))
    open_ones = [at for at in letters if not any(start <= at < end for start, end in ranges)]
    assert not open_ones, (text, ranges)


KEYS = [
    "Enter",
    "Tab",
    "Backspace",
    "Delete",
    "Control+z",
    "Control+z",
    "Control+Shift+Z",
    "Control+x",
    "Control+c",
    "Control+v",
    "Control+v",
    "Control+Backspace",
    "Control+ArrowRight",
    "Alt+Digit2",
    "Home",
    "Control+End",
    "Shift+Home",
]


def test_whatever_is_done_later(learner: Learner) -> None:
    dice = random.Random(0)
    on = False

    def toggle() -> None:
        nonlocal on
        on = not on
        learner.incognito(on)

    def place() -> None:
        length = len(learner.text)
        start = dice.randint(0, length)
        end = dice.choice([start, start, min(length, start + dice.randint(0, 12))])
        learner.box.evaluate("(box, [a, b]) => box.setSelectionRange(a, b)", [start, end])

    def reload() -> None:
        learner.page.evaluate("polydraft.documents.saveNow()")
        learner.reload()

    steps: list[Callable[[], Any]] = [reload, toggle, toggle, place, place, place]
    steps += [partial(learner.press, key) for key in KEYS]
    steps += [lambda: learner.write(dice.choice(SECRET if on else PUBLIC))] * 8
    for _ in range(60):
        learner.page.evaluate("polydraft.textarea.focus()")
        dice.choice(steps)()
        assert_covered(learner)
        if not on and dice.random() < 0.1:
            learner.copy()
    learner.press("Control+End")
    learner.press("Enter")
    finish(learner)


def tabs(learner: Learner, since: int) -> set[str]:
    """The names under which the page has requested drafts."""
    return {request["tab"] for request in learner.fake.requests[since:]}


def test_the_server_forgets_the_tab_when_incognito_is_switched(learner: Learner) -> None:
    learner.incognito(True)
    learner.write("ένα μυστικό")
    learner.wait_for_drafts(*SECRET_DRAFTS)
    (secret,) = tabs(learner, -1)
    since = len(learner.fake.requests)
    learner.incognito(False)
    learner.write(" so")
    learner.wait_for_drafts(*DRAFTS)
    learner.wait(lambda: secret in learner.fake.left, "the server to forget")
    assert secret not in tabs(learner, since)


def test_the_server_forgets_the_tab_with_a_document_that_has_private_text(learner: Learner) -> None:
    learner.secret("ένα μυστικό")
    learner.write(" so")
    learner.wait_for_drafts(*DRAFTS)
    (private,) = tabs(learner, -1)
    learner.page.get_by_role("button", name="New", exact=True).click()
    learner.wait(lambda: private in learner.fake.left, "the server to forget")
    since, left = len(learner.fake.requests), len(learner.fake.left)
    learner.write("Openly")
    learner.wait_for_drafts(*DRAFTS)
    learner.page.get_by_role("button", name="New", exact=True).click()
    learner.wait(lambda: learner.text == "", "the empty page")  # keys before it go into the document that is open
    learner.write("And openly")
    learner.wait_for_drafts(*DRAFTS)
    assert private not in tabs(learner, since) and len(tabs(learner, since)) == 1
    assert len(learner.fake.left) == left
