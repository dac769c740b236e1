"""The app as it is shipped, from `polydraft` to the drafts in real Chromium, on the default model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
from playwright.sync_api import BrowserContext, FilePayload, Page, expect
from typer.testing import CliRunner

from app.cli import main as cli
from app.web.page import EXAMPLES
from core.autocomplete import Autocomplete
from tests.app.static.editor.editor_page import Editor
from tests.fake_drafts import FakeDrafts
from tests.paths import ROOT
from tests.running_app import RunningApp, free_port

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

TEXT = "I am looking forward to the meeting, and I hope that we can"

# `polydraft` under an audit hook that records every requested address beyond this machine. Only the commands `models
# get` and `ngram build` with a URL connect to another machine, and the app uses neither.
WATCHED = "import sys, tests.outside; from app.cli.main import main; sys.argv = {!r}; main()"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    folder = tmp_path_factory.mktemp("data")
    # A separate folder of personal stores; HOME for a Mac, where platformdirs reads no XDG variable.
    folders = {"XDG_DATA_HOME": str(folder), **({"HOME": str(folder)} if sys.platform == "darwin" else {})}
    code = WATCHED.format(["polydraft", "--no-browser", "--port", str(free_port())])
    app = RunningApp.start("-c", code, environment=folders | {"PYTHONPATH": str(ROOT)})
    yield app
    assert app.close() == "", "nothing goes out, and nothing goes wrong"


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def wait_until_done(editor: Editor) -> list[str]:
    """Drafts for the text as it stands, complete."""
    editor.settle()
    editor.wait(lambda: editor.drafts() and editor.page.evaluate("polydraft.drafts.request === null"), "all drafts")
    return editor.drafts()


def test_three_drafts_appear_tab_takes_the_best_and_half_a_word_is_finished(page: Page, app: RunningApp) -> None:
    editor = Editor(page, FakeDrafts())
    hosts = editor.watch_hosts()
    editor.open(app.url)
    editor.enter(TEXT)
    drafts = wait_until_done(editor)
    assert len(drafts) == len(set(drafts)) == 3
    assert all(draft.startswith(" ") and "\ufffd" not in draft for draft in drafts)
    best = editor.ghost()
    assert best in drafts  # rows keep their places while one types, so it may be any of them
    editor.press("Tab")
    assert editor.text == TEXT + best
    editor.press("Control+z")
    assert editor.text == TEXT
    editor.put("")
    editor.enter("The weather tomorrow will be beauti")
    best = wait_until_done(editor)[0]
    assert best.startswith("ful")
    editor.write("ful")
    assert any(draft.startswith(best.removeprefix("ful")) for draft in wait_until_done(editor)), "typed along"
    assert editor.errors == []
    assert hosts == {app.host}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_empty_page_have_good_drafts(
    example: str, autocomplete: Autocomplete, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.autocomplete.load_autocomplete", lambda *_, **__: autocomplete)
    result = CliRunner().invoke(cli.app, ["complete", example, "--json"])
    drafts = json.loads(result.stdout)["drafts"]
    assert len(drafts) == 3
    chances = [draft["probability"] for draft in drafts]
    assert max(chances) >= 0.25 and sum(chances) >= 0.4, drafts
    for draft in drafts:
        words = re.findall(r"[\w’']+", draft["text"].lower())
        assert words and all(one != next for one, next in pairwise(words)), "no word is said twice"
    assert len({draft["text"].strip(" .,!?") for draft in drafts}) == 3, "no row repeats another"


def test_a_dropped_letter_shapes_the_very_next_drafts_and_is_forgotten_and_a_paragraph_is_learned(
    page: Page, app: RunningApp
) -> None:
    before = "I remain, yours ever, Wilhelmina"
    editor = Editor(page, FakeDrafts()).open(app.url)
    editor.enter(before)
    assert not any("Feather" in draft for draft in wait_until_done(editor))
    page.get_by_role("tab", name="My writing").click()
    letter = FilePayload(
        name="letter.txt", mimeType="", buffer=b"Yours ever, Wilhelmina Featherstonehaugh of Piddlington."
    )
    page.get_by_label("Files to add").set_input_files([letter])
    expect(page.locator(".ps-report")).to_contain_text(re.compile(r"Added 1 file .* to me\."))
    page.get_by_role("tab", name="Write").click()
    editor.box.focus()
    editor.wait(lambda: any("Feather" in draft for draft in editor.drafts()), "the name from the letter")
    expect(page.locator(".pd-list .pd-mine").first).to_contain_text("Feather")

    page.get_by_role("tab", name="My writing").click()
    page.locator("summary", has_text="source").click()
    page.get_by_role("button", name="Forget letter.txt").click()
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(page.locator(".ps-report")).to_contain_text("Forgot letter.txt")
    page.get_by_role("tab", name="Write").click()
    editor.wait(lambda: editor.drafts() and not any("Feather" in draft for draft in editor.drafts()), "it to be gone")

    page.get_by_role("tab", name="My writing").click()
    page.get_by_role("textbox", name="New collection").fill("learner")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("switch", name="learner: learn as I write").check()
    expect(page.locator(".pd-learns")).to_have_text("Learning into learner")
    page.get_by_role("tab", name="Write").click()
    editor.put("")
    editor.box.focus()
    editor.enter("Kindly forward the Zanzibar ledger to Mortimer.\n")
    page.keyboard.insert_text("Kindly forward the Zan")
    editor.write("z")
    editor.wait(lambda: any("ibar ledger" in draft for draft in editor.drafts()), "the paragraph to come again")
    assert editor.errors == []
