"""*Show drafts*: when drafts appear, which of them, and the numbers of the writer that decide it; and rows that correct
a slip of the finger: they show the word struck out, and take its letters away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.app.static.editor.editor_page import BEFORE, Editor
from tests.fake_drafts import HOME, MARKET, RIVER

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

HOUSE, HILL, ROAD = " to the house on the hill", " up the hill", " along the road"
LATER = "Then she went"  # another text, because the page remembers what came for the first one

# Presses Tab as soon as the rows are final, once.
PRESS = """() => {
  window.took = null;
  const press = () => {
    const key = { key: "Tab", code: "Tab", bubbles: true, cancelable: true };
    const box = document.querySelector("#pd-text");
    box.dispatchEvent(new KeyboardEvent("keydown", key));
    window.took = box.value;
  };
  document.querySelector(".polydraft").addEventListener("pd-settled", press, { once: true });
}"""


@pytest.fixture(scope="module")
def extras(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Stores, so that *My writing* opens."""
    return {"stores": tmp_path_factory.mktemp("stores")}


@pytest.fixture
def editor(editor: Editor) -> Editor:
    editor.fake.script = {"went": (HOUSE, HILL, ROAD)}
    return editor


def choose(editor: Editor, when: str) -> None:
    editor.page.evaluate("(when) => polydraft.showing.choose(when)", when)


def clear(editor: Editor) -> None:
    """An empty page, and rows as the tests of this file begin with them."""
    fake = editor.fake
    fake.pays = fake.ghost = fake.held_after = None
    editor.put("")
    editor.box.focus()
    editor.wait(lambda: editor.drafts() == [] and editor.ghost() == "", "no drafts")


def numbers(editor: Editor) -> dict[str, object]:
    return editor.page.evaluate("polydraft.pace.numbers")


def test_only_rows_that_save_time_appear_the_best_is_the_ghost_one_is_the_ghost_alone_and_rows_keep_their_places(
    editor: Editor,
) -> None:
    editor.fake.pays = {0: " to"}
    choose(editor, "time")
    editor.put("We " + BEFORE)
    editor.wait(lambda: editor.ghost() == " to", "the ghost")
    expect(editor.page.locator(".pd-list")).to_be_hidden()
    editor.fake.pays = {}
    editor.write(",")  # the ghost disagrees
    editor.rest()
    assert editor.ghost() == ""
    assert editor.drafts() == []
    editor.fake.pays = {1: " up the", 0: " to"}
    editor.enter(BEFORE)
    editor.wait_for_drafts(" up the", " to")
    assert editor.ghost() == " up the"
    assert editor.fake.requests[-1]["show"]["shown"] == []
    assert editor.fake.requests[-1].get("kept", []) == []
    editor.press("Tab")
    assert editor.text == BEFORE + " up the"

    clear(editor)
    editor.fake.pays = {0: " to the", 1: " up the", 2: " along"}
    editor.put(LATER)
    editor.wait_for_drafts(" to the", " up the", " along")
    editor.fake.script = {"went ": ("along the road", "up the hill", "away")}
    editor.fake.pays = {2: "away", 1: "up the", 0: "along the"}
    editor.write(" ")
    editor.wait_for_drafts(
        "away", "up the", "along the"
    )  # the second and third stay; the best one takes the free place
    assert editor.ghost() == "away"
    assert editor.fake.requests[-1]["show"]["shown"] == ["to the", "up the", "along"]


def slow(editor: Editor, text: str, steps: int) -> None:
    """Types the last letter of a text while the server computes no more than these steps of its drafts."""
    choose(editor, "time")
    editor.page.evaluate("Object.defineProperty(polydraft.pace, 'pause', { value: 1e6 })")
    editor.put(text[:-1])
    editor.rest()
    editor.fake.held_after = steps
    editor.write(text[-1])
    editor.wait(lambda: editor.page.evaluate("polydraft.drafts.request?.drafts.length") == (3 if steps else 0))


def asked(editor: Editor, text: str) -> list[str]:
    """What was typed after this text, in the requests for it."""
    texts = [each["before"] for each in editor.fake.requests]
    return [each.removeprefix(text) for each in texts if each.startswith(text)]


def test_a_request_whose_drafts_disagree_with_the_next_key_is_replaced(editor: Editor) -> None:
    for text, steps in ((BEFORE, 0), (LATER, 1)):
        slow(editor, text, steps)
        editor.fake.stopped.clear()
        editor.write(",")
        if not steps:  # nothing is known of its drafts yet
            assert asked(editor, text) == [""]
        editor.fake.held_after = 1
        editor.wait(lambda text=text: asked(editor, text) == ["", ","], "the request for the present text")
        editor.wait(lambda: len(editor.fake.stopped) > 0, "the end of the old one")
        editor.fake.held_after = None
        editor.wait_for_drafts(MARKET, RIVER, HOME)
        clear(editor)


def test_nothing_is_displayed_while_keys_come_if_the_writer_wants_drafts_on_demand_or_at_a_pause(
    editor: Editor,
) -> None:
    for when, text in (("demand", BEFORE), ("pause", LATER)):
        choose(editor, when)
        sent = len(editor.fake.requests)
        editor.put(text[:-1])
        editor.write(text[-1])
        if when == "pause":  # drafts are computed at every key, and only their display waits
            editor.wait(
                lambda text=text: text in [each["before"] for each in editor.fake.requests],
                "the request of the last key",
            )
            assert editor.drafts() == []
            editor.wait_for_drafts(HOUSE, HILL, ROAD)
            editor.wait(lambda: editor.fake.requests[-1].get("grow") is True, "the request for the full length")
            assert len(editor.fake.requests) - sent >= 2
        else:
            editor.page.wait_for_timeout(400)
            assert len(editor.fake.requests) == sent
        editor.press("Alt+ArrowDown")
        editor.wait_for_drafts(HOUSE, HILL, ROAD)
        editor.write(" t")
        editor.wait_for_drafts(HOUSE[2:])  # what still agrees stays
        editor.write("x")
        editor.wait(lambda: editor.drafts() == [])
        clear(editor)


def test_a_pause_shows_all_drafts_and_the_next_key_takes_away_what_does_not_pay_and_leaves_the_ghost_that_does(
    editor: Editor,
) -> None:
    editor.fake.ghost, editor.fake.pays = 2, {1: HILL}
    choose(editor, "time")
    editor.put(BEFORE)
    editor.wait(lambda: editor.ghost() == HILL, "the row that saves time")
    editor.fake.pays = {0: HILL}  # it stands in the first row
    editor.wait_for_drafts(HILL, HOUSE, ROAD)  # after a second
    editor.settle()
    assert editor.ghost() == HILL
    assert editor.counters()["newRows"] == 3

    clear(editor)
    editor.fake.pays = {0: " to"}
    looked = editor.counters()["newRows"]
    editor.put(LATER)
    editor.wait(lambda: editor.ghost() == " to", "the ghost")
    editor.wait_for_drafts(HOUSE, HILL, ROAD)  # after a second
    assert editor.fake.requests[-1]["grow"] is True
    editor.wait(lambda: editor.counters()["newRows"] == looked + 4, "a look also at the row that has grown")
    editor.fake.script, editor.fake.pays = {"went ": ("to the house", "up", "along")}, {}
    editor.write(" ")
    editor.wait(lambda: editor.drafts() == [] and editor.ghost() == "", "no rows")


def test_likely_drafts_are_darker_what_no_longer_agrees_is_hidden_and_tab_takes_no_text_that_has_just_appeared(
    editor: Editor,
) -> None:
    choose(editor, "always")
    editor.fake.ghost = 2
    editor.page.evaluate(PRESS)
    editor.put(BEFORE)
    editor.wait(lambda: editor.page.evaluate("window.took") is not None, "Tab")
    assert editor.page.evaluate("took") == BEFORE
    editor.wait(lambda: editor.ghost() == ROAD, "the best row as ghost")
    editor.press("Tab")
    assert editor.text == BEFORE + ROAD
    editor.fake.ghost = None
    editor.put("We " + BEFORE)
    editor.wait_for_drafts(HOUSE, HILL, ROAD)
    assert editor.ghost() == HOUSE
    editor.read()
    editor.page.evaluate(PRESS)
    editor.fake.ghost = 2
    editor.page.evaluate("polydraft.drafts.requestDrafts({ keep: true })")
    editor.wait(lambda: editor.page.evaluate("window.took") is not None, "Tab")
    assert editor.text == "We " + BEFORE + HOUSE

    clear(editor)
    editor.fake.chances = {0: 0.6, 1: 0.3, 2: 0.1}
    editor.put(LATER)
    editor.wait_for_drafts(HOUSE, HILL, ROAD)
    drafts = editor.page.locator(".pd-option-row .pd-draft")
    inks = [drafts.nth(i).evaluate("e => getComputedStyle(e).color") for i in range(3)]
    assert len(set(inks)) == 3
    editor.page.evaluate("document.querySelector('.polydraft').dataset.chances = 'number'")
    numbers = editor.page.locator(".pd-chance")
    assert numbers.all_text_contents() == ["60%", "30%", "10%"]
    editor.fake.held_after = 0
    editor.write(" t")
    editor.wait_for_drafts(HOUSE.removeprefix(" t"))
    assert editor.page.locator(".pd-chance:visible").all_text_contents() == ["60%"]
    editor.fake.held_after = None


def test_a_newcomer_sees_all_drafts_and_is_told_once(editor: Editor) -> None:
    editor.put(BEFORE)
    editor.wait_for_drafts(HOUSE, HILL, ROAD)
    known = {"keys": [0] * 14 + [250] + [0] * 25, "takes": [0] * 40, "shown": 3, "taken": 1, "weeks": {}}
    editor.page.evaluate("(known) => Object.assign(polydraft.pace.numbers, known)", known)
    assert editor.page.evaluate("polydraft.showing.when") == "always"  # until the next document
    editor.page.get_by_role("button", name="New", exact=True).click()
    line = editor.page.get_by_text("From now on drafts appear when they save you time")
    expect(line).to_be_visible()
    assert editor.page.evaluate("polydraft.showing.when") == "time"
    editor.reload()
    expect(line).to_be_hidden()
    assert editor.page.evaluate("polydraft.showing.when") == "time"


def test_the_writers_numbers_are_measured_seen_and_reset_and_in_incognito_nothing_is_measured(editor: Editor) -> None:
    choose(editor, "always")
    editor.put(BEFORE[:-2])
    for letter in "nt":
        editor.write(letter)
        editor.page.wait_for_timeout(60)
    editor.wait_for_drafts(HOUSE, HILL, ROAD)
    editor.press("Tab")
    # Both at once: the rows after the taking may appear at any moment.
    measured, looks = editor.page.evaluate("[polydraft.pace.numbers, polydraft.counters.newRows]")
    assert sum(measured["keys"]) == 1  # the first key has none before it
    assert measured["taken"] == 1
    (saved,) = measured["weeks"].values()
    assert saved == pytest.approx(len(HOUSE) * 157 - 700 - 50 * looks)
    editor.page.get_by_role("tab", name="My writing").click()
    listed = editor.page.locator(".ps-numbers")
    expect(listed).to_contain_text("157 ms, 76 words a minute (a published mean")
    editor.page.locator(".ps-reset-numbers").click()
    assert numbers(editor)["taken"] == 0
    assert editor.page.evaluate("localStorage.getItem('polydraft.pace')") is None

    editor.page.get_by_role("tab").first.click()
    editor.page.get_by_role("button", name="Incognito").click()
    before = json.dumps(numbers(editor))
    editor.put(LATER[:-2])
    editor.write("nt")
    editor.wait_for_drafts(HOUSE, HILL, ROAD)
    editor.press("Tab")
    assert json.dumps(numbers(editor)) == before


def test_rows_that_come_true_correct_the_chances_and_can_be_forgotten(editor: Editor) -> None:
    """outcomes.test.mjs has what comes true. The stand-in gives every row a chance of 50 %."""
    choose(editor, "time")

    def judged() -> list[int]:
        total = "(name) => polydraft.pace.numbers[name].reduce((a, b) => a + b)"
        return editor.page.evaluate(f"['judged', 'right'].map({total})")

    editor.page.evaluate("Object.defineProperty(polydraft.pace, 'pause', { value: 1e6 })")
    editor.fake.pays = {0: " to the"}
    editor.put(BEFORE)
    editor.wait(lambda: editor.ghost() == " to the", "the row")
    editor.fake.pays = {}
    editor.press("Tab")
    editor.wait(lambda: judged() == [1, 1], "the outcome")
    offset = editor.page.evaluate("polydraft.pace.offset")
    assert 0.1 < offset < 0.5
    editor.write("x")
    editor.wait(lambda: editor.fake.requests[-1]["show"]["offset"] == offset, "the offset")
    editor.page.get_by_role("tab", name="My writing").click()
    expect(editor.page.locator(".ps-numbers")).to_contain_text("1 of 1")
    editor.page.locator(".ps-reset-numbers").click()
    editor.wait(lambda: judged() == [0, 0], "the outcome")


def test_time_saved_this_week_is_shown_and_lost_time_offers_drafts_on_demand(editor: Editor) -> None:
    line = editor.page.locator(".pd-time")
    button = line.get_by_role("button")
    editor.page.evaluate("polydraft.pace.save(240_000)")
    expect(line).to_contain_text("about 4 min saved this week (estimated)")
    expect(button).to_be_hidden()
    editor.page.evaluate("polydraft.pace.save(-370_000)")
    expect(line).to_contain_text("about 2 min lost this week (estimated)")
    button.click()
    assert editor.page.evaluate("polydraft.showing.when") == "demand"


# ---------------------------------------------------------------- rows that correct a slip

TYPED = "She wrote a long lettwr"
LETTER = "er to her mother"


@pytest.fixture
def slip(editor: Editor) -> Editor:
    """An editor where rows correct slips."""
    editor.fake.script = {"lettwr": (LETTER,), "letter": (" to her mother",), "saw teh ": ("he lamp",), "": ()}
    editor.fake.replaces = {LETTER: 2, "he lamp": 3}
    return editor


def shown_before(slip: Editor) -> list[str]:
    """What the row shows before its own text: the struck word, and the letters of it that stay."""
    return slip.page.locator(".pd-option-row:not(.pd-empty) .pd-draft").evaluate_all(
        "rows => rows.map((row) => [row, row.firstElementChild]"
        ".map((one) => getComputedStyle(one, '::before').content.replace(/^none$|\"/g, '')).join('|'))"
    )


def typed(slip: Editor, text: str, *drafts: str) -> None:
    slip.enter(text)
    slip.wait_for_drafts(*drafts)


WHOLE = "() => polydraft.drafts.request === null ? polydraft.view.best(performance.now())?.text : ''"


def take(slip: Editor, draft: str) -> None:
    """Presses Tab once no answer is on its way, and the whole draft has been shown for as long as Tab demands."""
    slip.wait(lambda: slip.page.evaluate(WHOLE) == draft, "the whole draft")
    slip.press("Tab")


def test_a_row_strikes_the_word_out_tab_replaces_its_letters_in_one_step_of_undo_and_they_count_as_saved_keys(
    slip: Editor,
) -> None:
    for when, text in (("always", TYPED), ("time", f"Then {TYPED}")):
        choose(slip, when)
        typed(slip, text, LETTER)
        assert slip.fake.requests[-1]["corrects"] is True
        assert shown_before(slip) == ["lettwr|lett"]
        struck = slip.page.locator(".pd-draft[data-struck]")
        assert "line-through" in struck.evaluate("row => getComputedStyle(row, '::before').textDecorationLine")
        expect(slip.options.first).to_have_attribute(
            "title", "In place of “lettwr”. The whole draft: 1%; each word computed on its own"
        )
        assert slip.ghost() == ""  # it could not strike letters out
        take(slip, LETTER)
        slip.wait(lambda text=text: slip.text == text.removesuffix("wr") + LETTER)
        slip.press("Control+z")
        slip.wait(lambda text=text: slip.text == text)

    clear(slip)
    choose(slip, "always")
    typed(slip, f"Now {TYPED}", LETTER)
    looks = slip.page.evaluate("polydraft.pace.numbers.weeks = {}, polydraft.counters.newRows")
    take(slip, LETTER)
    slip.wait(lambda: slip.text == f"Now {TYPED}".removesuffix("wr") + LETTER)
    # Both at once: the rows after the taking may appear at any moment.
    weeks, looked = slip.page.evaluate("[polydraft.pace.numbers.weeks, polydraft.counters.newRows]")
    assert list(weeks.values()) == [pytest.approx((len(LETTER) + 2) * 157 - 700 - 50 * (looked - looks))]


def test_a_row_that_corrects_lasts_until_the_next_key_is_never_kept_and_keeps_its_length_while_drafts_grow(
    slip: Editor,
) -> None:
    typed(slip, TYPED, LETTER)
    slip.settle()
    assert all(not request.get("kept") for request in slip.fake.requests)
    slip.write("x")
    slip.wait(lambda: LETTER not in slip.drafts())
    slip.press("Tab")
    assert slip.text.startswith(f"{TYPED}x")

    clear(slip)
    slip.fake.ends_after = 3  # words, until the pause
    slip.page.evaluate("polydraft.showing.choose('always')")
    typed(slip, f"Then {TYPED}", "er to her")
    slip.page.evaluate(
        "window.texts = []; new MutationObserver(() => texts.push(polydraft.rows.all[0].rest))"
        ".observe(document.querySelector('.pd-list'), { subtree: true, childList: true, attributes: true })"
    )
    slip.wait_for_drafts(LETTER)
    assert slip.fake.requests[-1]["grow"] is True
    shown = slip.page.evaluate("texts")
    assert LETTER in shown
    assert all(text.startswith("er to her") for text in shown)


def test_a_finished_word_is_corrected_of_a_correction_one_word_is_taken_and_rows_beside_it_keep_their_ghost(
    slip: Editor,
) -> None:
    typed(slip, "I saw teh ", "he lamp")
    assert shown_before(slip) == ["teh|t"]
    slip.press("Tab")
    slip.wait(lambda: slip.text == "I saw the lamp")
    typed(slip, TYPED, LETTER)
    slip.press("Control+ArrowRight")
    slip.wait(lambda: slip.text == "She wrote a long letter")
    slip.wait_for_drafts(" to her mother")
    assert shown_before(slip) == ["|"]
    slip.press("Tab")
    slip.wait(lambda: slip.text == "She wrote a long letter to her mother")

    clear(slip)
    slip.fake.script = {"lettwr": (" in haste", LETTER)}
    typed(slip, f"Then {TYPED}", " in haste", LETTER)
    assert shown_before(slip) == ["|", "lettwr|lett"]
    assert slip.ghost() == " in haste"
    slip.press("Alt+ArrowDown")
    slip.wait(lambda: slip.ghost() == "")
    take(slip, LETTER)
    slip.wait(lambda: slip.text == "Then She wrote a long letter to her mother")


def test_a_text_in_another_language_has_drafts_on_request_alone_and_a_line_says_so_once(editor: Editor) -> None:
    editor.fake.foreign = True
    toast = editor.page.locator(".pd-toast")
    editor.enter("Sie ging ")
    expect(toast).to_contain_text("This model writes English")
    editor.page.evaluate("document.querySelector('.pd-toast').hidden = true")
    editor.write("nach ")
    editor.page.wait_for_timeout(300)
    expect(toast).to_be_hidden()
    assert editor.drafts() == []
    editor.press("Alt+ArrowDown")
    editor.page.wait_for_function("document.querySelector('.pd-option-row:not(.pd-empty) .pd-draft')")
