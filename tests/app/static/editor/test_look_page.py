"""How the page looks and behaves at the edges: small windows, forced colours, touch, and messages beside panels."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.app.static.editor.test_page import BEFORE, Editor, editor, fake, server, shared
from tests.fake_drafts import HOME, MARKET, RIVER

__all__ = ["editor", "fake", "server", "shared"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


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


def test_the_header_is_one_line_a_large_window_begins_lower_and_a_phone_has_one_left_edge(editor: Editor) -> None:
    for width in (720, 768, 820, 900, 1280):
        editor.page.set_viewport_size({"width": width, "height": 700})
        tops = editor.page.locator(".pd-bar button:visible").evaluate_all("all => all.map(e => e.offsetHeight)")
        assert len(set(tops)) == 1, (width, tops)
        bar = editor.page.locator(".pd-bar")
        assert bar.evaluate("e => e.scrollWidth <= e.clientWidth"), width
        ends = bar.locator("button:visible").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
        assert max(ends) <= width
    top = "e => parseFloat(getComputedStyle(e).paddingTop)"
    assert editor.box.evaluate(top) < 80
    editor.page.set_viewport_size({"width": 2560, "height": 1440})
    assert editor.box.evaluate(top) > 180
    editor.page.set_viewport_size({"width": 360, "height": 740})
    edges = editor.page.evaluate(
        """() => {
            const { map, textarea } = polydraft.editor;
            const text = textarea.getBoundingClientRect().left + map.column().left;
            return [text, ...[...document.querySelectorAll('.pd-invite p, .pd-invite button')].map((e) => {
                const range = document.createRange();
                range.selectNodeContents(e);
                return range.getBoundingClientRect().left;
            })];
        }"""
    )
    assert max(edges) - min(edges) < 1.5, edges
    sizes = editor.page.locator(".pd-line :is(button, span):visible")
    assert len(set(sizes.evaluate_all("all => all.map((e) => getComputedStyle(e).fontSize)"))) == 1


def overlap(page: Page, one: str, other: str) -> bool:
    boxes = [page.locator(selector).bounding_box() for selector in (one, other)]
    a, b = (box for box in boxes if box)
    aside = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
    return not (aside or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"])


def test_a_message_covers_nothing_of_the_documents(editor: Editor) -> None:
    for width in (360, 1280):
        editor.page.set_viewport_size({"width": width, "height": 740})
        editor.page.evaluate(
            """() => {
                document.querySelector("#pd-documents").hidden = false;
                polydraft.editor.notices.toast("“A long title of a letter to the harbour” is in the bin.", {undo() {}});
            }"""
        )
        assert not overlap(editor.page, ".pd-toast", "#pd-documents"), width


def test_an_end_that_rows_share_is_shown_once_and_inserted_whole(editor: Editor) -> None:
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


def test_rows_of_right_to_left_text_are_on_the_right_side(editor: Editor) -> None:
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


def test_a_draft_that_begins_with_a_combining_mark_joins_the_letter_before_it(editor: Editor) -> None:
    editor.fake.script = {"cafe": ("\u0301 noir",)}
    editor.put("Un caf")
    editor.write("e")
    editor.wait(lambda: editor.drafts() == ["\u0301 noir"])
    editor.page.wait_for_timeout(200)
    editor.press("Control+ArrowRight")
    assert editor.text == "Un cafe\u0301"
    editor.press("Control+ArrowRight")
    assert editor.text == "Un cafe\u0301 noir"


def test_settings_close_with_esc_begin_with_a_writers_words_and_experts_find_the_order_of_making(
    editor: Editor,
) -> None:
    settings = editor.page.get_by_role("button", name="Settings")
    for inside in (True, False):
        settings.click()
        if inside:
            editor.page.get_by_role("slider").first.focus()
        else:
            editor.box.focus()
        editor.press("Escape")
        expect(settings).to_have_attribute("aria-expanded", "false")
        expect(settings if inside else editor.box).to_be_focused()
    editor.open_settings()
    first = editor.page.locator("#pd-options > .pd-option > span :is(label, #pd-models-label)")
    labels = [text.strip() for text in first.all_text_contents()]
    assert labels == ["Drafts", "How far ahead", "How sure", "Model"]
    tops = first.evaluate_all("all => all.map((e) => e.getBoundingClientRect().top)")
    assert max(tops) - min(tops) < 2, tops
    long = "A model with a long name " + 9 * "and more "
    editor.page.locator(".pd-model-name").evaluate("(e, name) => { e.textContent = name }", long)
    whole = "e => e.getBoundingClientRect().right <= e.closest('.pd-option').getBoundingClientRect().right + 12"
    assert editor.page.locator("[data-do=models]").evaluate(f"e => e.scrollWidth <= e.clientWidth && ({whole})(e)")
    editor.page.locator(".pd-model-name").evaluate("e => { e.textContent = 'Scripted' }")
    expect(editor.page.locator("output[for=pd-length]")).to_have_text("about 8 words")
    expect(editor.page.get_by_role("button", name="Model Scripted Change…")).to_be_visible()
    editor.page.get_by_role("button", name="For experts").click()
    names = editor.page.locator("#pd-more [name]").evaluate_all("all => all.map(({name}) => name)")
    order = ["temperature", "tau", "ngrams", "mixing", "alpha", "personal_weight", "distinct", "forks", "exact_steps"]
    assert [name for name in names if name in order] == order
    for name, source in (
        ("alpha", "α · Superposed Decoding, eq. 6"),
        ("tau", "τ · Superposed Decoding, appendix B"),
        ("reset_every", "s · Superposed Decoding, section 5.3"),
    ):
        expect(editor.page.locator(f"#pd-{name}-how cite")).to_have_text(source)
    assert editor.page.locator("#pd-more > .pd-option:not(:has(cite)) [name]").count() <= 1  # an option of the model
