"""The plugin in Obsidian's editor, CodeMirror, in Chromium, with a stand-in for Obsidian's API."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page

from app.machine.token import token
from tests.editor import Drafting

HERE = Path(__file__).parent
ONE, TWO = " one" * 12, " two" * 12  # the scripted drafts
GHOST = ".polydraft-ghost"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("app") / "app.js"
    command = [str(HERE / "node_modules/.bin/esbuild"), str(HERE / "pages/app.js"), "--bundle", f"--outfile={out}"]
    subprocess.run([*command, f"--alias:obsidian={HERE / 'pages/obsidian.js'}", "--log-level=warning"], check=True)
    return out.read_text(encoding="utf-8")


def ask_outside(request: dict[str, Any]) -> dict[str, Any]:
    """Sends a request as Obsidian's own process does."""
    headers = {"Content-Type": request["contentType"], **request["headers"]}
    with httpx.Client(trust_env=False) as http:
        try:
            found = http.request(request["method"], request["url"], content=request["body"], headers=headers)
        except httpx.ConnectError:
            return {"status": 0, "text": ""}
    return {"status": found.status_code, "text": found.text}


@pytest.fixture
def opened(browser: Browser, script: str, drafting: Drafting) -> Iterator[Callable[..., Page]]:
    made: list[Page] = []
    drafting.bodies.seen.clear()

    def open_(**settings: Any) -> Page:
        page = browser.new_page()
        made.append(page)
        page.expose_function("askOutside", ask_outside)
        page.set_content("<style>body { font: 16px sans-serif; margin: 40px }</style>")
        page.add_script_tag(content=script)
        page.evaluate("(data) => start(data)", {"token": token(), "port": drafting.port, **settings})
        return page

    yield open_
    for page in made:
        page.close()


@pytest.fixture
def page(opened: Callable[..., Page]) -> Page:
    return opened()


def text(page: Page) -> str:
    return page.evaluate("text()")


def write(page: Page, words: str, shown: bool = True) -> None:
    page.keyboard.insert_text(words[:-1])
    page.keyboard.type(words[-1])
    if shown:
        page.locator(GHOST).wait_for()


def test_tab_takes_the_draft_and_one_undo_takes_it_back(page: Page) -> None:
    write(page, "Once upon")
    assert page.locator(GHOST).text_content() == ONE
    page.keyboard.press("Tab")
    assert text(page) == "Once upon" + ONE
    page.keyboard.press("Control+z")
    assert text(page) == "Once upon"


def test_a_word_at_a_time_and_letters_of_the_draft_need_no_request(page: Page, drafting: Drafting) -> None:
    write(page, "Once upon")
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.type(" on")
    assert text(page) == "Once upon one one on"
    assert page.locator(GHOST).text_content() == ("Once upon" + ONE)[len(text(page)) :]
    page.wait_for_timeout(400)
    assert len({body["prompt"] for body in drafting.bodies.seen} - {"Once upon", "Once upo"}) == 0


@pytest.mark.parametrize(
    "keys", [["Alt+2"], ["Alt+ArrowDown", "ArrowDown", "Enter"], ["Alt+ArrowDown", "ArrowDown", "Tab"]]
)
def test_any_draft_can_be_taken(page: Page, keys: list[str]) -> None:
    write(page, "Once upon")
    for key in keys:
        page.keyboard.press(key)
    assert text(page) == "Once upon" + TWO


def test_the_list_shows_all_drafts_and_escape_hides_first_it_and_then_the_draft(opened: Callable[..., Page]) -> None:
    page = opened(drafts=5)
    write(page, "Once upon")
    page.keyboard.press("Alt+ArrowDown")
    rows = page.locator(".polydraft-list [role=option]")
    rows.nth(4).wait_for()
    assert rows.count() == 5
    page.keyboard.press("Escape")
    page.locator(".polydraft-list").wait_for(state="detached")
    assert page.locator(GHOST).count() == 1
    page.keyboard.press("Escape")
    assert page.locator(GHOST).count() == 0
    page.keyboard.press("Alt+ArrowDown")
    rows.nth(1).click()
    assert text(page) == "Once upon" + TWO


def test_the_caret_elsewhere_hides_the_draft_and_the_text_after_it_is_sent(page: Page, drafting: Drafting) -> None:
    write(page, "Once upon. The end.")
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    assert page.locator(GHOST).count() == 0
    page.keyboard.type("a")
    page.locator(GHOST).wait_for()
    assert (drafting.bodies.seen[-1]["prompt"], drafting.bodies.seen[-1]["suffix"]) == ("Once upona", ". The end.")


def test_drafts_that_appear_by_themselves_have_no_slurs(opened: Callable[..., Page], drafting: Drafting) -> None:
    page = opened()
    write(page, "Once upon")
    assert drafting.bodies.seen[-1]["no_slurs"] is True
    for key in ("Escape", "Alt+ArrowDown"):
        page.keyboard.press(key)
    page.locator(".polydraft-list").wait_for()
    assert drafting.bodies.seen[-1]["no_slurs"] is False
    page = opened(noSlurs=False)
    write(page, "Once upon")
    assert drafting.bodies.seen[-1]["no_slurs"] is False


PROSE = (
    "# Title\n\nOnce",
    "- item",
    "> Once",
    "---\ntags: a\n---\nOnce",
    "```py\nx\n```\nOnce",
    "`x` is a",
    "a $$x$$ b",
)
NO_PROSE = (
    "---\ntags: a", "```py\nx", "~~~~\n```\nx", "> ```\n> x", "```p", "The call `x", "$$\nx", "See [[No", "%% hidden",
)  # fmt: skip


@pytest.mark.parametrize("words", PROSE)
def test_prose_has_drafts(page: Page, words: str) -> None:
    write(page, words)


@pytest.mark.parametrize("words", NO_PROSE)
def test_code_properties_mathematics_and_links_have_none(page: Page, drafting: Drafting, words: str) -> None:
    write(page, words, shown=False)
    page.wait_for_timeout(400)
    assert text(page) == words
    assert drafting.bodies.seen == []


def test_an_input_method_composes_without_drafts(page: Page, drafting: Drafting) -> None:
    devtools = page.context.new_cdp_session(page)
    devtools.send("Input.imeSetComposition", {"text": "にほ", "selectionStart": 2, "selectionEnd": 2})
    page.wait_for_timeout(300)
    assert (drafting.bodies.seen, page.locator(GHOST).count()) == ([], 0)
    devtools.send("Input.insertText", {"text": "日本"})
    page.wait_for_timeout(200)
    write(page, " is")


@pytest.mark.parametrize(("settings", "said"), [({"token": "wrong"}, "requires its token"), ({"port": 1}, "at port 1")])
def test_a_problem_is_said_once_and_typing_goes_on(opened: Callable[..., Page], settings: Any, said: str) -> None:
    page = opened(**settings)
    for words in ("Once", " upon", " a"):
        write(page, words, shown=False)
        page.wait_for_timeout(300)
    assert text(page) == "Once upon a"
    (notice,) = page.evaluate("notices")
    assert said in notice


def test_settings_are_kept(page: Page) -> None:
    page.evaluate("() => { plugin.tabs[0].display(); document.body.append(plugin.tabs[0].containerEl); }")
    page.get_by_label("Token").fill(" abc ")
    page.get_by_label("Port").fill("8000")
    page.get_by_label("No slurs unasked").uncheck()
    deadline = time.monotonic() + 10
    while (kept := page.evaluate("plugin.data"))["token"] != "abc" or kept["port"] != 8000 or kept["noSlurs"]:
        assert time.monotonic() < deadline, kept


def test_the_build_has_the_files_that_obsidian_installs(tmp_path: Path) -> None:
    from runpy import run_path

    run_path(str(HERE / "build.py"))["build"](tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"main.js", "manifest.json", "styles.css"}
    written = (tmp_path / "main.js").read_text()
    assert 'require("obsidian")' in written
    assert 'require("@codemirror/view")' in written
    assert "module.exports" in written
