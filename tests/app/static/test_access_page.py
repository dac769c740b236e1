"""The page for every reader, in real Chromium: axe-core finds nothing on any tab or in any panel, marks can
be seen, labels fit, a page at 200 % keeps its tools, paper has the document alone, fingers find their targets, a mouse
leaves the focus alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from app.learning.personal import PersonalStores
from app.options import presets as presets_module
from app.service.service import DraftService
from tests.app.static.editor.editor_page import ENOUGH, Editor
from tests.fake_drafts import ByteTokenizer, FakeDrafts, Server, serving
from tests.fake_sampling import ShortDrafts
from tests.ngram_tools import add_text

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
expect.set_options(timeout=ENOUGH)

TEXT = "It was late when the bell rang.\n\nYesterday she went"
AXE = Path(str(distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js")))
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
SIZES = {"phone": (360, 740), "at 200 %": (640, 400), "laptop": (1280, 800), "wide": (2560, 1440)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets_module, "presets_file", lambda: folder / "presets.sqlite")
        patch.setattr("core.speculative.calibration.for_model", lambda *_: SimpleNamespace(check=lambda *_: None))
        stores = PersonalStores(cast(Any, ByteTokenizer()), folder / "stores")
        stores.create("letters")
        add_text(stores, "letters", "/home/ada/letter.txt", "Thank you for your letter. Thank you for the flowers.")
        patch.setattr(DraftService, "stores", lambda _: stores)
        with serving(ShortDrafts().real, "scripted") as (_, server):
            yield server


@pytest.fixture
def open_page(browser: Browser, context: BrowserContext, site: Server) -> Iterator[Callable[..., Page]]:
    """The page with text and drafts. A device that differs in more than its window gets a profile of its own."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def opened(width: int = 1280, height: int = 800, **device: Any) -> Page:
        if device:
            contexts.append(browser.new_context(reduced_motion="reduce", **device))
        page = (contexts[-1] if device else context).new_page()
        resize(page, width, height)
        editor = Editor(page, FakeDrafts())
        editor.panel_is_open = True
        editor.open(site.url)
        editor.put(TEXT)
        editor.wait(lambda: len(editor.drafts()) >= 3, "drafts")
        editor.errors = errors
        return editor.page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []


def resize(page: Page, width: int, height: int) -> None:
    if page.viewport_size != {"width": width, "height": height}:
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(
            "() => { const onFrame = requestAnimationFrame.soon ?? requestAnimationFrame;"  # a page without Gradio
            " return new Promise((drawn) => onFrame(() => onFrame(drawn))) }"
        )


def violations(page: Page, part: str = "html") -> list[str]:
    """What axe-core finds in a part of the page, in words: all of it in light colours, and in dark
    ones what depends on colours."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[Any] = []
    for scheme in SCHEMES:
        use_colours(page, scheme)
        rules = ["color-contrast", "link-in-text-block"] if scheme == "dark" else None
        how = {"resultTypes": ["violations"], "preload": part == "html"} | ({"runOnly": rules} if rules else {})
        found += page.evaluate("([part, how]) => axe.run(part, how).then(({ violations }) => violations)", [part, how])
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


def use_colours(page: Page, scheme: Scheme) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # without transitions


def open_panel(page: Page, *sections: str) -> Locator:
    panel = page.locator("#pd-panel")
    button = page.locator("[data-do=panel]")
    if button.get_attribute("aria-expanded") == "false":
        if not button.is_visible():
            page.get_by_role("button", name="Menu").click()
        button.click()
    expect(panel.locator("#pd-style")).to_be_visible()
    for section in sections:
        panel.get_by_role("button", name=section).click()
    expect(panel.get_by_role("row").nth(1)).to_be_visible()
    return panel


def close_panel(page: Page) -> None:
    page.get_by_role("button", name="Toggle Sidebar").click()
    expect(page.locator("#pd-style")).to_be_hidden()


def choose(panel: Locator, label: str, name: str | re.Pattern[str]) -> None:
    panel.get_by_role("combobox", name=label).click()
    panel.get_by_role("option", name=name, exact=isinstance(name, str)).click()


# ---------------------------------------------------------------- axe-core, marks


def test_axe_finds_nothing_where_one_writes_nor_in_my_writing(open_page: Callable[..., Page]) -> None:
    page = open_page()
    close_panel(page)  # the next test looks into it
    assert violations(page) == []
    for n in range(14):  # more documents than the panel has room for
        page.evaluate(
            "n => polydraft.documents.stored.opened().write("
            "{ ...polydraft.documents.written(), id: `0000000${n.toString(16)}`, revision: '' }, '')",
            n,
        )
    for button in page.locator("#pd button[aria-expanded][aria-controls]:not([data-do=panel])").all():
        if not button.is_visible() or button.get_attribute("aria-expanded") == "true":
            continue
        button.click()
        expect(button).to_have_attribute("aria-expanded", "true")
        assert violations(page, f"#{button.get_attribute('aria-controls')}") == []
        button.click()
    page.locator("#pd-text").fill("")
    assert violations(page, "#pd") == []
    page.get_by_role("button", name="Keys").click()
    assert violations(page, "dialog[open]") == []
    page.keyboard.press("Escape")
    page.locator("[data-do=panel]").click()
    for name in ("This page", "Pair browser"):
        page.get_by_role("button", name=name).click()
    expect(page.get_by_role("dialog", name="Pair your browser")).to_be_visible()
    assert violations(page, "dialog[open]") == []
    page.keyboard.press("Escape")
    close_panel(page)

    page.get_by_role("tab", name="My writing").click()
    page.locator("summary", has_text="source").first.click()
    page.get_by_role("searchbox").fill("thank you for")
    page.keyboard.press("Enter")
    expect(page.locator(".ps-result")).to_be_visible()
    page.get_by_role("textbox", name="New collection").fill("../evil")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#pd-stores [role=alert]:not([hidden])")).to_be_visible()
    assert violations(page, "#pd") == []
    page.get_by_role("button", name="Delete this collection").click()
    assert violations(page, "dialog[open]") == []


# Contrast of each mark with each ground that it may stand on, where it is below 3. Colours are painted to be read.
MARKS = """() => {
    const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
    const context = canvas.getContext('2d', { willReadFrequently: true });
    const light = (...colours) => {
        for (const colour of colours) { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); }
        const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
            .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const root = document.querySelector('#pd');
    const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
    const marks = { 'a slider': colour('--edge-line'), 'a slider, filled': colour('--accent') };
    const edges = '#pd select, #pd-panel :is(input[type=number], .wrap-inner, .pd-buttons label)';
    for (const e of document.querySelectorAll(edges))
        marks[`the edge of ${e.outerHTML.slice(0, 60)}`] = getComputedStyle(e).borderTopColor;
    for (const name of ['on', 'off'])
        marks[`bars that are ${name}`] = getComputedStyle(document.querySelector(`.sm-grid .sm-${name}`)).fill;
    const mine = root.appendChild(Object.assign(document.createElement('span'), { className: 'pd-mine' }));
    marks["the underline of one's own words"] = getComputedStyle(mine).textDecorationColor;
    mine.remove();
    return Object.entries(marks).flatMap(([what, ink]) => ['--paper', '--wash'].map(colour).map((ground) => {
        const [a, b] = [light(ground, ink), light(ground)];
        return [what, ground, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
    })).filter(([, , ratio]) => !(ratio >= 3));
}"""


def test_axe_finds_nothing_in_the_panel_and_marks_stand_out_by_three_to_one(open_page: Callable[..., Page]) -> None:
    page = open_page()
    panel = open_panel(page, "Save and share presets", "For experts", "This page")
    choose(panel, "Method", "Sampled")
    panel.locator("#pd-speculate").get_by_text("Lossless").click()
    panel.locator("#pd-rule").get_by_text("Top-W").click()
    panel.get_by_role("button", name="More controls of the rule").click()
    expect(panel.get_by_role("tab", name="Map")).to_be_visible()
    assert violations(page) == []
    for name, drawing in ("Temperatures", "sweep"), ("Map", "map"), ("All rules", "rules"):
        panel.get_by_role("tab", name=name).click()
        expect(panel.locator(f"#sm-{drawing} svg").first).to_be_visible()
        assert violations(page, f"#sm-{drawing}") == []
        if drawing == "sweep":
            panel.get_by_role("button", name="Wide view").click()
            assert violations(page, "dialog[open]") == []
            page.keyboard.press("Escape")
    panel.locator("#pd-rule").get_by_text("More…").click()
    choose(panel, "Rules, in the order", re.compile("Top-p"))
    assert violations(page, "#pd-rules") == []
    expect(panel.locator(".sm-grid .sm-off").nth(3)).to_be_visible()
    for scheme in SCHEMES:
        use_colours(page, scheme)
        assert page.evaluate(MARKS) == [], scheme


# ---------------------------------------------------------------- room


# Labels and choices that are wider than their places.
CUT = """() => {
    const labels = ':is(#pd, #pd-panel) :is(label, output, button, h2, h3, p, small)';
    const shown = [...document.querySelectorAll(labels)]
        .filter((e) => e.checkVisibility() && !e.closest('.pd-unseen') && getComputedStyle(e).display !== 'inline');
    const context = document.createElement('canvas').getContext('2d');
    const chosen = [...document.querySelectorAll('#pd select')].filter((e) => e.checkVisibility()).filter((e) => {
        context.font = getComputedStyle(e).font;
        return context.measureText(e.selectedOptions[0]?.text ?? '').width > e.clientWidth - 26;
    });
    return [...shown.filter((e) => e.scrollWidth > e.clientWidth + 1), ...chosen]
        .map((e) => `${e.className || e.id}: ${e.textContent.slice(0, 40)}`);
}"""


def test_labels_fit(open_page: Callable[..., Page]) -> None:
    page = open_page()
    panel = open_panel(page, "Save and share presets", "For experts", "This page", "How these drafts were made")
    choose(panel, "Method", "Sampled")
    panel.locator("#pd-speculate").get_by_text("ARC").click()
    panel.locator("#pd-rule").get_by_text("More…").click()
    expect(panel.locator("#pd-theta")).to_be_visible()
    found: dict[str, Any] = {}
    for name, size in SIZES.items():
        resize(page, *size)
        open_panel(page)
        found |= {name: cut} if (cut := page.evaluate(CUT)) else {}
    assert found == {}


def test_a_click_on_a_tool_leaves_the_focus_in_the_text_the_panel_covers_nothing_and_at_200_percent_tools_are_in_reach(
    open_page: Callable[..., Page],
) -> None:
    page = open_page()
    text = page.locator("#pd-text")
    text.focus()
    page.keyboard.press("ArrowLeft")
    caret = text.evaluate("box => box.selectionStart")
    for tool in ("Copy", "Incognito", "Incognito", "Panel", "Panel"):
        page.get_by_role("button", name=tool, exact=True).click()
        expect(text).to_be_focused()
        assert text.evaluate("box => box.selectionStart") == caret
    page.locator("#pd-k").get_by_role("slider").focus()
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(text).to_be_focused()
    page.get_by_role("button", name="Copy", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Copy", exact=True)).to_be_focused()  # by a key

    text.press("End")
    expect(page.locator(".pd-list").get_by_role("option")).to_have_count(3)
    for width, height in ((1280, 800), (2560, 1440)):
        resize(page, width, height)
        panel = open_panel(page)
        closing, fields = (panel.locator(f".{part}").bounding_box() for part in ("toggle-button", "sidebar-content"))
        assert closing and fields and closing["y"] + closing["height"] <= fields["y"], "fields scroll under the arrow"
        box, tools = panel.bounding_box(), page.locator("#pd :is(#pd-text, .pd-option-row, .pd-tools, .pd-line)").all()
        assert box
        for one in filter(None, [each.bounding_box() for each in tools]):
            assert one["x"] + one["width"] <= box["x"] + 1, "the panel covers it"
    close_panel(page)

    resize(page, *SIZES["at 200 %"])
    page.get_by_role("button", name="Incognito").click(timeout=5000)
    expect(page.get_by_role("button", name="Incognito")).to_have_attribute("aria-pressed", "true")
    panel = open_panel(page, "For experts")
    panel.locator("#pd-end-below").get_by_role("slider").scroll_into_view_if_needed()
    expect(panel.locator("#pd-end-below").get_by_role("slider")).to_be_in_viewport()
    panel.locator("#pd-style").get_by_text("Wild").click(timeout=5000)
    expect(panel.locator("#pd-style").get_by_role("radio", name="Wild")).to_be_checked()
    close_panel(page)


# ---------------------------------------------------------------- paper


def test_print_has_the_whole_document_on_several_pages_and_nothing_else_black_on_white(
    open_page: Callable[..., Page],
) -> None:
    page = open_page()
    text = "".join(f"Line {n} of a story that is longer than a page.\n\n" for n in range(150))
    page.locator("#pd-text").fill(text)
    open_panel(page)
    use_colours(page, "dark")
    assert len(re.findall(rb"/Type */Page\b", page.pdf())) >= 5
    assert page.locator(".pd-printed").text_content() == ""  # again
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    seen: list[list[str]] = page.evaluate(
        """() => [...document.body.querySelectorAll('*')]
            .filter((e) => e.checkVisibility({ opacityProperty: true }) && e.getClientRects().length)
            .filter((e) => [...e.childNodes].some((child) => child.nodeType === 3 && child.data.trim())
                || e.matches('svg *, input, textarea, hr, progress'))
            .map((e) => [e.className, e.textContent, getComputedStyle(e).color])"""
    )
    assert seen == [["pd-printed pd-face", text, "rgb(0, 0, 0)"]]
    grounds = page.evaluate(
        "[...document.querySelectorAll(':has(.pd-printed), .pd-printed')]"
        ".map((e) => getComputedStyle(e).backgroundColor)"
    )
    assert set(grounds) == {"rgba(0, 0, 0, 0)"}


# ---------------------------------------------------------------- fingers


def test_what_fingers_aim_at_measures_44_pixels(open_page: Callable[..., Page]) -> None:
    page = open_page(390, 844, has_touch=True, is_mobile=True)
    small = """() => [...document.querySelectorAll(
            ':is(#pd, #pd-panel) :is(button, select, input, summary, [role=option])')]
        .filter((e) => e.checkVisibility() && !e.closest('.pd-unseen') && e.type !== 'file')
        .map((e) => [(e.matches('[type=checkbox], [type=radio]') && e.closest('label')) || e, e])
        .map(([target, e]) => [target.getBoundingClientRect(), e])
        .filter(([box]) => box.width < 43.5 || box.height < 43.5)
        .map(([box, e]) => `${Math.round(box.width)} × ${Math.round(box.height)} ${e.outerHTML.slice(0, 90)}`)"""
    assert page.evaluate(small) == []
    open_panel(page, "Save and share presets", "For experts", "This page")
    assert page.evaluate(small) == []
    close_panel(page)
    page.get_by_role("tab", name="My writing").click()
    page.locator("summary", has_text="source").first.click()
    assert page.evaluate(small) == []


# ---------------------------------------------------------------- Chromium's accessibility tree


def test_the_accessibility_tree_names_the_text_and_the_drafts_and_announces_nothing_unasked(
    open_page: Callable[..., Page],
) -> None:
    page = open_page()
    page.evaluate(
        """() => {
            window.announced = [];
            for (const live of document.querySelectorAll('#pd :is([aria-live], [role=status], [role=alert])')) {
                new MutationObserver(() => live.textContent.trim() && live.checkVisibility()
                    && announced.push(live.className + ': ' + live.textContent))
                    .observe(live, { childList: true, characterData: true, subtree: true });
            }
        }"""
    )
    page.locator("#pd-text").press("End")
    page.keyboard.type(" and on ")
    page.wait_for_timeout(300)
    expect(page.get_by_role("option").first).to_be_visible()
    client = page.context.new_cdp_session(page)
    tree = client.send("Accessibility.getFullAXTree")["nodes"]

    def nodes(role: str) -> list[dict[str, Any]]:
        return [node for node in tree if not node["ignored"] and node["role"]["value"] == role]

    (text,) = [node for node in nodes("textbox") if node["name"]["value"] == "Your text"]
    described = text["description"]["value"]
    assert described.count(".") == 1 and described.endswith("Keys lists all keys."), described
    (drafts,) = nodes("listbox")
    assert drafts["name"]["value"] == "Drafts"
    assert len(nodes("option")) == 3
    assert page.evaluate("announced.filter((one) => !one.startsWith('pd-counts'))") == []
