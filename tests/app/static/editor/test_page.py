"""Where one writes, end to end: real Chromium against a real server whose drafts are scripted."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, expect

from tests.app.static.editor.editor_page import BEFORE, ENOUGH, HEBREW, PARAGRAPH, Editor
from tests.fake_drafts import HOME, MARKET, RIVER, FakeDrafts, Server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

# ---------------------------------------------------------------- drafts on the page


def test_typing_brings_a_ghost_and_numbered_drafts_whose_common_beginnings_are_drawn_once(drafting: Editor) -> None:
    assert drafting.ghost() == MARKET
    expect(drafting.options).to_have_count(3)
    assert drafting.page.locator(".pd-number").all_text_contents() == ["1", "2", "3"]
    assert drafting.page.locator(".pd-chance").all_text_contents() == ["40%", "20%", "13%"]
    expect(drafting.options.first).to_have_attribute("title", "The whole draft: 1%; each word computed on its own")
    assert drafting.text == BEFORE
    own = drafting.page.locator(".pd-option-row .pd-own").all_text_contents()
    assert own == [MARKET, " river with a lantern", HOME]
    hidden = drafting.page.locator(".pd-forks .pd-common")
    assert hidden.all_text_contents() == [" to the"]
    assert hidden.evaluate("e => getComputedStyle(e).color") == "rgba(0, 0, 0, 0)"


def test_an_example_starts_with_one_click_and_an_unfinished_word_is_finished_exactly(editor: Editor) -> None:
    example = editor.page.locator(".pd-invite button").first
    text = str(example.text_content())
    editor.fake.script = {text: (MARKET, RIVER, HOME)}
    example.click()
    assert editor.text == text
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    expect(example).to_be_hidden()
    editor.write("hello")
    assert editor.text.endswith(" hello")

    editor.enter("I am wri")
    editor.wait_for_drafts("ting a long letter", "tten in a hurry", "ter of short stories")
    stem = editor.page.locator(".pd-draft").first.evaluate(
        "e => [getComputedStyle(e, '::before').content, e.dataset.stem]"
    )
    assert stem in (['"wri"', "wri"], ["attr(data-stem)", "wri"])  # shown, but not part of the inserted text
    editor.press("Tab")
    assert editor.text == "I am writing a long letter"


# ---------------------------------------------------------------- keys, mouse, touch


def undo(drafting: Editor) -> None:
    """Back to the text that `drafting` begins with; its drafts are shown again."""
    drafting.press("Control+z")
    assert drafting.text == BEFORE
    drafting.wait_for_drafts(MARKET, RIVER, HOME)


def begin_again(drafting: Editor) -> None:
    """The text and the drafts that `drafting` begins with, in an empty page's place."""
    drafting.put("")
    drafting.wait(lambda: drafting.drafts() == [], "no drafts")
    drafting.enter(BEFORE)
    drafting.wait_for_drafts(MARKET, RIVER, HOME)


def test_tab_takes_the_best_alt_and_arrows_or_a_digit_another_or_its_first_word_each_in_one_step_of_undo_and_redo(
    drafting: Editor,
) -> None:
    drafting.press("Tab")
    assert drafting.text == BEFORE + MARKET
    expect(drafting.box).to_be_focused()
    drafting.write("!")
    drafting.press("Control+z")
    assert drafting.text == BEFORE + MARKET
    drafting.press("Control+z")
    assert drafting.text == BEFORE
    drafting.press("Control+Shift+Z")
    assert drafting.text == BEFORE + MARKET
    undo(drafting)

    drafting.press("Alt+ArrowDown")
    assert drafting.ghost() == RIVER
    expect(drafting.box).to_have_attribute("aria-activedescendant", "pd-draft-2")
    expect(drafting.options.nth(1)).to_have_attribute("aria-selected", "true")
    drafting.press("Alt+ArrowUp", "Alt+ArrowUp")
    assert drafting.ghost() == HOME
    drafting.press("Tab")
    assert drafting.text == BEFORE + HOME
    undo(drafting)

    drafting.press("Alt+Digit7")  # there is no such draft
    assert drafting.text == BEFORE
    assert len(drafting.drafts()) == 3
    for key, taken in (
        ("Alt+Digit1", MARKET),
        ("Alt+Digit2", RIVER),
        ("Alt+Shift+Digit1", " to"),
        ("Alt+Shift+Digit3", " home"),
    ):
        drafting.press(key)
        assert drafting.text == BEFORE + taken, key
        undo(drafting)


def test_tab_leaves_the_editor_where_there_are_no_drafts_or_esc_dismissed_them_and_shift_tab_always_does(
    editor: Editor,
) -> None:
    editor.press("Tab")
    expect(editor.box).not_to_be_focused()
    editor.box.focus()
    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.press("Shift+Tab")
    expect(editor.box).not_to_be_focused()
    assert editor.text == BEFORE

    editor.reload()  # on the way through the page it takes nothing
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.box.focus()
    editor.press("Tab")
    assert editor.text == BEFORE
    editor.press("Shift+Tab")
    expect(editor.box).to_be_focused()
    editor.press("Tab")
    assert editor.text == BEFORE
    editor.press("Shift+Tab", "Alt+ArrowDown", "Alt+ArrowUp", "Tab")
    assert editor.text == BEFORE + MARKET

    undo(editor)
    editor.press("Escape")
    assert editor.drafts() == []
    assert editor.ghost() == ""
    editor.press("Alt+ArrowDown")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.press("Escape")
    editor.write(" ")
    editor.wait(lambda: len(editor.drafts()) == 3)
    editor.press("Escape", "Tab")
    assert editor.text == BEFORE + " "
    expect(editor.box).not_to_be_focused()


# ---------------------------------------------------------------- keys that the writer changes, lists and indentation


def keys(editor: Editor) -> Locator:
    editor.page.get_by_role("button", name="Keys", exact=True).click()
    return editor.page.get_by_role("dialog", name="Keys")


def change(dialog: Locator, does: str) -> None:
    dialog.get_by_role("button", name=f"Change the key: {does}").click()


def test_each_action_can_have_another_key_conflicts_are_named_and_after_ten_takes_the_line_of_keys_is_short(
    drafting: Editor,
) -> None:
    dialog = keys(drafting)
    told = dialog.get_by_role("status")
    change(dialog, "Take the best draft")
    expect(told).to_contain_text("Esc cancels")
    drafting.press("Alt+2")
    expect(told).to_have_text("Alt+2 is “Take the draft with that number”. Change that one first.")
    drafting.press("x")  # combos.test.mjs has the others that nothing can have
    expect(told).to_contain_text("The text itself needs that key.")
    drafting.press("Control+Enter")
    expect(told).to_have_text("")
    change(dialog, "Take the draft with that number")
    drafting.press("Control+j")
    expect(told).to_contain_text("needs a digit")
    drafting.press("Control+5")
    change(dialog, "Dismiss")
    drafting.page.get_by_role("button", name="Cancel", exact=True).click()
    dialog.get_by_role("button", name="Close").click()

    hints = drafting.page.locator(".pd-hints")
    expect(hints).to_contain_text(re.compile("Ctrl Enter take.*Ctrl 1…9 that one"))
    expect(hints).to_contain_text("dismiss")
    expect(drafting.box).to_be_focused()
    assert drafting.caret() == len(BEFORE)
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    drafting.press("Alt+2")
    assert drafting.text == BEFORE
    drafting.press("Control+2")
    assert drafting.text == BEFORE + RIVER
    drafting.press("Control+z")
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    drafting.read()
    drafting.press("Control+Enter")
    assert drafting.text == BEFORE + MARKET

    drafting.page.evaluate(
        """for (let n = 0; n < 10; n++) {
            const taken = new CustomEvent('pd-taken', {detail: {before: '', text: ''}});
            document.querySelector('#pd').dispatchEvent(taken);
        }"""
    )
    expect(hints.locator(".pd-few")).to_have_text("Ctrl Enter · Ctrl 1…9 · ?")
    drafting.reload()  # all of it is kept; the usual keys come back
    expect(hints.locator(".pd-few")).to_have_text("Ctrl Enter · Ctrl 1…9 · ?")
    hints.get_by_text("?").click()
    best = dialog.get_by_text("Take the best draft").locator("xpath=../..")
    expect(best).to_contain_text("Ctrl Enter")
    dialog.get_by_role("button", name="Usual keys").click()
    expect(best).to_contain_text("Tab")
    expect(hints.locator(".pd-few")).to_have_text("Tab · Alt 1…9 · ?")
    drafting.press("Escape")
    expect(dialog).to_be_hidden()
    expect(drafting.box).to_be_focused()


def test_enter_goes_on_with_lists_and_tab_takes_the_draft_of_an_empty_line_and_indents_it_where_there_is_none(
    editor: Editor,
) -> None:
    editor.put("9. eggs")
    editor.press("Enter")
    editor.write("milk")
    assert editor.text == "9. eggs\n10. milk"
    editor.put("- eggs")
    editor.press("Enter", "Enter")
    assert editor.text == "- eggs\n"
    editor.write("So")
    editor.press("Enter")
    assert editor.text == "- eggs\nSo\n"

    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.press("Enter")
    editor.wait_for_drafts(*(text.lstrip() for text in (MARKET, RIVER, HOME)))
    editor.press("Tab")
    assert editor.text == BEFORE + "\n" + MARKET.lstrip()
    editor.press("Enter")
    editor.page.keyboard.press("Tab")  # before any draft could be read there
    assert editor.text == BEFORE + "\n" + MARKET.lstrip() + "\n\t"
    editor.fake.script = {"\n": ()}
    editor.press("Enter")
    editor.rest()
    editor.press("Tab")
    assert editor.text.endswith("\n\t\n\t")
    editor.press("Enter", "Escape", "Tab")  # no trap for who moves by keyboard
    expect(editor.box).not_to_be_focused()


# ---------------------------------------------------------------- no key changes text by accident


def test_moving_through_a_text_and_selecting_write_nothing_and_a_key_takes_a_draft_only_where_it_was_made(
    drafting: Editor,
) -> None:
    drafting.press("Shift+ArrowLeft")
    drafting.wait(lambda: drafting.drafts() == [])  # a selection has none
    drafting.press("ArrowRight")
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    drafting.press("ArrowLeft")
    assert drafting.caret() == len(BEFORE) - 1
    drafting.press("Home")
    for _ in BEFORE.split():
        drafting.press("Control+ArrowRight")
        at_end = drafting.caret() == len(BEFORE)
        if at_end:
            drafting.wait_for_drafts(MARKET, RIVER, HOME)
        else:
            drafting.page.wait_for_timeout(400)
            assert drafting.drafts() == []
        assert drafting.text == BEFORE
    assert at_end

    for key in ("Control+ArrowRight", "Alt+Digit2", "Tab"):
        drafting.press("Home", "ArrowRight", key)
        assert drafting.text == BEFORE, key
        drafting.box.focus()
        drafting.press("End")
        drafting.wait_for_drafts(MARKET, RIVER, HOME)
        # Not even where the page has heard of no move yet.
        press_elsewhere(drafting, key)
        assert drafting.text == BEFORE, key
    drafting.press("End")
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    press_elsewhere(drafting, "Alt+ArrowDown")
    drafting.wait(lambda: drafting.fake.requests[-1]["before"] == BEFORE[:3], "a request for the new place")
    drafting.wait(lambda: len(drafting.drafts()) == 3)


def press_elsewhere(drafting: Editor, key: str) -> None:
    """Move the caret and press a key within one task of the page."""
    drafting.box.evaluate(
        """(box, code) => {
            box.setSelectionRange(3, 3);
            const [alt, shift, ctrl] = ['Alt', 'Shift', 'Control'].map((name) => code.includes(name));
            const key = code.split('+').at(-1);
            const held = { altKey: alt, shiftKey: shift, ctrlKey: ctrl };
            const init = { key, code: key, ...held, bubbles: true, cancelable: true };
            box.dispatchEvent(new KeyboardEvent('keydown', init));
        }""",
        key,
    )


def test_drafts_come_by_themselves_where_one_writes_only_and_in_the_middle_leave_what_follows_alone(
    editor: Editor,
) -> None:
    text = f"{BEFORE}, and so on.\n{BEFORE}"
    for caret, come in ((4, False), (len(BEFORE), False), (text.index("\n"), True), (len(text), True)):
        editor.put(text, caret)
        editor.wait(lambda caret=caret: editor.page.evaluate("polydraft.field.caret") == caret, "the caret's move")
        if come:
            editor.wait(lambda caret=caret: editor.fake.requests[-1]["before"] == text[:caret], "the request")
            editor.wait(lambda: editor.ghost() and editor.page.evaluate("polydraft.drafts.request === null"), "drafts")
        else:
            editor.page.wait_for_timeout(400)
        assert bool(editor.ghost()) == come, caret
        assert bool(editor.drafts()) == (caret == len(text)), caret  # a list would cover the lines below

    editor.put(f"{BEFORE}. The end.", len(BEFORE))
    editor.press("Alt+ArrowDown")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    assert editor.fake.requests[-1]["before"] == BEFORE
    editor.press("Alt+Digit2")
    assert editor.text == f"{BEFORE}{RIVER}. The end."
    assert editor.caret() == len(BEFORE + RIVER)


# ---------------------------------------------------------------- a word of any draft, other rows


def word_of(editor: Editor, row: int, word: str) -> tuple[float, float]:
    """The position of a word of a draft on the screen."""
    x, y = editor.page.evaluate(
        """([row, word]) => {
            const texts = document.createTreeWalker(
                document.querySelectorAll('.pd-draft')[row], NodeFilter.SHOW_TEXT);
            for (let node = texts.nextNode(); node; node = texts.nextNode()) {
                const at = node.data.indexOf(word);
                if (at < 0) continue;
                const range = document.createRange();
                range.setStart(node, at);
                range.setEnd(node, at + word.length);
                const box = range.getBoundingClientRect();
                return [box.left + box.width / 2, box.top + box.height / 2];
            }
        }""",
        [row, word],
    )
    return x, y


@pytest.mark.chromium("the clipboard")
def test_a_click_takes_a_draft_or_its_words_up_to_one_where_it_was_made_and_keeps_the_focus_or_copies_the_text(
    drafting: Editor,
) -> None:
    drafting.page.evaluate(
        """() => {
            document.querySelector('#pd-text').setSelectionRange(3, 3);
            document.querySelector('#pd-draft-2').click();
        }"""
    )
    assert drafting.text == BEFORE
    drafting.press("End")
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    drafting.read()
    drafting.options.nth(1).locator(".pd-number").click()
    assert drafting.text == BEFORE + RIVER
    expect(drafting.box).to_be_focused()
    undo(drafting)
    drafting.read()
    drafting.page.mouse.click(*word_of(drafting, 0, "market"))
    assert drafting.text == BEFORE + " to the market"
    expect(drafting.box).to_be_focused()

    drafting.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    drafting.page.get_by_role("button", name="Copy").click()
    expect(drafting.page.get_by_text("Copied.")).to_be_visible()
    assert drafting.page.evaluate("navigator.clipboard.readText()") == BEFORE + " to the market"


@pytest.mark.chromium("a touch screen")
def test_a_phone_is_told_to_tap_a_tap_takes_a_draft_or_its_words_up_to_one_and_words_that_android_composes_get_drafts(
    browser: Browser, server: Server, fake: FakeDrafts
) -> None:
    agent = "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36"
    phone = browser.new_context(
        user_agent=agent, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    with phone as context:
        editor = Editor(context.new_page(), fake).open(server.url)
        told = "Start writing. Tap a word to take the draft up to it."
        expect(editor.box).to_have_attribute("placeholder", told)
        editor.enter(BEFORE)
        editor.wait_for_drafts(MARKET, RIVER, HOME)
        assert all(box["height"] >= 44 for box in map(Locator.bounding_box, editor.options.all()) if box)
        editor.read()
        editor.options.nth(2).locator(".pd-number").tap()
        assert editor.text == BEFORE + HOME
        editor.box.focus()
        editor.enter(BEFORE)
        editor.wait_for_drafts(MARKET, RIVER, HOME)
        editor.read()
        editor.page.touchscreen.tap(*word_of(editor, 2, "before"))
        assert editor.text == BEFORE + " home before"

        editor.put("")
        editor.wait(lambda: editor.drafts() == [])
        editor.box.focus()
        client = context.new_cdp_session(editor.page)
        for text in ("w", "we", "wen", "went"):
            client.send(
                "Input.imeSetComposition", {"text": text, "selectionStart": len(text), "selectionEnd": len(text)}
            )
        editor.wait_for_drafts(MARKET, RIVER, HOME)
        editor.read()
        editor.options.nth(1).locator(".pd-number").click()
        assert editor.text == "went" + RIVER


def test_alt_left_goes_back_to_where_drafts_were_taken_alt_right_returns_and_nothing_is_changed_unless_one_is_taken(
    drafting: Editor,
) -> None:
    drafting.press("Tab")
    drafting.wait(lambda: len(drafting.drafts()) == 3 and drafting.page.evaluate("polydraft.drafts.request === null"))
    second = drafting.drafts()
    drafting.press("Alt+Digit2")
    text = drafting.text
    drafting.press("Alt+ArrowLeft")
    assert drafting.drafts() == second
    drafting.press("Alt+ArrowLeft")
    assert drafting.drafts() == [MARKET, RIVER, HOME]
    drafting.press("Alt+ArrowLeft")  # no further, and not out of the page
    drafting.press("Alt+ArrowRight", "Alt+ArrowRight")
    assert drafting.text == text
    assert drafting.caret() == len(text)

    begin_again(drafting)
    drafting.press("Tab")
    drafting.write(" and then")
    drafting.press("Alt+ArrowLeft")
    assert drafting.drafts() == [MARKET, RIVER, HOME]
    assert drafting.text == BEFORE + MARKET + " and then"
    assert drafting.box.evaluate("box => box.value.slice(box.selectionStart, box.selectionEnd)") == MARKET
    drafting.press("Alt+Digit3")
    assert drafting.text == BEFORE + HOME + " and then"
    drafting.press("Control+z")
    assert drafting.text == BEFORE + MARKET + " and then"


# ---------------------------------------------------------------- the text of rows


def test_in_the_middle_of_a_text_drafts_are_a_ghost_until_they_are_requested_or_the_pointer_moves(
    editor: Editor,
) -> None:
    editor.put((PARAGRAPH + "\n") * 3, 30)
    editor.write("n")
    editor.wait(lambda: editor.ghost() != "")
    assert editor.fake.requests[-1]["unasked"]
    assert editor.drafts() == []
    editor.press("Alt+Digit2")  # a row that nobody sees is not taken
    assert editor.text.count(RIVER) == 0
    editor.press("ArrowLeft")
    editor.wait(lambda: editor.ghost() == "")
    editor.press("ArrowRight")  # back at the word that is half typed
    editor.wait(lambda: editor.ghost() != "")
    editor.press("Alt+ArrowDown")
    editor.wait(lambda: len(editor.drafts()) == 3)  # known rows, before the request has arrived
    editor.wait(lambda: "unasked" not in editor.fake.requests[-1])
    editor.write("x")
    editor.wait(lambda: editor.drafts() == [])

    editor.put(PARAGRAPH, 20)
    editor.write(" n")
    editor.wait(lambda: editor.ghost() != "" and editor.page.evaluate("polydraft.drafts.request === null"))
    editor.page.mouse.move(500, 100)
    editor.page.mouse.move(510, 102)
    editor.wait(lambda: editor.ghost() == "")  # the text after the caret is back in its place, and can be clicked


def test_the_list_in_the_middle_of_a_text_pushes_down_the_lines_below_and_is_not_shown_empty(editor: Editor) -> None:
    for caret in (30, 3000, 5900):
        editor.put((PARAGRAPH + "\n") * 30, caret)
        editor.press("Alt+ArrowDown")
        assert_lines_around_the_list(editor)
    editor.page.mouse.click(500, 110)  # closes the list, and does no more: the text is not where it is drawn
    editor.wait(lambda: editor.drafts() == [])
    assert editor.caret() == 5900
    editor.fake.script = {"x": ()}
    editor.put("One x and two.", 5)
    editor.press("Alt+ArrowDown")
    editor.wait(lambda: editor.fake.requests[-1]["before"] == "One x", "the request")
    editor.rest()
    expect(editor.page.locator(".pd-list")).to_be_hidden()
    expect(editor.page.locator(".pd-floating")).to_have_count(0)


def assert_lines_around_the_list(editor: Editor) -> None:
    editor.wait(lambda: editor.drafts() and editor.page.evaluate("polydraft.drafts.request === null"))
    lines, top, bottom, desk = editor.page.evaluate(
        """() => {
            const lines = (node) => {
                const range = document.createRange();
                range.selectNodeContents(node);
                return [...range.getClientRects()].map(({ top, bottom }) => [top, bottom]);
            };
            const ghost = document.querySelector('.pd-ghost-block');
            const box = document.querySelector('.pd-below').getBoundingClientRect();
            const shown = [...ghost.firstElementChild.children, ghost.lastElementChild].flatMap(lines);
            return [shown, box.top, box.bottom,
                document.querySelector('.pd-desk').getBoundingClientRect().bottom];
        }"""
    )
    above, below = (
        [line for line in lines if inside(line)] for inside in (lambda b: b[1] <= top + 6, lambda b: b[0] >= bottom - 6)
    )
    assert len(above) + len(below) == len(lines), (lines, top, bottom)
    assert above
    assert min(line[0] for line in below) - bottom < 40
    assert bottom <= desk + 1


# ---------------------------------------------------------------- typing along, requests


def test_typing_along_trims_the_drafts_before_any_answer_and_if_the_writer_wants_it_without_a_request(
    drafting: Editor,
) -> None:
    drafting.fake.step_s = 9
    for typed in " to the market an":
        drafting.write(typed)
        assert drafting.ghost() == (BEFORE + MARKET)[len(drafting.text) :]
    assert drafting.drafts() == ["d bought some bread"]
    assert len(drafting.counters()["alongMs"]) >= len(" to the market an")
    drafting.press(*["Backspace"] * len(" to the market an"))
    assert drafting.drafts() == [MARKET, RIVER, HOME]
    assert drafting.page.evaluate("polydraft.drafts.request") is None

    # If not every key sends a request, neither words of a draft nor its letters do until a pause.
    drafting.fake.step_s = 0.004
    drafting.ask_only_where_nothing_agrees()
    drafting.settle()
    asked = len(drafting.fake.requests)
    drafting.press("Control+ArrowRight")
    assert drafting.text == BEFORE + " to"
    assert drafting.ghost() == " the market and bought some bread"
    drafting.press("Control+ArrowRight", "Control+ArrowRight")
    assert drafting.text == BEFORE + " to the market"
    assert drafting.ghost() == " and bought some bread"
    drafting.settle()
    assert len(drafting.fake.requests) == asked
    drafting.write(" and")
    assert drafting.ghost() == " bought some bread"
    drafting.wait(
        lambda: drafting.fake.requests[-1]["before"] == BEFORE + " to the market and", "the request at a pause"
    )


def test_two_tabs_do_not_disturb_each_other_and_a_closed_one_notifies_the_server(
    context: BrowserContext, server: Server, fake: FakeDrafts
) -> None:
    fake.step_s = 0.05
    one = Editor(context.new_page(), fake).open(server.url)
    two = Editor(context.new_page(), fake).open(server.url)
    one.enter("The first")
    two.enter("The second")
    one.wait_for_drafts(MARKET, RIVER, HOME)
    two.wait_for_drafts(MARKET, RIVER, HOME)
    tabs = [{sent["tab"] for sent in fake.requests if sent["before"] == each.text} for each in (one, two)]
    assert [len(tab) for tab in tabs] == [1, 1]
    assert len({request["tab"] for request in fake.requests}) == 2
    assert (one.text, two.text) == ("The first", "The second")

    two.page.close(run_before_unload=True)
    deadline = time.monotonic() + ENOUGH / 1000
    while not tabs[1] <= set(fake.left) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert tabs[1] <= set(fake.left)
    assert not tabs[0] & set(fake.left)
    assert one.errors == two.errors == []


# ---------------------------------------------------------------- the caret anywhere


def test_the_ghost_stays_in_sight_at_the_end_of_a_long_text_and_is_whole_just_after_a_move_of_the_caret(
    editor: Editor,
) -> None:
    editor.enter("A line.\n" * 200 + BEFORE)
    editor.wait(lambda: editor.ghost() == MARKET)
    sheet = editor.page.locator(".pd-sheet").bounding_box()
    ghost = editor.page.locator(".pd-ghost-text").bounding_box()
    assert sheet
    assert ghost
    assert ghost["y"] >= sheet["y"]
    assert ghost["y"] + ghost["height"] <= sheet["y"] + sheet["height"] + 1

    # The request that a move sends a moment later does not replace drafts that have been asked for.
    editor.fake.step_s, editor.fake.script = 0.06, {"days.\n": (MARKET,)}
    editor.put(f"{PARAGRAPH}\n\n{PARAGRAPH}", len(PARAGRAPH) + 1)
    editor.page.wait_for_timeout(30)  # the move has been noticed
    editor.press("Alt+ArrowDown")
    editor.wait(lambda: editor.ghost().strip() == MARKET.strip(), "the whole draft")


def test_remembered_places_are_right_after_any_edit(editor: Editor) -> None:
    """The caret's place, measured from cached values, equals a full measurement."""
    wrong, remembered = editor.page.evaluate(
        """async ([paragraph, hebrew]) => {
            const { CaretMap } = await import('/page/editor/caret.js');
            const { map, textarea } = polydraft;
            const mirror = map.mirror.cloneNode();
            map.mirror.after(mirror);
            let seed = 7;
            const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
            const pieces = [' ', ' ', 'a', 'word ', '-', 'two-part', paragraph, '\\t', '😀', hebrew, '\\n'];
            let text = `${paragraph.repeat(30)}\\n${hebrew}\\n${paragraph.repeat(30)}`;
            const wrong = [];
            let remembered = 0;
            let caret = text.length;
            for (let i = 0; i < 250; i++) {
                if (random(3) === 0) caret = Math.max(0, Math.min(text.length, caret + random(200) - 100));
                if (random(50) === 0) caret = random(text.length + 1);
                const cut = random(3) === 0 ? Math.min(caret, random(60)) : 0;
                const piece = cut ? '' : pieces[random(random(20) ? 6 : pieces.length)];
                text = text.slice(0, caret - cut) + piece + text.slice(caret);
                caret += piece.length - cut;
                remembered += map.line !== null;
                const place = map.locate(text, caret);
                const fresh = new CaretMap(textarea, mirror).locate(text, caret);
                if (JSON.stringify(place) !== JSON.stringify(fresh)) wrong.push([i, caret, place, fresh]);
            }
            return [wrong, remembered];
        }""",
        [PARAGRAPH, HEBREW],
    )
    assert wrong == []
    assert remembered > 100


# ---------------------------------------------------------------- the text after the caret


def test_the_ghost_leads_to_the_text_after_the_caret_and_drafts_that_are_asked_for_are_shown_whatever_follows(
    editor: Editor,
) -> None:
    editor.fake.gains = {0: -1.0, 1: 2.0, 2: 1.0}
    editor.put(BEFORE[:-1] + " in her hand.", len(BEFORE) - 1)
    editor.write(BEFORE[-1])
    editor.wait(lambda: editor.ghost() == RIVER)
    assert editor.fake.requests[-1]["after"] == " in her hand."
    editor.press("Alt+ArrowDown")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    assert editor.ghost() == RIVER, "rows keep their places"
    editor.wait(lambda: editor.fake.requests[-1].get("all") is True)  # the list shows the rows that are there at once
    editor.write("x")
    editor.wait(lambda: editor.fake.requests[-1]["before"] == BEFORE + "x")
    assert "all" not in editor.fake.requests[-1]


# ---------------------------------------------------------------- composition


@pytest.mark.chromium("compositions")
def test_a_composition_is_left_alone_and_its_keys_are_not_ours(drafting: Editor) -> None:
    taken = drafting.box.evaluate(
        "box => !box.dispatchEvent(new KeyboardEvent('keydown',"
        " {key: 'Tab', isComposing: true, bubbles: true, cancelable: true}))"
    )
    assert not taken
    assert drafting.text == BEFORE
    drafting.rest()
    asked = len(drafting.fake.requests)
    client = drafting.page.context.new_cdp_session(drafting.page)
    for text in ("に", "にほ", "にほん"):
        client.send("Input.imeSetComposition", {"text": text, "selectionStart": len(text), "selectionEnd": len(text)})
        assert drafting.ghost() == ""
        assert drafting.drafts() == []
    drafting.settle()
    assert len(drafting.fake.requests) == asked
    client.send("Input.insertText", {"text": "日本"})
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    assert drafting.text == BEFORE + "日本"
    assert drafting.fake.requests[-1]["before"] == BEFORE + "日本"


# ---------------------------------------------------------------- forced colours, directions


@pytest.mark.chromium("forced colours")
def test_in_forced_colours_a_draft_differs_from_typed_text_and_leaves_it_visible_and_the_open_tab_is_marked(
    editor: Editor,
) -> None:
    page = editor.page
    page.emulate_media(forced_colors="active")
    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    ghost, typed = page.locator(".pd-ghost-text"), editor.box
    colour = "e => getComputedStyle(e).color"
    assert ghost.evaluate(colour) != typed.evaluate(colour)
    assert "dotted" in ghost.evaluate("e => getComputedStyle(e).textDecoration")
    marks = page.get_by_role("tablist", name="Page").get_by_role("tab")
    assert marks.evaluate_all("tabs => tabs.map(e => getComputedStyle(e).borderBottomStyle)") == ["solid", "none"]
    page.set_viewport_size({"width": 400, "height": 700})
    editor.wait(lambda: ghost.evaluate("e => e.getClientRects().length") > 1, "a draft of two lines")
    box = editor.box.bounding_box()
    assert box is not None
    left, above = editor.box.evaluate("e => ['paddingLeft', 'paddingTop'].map(x => parseFloat(getComputedStyle(e)[x]))")
    place = {"x": box["x"] + left, "y": box["y"] + above, "width": 80.0, "height": 28.0}
    beside = page.screenshot(clip=place)  # pyright: ignore[reportArgumentType]
    editor.press("Escape")
    editor.wait(lambda: editor.ghost() == "", "the draft to go")
    assert page.screenshot(clip=place) == beside  # pyright: ignore[reportArgumentType]
    page.emulate_media(forced_colors="none")


def test_an_end_that_rows_share_is_shown_once_rows_of_right_to_left_text_are_on_the_right_side_and_marks_combine(
    editor: Editor,
) -> None:
    rows = (" to create a new world", " to launch a new world", " to sell")
    editor.fake.script = {"hoped": rows}
    editor.put("They hope")
    editor.write("d")
    editor.wait_for_drafts(*rows)
    shown = editor.page.locator(".pd-option-row .pd-own").all_text_contents()
    ends = editor.page.locator(".pd-option-row .pd-end")
    assert shown[1].strip() == "launch"
    assert ends.all_text_contents() == ["", " a new world", ""]
    assert ends.nth(1).evaluate("e => getComputedStyle(e).fontSize") == "0px"
    assert ends.nth(1).evaluate("e => getComputedStyle(e, '::after').content") == '" …"'
    editor.press("Alt+Digit2")
    assert editor.text == "They hoped to launch a new world"

    editor.fake.script = {"מכתב": (" וגם לחם", " ויין")}
    editor.enter("הוא קרא מכתב")
    editor.wait(lambda: len(editor.drafts()) == 2)
    number, draft = (
        editor.page.locator(f".pd-option-row .pd-{part}").first.bounding_box() for part in ("number", "draft")
    )
    assert number and draft
    assert number["x"] > draft["x"]
    ghost, row = editor.page.locator(".pd-ghost-line"), editor.page.locator(".pd-draft").first
    for place in (ghost, row):
        assert place.evaluate("e => getComputedStyle(e).direction") == "rtl"
    editor.page.wait_for_timeout(200)
    editor.press("Tab")
    assert editor.text == "הוא קרא מכתב וגם לחם"

    # A draft that begins with a combining mark joins the letter before it.
    editor.fake.script = {"cafe": ("\u0301 noir",)}
    editor.put("Un caf")
    editor.write("e")
    editor.wait(lambda: editor.drafts() == ["\u0301 noir"])
    editor.page.wait_for_timeout(200)
    editor.press("Control+ArrowRight")
    assert editor.text == "Un cafe\u0301"
    editor.press("Control+ArrowRight")
    assert editor.text == "Un cafe\u0301 noir"


# ---------------------------------------------------------------- hostile text

FAMILY = "👨‍👩‍👧‍👦🏳️‍🌈é̂"
HOSTILE = {
    "NUL": "nothing\x00here",
    "right to left": HEBREW,
    "emoji sequences": FAMILY * 20,
    "10,000 newlines": "\n" * 10_000 + "end",
    "control characters": "".join(map(chr, range(1, 32))).replace("\r", "") + "x",
}


def test_hostile_text_is_kept_and_drafted_from_and_half_characters_are_not_sent(editor: Editor) -> None:
    for name, text in HOSTILE.items():
        editor.put("")
        editor.put(text)
        editor.wait_for_drafts(MARKET, RIVER, HOME)
        assert editor.text == text, name
        assert text.endswith(editor.fake.requests[-1]["before"]), name
        editor.press("Tab")
        assert editor.text == text + MARKET, name
    editor.put("")
    editor.box.evaluate(
        "box => { box.value = 'half \\ud83d and \\ude00 went'; box.dispatchEvent(new Event('input', {bubbles: true})) }"
    )
    editor.wait(lambda: len(editor.drafts()) == 3)
    assert editor.fake.requests[-1]["before"] == "half \ufffd and \ufffd went"
    assert editor.box.evaluate("box => box.value.charCodeAt(5) === 0xd83d")


# ---------------------------------------------------------------- pages with a script of a test, several servers


def test_a_mac_has_its_own_keys(context: BrowserContext, server: Server, fake: FakeDrafts) -> None:
    page = context.new_page()
    page.add_init_script("Object.defineProperty(navigator, 'platform', { get: () => 'MacIntel' })")
    editor = Editor(page, fake).open(server.url)
    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    expect(editor.page.locator(".pd-hints")).to_contain_text("⌥")
    editor.read()
    editor.press("Alt+ArrowRight")
    assert editor.text == BEFORE + " to"
