"""The sampling panel in real Chromium: real rules, charts and presets over distributions that are made up."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from app.options import presets as presets_module
from app.options import speculation
from app.service.service import DraftService
from app.web.routes.sampling import SWEPT
from app.web.site import create_app
from core.ask import Ask
from core.controls import CATALOG, MODES, PRESETS, SPECULATING, STYLES, Preset
from core.options import DRAFTING
from core.samplers.view import look, sweep
from core.speculative.calibration import CalibrationError
from tests.app.static.editor.test_page import ENOUGH, Editor
from tests.fake_drafts import FakeDrafts, Server
from tests.fake_sampling import (
    PIECES,
    SamplingAutocomplete,
    SamplingCompletion,
    SamplingSession,
    Tokenizer,
    logits_after,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
expect.set_options(timeout=ENOUGH)

TEXT = "Yesterday she went"
STEPS = 4  # of every draft


class ShortDrafts(SamplingAutocomplete):
    """Whatever length is asked for, drafts end after a few steps: the page draws each, which takes processor time."""

    def open(self) -> SamplingSession:
        session = super().open()
        whole = session.complete

        def complete(ask: Ask) -> SamplingCompletion:
            return whole(replace(ask, length=min(ask.length, STEPS)))

        session.complete = complete
        return session


FAKE = ShortDrafts()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    file = tmp_path_factory.mktemp("data") / "presets.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets_module, "presets_file", lambda: file)
        service = DraftService(FAKE.real, "scripted", pace=0)
        service.start()
        server = Server(create_app(service))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "core.speculative.calibration.for_model", lambda *_: SimpleNamespace(check=lambda *_: None)
        )  # as if there was one for a made-up model
        yield server, file
    server.stop()
    service.close()


@pytest.fixture
def context(context: BrowserContext, site: tuple[Server, Path]) -> BrowserContext:
    site[1].unlink(missing_ok=True)
    return context


class Panel(Editor):
    """The page, with the panel as a reader meets it. What is used most is found by its id, as `box` is."""

    def __init__(self, page: Page) -> None:
        super().__init__(page, FakeDrafts())
        page.emulate_media(reduced_motion="reduce")  # a transition is drawn sixty times a second
        self.asked: list[tuple[str, Any]] = []
        self.examples: list[Any] = []  # the requests for the styles' examples
        page.on("request", self._note)

    def _note(self, request: Any) -> None:
        if "/api/" in request.url and request.method == "POST" and not request.url.endswith("/leave"):
            body = json.loads(request.post_data or "{}")
            if body.get("settings", {}).get("k") == 1:
                self.examples.append(body)
            else:
                self.asked.append((request.url.partition("/api/")[2], body))

    def begin(self, url: str) -> Panel:
        self.open(url)
        self.put(TEXT)
        self.rest()
        self.show()
        return self

    @property
    def button(self) -> Locator:
        return self.page.locator(".pd-sampling-button")

    @property
    def region(self) -> Locator:
        return self.page.locator("#pd-sampling")

    @property
    def presets(self) -> Locator:
        return self.page.locator("#sm-preset")

    def show(self) -> None:
        """Open the panel, with what is under For experts."""
        self.button.click()
        expect(self.region).to_be_visible()
        if not self.advanced.is_visible():
            self.page.locator(".sm-advanced-button").click()
        expect(self.region.locator(".sm-bars tr").nth(1)).to_be_visible()

    @property
    def advanced(self) -> Locator:
        return self.region.locator("#sm-advanced")

    def close(self) -> None:
        self.page.get_by_role("button", name="Close the style of drafts").click()

    def rest(self) -> None:
        """Until nothing is under way: neither drafts nor charts."""
        assert self.page.evaluate(
            """(enough) => new Promise((done) => {
                const deadline = performance.now() + enough;
                const look = () => {
                    const e = polydraft.editor, s = window.polydraftSampling;
                    const rests = e.request === null && !e.timers.running.settings && e.rows.length > 0
                        && !(s && s.see.loading);
                    if (rests || performance.now() > deadline) done(rests); else setTimeout(look, 20);
                };
                look() })""",
            ENOUGH,
        ), f"Waited in vain for all drafts and charts: drafts {self.drafts()!r}, counters {self.counters()!r}"

    def wait_for_choice(self, rule: str) -> None:
        """The panel is loaded and has this rule; a request that is sent earlier has none."""
        self.wait(lambda: self.page.evaluate("window.polydraftSampling?.choice.rule") == rule, "the choice")

    def rule(self, name: str) -> None:
        self.page.locator("#sm-rule").select_option(name)
        self.rest()

    def method(self, name: str) -> None:
        self.page.locator("#sm-mode").select_option(name)
        self.rest()

    def preset(self, name: str) -> None:
        self.presets.select_option(label=name)
        self.rest()

    def slider(self, name: str) -> Locator:
        return self.region.locator(".sm-controls").get_by_role("slider", name=name, exact=True)

    def slide(self, name: str, value: float) -> None:
        self.slider(name).fill(f"{value:g}")
        self.rest()

    def open_settings(self) -> None:
        """The settings below the text, with what is under For experts."""
        self.page.locator("[data-do=settings]").click()
        self.page.locator("[data-do=more]").click()

    def last(self) -> dict[str, Any]:
        """The settings of the newest request for drafts."""
        return [body for path, body in self.asked if path == "drafts"][-1]["settings"]

    def chart(self) -> dict[str, Any]:
        """What the page drew, as it can be read: tokens, which are kept, and the line above."""
        return self.page.evaluate(
            """() => ({
                tokens: [...document.querySelectorAll('.sm-bars tbody tr')].map((row) => ({
                    text: row.cells[0].textContent, share: row.cells[1].textContent,
                    kept: row.classList.contains('sm-kept'), said: row.cells[2].textContent })),
                summary: document.querySelector('.sm-summary').textContent,
            })"""
        )

    def wait_for_chart(self, rule: str, values: dict[str, Any] | None = None, temperature: float = 1.0) -> None:
        """Waits until the chart shows exactly what the core computes."""
        view, choice = seen(rule, values, temperature)
        many = f"{choice.count} token{'' if choice.count == 1 else 's'} of {view.possible} kept"
        entropy = f"entropy {choice.entropy:.2f} of {view.entropy:.2f} nats"
        expected = {
            "tokens": [
                {
                    "text": token.text.replace(" ", "␣"),
                    "share": shown(token.probability),
                    "kept": kept,
                    "said": "kept" if kept else "dropped",
                }
                for token, kept in zip(view.tokens, choice.kept, strict=True)
            ],
            "summary": f"{many} · {shown(choice.mass)} of the probability · {entropy}",
        }
        self.wait(lambda: self.chart() == expected, f"the chart of {rule}")

    def boundaries(self) -> tuple[list[list[str]], list[str]]:
        """The other rules that stop at each token of the chart, and those that stop beyond it."""
        stops, beyond = self.page.evaluate(
            """() => [[...document.querySelectorAll('.sm-bars tbody .sm-rules')].map((cell) => cell.textContent),
                document.querySelector('.sm-beyond').textContent.replace(/^Beyond these \\d+: /, '')]"""
        )
        return [names.split(" · ") if names else [] for names in stops], beyond.split(" · ") if beyond else []


@pytest.fixture
def panel(context: BrowserContext, site: tuple[Server, Path]) -> Iterator[Panel]:
    panel = Panel(context.new_page()).begin(site[0].url)
    yield panel
    assert panel.errors == []


def seen(rule: str, values: dict[str, Any] | None = None, temperature: float = 1.0) -> Any:
    """What the core says about the rule here: the view, and its choice."""
    view = look(logits_after(TEXT), Tokenizer(), temperature, {rule: values or {}}, FAKE.geometries)  # pyright: ignore[reportArgumentType]
    return view, view.choices[0]


def shown(p: float) -> str:
    """A probability as the chart writes it."""
    if p >= 0.9995:
        return "100%"
    percent = 100 * p
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.1f}%" if percent >= 0.995 else f"{percent:.2f}%"


def test_closed_it_asks_for_nothing_open_for_examples_of_three_styles_and_for_experts_for_charts(
    context: BrowserContext, site: tuple[Server, Path]
) -> None:
    panel = Panel(context.new_page())
    loaded: list[str] = []
    panel.page.on("request", lambda request: loaded.append(request.url))
    panel.open(site[0].url)
    panel.put(TEXT)
    panel.rest()
    panel.write(" o")
    panel.rest()
    assert not [url for url in loaded if url.endswith(("sampling.js", "chart.js", "/api/sampling"))]
    assert {path for path, _ in panel.asked} == {"drafts"}
    assert panel.examples == []

    panel.button.click()
    region = panel.page.get_by_role("complementary", name="Style of drafts")
    expect(region.get_by_role("radio", name="Balanced")).to_be_checked()
    assert region.get_by_role("radio").evaluate_all("all => all.map((e) => e.value)") == list(STYLES)
    expect(panel.advanced).to_be_hidden()
    expect(region.get_by_role("tab")).to_have_count(0)
    examples = panel.region.locator(".sm-example")

    def complete() -> bool:
        return len(panel.examples) == len(STYLES) and all(examples.all_text_contents())

    panel.wait(complete, "the examples")
    assert {path for path, _ in panel.asked} == {"drafts"}, "charts are for experts"
    for name, body, example in zip(STYLES, panel.examples, examples.all_text_contents(), strict=True):
        preset = next(preset for preset in PRESETS if preset.name == name)
        sampling = body["settings"]["sampling"]
        assert (sampling["rule"], sampling["mode"]) == (preset.rule, preset.mode)
        assert body["settings"]["temperature"] == preset.temperature
        assert body["tab"] != panel.asked[-1][1]["tab"]
        assert f"{TEXT} o".endswith(body["before"])
        assert example.startswith("… o")
    panel.examples.clear()
    panel.box.focus()
    panel.write("n")
    panel.wait(complete, "new examples")
    assert (examples.first.text_content() or "").startswith("… on")

    for name, description in STYLES.items():
        preset = next(preset for preset in PRESETS if preset.name == name)
        style = region.get_by_role("radiogroup", name="Style").get_by_role("radio", name=name)
        style.check()
        panel.rest()
        expect(style).to_have_accessible_description(description)
        expect(region.get_by_text("Your own setting")).to_be_hidden()
        expect(panel.button).to_have_text("Style of drafts" if name == "Balanced" else f"Style of drafts · {name}")
        assert panel.last()["temperature"] == preset.temperature
        chosen = panel.last().get("sampling", {"rule": "none", "values": {}, "mode": "superposed"})
        assert (chosen["rule"], chosen["values"], chosen["mode"]) == (preset.rule, dict(preset.values), preset.mode)
    panel.page.keyboard.press("ArrowLeft")
    expect(region.get_by_role("radio", name="Balanced")).to_be_checked()
    assert {path for path, _ in panel.asked} == {"drafts"}
    region.get_by_role("button", name="For experts").click()
    panel.slide("Temperature", 1.35)
    expect(region.get_by_text("Your own setting: see For experts.")).to_be_visible()
    expect(panel.button).to_have_text("Style of drafts · Custom")
    panel.examples.clear()
    panel.close()
    expect(panel.region).to_be_hidden()
    expect(panel.box).to_be_focused()  # by a click; Escape leaves it on the button
    before = len([path for path, _ in panel.asked if path != "drafts"])
    assert before
    panel.write(" n")
    panel.rest()
    assert len([path for path, _ in panel.asked if path != "drafts"]) == before
    assert panel.page.evaluate("polydraftSampling.styles.examples.timers.running.compute") is None
    assert panel.examples == []
    assert panel.errors == []


def test_each_rule_is_drawn_as_the_core_has_it_and_beside_the_others_and_reaches_the_drafts(panel: Panel) -> None:
    everything = look(logits_after(TEXT), Tokenizer(), 1.0, None, FAKE.geometries)  # pyright: ignore[reportArgumentType]
    for rule, entry in CATALOG.items():
        panel.rule(rule)
        panel.wait_for_chart(rule)
        stops, beyond = panel.boundaries()
        for choice in everything.choices:
            if choice.rule in (rule, "none"):
                continue
            if choice.count > sum(choice.kept):
                assert f"{CATALOG[choice.rule].label} {choice.count}" in beyond
            else:
                assert CATALOG[choice.rule].label in stops[choice.last]
        expect(panel.region.locator("#sm-rule-description")).to_contain_text(entry.description)
        expect(panel.region.locator(".sm-add")).to_be_visible(visible=not entry.alone)
        for control in entry.controls:
            if control.main:
                expect(panel.slider(control.label)).to_be_visible()
                expect(panel.slider(control.label)).to_have_accessible_description(control.explain)
        if rule == "none":
            assert "sampling" not in panel.last()
            continue
        sampling = panel.last()["sampling"]
        assert (sampling["rule"], sampling["mode"]) == (rule, "superposed")
        kept = {PIECES[t.id] for t, k in zip(seen(rule)[0].tokens, seen(rule)[1].kept, strict=True) if k}
        assert {draft.split(" and")[0] for draft in panel.drafts()} <= kept, rule

    panel.rule("none")
    panel.slide("Temperature", 2)
    panel.region.get_by_role("tab", name="All rules").click()
    figures = [
        [entry.label, f"{choice.count} · {shown(choice.mass)}"]
        for name, entry in CATALOG.items()
        for _, choice in [seen(name, None, 2.0)]
    ]
    cards = "cards => cards.map((card) => [...card.querySelectorAll('.sm-name > *')].map((e) => e.textContent))"
    panel.wait(lambda: panel.page.eval_on_selector_all(".sm-grid [data-rule]", cards) == figures, "a card of each rule")
    panel.region.locator(".sm-grid [data-rule=top-n-sigma]").click()
    panel.rest()
    assert panel.last()["sampling"]["rule"] == "top-n-sigma"
    expect(panel.region.locator(".sm-grid [data-rule=top-n-sigma]")).to_have_attribute("aria-pressed", "true")

    panel.region.get_by_role("tab", name="Temperatures").click()
    lines = panel.region.locator(".sm-line title")
    expect(lines).to_have_count(len(CATALOG) - 1)
    counts = sweep(logits_after(TEXT), None, FAKE.geometries, SWEPT)
    drawn = dict(title.split(". ", 1) for title in lines.all_text_contents())
    for name, entry in CATALOG.items():
        if name != "none":
            assert [int(part.split(": ")[1]) for part in drawn[entry.label].split(", ")] == counts[name]
    assert len(set(counts["top-n-sigma"])) == 1
    numbers = [float(text) for text in panel.region.locator(".sm-sweep text[y='283']").all_text_contents()]
    assert numbers == sorted(numbers) and numbers[-1] == DRAFTING["temperature"].high
    flat = panel.region.locator(".sm-line.sm-chosen path").last.get_attribute("d") or ""
    assert len({point.split()[1] for point in flat.replace("M", "L").split("L")[1:]}) == 1

    panel.region.get_by_role("button", name="Wide view").click()
    dialog = panel.page.get_by_role("dialog", name="Temperatures")
    expect(dialog.locator(".sm-line")).to_have_count(len(CATALOG) - 1)
    # Letters of at least 14 px, and no name over another.
    boxes: list[list[float]] = dialog.locator(".sm-label").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect()).map(({ top, height }) => [top, height])"
    )
    assert min(height for _, height in boxes) >= 13
    assert all(b - a >= 13 for a, b in pairwise(sorted(top for top, _ in boxes)))
    dialog.get_by_role("button", name="Close").click()
    expect(panel.region.locator(".sm-line")).to_have_count(len(CATALOG) - 1)
    # A dialog over a panel takes all keys. If Esc or a key of the page hid the panel, it would cover the page unseen.
    wide = panel.region.get_by_role("button", name="Wide view")
    wide.click()
    panel.press("Alt+Enter")
    expect(dialog).to_be_visible()
    panel.press("Escape")
    expect(dialog).to_be_hidden()
    expect(panel.region).to_be_visible()
    expect(wide).to_be_focused()
    assert panel.page.evaluate("document.querySelector('dialog:modal')") is None
    panel.press("Escape")
    expect(panel.region).to_be_hidden()


def test_sliders_and_new_text_change_the_chart_and_the_drafts_but_a_chart_takes_no_pass_of_the_model(
    panel: Panel,
) -> None:
    panel.rule("top-n-sigma")
    panel.slide("n", 0)
    panel.wait_for_chart("top-n-sigma", {"n": 0})
    assert len(panel.drafts()) == 1
    panel.slide("n", 2)
    panel.wait_for_chart("top-n-sigma", {"n": 2})
    panel.wait(lambda: len(panel.drafts()) == 3)
    assert panel.last()["sampling"]["values"] == {"n": 2}
    # Up to the papers' temperatures, which the field beside the slider takes.
    exact = panel.region.get_by_role("spinbutton", name="Temperature")
    exact.fill("10")
    exact.press("Enter")
    panel.rest()
    assert panel.last()["temperature"] == 10
    expect(panel.slider("Temperature")).to_have_value("10")
    exact.fill("99")
    exact.press("Enter")
    expect(exact).to_have_value("10")
    panel.slide("Temperature", 2.5)
    panel.wait_for_chart("top-n-sigma", {"n": 2}, 2.5)
    assert panel.last()["temperature"] == 2.5
    expect(panel.page.locator("#pd-temperature")).to_have_value("2.5")
    panel.region.get_by_role("button", name="Defaults").click()
    panel.wait_for_chart("top-n-sigma")
    assert panel.last()["temperature"] == 1
    # A slider of many powers of ten grows by factors.
    panel.rule("top-k")
    panel.slide("k", 0)
    panel.wait_for_chart("top-k", {"top_k": 1})
    panel.slide("k", 1000)
    panel.wait_for_chart("top-k", {"top_k": 1000})
    panel.rule("eta")
    panel.slide("ε", 0)
    assert panel.last()["sampling"]["values"] == {"epsilon": 1e-5}

    panel.rule("top-p")
    views = len([1 for path, _ in panel.asked if path == "view"])
    passes = sum(FAKE.model.passes)
    texts = {body["before"] for path, body in panel.asked if path == "drafts"}
    panel.page.evaluate(
        """() => new Promise((done) => {
            const slider = document.querySelector('[data-control=top_p]');
            let n = 0;
            const move = () => { slider.value = 0.3 + n / 100; slider.dispatchEvent(new Event('input'));
                                 if (++n < 20) requestAnimationFrame.soon(move); else done() };
            move() })"""
    )
    panel.rest()
    panel.wait_for_chart("top-p", {"top_p": 0.49})  # the last place of the slider
    asked = [path for path, _ in panel.asked]
    assert views < asked.count("view") <= views + 21  # the drafts that follow need no second look
    assert {body["before"] for path, body in panel.asked if path == "drafts"} == texts
    assert sum(FAKE.model.passes) - passes <= 20 * STEPS  # of the drafts that follow, none of the charts

    panel.box.focus()
    draft = panel.drafts()[0]
    panel.write(draft[:1])  # along a shown draft: no request for drafts would be needed
    panel.write(draft[1:6])
    there = look(logits_after(TEXT + draft[:6]), Tokenizer(), 1.0, {"none": {}}).tokens[:3]  # pyright: ignore[reportArgumentType]
    panel.wait(
        lambda: [t["text"] for t in panel.chart()["tokens"][:3]] == [t.text.replace(" ", "␣") for t in there],
        "the chart of the new place",
    )
    # Inside a line, where no drafts are shown, the chart is that of the caret's place as well.
    panel.press(*["ArrowLeft"] * 9)
    here = look(logits_after((TEXT + draft[:6])[:-9]), Tokenizer(), 1.0, {"none": {}}).tokens[:3]  # pyright: ignore[reportArgumentType]
    panel.wait(
        lambda: [t["text"] for t in panel.chart()["tokens"][:3]] == [t.text.replace(" ", "␣") for t in here],
        "the chart of the caret's place",
    )
    assert panel.drafts() == [] and panel.ghost() == ""
    panel.box.press("Control+a")
    expect(panel.region).to_contain_text("Text is selected.")
    expect(panel.region).not_to_contain_text("Start writing")
    panel.page.get_by_role("button", name="New", exact=True).click()
    expect(panel.region).to_contain_text("Start writing")


def test_top_w_has_a_map_and_a_beta_by_temperature_and_at_any_size_nothing_overflows_and_the_text_stays_in_sight(
    panel: Panel,
) -> None:
    expect(panel.region.get_by_role("tab", name="Map")).to_be_hidden()
    panel.rule("top-w")
    panel.region.get_by_role("button", name="More controls").click()
    mattered = []
    for warm_start, beta in ((0.1, 8.0), (0.999, 2.8)):
        panel.slide("β", beta)
        panel.slide("Warm start", warm_start)
        selection = seen("top-w", {"beta": beta, "warm_start": warm_start})[0].top_w
        mattered.append(selection.geometry_mattered)
        words = "changed the choice here" if selection.geometry_mattered else "made no difference here"
        expect(panel.region.locator(".sm-geometry")).to_contain_text(f"Distances between tokens {words}")
    assert set(mattered) == {True, False}
    panel.region.get_by_role("tab", name="Map").click()
    kept = seen("top-w", {"beta": 2.8, "warm_start": 0.999})[1].count
    expect(panel.region.locator(".sm-map circle")).to_have_count(120)
    expect(panel.region.locator(".sm-map circle.sm-in")).to_have_count(kept)
    panel.rule("top-p")
    expect(panel.region.get_by_role("tab", name="Tokens")).to_have_attribute("aria-selected", "true")

    paper = next(preset for preset in PRESETS if preset.name == "Top-W, the paper's, β by temperature")
    panel.preset(paper.name)
    panel.wait_for_chart("top-w", dict(paper.values), paper.temperature)
    beta = panel.slider("β")
    expect(beta).to_be_disabled()
    expect(beta).to_have_attribute("aria-valuetext", "3.75 = 1.5 + 1.5·T")
    panel.slide("Temperature", 2)
    expect(beta).to_have_attribute("aria-valuetext", "4.50 = 1.5 + 1.5·T")
    assert panel.last()["sampling"]["values"]["beta_by"] == "temperature"
    assert panel.presets.input_value() == ""  # another temperature

    for width, height in ((1280, 800), (820, 1180), (360, 740)):
        panel.page.set_viewport_size({"width": width, "height": height})
        for tab in ("bars", "rules", "sweep", "map"):
            panel.page.locator(f"#sm-tab-{tab}").click()
            expect(panel.region.locator(f"#sm-{tab} :is(svg, table)").first).to_be_visible()
            outside = panel.page.evaluate(
                """() => [...document.querySelectorAll('#pd :is(button, input, select, td, svg, .pd-chance)')]
                    .filter((e) => e.checkVisibility() && !e.closest('.pd-unseen'))
                    .map((e) => [e.getBoundingClientRect(), e.outerHTML.slice(0, 90)])
                    .filter(([box]) => box.left < 0 || box.right > innerWidth + 0.5)
                    .map(([_, name]) => name)"""
            )
            assert outside == [], (width, tab)
        assert panel.page.evaluate("document.documentElement.scrollWidth") <= width
        text = panel.box.bounding_box()
        assert text and text["y"] < height / 4 and text["height"] >= 50
        expect(panel.options.first).to_be_in_viewport()


# ---------------------------------------------------------------- presets and links


def steps(panel: Panel) -> list[str]:
    """The rules of the chain, in the order that the panel shows."""
    return panel.page.eval_on_selector_all(".sm-chain select", "all => all.map((one) => one.value)")


def test_keyboard_alone_is_enough_rules_make_a_chain_and_a_papers_preset_leaves_nothing_behind(panel: Panel) -> None:
    panel.button.focus()
    reached = []
    for _ in range(13):  # from "Copy link" to the drawings' tabs
        panel.page.keyboard.press("Tab")
        name, outline = panel.page.evaluate(  # a style's ring is drawn around its name
            """() => { const at = document.activeElement, ring = at.name === "sm-style" ? at.nextElementSibling : at;
            return [at.id || at.className, getComputedStyle(ring).outlineStyle]; }"""
        )
        reached.append(name)
        assert outline != "none", str(reached)
    for name in ("sm-advanced-button", "sm-preset", "sm-rule", "sm-mode", "sm-temperature", "sm-tab-bars"):
        assert name in reached
    panel.page.locator("#sm-tab-bars").focus()
    panel.press("ArrowRight")
    expect(panel.page.locator("#sm-tab-rules")).to_be_focused()
    expect(panel.page.locator("#sm-tab-rules")).to_have_attribute("aria-selected", "true")
    panel.press("ArrowLeft", "Escape")
    expect(panel.region).to_be_hidden()
    expect(panel.button).to_be_focused()
    expect(panel.button).to_have_attribute("aria-expanded", "false")

    panel.show()
    panel.rule("top-p")
    assert steps(panel) == ["top-p"]
    panel.region.get_by_role("button", name="Add a rule").click()
    second = panel.region.get_by_role("combobox", name="Rule 2")
    expect(second).to_be_focused()
    options = panel.page.eval_on_selector_all("#sm-rule-2 option", "all => all.map((one) => [one.value, one.disabled])")
    assert not {"none", "greedy", "mirostat"} & {name for name, _ in options}
    assert [name for name, disabled in options if disabled] == ["top-p"]
    plain = panel.page.eval_on_selector("#sm-rule-2 option[value=top-h]", "one => one.textContent")
    assert plain == f"Top-H: {CATALOG['top-h'].plain}"
    second.select_option("top-n-sigma")
    panel.rest()
    assert steps(panel) == ["top-p", "top-n-sigma"]
    assert panel.last()["sampling"]["rule"] == "top-p+top-n-sigma"
    assert panel.last()["sampling"]["values"] == {"top_p": 0.9, "n": 1}
    notes = panel.region.locator(".sm-chain-notes")
    expect(notes).to_contain_text("top-nσ after top-p: σ is computed over the remaining logits")
    panel.slide("n", 0.5)
    panel.region.get_by_role("button", name="Earlier: Top-nσ").click()
    panel.rest()
    assert steps(panel) == ["top-n-sigma", "top-p"]
    chosen = panel.last()["sampling"]
    assert (chosen["rule"], chosen["values"]) == ("top-n-sigma+top-p", {"n": 0.5, "top_p": 0.9})
    expect(notes).to_contain_text("top-p after top-nσ: its probabilities are those among the remaining tokens")
    expect(panel.region.get_by_text("The temperature comes first")).to_be_visible()
    panel.wait_for_chart("top-n-sigma+top-p", {"n": 0.5, "top_p": 0.9})
    panel.region.get_by_role("button", name="Remove: Top-nσ").click()
    panel.rest()
    assert steps(panel) == ["top-p"]
    expect(notes).to_be_empty()
    expect(panel.region.get_by_role("button", name="Earlier")).to_have_count(0)

    panel.preset("Balanced")
    method = next(preset for preset in PRESETS if preset.name == "Superposed Decoding, the paper's")
    before = panel.last()
    usual = {name: before[name] for name in method.drafting}
    for preset in {preset.rule: preset for preset in PRESETS if preset.name not in STYLES}.values():  # one of each rule
        panel.preset(preset.name)
        settings = panel.last()
        assert settings["temperature"] == preset.temperature
        sampling = settings.get("sampling", {"rule": "none", "values": {}})  # nothing is said about what is as usual
        assert sampling["rule"] == preset.rule
        assert preset.values.items() <= sampling["values"].items()
        assert {name: settings[name] for name in usual} == {**usual, **preset.drafting}
    panel.preset(method.name)
    expect(panel.presets.locator("option:checked")).to_have_text(method.name)
    expect(panel.button).to_have_text("Style of drafts · Custom")
    assert {name: panel.last()[name] for name in usual} == dict(method.drafting)
    panel.preset("Balanced")
    assert panel.last() == before
    expect(panel.button).to_have_text("Style of drafts")


def test_a_speculation_that_the_server_refuses_is_taken_back_with_the_reason_and_is_not_kept(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise CalibrationError("ARC given with a rule, for a test.")

    reason = "Speculation is off. ARC given with a rule, for a test."
    panel.method("sampled")
    panel.rule("top-n-sigma")
    way = panel.region.get_by_role("combobox", name="Speculation")
    way.select_option("arc")
    panel.rest()
    assert panel.last()["sampling"]["speculation"]["mode"] == "arc"
    kept = panel.page.evaluate("localStorage['polydraft.sampling']")

    monkeypatch.setattr(speculation, "chosen_by", refuse)
    panel.rule("top-p")  # another setting that does not go with it
    panel.rest()
    expect(panel.region.get_by_text(reason)).to_be_visible()
    expect(way).to_have_value("off")
    panel.wait_for_drafts(*panel.drafts())
    assert panel.drafts() and "speculation" not in panel.last()["sampling"]
    panel.reload()
    panel.wait_for_choice("top-p")
    panel.put(TEXT)
    panel.rest()
    assert panel.drafts() and "speculation" not in panel.last()["sampling"]

    panel.page.evaluate("kept => { localStorage['polydraft.sampling'] = kept }", kept)  # by another version
    panel.reload()
    panel.wait_for_choice("top-n-sigma")
    panel.put(TEXT)
    panel.rest()
    assert panel.drafts()
    expect(panel.page.locator(".pd-toast")).to_have_text(f"{reason}Undo")
    panel.show()
    expect(panel.region.get_by_text(reason)).to_be_visible()
    panel.rule("min-p")
    expect(panel.region.get_by_text(reason)).to_be_hidden()


def save(panel: Panel, name: str) -> None:
    panel.region.get_by_role("button", name="Save").first.click()
    panel.region.get_by_role("textbox", name="Name of the preset").fill(name)
    panel.page.keyboard.press("Enter")
    expect(panel.page.get_by_text(f"Saved as {name}.")).to_be_visible()


BAD_LINKS = [
    ("rule=top-q", "rule top-q given; one of none, greedy"),
    ("rule=top-p&rule=top-p", "every rule at most once expected."),
    ("rule=top-p&rule=top-q", "rule top-q given; one of none, greedy"),
    ("rule=top-p&rule=greedy", "rule greedy given with other rules; it cannot be combined."),
    ("rule=top-p&rule=min-p&beta=3", "beta given for top-p, min-p and superposed, which have no control of that name."),
    ("rule=top-p&top-p=3", "top-p 3 given; a number from 0 to 1 expected."),
    ("rule=top-p&beta=3", "beta given for top-p and superposed, which have no control of that name."),
    ("mode=sampled&samples=3", "samples given for none and sampled, which have no control of that name."),
    ("mode=sampled%2Bsuperposed&samples=9", "samples 9 given; a whole number from 1 to 4 expected."),
    ("rule=none&k=99", "k 99 given; a whole number from 1 to 9 expected."),
    ("rule=none&length=200", "length 200 given; at most 32 without reset-every."),
    ("rule=none&distinct=maybe", "distinct maybe given; true or false expected."),
    ("rule=none&mixing=cubic", "mixing cubic given; one of linear, geometric expected."),
    ("rule=top-k&top-k=2.5", "top-k 2.5 given; a whole number from 1 to 1000 expected."),
    ("rule=top-w&metric=taxi", "metric taxi given; one of l2, whitened, cosine, uniform expected."),
    ("temperature=99", "temperature 99 given; 0.05 to 10 expected."),
    ("mode=best", "mode best given; one of superposed"),
    ("rule=none&seed=-1", "seed -1 given; a whole number"),
]


@pytest.fixture
def uncalibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise CalibrationError("Scripted is not calibrated; run `polydraft calibrate` once.")

    monkeypatch.setattr("core.speculative.calibration.for_model", missing)


def test_bad_links_and_arc_without_a_calibration_are_refused_by_name_as_are_bad_presets_and_good_ones_are_imported(
    uncalibrated: None, panel: Panel, tmp_path: Path
) -> None:
    alert = panel.region.get_by_role("alert")
    for link, said in BAD_LINKS:
        panel.page.evaluate("(hash) => { location.hash = hash }", link)
        expect(alert).to_contain_text(said)
        expect(panel.region.get_by_role("combobox", name="Rule")).to_have_value("none")
    panel.rest()
    assert "sampling" not in panel.last()

    panel.method("sampled")
    expect(panel.region).to_contain_text(
        "ARC cannot be used yet: Scripted is not calibrated; run `polydraft calibrate` once."
    )
    expect(panel.region.get_by_role("combobox", name="Speculation")).to_have_value("off")
    assert panel.region.locator("#sm-way [value=arc]").is_disabled()
    panel.page.evaluate("location.hash = '#mode=sampled&speculate=arc'")
    expect(alert).to_contain_text("not calibrated")

    panel.method("superposed")
    panel.rule("min-p")
    save(panel, "one")
    panel.region.get_by_role("button", name="More about presets").click()
    with panel.page.expect_download() as download:
        panel.region.get_by_role("button", name="Export").click()
    assert download.value.suggested_filename == "polydraft-presets.json"
    content = json.loads(download.value.path().read_text("utf-8"))
    assert Preset.from_dict(content["presets"][0]) == Preset(
        "one", "min-p", {"min_p": 0.1}, mode="superposed", k=3, length=10
    )

    def take(changed: dict[str, Any]) -> None:
        file = tmp_path / "presets.json"
        file.write_text(json.dumps({**content, "presets": [{**content["presets"][0], **changed}]}), "utf-8")
        panel.region.locator(".sm-files input").set_input_files(file)

    take({"name": "two", "values": {"min_p": 7}})
    expect(alert).to_contain_text("Preset 1 (two): min-p 7 given; a number from 0 to 1 expected.")
    take({"name": "two", "colour": "red"})
    expect(alert).to_contain_text("unknown field 'colour'")
    take({"name": PRESETS[0].name})
    expect(alert).to_contain_text("comes with Polydraft")
    assert "two" not in (panel.region.get_by_role("combobox", name="Preset").text_content() or "")
    take({"name": "two", "values": {"min_p": 0.5}})
    expect(panel.page.get_by_text("Imported two.")).to_be_visible()
    expect(alert).to_be_hidden()
    panel.preset("two")
    assert panel.last()["sampling"]["values"] == {"min_p": 0.5}


def test_a_link_the_next_visit_and_an_own_preset_carry_all_that_decides_the_drafts(
    panel: Panel, site: tuple[Server, Path]
) -> None:
    usual = panel.last()
    panel.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.rule("top-p")
    panel.region.get_by_role("button", name="Add a rule").click()
    panel.region.get_by_role("combobox", name="Rule 2").select_option("top-w")
    for name, value in {"p": 0.8, "β": 4.2, "Temperature": 1.5}.items():
        panel.slider(name).fill(str(value))
    panel.method("sampled+superposed")
    for name, value in {"n": 3, "m": 4}.items():
        panel.slider(name).fill(str(value))
    panel.region.get_by_role("spinbutton", name="Seed").fill("12")
    panel.open_settings()
    panel.page.locator("#pd-k").fill("2")
    panel.page.locator("#pd-length").fill("6")
    panel.page.locator("#pd-tau").fill("0.8")
    panel.page.locator("#pd-distinct").uncheck()
    panel.page.get_by_role("combobox", name="Mixing of phrases").select_option("geometric")
    panel.rest()
    chosen = panel.last()
    save(panel, "Meine Wahl ü")
    save(panel, "damaged")
    with closing(sqlite3.connect(site[1])) as file, file:
        file.execute("UPDATE presets SET content = '{}' WHERE name = 'damaged'")
    panel.region.get_by_role("button", name="Copy link").click()
    expect(panel.page.get_by_text("Link copied.")).to_be_visible()
    link = panel.page.evaluate("navigator.clipboard.readText()")
    rules = "rule=top-p&top-p=0.8&rule=top-w&beta=4.2&temperature=1.5"
    assert link.startswith(f"{site[0].url}/#{rules}&mode=sampled%2Bsuperposed&samples=3&sampled-tokens=4&seed=12&")

    panel.page.evaluate("location.hash = 'k=9&alpha=0.5&length=40&reset-every=10'")
    expect(panel.page.locator("#pd-length")).to_have_value("40")
    panel.rest()
    assert panel.last() == {**usual, "k": 9, "alpha": 0.5, "length": 40, "reset_every": 10}
    panel.page.goto("about:blank")
    panel.open(link)  # what it does not name goes back to its default
    expect(panel.region).to_be_visible()
    panel.put(TEXT)
    panel.rest()
    assert panel.last() == chosen
    assert "#" not in panel.page.url

    panel.reload()
    panel.wait_for_choice("top-p+top-w")
    expect(panel.region).to_be_hidden()
    expect(panel.button).to_contain_text("Custom")
    panel.put(TEXT)
    panel.rest()
    assert panel.last() == chosen
    panel.button.click()
    expect(panel.advanced).to_be_visible()  # no style says what is set
    panel.open_settings()
    panel.page.get_by_role("button", name="Reset all").click()
    panel.rest()
    assert panel.last() == usual
    expect(panel.button).to_have_text("Style of drafts")

    expect(panel.region.get_by_text("damaged is a preset that cannot be read")).to_be_visible()
    panel.preset("Meine Wahl ü")
    assert panel.last() == chosen
    panel.region.get_by_role("button", name="Remove damaged").click()
    expect(panel.region.get_by_role("button", name="Remove damaged")).to_have_count(0)
    panel.region.get_by_role("button", name="More about presets").click()
    panel.region.get_by_role("button", name="Delete").click()
    expect(panel.page.get_by_text("Deleted Meine Wahl ü.")).to_be_visible()
    assert "Meine Wahl ü" not in (panel.region.get_by_role("combobox", name="Preset").text_content() or "")


# ---------------------------------------------------------------- speculation


@pytest.fixture
def speculating(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> Panel:
    """Drafters and costs that need no model."""
    monkeypatch.setattr("core.speculative.cost.known_curve", lambda _: lambda n: float(n))
    monkeypatch.setattr(speculation, "make_drafter", lambda *_: Any)
    return panel


def test_every_method_reaches_the_drafts_a_seed_repeats_draws_and_speculation_says_what_it_comes_to_and_is_in_a_link(
    speculating: Panel,
) -> None:
    panel = speculating
    panel.rule("top-p")
    method = panel.region.get_by_role("combobox", name="Method")
    seed = panel.region.locator("#sm-seed")
    for mode in MODES:
        method.select_option(mode)
        panel.rest()
        assert panel.last()["sampling"]["mode"] == mode
        expect(seed).to_be_visible(visible="sampled" in mode)
        expect(panel.button).to_have_attribute("title", re.compile("Top-p, "))
        expect(panel.region.locator("#sm-way")).to_be_visible(visible=mode in SPECULATING)
        assert "speculation" not in panel.last()["sampling"]
    panel.rule("none")
    panel.method("sampled")
    first = panel.drafts()
    seed = panel.region.get_by_role("spinbutton", name="Seed")
    seed.fill("7")
    panel.rest()
    assert panel.last()["sampling"]["seed"] == 7
    seven = panel.drafts()
    assert seven != first
    panel.region.get_by_role("button", name="New").click()
    panel.rest()
    assert panel.last()["sampling"]["seed"] not in (0, 7)
    seed.fill("7")
    panel.rest()
    assert panel.drafts() == seven

    way = panel.region.get_by_role("combobox", name="Speculation")
    way.select_option("lossless")
    panel.rest()
    said = {"mode": "lossless", "drafter": "ngram", "values": {"tree_size": 0}}
    assert panel.last()["sampling"]["speculation"] == said
    expect(panel.region.locator(".sp-figures")).to_have_text("2.50 tokens per pass · 1.75× as fast")
    expect(panel.slider("Tree size")).to_have_attribute("aria-valuetext", "Auto")
    expect(panel.slider("θ")).to_have_count(0)
    expect(panel.region.locator(".sp-notice")).to_be_hidden()
    # The model here is no torch model, so it hands over no hidden states.
    eagle = panel.region.get_by_role("combobox", name="Proposals by").locator('[value="eagle3"]')
    expect(eagle).to_be_disabled()
    expect(eagle).to_have_attribute("title", re.compile("--backend torch"))
    panel.slide("Tree size", 31)
    expect(panel.region.locator(".sp-notice")).to_have_text("Speculation was switched off, for a test.")
    panel.slide("Tree size", 0)
    way.select_option("off")
    panel.rest()
    assert "speculation" not in panel.last()["sampling"]
    expect(panel.region.locator(".sp-figures")).to_be_empty()

    way.select_option("arc")
    for name, value in {"θ": 0.5, "λ": 2, "ε": 0.2}.items():
        panel.slider(name).fill(str(value))
    panel.rest()
    asked = panel.last()
    assert asked["sampling"]["speculation"]["values"] == {
        "tree_size": 0,
        "theta": 0.5,
        "lam": 2,
        "epsilon": 0.2,
    }
    before = panel.drafts()
    expect(panel.page.locator(".pd-list :is(.pd-accepted, .pd-tolerated)")).to_have_count(0)
    panel.region.get_by_role("checkbox", name="Colour the tokens").check()
    panel.rest()
    first = panel.options.first
    assert first.locator(".pd-accepted").all_text_contents()[:1] == ["and"]
    assert first.locator(".pd-tolerated").all_text_contents()[:1] == ["on"]
    expect(first.locator(".pd-tolerated").first).to_have_attribute("title", re.compile("tolerance; LTS 0.63|LTS 0.62"))
    expect(first.locator(".pd-corrected").first).to_be_visible()
    expect(first.locator(".pd-bonus").first).to_be_visible()
    assert panel.drafts() == before
    panel.region.get_by_role("checkbox", name="Colour the tokens").uncheck()
    panel.rest()
    expect(panel.page.locator(".pd-list .pd-accepted")).to_have_count(0)

    link = panel.page.evaluate("async () => (await import('/page/sampling/links.js')).address(polydraftSampling)")
    carried = "arc&drafter=ngram&theta=0.5&prune-lambda=2&prune-epsilon=0.2&k=3&length=10"
    assert link.partition("&speculate=")[2] == carried
    way.select_option("off")
    panel.rest()
    panel.page.evaluate("(link) => { location.hash = new URL(link).hash }", link)
    panel.wait(lambda: panel.page.evaluate("polydraftSampling.speculation.way") == "arc", "the link to be followed")
    panel.rest()
    assert panel.last() == asked
