"""The app as it is shipped, from `polydraft` to the drafts in real Chromium, on the default model."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, BrowserContext, FilePayload, Page, expect
from typer.testing import CliRunner

from app.cli import main as cli
from app.web.page import EXAMPLES
from core.autocomplete import Autocomplete
from core.models.prose import prose_of
from core.samplers.view import look
from tests.app.static.editor.test_page import HOSTILE, Editor
from tests.fake_drafts import FakeDrafts
from tests.running_app import RunningApp, free_port

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

TEXT = "I am looking forward to the meeting, and I hope that we can"

# `polydraft` under an audit hook that records every requested address beyond this machine. Only the commands `models
# get` and `ngram build` with a URL connect to another machine, and the app uses neither.
WATCHED = """
    import sys
    LOCAL = {"127.0.0.1", "::1", "localhost", None, ""}
    def watch(event, arguments):
        if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
            if arguments[1][0] not in LOCAL:
                print("OUTSIDE", event, arguments[1], flush=True)
        elif event in ("socket.getaddrinfo", "socket.gethostbyname") and arguments[0] not in LOCAL:
            print("OUTSIDE", event, arguments, flush=True)
    sys.addaudithook(watch)
    from app.cli.main import main
    sys.argv = ["polydraft", "--no-browser", "--port", PORT]
    main()
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    folder = tmp_path_factory.mktemp("data")
    # A separate folder of personal stores; HOME for a Mac, where platformdirs reads no XDG variable.
    folders = {"XDG_DATA_HOME": str(folder), **({"HOME": str(folder)} if sys.platform == "darwin" else {})}
    code = textwrap.dedent(WATCHED).replace("PORT", repr(str(free_port())))
    app = RunningApp.start("-c", code, environment=folders)
    yield app
    assert app.close() == "", "nothing goes out, and nothing goes wrong"


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def opened(page: Page, app: RunningApp) -> Editor:
    return Editor(page, FakeDrafts()).open(app.url)


def wait_until_done(editor: Editor) -> list[str]:
    """Drafts for the text as it stands, complete."""
    editor.settle()
    editor.wait(lambda: editor.drafts() and editor.page.evaluate("polydraft.editor.request === null"), "all drafts")
    return editor.drafts()


def test_three_drafts_appear_tab_takes_the_best_and_half_a_word_is_finished(page: Page, app: RunningApp) -> None:
    editor = Editor(page, FakeDrafts())
    hosts = editor.watch_hosts()
    editor.open(app.url)
    editor.write(TEXT)
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
    editor.write("The weather tomorrow will be beauti")
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


def test_the_text_survives_a_reload_and_sliders_act_on_the_next_drafts(page: Page, app: RunningApp) -> None:
    editor = opened(page, app)
    editor.put(TEXT)
    drafts = wait_until_done(editor)
    editor.reload()
    editor.box.focus()
    editor.press("Control+End")
    assert editor.text == TEXT
    assert [d.split()[0] for d in wait_until_done(editor)] == [d.split()[0] for d in drafts]
    editor.open_settings()
    page.get_by_role("slider", name="Drafts").fill("7")
    editor.wait(lambda: len(editor.drafts()) == 7, "seven drafts")
    page.get_by_role("slider", name="How far ahead").fill("2")
    longest = max(map(len, wait_until_done(editor)))
    assert longest < 40


def test_the_panels_chart_is_what_the_core_computes(page: Page, app: RunningApp, autocomplete: Autocomplete) -> None:
    model = autocomplete.model
    with_prose = Autocomplete(model, autocomplete.ngrams, prose=prose_of(model))
    with_prose.adapt([])
    session = with_prose.open()
    completion = session.complete(TEXT)
    while completion.next_logits is None:
        completion.advance(model.forward(completion.rows()))
    logits = completion.next_logits
    completion.close()
    session.close()
    model.adapt([])  # other tests have it without prose
    editor = opened(page, app)
    editor.put(TEXT)
    wait_until_done(editor)
    page.locator(".pd-sampling-button").click()
    page.get_by_role("complementary", name="Style of drafts").get_by_role("button", name="For experts").click()
    for rule, temperature in (("top-w", 1.0), ("top-n-sigma", 2.0)):
        view = look(logits, model.tokenizer, temperature, {rule: {}}, with_prose.geometries)
        page.locator("#sm-rule").select_option(rule)
        page.get_by_role("slider", name="Temperature", exact=True).fill(f"{temperature:g}")
        tokens = [token.text.replace(" ", "␣").replace("\n", "↵") for token in view.tokens]
        kept = [token for token, is_kept in zip(tokens, view.choices[0].kept, strict=True) if is_kept]
        count = f"{view.choices[0].count:,} token"
        editor.wait(
            lambda tokens=tokens, kept=kept, count=count: (
                page.locator(".sm-bars tbody th").all_text_contents() == tokens
                and page.locator(".sm-bars tr.sm-kept th").all_text_contents() == kept
                and (page.locator(".sm-summary").text_content() or "").startswith(count)
            ),
            f"the chart of {rule}",
        )
    assert editor.errors == []


def test_two_tabs_do_not_disturb_each_other_nor_does_one_that_dies_in_the_middle(
    browser: Browser, app: RunningApp
) -> None:
    texts = [TEXT, "The lighthouse keeper opened the letter and"]
    with browser.new_context() as one, browser.new_context() as two:
        both = [opened(context.new_page(), app) for context in (one, two)]

        def put(editor: Editor, text: str) -> None:
            """In one go: rows that agree with typed letters would keep their places."""
            editor.put("")
            editor.wait(lambda: not editor.drafts(), "an empty page")
            editor.put(text)

        alone = []
        for editor, text in zip(both, texts, strict=True):
            put(editor, text)
            alone.append([draft.split()[0] for draft in wait_until_done(editor)])
        for editor, text in zip(both, texts, strict=True):
            put(editor, text)
        for editor, words in zip(both, alone, strict=True):
            assert [draft.split()[0] for draft in wait_until_done(editor)] == words
        dying, other = both
        dying.open_settings()
        dying.page.get_by_role("slider", name="How far ahead").fill("32")
        dying.put("")
        dying.box.focus()
        dying.write("A text whose drafts nobody waits for")
        dying.wait(lambda: dying.page.evaluate("polydraft.editor.request !== null"), "drafts under way")
        one.close()
        put(other, TEXT)
        assert len(wait_until_done(other)) == 3


def test_hostile_text_is_drafted_from_or_let_be(page: Page, app: RunningApp) -> None:
    editor = opened(page, app)
    for name, text in HOSTILE.items():
        editor.put(text[-60:])  # the model reads a long text for seconds
        editor.settle()
        editor.wait(lambda: editor.page.evaluate("polydraft.editor.request === null"), "the answer")
        assert page.locator(".pd-notice:not([hidden])").count() == 0, name
        assert not any("\ufffd" in draft for draft in editor.drafts()), name
    editor.put(TEXT)
    assert len(wait_until_done(editor)) == 3
    assert editor.errors == []


def test_a_dropped_letter_shapes_the_very_next_drafts_and_is_forgotten_and_a_paragraph_is_learned(
    page: Page, app: RunningApp
) -> None:
    before = "I remain, yours ever, Wilhelmina"
    editor = opened(page, app)
    editor.write(before)
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
    editor.write("Kindly forward the Zanzibar ledger to Mortimer.\n")
    editor.write("Kindly forward the Zanz")
    editor.wait(lambda: any("ibar ledger" in draft for draft in editor.drafts()), "the paragraph to come again")
    assert editor.errors == []
