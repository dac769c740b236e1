"""Drafts that the writer steers on the page: what is never suggested, and other drafts."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.app.static.editor.editor_page import BEFORE, Editor
from tests.fake_drafts import HOME, MARKET, OTHERS, RIVER

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture
def drafting(drafting: Editor) -> Editor:
    drafting.settle()
    return drafting


def test_alt_r_asks_for_drafts_that_begin_differently_and_alt_shift_r_goes_back(drafting: Editor) -> None:
    first, second = OTHERS[:3], OTHERS[3:]
    drafting.press("Alt+r")
    drafting.wait_for_drafts(*first)
    assert set(drafting.fake.requests[-1]["avoid"]) >= {MARKET, RIVER, HOME}
    assert "unasked" not in drafting.fake.requests[-1]
    drafting.page.get_by_role("button", name="Other drafts").click()
    drafting.wait_for_drafts(*second)
    expect(drafting.box).to_be_focused()
    asked = len(drafting.fake.requests)
    drafting.press("Alt+Shift+R")
    drafting.wait_for_drafts(*first)
    drafting.page.get_by_role("button", name="Earlier drafts").click()
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    expect(drafting.page.get_by_role("button", name="Earlier drafts")).to_be_hidden()
    drafting.press("Alt+r", "Alt+r")
    drafting.wait_for_drafts(*second)
    assert len(drafting.fake.requests) == asked, "what was shown already is not requested again"
    drafting.press("Alt+r")  # these were all
    expect(drafting.page.locator(".pd-toast")).to_have_text(re.compile("Nothing else is likely here"))
    drafting.wait_for_drafts(*second)
    drafting.press("Tab")
    assert drafting.text == BEFORE + second[0]
    drafting.wait(lambda: drafting.fake.requests[-1]["before"] == drafting.text)
    assert "avoid" not in drafting.fake.requests[-1], "another text begins anew"


def test_other_sampled_drafts_have_another_seed(drafting: Editor) -> None:
    drafting.page.evaluate("polydraftPanel.setting.set('mode', 'sampled')")
    drafting.press("Alt+r")
    drafting.wait_for_drafts(*OTHERS[:3])
    assert drafting.fake.requests[-1]["settings"]["sampling"]["seed"] == 1


def test_a_word_of_a_draft_is_never_suggested_again_from_its_menu(drafting: Editor) -> None:
    menu = drafting.page.get_by_role("menu", name="This draft")
    drafting.page.locator(".pd-option-row .pd-own", has_text="river").click(button="right", position={"x": 12, "y": 8})
    expect(menu).to_be_visible()
    assert menu.get_by_role("menuitem").all_text_contents() == [
        "Never suggest “river”",
        "Never suggest “to the river with a lantern”",
        "Never suggest…",
        "What else could stand here",
    ]
    drafting.press("ArrowDown", "ArrowUp", "Enter")
    expect(menu).to_be_hidden()
    drafting.wait(lambda: RIVER not in drafting.drafts() and len(drafting.drafts()) == 3, "drafts without it")
    assert drafting.fake.requests[-1]["never"] == ["river"]
    expect(drafting.page.locator(".pd-toast")).to_contain_text("“river” is never suggested again.")
    drafting.page.locator(".pd-toast").get_by_role("button", name="Undo").click()
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    assert "never" not in drafting.fake.requests[-1]

    drafting.press("Alt+ArrowDown", "Alt+ArrowDown", "Alt+m")
    assert menu.get_by_role("menuitem").first.text_content() == "Never suggest “home”"
    drafting.press("Escape")
    expect(menu).to_be_hidden()
    expect(drafting.box).to_be_focused()
    assert drafting.text == BEFORE


def test_the_lists_of_all_documents_and_of_this_one_are_kept_and_a_bad_line_is_named(drafting: Editor) -> None:
    drafting.press("Alt+ArrowDown", "Alt+m", "End", "ArrowUp", "Enter")  # Never suggest…
    everywhere, here = (drafting.page.get_by_label(name) for name in ("In all documents", "Also in this document"))
    expect(everywhere).to_be_focused()
    everywhere.fill("market\n*")
    alert = drafting.page.locator(".dc-never [role=alert]").first
    expect(alert).to_have_text(
        re.compile(r"In “\*” a \* does not end a word.*Until you correct this, the earlier list is used")
    )
    everywhere.fill("market\n# a remark\n")
    expect(alert).to_be_hidden()
    here.fill("hom*")
    here.blur()
    expect(drafting.page.locator(".dc-never summary small")).to_have_text("2 phrases")
    drafting.wait(lambda: drafting.fake.requests[-1].get("never") == ["market", "hom*"])
    drafting.wait_for_drafts(RIVER, *OTHERS[:2])
    drafting.settle()
    drafting.reload()
    drafting.wait(lambda: drafting.fake.requests[-1].get("never") == ["market", "hom*"])
    drafting.page.locator("[data-do=documents]").click()
    drafting.page.locator(".dc-first [data-do=new]").click()
    drafting.box.focus()
    drafting.enter("Another text")
    drafting.wait(lambda: drafting.fake.requests[-1].get("never") == ["market"], "the other document's list")
