"""The page with Gradio and the panel, in real Chromium: settings, looks and keys where both parts meet."""

from __future__ import annotations

import io
from typing import Any, Literal

import pytest
from PIL import Image, ImageChops
from playwright.sync_api import BrowserContext, Locator, expect

from app.options import labels
from core.options import BY_FLAG, DRAFTING, Control
from tests.app.static.editor.editor_page import BEFORE, HEBREW, PARAGRAPH, Editor
from tests.fake_drafts import HOME, MARKET, PHRASES, RIVER, FakeDrafts, Server, create_app

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def extras() -> dict[str, Any]:
    return {"gradio": True}


# ---------------------------------------------------------------- the ghost

PLACES = {
    "an empty line": (f"{PARAGRAPH}\n\n{PARAGRAPH}", len(PARAGRAPH) + 1),
    "middle of a line, in a long paragraph": (PARAGRAPH * 30, len(PARAGRAPH) * 29 + 40),
    "right to left, middle": (f"{HEBREW}\n{PARAGRAPH}", HEBREW.index(" וקרא")),
    "emoji": ("A family 👨‍👩‍👧‍👦 and a flag 🏳️‍🌈 went", None),
}


def test_the_ghost_is_where_the_text_will_be(editor: Editor) -> None:
    """Ghost text drawn in ink looks, pixel for pixel, like the page after taking it."""
    editor.page.add_style_tag(
        content="#pd { --ghost: var(--ink) !important } #pd-text { caret-color: transparent !important }"
        ".pd-below, .pd-below *, .pd-sheet::before { visibility: hidden !important }"
    )
    editor.box.evaluate("box => (box.spellcheck = false)")
    for where in PLACES:
        assert_ghost_as_the_text(editor, where)


def still_picture(editor: Editor) -> bytes:
    """The sheet, once its text has not scrolled for some frames."""
    editor.box.evaluate(
        """async (box) => {
            for (let still = 0, before = NaN; still < 5; before = box.scrollTop) {
                await new Promise((drawn) => requestAnimationFrame.soon(drawn));
                still = box.scrollTop === before ? still + 1 : 0;
            }
        }"""
    )
    return editor.page.locator(".pd-sheet").screenshot()


def assert_ghost_as_the_text(editor: Editor, where: str) -> None:
    text, caret = PLACES[where]
    draft = " וגם לחם ויין מן הכפר" if where.startswith("right") else MARKET
    at = len(text) if caret is None else caret
    editor.fake.fail, editor.fake.script = None, {text[:at][-12:]: (draft,)}
    typed_at = len(text[: at - 1].encode("utf-16-le")) // 2
    editor.put(text[: at - 1] + text[at:], typed_at)  # a list that is requested would push down the lines below
    editor.write(text[at - 1])
    editor.wait(
        lambda: editor.ghost().strip() == draft.strip() and not editor.page.evaluate("polydraft.drafts.request")
    )
    with_ghost, ghost = still_picture(editor), editor.ghost()
    editor.fake.fail = (503, "Busy.", "")
    editor.press("Alt+Digit1", "Escape")
    editor.wait(lambda: editor.ghost() == "" and not editor.page.evaluate("polydraft.drafts.request"), "no draft")
    taken = still_picture(editor)
    assert editor.text == text[:at] + ghost + text[at:], where
    assert editor.ghost() == "", where
    assert same_picture(with_ghost, taken), where


def same_picture(one: bytes, two: bytes) -> bool:
    """Equal over the common height, but for the antialiasing of glyphs at another subpixel position."""
    a, b = (Image.open(io.BytesIO(png)).convert("L") for png in (one, two))
    size = (0, 0, min(a.width, b.width), min(a.height, b.height))
    difference = ImageChops.difference(a.crop(size), b.crop(size))
    strong = sum(difference.histogram()[96:])
    return strong <= 40


# ---------------------------------------------------------------- errors and recovery


def test_a_servers_error_one_inside_the_stream_or_a_lost_connection_appears_in_words_and_goes_away(
    editor: Editor, server: Server
) -> None:
    editor.fake.fail = (503, "The model has no room for this text.", "Choose a model with a longer context.")
    editor.write("a")
    alert = editor.page.get_by_role("alert")
    expect(alert).to_contain_text("The model has no room for this text.")
    expect(alert).to_contain_text("Choose a model with a longer context.")
    editor.fake.fail = None
    editor.write("b")
    editor.wait(lambda: len(editor.drafts()) == 3)
    expect(alert).to_be_hidden()

    editor.fake.error_line = ("The backend stopped.", "Start Polydraft again.")
    editor.write("c")
    expect(alert).to_contain_text("The backend stopped. Start Polydraft again.")
    editor.fake.error_line = None
    editor.write("d")
    expect(alert).to_be_hidden()
    editor.wait_for_drafts(MARKET, RIVER, HOME)

    server.stop()
    try:
        editor.write("x")
        expect(alert).to_contain_text("The connection to Polydraft is lost.")
        assert editor.drafts() == []
        editor.write("yz")  # writing goes on
        assert editor.text == "abcdxyz"
    finally:
        server.start()
    expect(alert).to_be_hidden()
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    assert editor.text == "abcdxyz"


# ---------------------------------------------------------------- settings


# What the panel shows for the options of these flags: a box and its tick, a list's choice, a slider with its end.
SHOWN = """flags => flags.map((flag) => {
    const fields = [...document.querySelectorAll(`#pd-${flag} input`)];
    const field = fields.find(({ type }) => type === 'range') ?? fields[0];
    const { type, checked, value, max } = field ?? {};
    return type === 'checkbox' ? checked : type === 'range' ? `${value} of ${max}` : value; })"""


def as_shown(control: Control) -> object:
    if control.kind == "bool":
        return control.default
    if control.kind == "choice":
        return labels.CHOICES.get(control.flag, {}).get(str(control.default), str(control.default))
    most = min(labels.shown(control).most or control.high, control.without_beyond.high)
    return f"{control.default:g} of {most:g}"


def test_settings_act_at_once_stay_and_reset_all_gives_each_its_default_and_chances_are_shown_as_chosen(
    drafting: Editor,
) -> None:
    page, fake = drafting.page, drafting.fake
    usual = {control.flag: as_shown(control) for control in DRAFTING.values()}
    page.locator("[data-do=panel]").click()

    def field(flag: str, role: Literal["slider", "checkbox", "combobox"] = "slider") -> Locator:
        return page.locator(f"#pd-{flag}").get_by_role(role)

    def asked(**values: Any) -> None:
        drafting.wait(lambda: fake.requests[-1]["settings"].items() >= values.items(), f"a request with {values}")

    field("k").focus()
    drafting.press("ArrowRight", "ArrowRight")
    drafting.wait_for_drafts(*PHRASES[:5])
    field("length").fill("2")
    drafting.wait(lambda: drafting.ghost() == " to the")
    drafting.open_section("For experts")
    field("distinct", "checkbox").uncheck()
    asked(k=5, length=2, distinct=False)
    page.get_by_role("button", name="Reset all").click()
    asked(**{control.name: control.default for control in DRAFTING.values()})
    drafting.wait(lambda: page.evaluate(SHOWN, [*usual]) == list(usual.values()), "the defaults in the panel")
    assert drafting.text == BEFORE
    drafting.wait_for_drafts(MARKET, RIVER, HOME)

    # The model as it came, if there is an adapter to prose.
    field("prose", "checkbox").uncheck()
    asked(prose=False)
    fake.prose = False
    drafting.open_section("This page")
    chance = page.locator(".pd-chance").first
    expect(chance).to_have_attribute("title", "How likely you are to continue this way")
    for chosen, visible in (("Numbers", True), ("Bars", True), ("Off", False)):
        field("chances", "combobox").click()
        page.locator("#pd-panel").get_by_role("option", name=chosen).click()
        expect(chance).to_be_visible(visible=visible)
        if chosen == "Bars":
            bar = "e => parseFloat(getComputedStyle(e, '::after').width) / e.offsetWidth"
            assert chance.evaluate(bar) == pytest.approx(0.4, abs=0.05)
    drafting.reload()
    drafting.wait_for_drafts(MARKET, RIVER, HOME)
    expect(chance).to_be_hidden()
    drafting.open_section("For experts")
    expect(field("ngrams", "checkbox")).to_be_visible()
    expect(field("prose", "checkbox")).to_have_count(0)


def test_experts_find_the_options_in_the_order_of_making_with_their_sources(editor: Editor) -> None:
    editor.open_section("For experts")
    editor.page.locator("#pd-reset").wait_for()  # the last of them
    names = editor.page.locator("#pd-experts .block[id]").evaluate_all("all => all.map(({ id }) => id.slice(3))")
    order = ["tau", "ngrams", "mixing", "alpha", "personal-weight", "distinct", "forks", "exact-steps"]
    assert [name for name in names if name in order] == order
    for name, source in (
        ("alpha", "α · Superposed Decoding, eq. 6"),
        ("reset-every", "s · Superposed Decoding, section 5.3"),
    ):
        info = editor.page.locator(f"#pd-{name} .info-text")
        assert info.inner_text().splitlines() == [BY_FLAG[name].explain, source]


def test_always_on_the_line_is_a_choice_that_stays(editor: Editor) -> None:
    editor.page.evaluate(
        "localStorage.setItem('polydraft.pace', JSON.stringify({...polydraft.pace.numbers, keys: Array(40).fill(9)}))"
    )
    editor.page.evaluate("window.onpagehide = null; polydraft.pace.numbers.keys.fill(9)")
    editor.reload()
    editor.page.locator(".pd-when").get_by_role("button", name="Always").click()
    editor.reload()
    assert editor.page.evaluate("polydraft.showing.when") == "always"
    expect(editor.page.locator(".pd-when")).to_be_hidden()
    editor.page.get_by_role("button", name="View").click()
    expect(editor.page.get_by_label("Show drafts")).to_have_value("Always")


# ---------------------------------------------------------------- looks and access


def test_focus_mode_leaves_text_and_drafts_alone_and_font_size_width_and_spacing_are_the_writers(
    editor: Editor,
) -> None:
    def look() -> dict[str, str]:
        return editor.box.evaluate(
            "box => { const s = getComputedStyle(box), c = polydraft.map.column();"
            " return { font: s.fontFamily, size: s.fontSize, line: s.lineHeight,"
            " width: Math.round(c.width / c.fontSize) } }"
        )

    before = look()
    assert (before["size"], before["line"]) == ("20px", "32px")
    assert before["width"] in (35, 36)
    view = editor.page.get_by_role("button", name="View", exact=True)
    view.click()
    editor.page.locator("#pd-font").get_by_text("Mono").click()
    for field, value in (("size", "150"), ("width", "52"), ("spacing", "2")):
        editor.page.locator(f"#pd-{field} input[type=range]").fill(value)
    editor.wait(lambda: look()["line"] == "60px", "wider lines")
    after = look()
    assert "monospace" in after["font"]
    assert (after["size"], after["line"]) == ("30px", "60px")
    assert after["width"] in (25, 26)
    editor.box.focus()
    view.click()
    editor.write("x")  # who goes on keeps the focus, and no letter is lost
    editor.page.wait_for_timeout(400)
    expect(editor.box).to_be_focused()

    editor.enter("Yesterday she went")
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.press("Alt+Enter")
    for part in (".pd-bar", ".pd-foot", ".pd-hints"):
        expect(editor.page.locator(part)).to_be_hidden()
    assert editor.drafts() == [MARKET, RIVER, HOME]
    expect(editor.box).to_be_focused()
    editor.press("Tab")
    assert editor.text == "Yesterday she went" + MARKET
    editor.reload()
    expect(editor.page.locator(".pd-bar")).to_be_hidden()
    assert look() == after
    ghost = editor.page.locator(".pd-ghost-block")
    assert ghost.evaluate("e => getComputedStyle(e).fontSize") == "30px"
    leave = editor.page.get_by_role("button", name="Leave focus mode")
    leave.hover()
    leave.click()
    expect(editor.page.locator(".pd-bar")).to_be_visible()
    expect(editor.box).to_be_focused()
    view.click()
    editor.page.get_by_role("button", name="Reset view").click()
    editor.wait(lambda: look() == before, "the usual look")
    assert editor.page.locator("#pd-size input[type=number]").input_value() == "100"


@pytest.mark.chromium("colour schemes")
def test_nothing_overflows_and_dark_and_light_follow_the_system_and_agree_with_gradio(editor: Editor) -> None:
    editor.put(PARAGRAPH)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    for width, height in ((360, 740), (768, 1024), (3840, 2160)):
        editor.page.set_viewport_size({"width": width, "height": height})
        editor.page.evaluate(
            "new Promise((drawn) => requestAnimationFrame.soon(() => requestAnimationFrame.soon(drawn)))"
        )
        outside = editor.page.evaluate(
            """() => [...document.querySelectorAll('#pd :is(button, input, .pd-chance, .pd-status)')]
                .filter((e) => e.checkVisibility())
                .map((e) => [e.getBoundingClientRect(), e.outerHTML.slice(0, 80)])
                .filter(([box]) => box.left < 0 || box.right > innerWidth)
                .map(([_, name]) => name)"""
        )
        assert outside == []
        assert editor.page.evaluate("document.documentElement.scrollWidth") <= width
        measure = editor.page.evaluate("polydraft.map.column().width / polydraft.map.column().fontSize")
        assert measure <= 37  # em: about 72 characters

    def look() -> tuple[bool, str]:
        return editor.page.evaluate(
            "[document.body.classList.contains('dark'),"
            " getComputedStyle(document.querySelector('#pd')).backgroundColor]"
        )

    for scheme, dark, ground in (("dark", True, "rgb(23, 24, 26)"), ("light", False, "rgb(251, 250, 246)")):
        editor.page.emulate_media(color_scheme=scheme)
        editor.wait(lambda dark=dark, ground=ground: look() == [dark, ground], scheme)


def test_everything_is_reached_by_keyboard_and_a_screen_reader_hears_the_best_draft_if_asked(
    editor: Editor,
) -> None:
    editor.page.locator("[data-do=panel]").click()
    editor.box.focus()
    seen = []
    for _ in range(40):
        editor.page.keyboard.press("Tab")
        name, outline = editor.page.evaluate(
            """() => { const e = document.activeElement, ring = e.type === "radio" ? e.closest("label") : e;
            return [e.closest("#pd-panel [id^=pd-]")?.id ?? e.className, getComputedStyle(ring).outlineStyle] }"""
        )
        seen.append(name)
        if name:
            assert outline == "solid", seen
    for name in ("style", "preset", "rule", "temperature", "k", "length", "end-below", "mode", "experts", "view"):
        assert f"pd-{name}" in seen
    editor.box.focus()
    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    page = editor.page
    listbox = page.get_by_role("listbox", name="Drafts")
    live, best = page.locator(".pd-live"), "3 drafts. Best: to the market and bought some bread."
    expect(live).to_have_attribute("aria-live", "polite")
    page.evaluate("polydraft.showing.choose('demand')")
    editor.press("Alt+ArrowDown")
    expect(live).to_have_text(best)
    editor.press("Escape")
    expect(listbox).to_be_hidden()
    expect(live).to_have_text("Drafts dismissed.")
    editor.press("Alt+ArrowDown")
    expect(live).to_have_text(best)
    editor.write("x")  # contradicts all of them
    expect(live).to_have_text("")  # it names no draft that is gone


# ---------------------------------------------------------------- one page and two


def test_a_page_in_which_nothing_happens_draws_no_frames(
    context: BrowserContext, server: Server, fake: FakeDrafts
) -> None:
    """Gradio's script would request one after the other for ever."""
    page = context.new_page()
    page.add_init_script(
        "window.requested = 0; const request = requestAnimationFrame.bind(window);"
        "window.requestAnimationFrame = (draw) => { requested++; return request(draw) }"
    )
    editor = Editor(page, fake).open(server.url)
    editor.enter(BEFORE)
    editor.wait_for_drafts(MARKET, RIVER, HOME)
    editor.settle()
    before = page.evaluate("requested")
    page.wait_for_timeout(500)
    assert 0 < before < page.evaluate("requested") + 1 <= before + 10  # 30 at least with Gradio's


def test_two_servers_in_one_browser_have_their_own_scripts(
    context: BrowserContext, server: Server, fake: FakeDrafts
) -> None:
    """Chromium evaluates the same code of both pages once, so a path in it would lead to the first server."""
    other = Server(create_app(fake, gradio=True))
    pages = [Editor(context.new_page(), fake).open(each.url) for each in (server, other)]
    for page in pages:
        page.enter(BEFORE)
        page.wait_for_drafts(MARKET, RIVER, HOME)
        assert page.errors == []
        page.page.close()
    other.stop()
