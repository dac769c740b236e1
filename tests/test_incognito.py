"""Incognito in real Chromium: nothing typed while it is on reaches the stores, whatever is done later.

What is typed in incognito here is Greek, everything else is not; so a Greek letter in what is learned is a leak.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Route

from tests.fake_drafts import FakeDrafts, Server
from tests.test_page import Editor, context, fake, functions, server, shared

__all__ = ["context", "fake", "functions", "server", "shared"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

GREEK = re.compile("[α-ω]")
SECRET = ("μυστικό", "κρυφό κείμενο", "α", "ένα δύο τρία", " ω")
PUBLIC = ("open words", "a", " and more.", "It was said", " x")
DRAFTS, SECRET_DRAFTS = (" on and on", " again", " no more"), (" και πάλι", " ποτέ ξανά", " πια")


class Learner(Editor):
    """A page whose store learns; `learned` is what reached it."""

    def listen(self) -> Learner:
        self.learned: list[str] = []
        self.page.route("**/api/stores/learning", lambda route: route.fulfill(json={"learning": ["me"]}))
        self.page.route("**/api/stores/learn", self.learn)
        return self

    def learn(self, route: Route) -> None:
        self.learned.append(json.loads(route.request.post_data or "{}")["text"])
        route.fulfill(json={"stores": ["me"]})

    def incognito(self, on: bool) -> None:
        if not on:
            self.fake.script = {"": DRAFTS}
        self.page.evaluate(
            "on => { const switch_ = document.querySelector('.pd-incognito');"
            " if ((switch_.ariaPressed === 'true') !== on) switch_.click(); }",
            on,
        )
        if on:
            self.fake.script = {"": SECRET_DRAFTS}

    def secret(self, text: str) -> None:
        self.incognito(True)
        self.write(text)
        self.incognito(False)


@pytest.fixture
def learner(context: BrowserContext, server: Server, fake: FakeDrafts) -> Iterator[Learner]:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    learner = Learner(context.new_page(), fake).listen()
    learner.open(server.url)
    learner.incognito(False)
    learner.write("x")
    learner.wait(lambda: learner.page.locator(".pd-learns").text_content() == "Learning into me", "a store that learns")
    learner.press("Backspace")
    learner.page.evaluate("navigator.clipboard.writeText('copied elsewhere')")  # not what another test has copied
    yield learner
    assert learner.errors == []
    assert not [text for text in learner.learned if GREEK.search(text)]


def finish(learner: Learner) -> None:
    """Everything that makes a paragraph count as finished."""
    learner.incognito(False)
    learner.box.focus()
    learner.press("Control+End")
    learner.write(" done")
    learner.page.get_by_role("button", name="Copy", exact=True).click()
    learner.press("Enter")
    learner.write("The end is open.")
    learner.press("Enter")
    learner.wait(lambda: learner.learned and learner.learned[-1] == "The end is open.", "what is public")


def test_the_first_word_is_changed(learner: Learner) -> None:
    learner.secret("ένα μυστικό")
    learner.press("Home")
    learner.write("Now ")
    finish(learner)
    assert learner.learned == ["The end is open."]


def test_reloaded_and_copied(learner: Learner) -> None:
    learner.secret("ένα μυστικό")
    learner.page.evaluate("polydraft.documents.saveNow()")
    learner.reload()
    assert learner.text == "ένα μυστικό"
    finish(learner)
    assert learner.learned == ["The end is open."]


def test_enter_inside_the_paragraph(learner: Learner) -> None:
    learner.write("Begun openly, ")
    learner.secret("μυστικό κείμενο")
    learner.write(" and openly ended.")
    for _ in range(4):
        learner.press("Control+ArrowLeft")
    learner.press("Enter")
    learner.page.wait_for_timeout(100)
    finish(learner)


def test_a_draft_taken_behind_it(learner: Learner) -> None:
    learner.secret("ένα μυστικό")
    learner.write(" so")
    learner.wait_for_drafts(*DRAFTS)
    learner.press("Tab")
    learner.write("!")
    learner.wait(lambda: learner.learned == ["so on and on"], "the public part of what stands before the draft")


def test_a_draft_taken_in_incognito(learner: Learner) -> None:
    learner.write("Openly")
    learner.incognito(True)
    learner.write(" ")
    learner.press("Backspace")
    learner.wait_for_drafts(*SECRET_DRAFTS)
    learner.press("Tab")
    learner.incognito(False)
    finish(learner)


def test_deleted_and_undone(learner: Learner) -> None:
    learner.secret("μυστικό")
    learner.press(*["Backspace"] * 7, "Control+z", "Control+z")
    assert GREEK.search(learner.text)
    finish(learner)


def test_cut_and_pasted_with_more_around_it(learner: Learner) -> None:
    learner.write("Before ")
    learner.secret("μυστικό")
    learner.write(" after")
    learner.press("Control+a", "Control+x", "Control+v")
    assert GREEK.search(learner.text)
    finish(learner)


def test_copied_by_the_button_and_pasted(learner: Learner) -> None:
    learner.secret("μυστικό")
    learner.write(" openly")
    learner.page.get_by_role("button", name="Copy", exact=True).click()
    learner.box.focus()
    learner.press("Control+a", "Delete", "Control+v")
    assert GREEK.search(learner.text)
    finish(learner)


def test_a_letter_pasted_where_its_surroundings_stand_already(learner: Learner) -> None:
    learner.secret("αω")
    learner.press("Control+a", "Control+x")
    learner.write("so")
    learner.press("Control+v", "Backspace", "Control+a", "Control+v")
    learner.press("Backspace", "Shift+Home", "Control+v")  # "αω" in place of "α": one letter is new
    assert learner.text == "αω"
    finish(learner)


def test_a_draft_made_in_incognito_and_taken_openly(learner: Learner) -> None:
    learner.incognito(True)
    learner.write("Openly")
    learner.wait_for_drafts(*SECRET_DRAFTS)
    learner.incognito(False)
    learner.box.focus()
    learner.wait_for_drafts(*DRAFTS)
    assert learner.page.evaluate("polydraft.editor.revisiting.list.length") == 0


def test_pasted_behind_the_same_ending(learner: Learner) -> None:
    learner.secret("μυστικό")
    learner.write(" word")
    learner.press("Control+a", "Control+c", "Control+End", "Control+v")
    assert learner.text == "μυστικό word" * 2
    assert_covered(learner)
    finish(learner)


def assert_covered(learner: Learner) -> None:
    """Every Greek letter of the text lies in one of the private ranges."""
    ranges = learner.page.evaluate("polydraft.editor.privacy.ranges")
    letters = (match.start() for match in GREEK.finditer(learner.text))
    open_ones = [at for at in letters if not any(start <= at < end for start, end in ranges)]
    assert not open_ones, (learner.text, ranges)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_done_later(learner: Learner, seed: int) -> None:
    dice = random.Random(seed)
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

    def press(*keys: str) -> Callable[[], None]:
        return lambda: learner.press(*keys)

    steps: list[Callable[[], Any]] = [toggle, toggle, place, place, place, press("Enter"), press("Tab")]
    steps += [press("Backspace"), press("Delete"), press("Control+z"), press("Control+z"), press("Control+Shift+Z")]
    steps += [
        press("Control+x"),
        press("Control+c"),
        press("Control+v"),
        press("Control+v"),
        press("Control+Backspace"),
    ]
    steps += [
        press("Control+ArrowRight"),
        press("Alt+Digit2"),
        press("Home"),
        press("Control+End"),
        press("Shift+Home"),
    ]
    steps += [lambda: learner.write(dice.choice(SECRET if on else PUBLIC))] * 8
    for _ in range(150):
        learner.box.focus()
        dice.choice(steps)()
        assert_covered(learner)
        if not on and dice.random() < 0.1:
            learner.page.get_by_role("button", name="Copy", exact=True).click()
    learner.press("Control+End")
    learner.press("Enter")
    finish(learner)


@pytest.mark.parametrize("seed", range(3))
def test_ranges_follow_any_edit(functions: Callable[..., Any], seed: int) -> None:
    """The ranges of a text are where its Greek letters are, after each of many edits."""
    dice = random.Random(seed)
    text, ranges = "", []
    for _ in range(150):
        at = dice.randint(0, len(text))
        removed = dice.choice([0, 0, 1, 5]) if at < len(text) else 0
        removed = min(removed, len(text) - at)
        inserted = dice.choice(["", "abc", "αβγ", "a", "ω"])
        now = text[:at] + inserted + text[at + removed :]
        edit = functions("difference", text, now, at + len(inserted))
        ranges = functions("moved", ranges, edit)
        if GREEK.search(inserted):
            start = edit["at"]
            ranges = functions("joined", [*ranges, [start, start + edit["inserted"]]])
        text = now
        assert [list(match.span()) for match in re.finditer("[α-ω]+", text)] == ranges
