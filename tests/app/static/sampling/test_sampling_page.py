"""The sampling panel in real Chromium: real rules, charts and presets over distributions that are made up."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from app.service import presets as presets_module
from app.service import speculation
from app.service.service import DraftService
from app.web.routes.sampling import SWEPT
from app.web.site import create_app
from core.controls import CATALOG, MODES, PRESETS, SPECULATING, STYLES, Preset
from core.options import DRAFTING
from core.samplers.view import look, sweep
from core.speculative.calibration import CalibrationError
from tests.app.static.editor.test_page import ENOUGH, Editor
from tests.fake_drafts import FakeDrafts, Server
from tests.fake_sampling import PIECES, SamplingAutocomplete, Tokenizer, logits_after

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
expect.set_options(timeout=ENOUGH)

TEXT = "Yesterday she went"
FAKE = SamplingAutocomplete()


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
    """The page, with the panel as a reader meets it."""

    def __init__(self, page: Page) -> None:
        super().__init__(page, FakeDrafts())
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
        return self.page.get_by_role("complementary", name="Style of drafts")

    def show(self) -> None:
        """Open the panel, with what is under For experts."""
        self.button.click()
        expect(self.region).to_be_visible()
        if not self.advanced.is_visible():
            self.region.get_by_role("button", name="For experts").click()
        expect(self.region.get_by_role("row").nth(1)).to_be_visible()

    @property
    def advanced(self) -> Locator:
        return self.region.locator("#sm-advanced")

    def rest(self) -> None:
        """Until nothing is under way: neither drafts nor charts."""
        self.wait(
            lambda: self.page.evaluate(
                "() => { const e = polydraft.editor, s = window.polydraftSampling;"
                " return e.request === null && !e.timers.running.settings && e.rows.length > 0"
                " && !(s && s.see.loading) }"
            ),
            "all drafts and charts",
        )

    def wait_for_choice(self, rule: str) -> None:
        """The panel is loaded and has this rule; a request that is sent earlier has none."""
        self.wait(lambda: self.page.evaluate("window.polydraftSampling?.choice.rule") == rule, "the choice")

    def rule(self, name: str) -> None:
        self.region.get_by_role("combobox", name="Rule").select_option(name)
        self.rest()

    def slide(self, name: str, value: float) -> None:
        self.region.get_by_role("slider", name=name, exact=True).fill(f"{value:g}")
        self.rest()

    def last(self) -> dict[str, Any]:
        """The settings of the newest request for drafts."""
        return [body for path, body in self.asked if path == "drafts"][-1]["settings"]

    def chart(self) -> dict[str, Any]:
        """What the page drew, as it can be read: tokens, which are kept, and the line above."""
        return self.page.evaluate(
            """() => ({
                tokens: [...document.querySelectorAll('.sm-bars tbody tr')].map((row) => ({
                    text: row.cells[0].textContent, share: row.cells[1].textContent,
                    kept: row.classList.contains('sm-kept'), said: row.cells[2].textContent,
                    stops: row.cells[3].textContent })),
                summary: document.querySelector('.sm-summary').textContent,
                beyond: document.querySelector('.sm-beyond').textContent,
            })"""
        )


@pytest.fixture
def panel(context: BrowserContext, site: tuple[Server, Path]) -> Iterator[Panel]:
    panel = Panel(context.new_page()).begin(site[0].url)
    yield panel
    assert panel.errors == []


def seen(rule: str, values: dict[str, Any] | None = None, temperature: float = 1.0) -> Any:
    """What the core says about the rule here: the view, and its choice."""
    view = look(logits_after(TEXT), Tokenizer(), temperature, {rule: values or {}}, FAKE.geometries)  # pyright: ignore[reportArgumentType]
    return view, view.choices[0]


def drawn_as(panel: Panel, rule: str, values: dict[str, Any] | None = None, temperature: float = 1.0) -> bool:
    """Whether the chart shows exactly what the core computes."""
    view, choice = seen(rule, values, temperature)
    chart = panel.chart()
    many = f"{choice.count} token{'' if choice.count == 1 else 's'} of {view.possible} kept"
    return (
        [t["text"] for t in chart["tokens"]] == [t.text.replace(" ", "␣") for t in view.tokens]
        and [t["kept"] for t in chart["tokens"]] == choice.kept
        and [t["said"] == "kept" for t in chart["tokens"]] == choice.kept
        and [t["share"] for t in chart["tokens"]] == [shown(t.probability) for t in view.tokens]
        and chart["summary"]
        == f"{many} · {shown(choice.mass)} of the probability · entropy {choice.entropy:.2f} of {view.entropy:.2f} nats"
    )


def shown(p: float) -> str:
    """A probability as the chart writes it."""
    if p >= 0.9995:
        return "100%"
    percent = 100 * p
    return f"{percent:.0f}%" if percent >= 10 else f"{percent:.1f}%" if percent >= 0.995 else f"{percent:.2f}%"


def test_closed_it_asks_for_nothing(context: BrowserContext, site: tuple[Server, Path]) -> None:
    panel = Panel(context.new_page())
    loaded: list[str] = []
    panel.page.on("request", lambda request: loaded.append(request.url))
    panel.open(site[0].url)
    panel.put(TEXT)
    panel.rest()
    panel.write(" over there")
    panel.rest()
    assert not [url for url in loaded if url.endswith(("sampling.js", "chart.js", "/api/sampling"))]
    assert {path for path, _ in panel.asked} == {"drafts"}
    panel.show()
    panel.rest()
    panel.page.get_by_role("button", name="Close the style of drafts").click()
    expect(panel.region).to_be_hidden()
    expect(panel.box).to_be_focused()  # by a click; Escape leaves it on the button
    before = len([path for path, _ in panel.asked if path != "drafts"])
    panel.box.focus()
    panel.write(" now")
    panel.rest()
    assert len([path for path, _ in panel.asked if path != "drafts"]) == before


def test_each_rule_is_drawn_as_the_core_has_it_and_reaches_the_drafts(panel: Panel) -> None:
    for rule, entry in CATALOG.items():
        panel.rule(rule)
        panel.wait(lambda rule=rule: drawn_as(panel, rule), f"the chart of {rule}")
        expect(panel.region.locator("#sm-rule-description")).to_contain_text(entry.description)
        for control in entry.controls:
            if control.main:
                slider = panel.region.get_by_role("slider", name=control.label, exact=True)
                expect(slider).to_be_visible()
                expect(slider).to_have_accessible_description(control.explain)
        if rule == "none":
            assert "sampling" not in panel.last()
            continue
        sampling = panel.last()["sampling"]
        assert (sampling["rule"], sampling["mode"]) == (rule, "superposed")
        kept = {PIECES[t.id] for t, k in zip(seen(rule)[0].tokens, seen(rule)[1].kept, strict=True) if k}
        assert {draft.split(" and")[0] for draft in panel.drafts()} <= kept, rule


def test_a_slider_changes_the_chart_and_the_drafts_follow(panel: Panel) -> None:
    panel.rule("top-n-sigma")
    panel.slide("n", 0)
    panel.wait(lambda: drawn_as(panel, "top-n-sigma", {"n": 0}), "one token")
    assert len(panel.drafts()) == 1
    panel.slide("n", 2)
    panel.wait(lambda: drawn_as(panel, "top-n-sigma", {"n": 2}), "more tokens")
    panel.wait(lambda: len(panel.drafts()) == 3)
    assert panel.last()["sampling"]["values"] == {"n": 2}
    panel.slide("Temperature", 2.5)
    panel.wait(lambda: drawn_as(panel, "top-n-sigma", {"n": 2}, 2.5), "the temperature")
    assert panel.last()["temperature"] == 2.5
    expect(panel.page.locator("#pd-temperature")).to_have_value("2.5")
    panel.region.get_by_role("button", name="Defaults").click()
    panel.wait(lambda: drawn_as(panel, "top-n-sigma"), "the defaults")
    assert panel.last()["temperature"] == 1


def test_a_slider_of_many_powers_of_ten_grows_by_factors(panel: Panel) -> None:
    panel.rule("top-k")
    panel.slide("k", 0)
    panel.wait(lambda: drawn_as(panel, "top-k", {"top_k": 1}), "the least")
    panel.slide("k", 1000)
    panel.wait(lambda: drawn_as(panel, "top-k", {"top_k": 1000}), "the most")
    panel.rule("eta")
    panel.slide("ε", 0)
    assert panel.last()["sampling"]["values"] == {"epsilon": 1e-5}


def test_a_moving_slider_makes_no_pass_of_the_model(panel: Panel) -> None:
    panel.rule("top-p")
    views = len([1 for path, _ in panel.asked if path == "view"])
    passes = sum(FAKE.model.passes)
    texts = {body["before"] for path, body in panel.asked if path == "drafts"}
    panel.page.evaluate(
        """() => new Promise((done) => {
            const slider = document.querySelector('[data-control=top_p]');
            let n = 0;
            const move = () => { slider.value = 0.3 + n / 100; slider.dispatchEvent(new Event('input'));
                                 if (++n < 40) requestAnimationFrame(move); else done() };
            move() })"""
    )
    panel.rest()
    panel.wait(lambda: drawn_as(panel, "top-p", {"top_p": 0.69}), "the last place of the slider")
    asked = [path for path, _ in panel.asked]
    assert views < asked.count("view") <= views + 41  # the drafts that follow need no second look
    assert {body["before"] for path, body in panel.asked if path == "drafts"} == texts
    assert sum(FAKE.model.passes) - passes <= 40 * 10  # of the drafts that follow, none of the charts


def test_other_rules_boundaries_are_marked(panel: Panel) -> None:
    panel.rule("min-p")
    view = look(logits_after(TEXT), Tokenizer(), 1.0, None, FAKE.geometries)  # pyright: ignore[reportArgumentType]
    panel.wait(lambda: drawn_as(panel, "min-p"), "the chart")
    chart = panel.chart()
    for choice in view.choices:
        if choice.rule in ("min-p", "none"):
            continue
        if choice.count > sum(choice.kept):
            assert f"{CATALOG[choice.rule].label} {choice.count}" in chart["beyond"]
        else:
            assert CATALOG[choice.rule].label in chart["tokens"][choice.last]["stops"].split(" · ")


def test_all_rules_stand_side_by_side_and_one_is_chosen_by_a_click(panel: Panel) -> None:
    panel.slide("Temperature", 2)
    panel.region.get_by_role("tab", name="All rules").click()
    for name, entry in CATALOG.items():
        if name == "none":
            continue
        choice = seen(name, None, 2.0)[1]
        card = panel.region.locator(f".sm-grid [data-rule={name}]")
        expect(card).to_contain_text(f"{choice.count} · {shown(choice.mass)}")
        expect(card).to_contain_text(entry.label)
    panel.region.locator(".sm-grid [data-rule=top-h]").click()
    panel.rest()
    assert panel.last()["sampling"]["rule"] == "top-h"
    expect(panel.region.locator(".sm-grid [data-rule=top-h]")).to_have_attribute("aria-pressed", "true")


def test_temperatures_are_swept_and_top_n_sigma_is_flat(panel: Panel) -> None:
    panel.rule("top-n-sigma")
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


def test_top_w_has_a_map_and_says_whether_distance_mattered(panel: Panel) -> None:
    expect(panel.region.get_by_role("tab", name="Map")).to_be_hidden()
    panel.rule("top-w")
    for warm_start, beta in ((0.5, 6.0), (0.1, 8.0), (0.999, 2.8)):
        panel.slide("β", beta)
        more = panel.region.get_by_role("button", name="More controls")
        if more.get_attribute("aria-expanded") == "false":
            more.click()
        panel.slide("Warm start", warm_start)
        selection = seen("top-w", {"beta": beta, "warm_start": warm_start})[0].top_w
        words = "changed the choice here" if selection.geometry_mattered else "made no difference here"
        expect(panel.region.locator(".sm-geometry")).to_contain_text(f"Distances between tokens {words}")
    panel.region.get_by_role("tab", name="Map").click()
    kept = seen("top-w", {"beta": 2.8, "warm_start": 0.999})[1].count
    expect(panel.region.locator(".sm-map circle")).to_have_count(120)
    expect(panel.region.locator(".sm-map circle.sm-in")).to_have_count(kept)
    panel.rule("top-p")
    expect(panel.region.get_by_role("tab", name="Tokens")).to_have_attribute("aria-selected", "true")


def test_every_draft_mode_reaches_the_drafts(panel: Panel) -> None:
    panel.rule("top-p")
    for mode in MODES:
        panel.region.get_by_role("combobox", name="Method").select_option(mode)
        panel.rest()
        assert panel.last()["sampling"]["mode"] == mode
        expect(panel.region.get_by_role("spinbutton", name="Seed")).to_be_visible(visible="sampled" in mode)
        expect(panel.button).to_have_attribute("title", re.compile("Top-p, "))


def test_a_seed_makes_draws_repeatable(panel: Panel) -> None:
    panel.region.get_by_role("combobox", name="Method").select_option("sampled")
    panel.rest()
    first = panel.drafts()
    panel.region.get_by_role("spinbutton", name="Seed").fill("7")
    panel.rest()
    assert panel.last()["sampling"]["seed"] == 7
    seven = panel.drafts()
    assert seven != first
    panel.region.get_by_role("button", name="New").click()
    panel.rest()
    assert panel.last()["sampling"]["seed"] not in (0, 7)
    panel.region.get_by_role("spinbutton", name="Seed").fill("7")
    panel.rest()
    assert panel.drafts() == seven


def test_the_chart_follows_the_text(panel: Panel) -> None:
    panel.box.focus()
    draft = panel.drafts()[0]
    panel.write(draft[:1])  # along a shown draft: no request for drafts would be needed
    panel.write(draft[1:6])
    panel.wait(
        lambda: (
            [t["text"] for t in panel.chart()["tokens"][:3]]
            == [
                t.text.replace(" ", "␣")
                for t in look(logits_after(TEXT + draft[:6]), Tokenizer(), 1.0, {"none": {}}).tokens[:3]  # pyright: ignore[reportArgumentType]
            ]
        ),
        "the chart of the new place",
    )
    panel.box.press("Control+a")
    expect(panel.region).to_contain_text("Text is selected.")
    expect(panel.region).not_to_contain_text("Start writing")
    panel.page.get_by_role("button", name="New", exact=True).click()
    expect(panel.region).to_contain_text("Start writing")


# ---------------------------------------------------------------- styles


def test_three_styles_come_first_and_the_papers_names_wait_under_advanced(
    context: BrowserContext, site: tuple[Server, Path]
) -> None:
    panel = Panel(context.new_page())
    panel.open(site[0].url)
    panel.put(TEXT)
    panel.rest()
    panel.button.click()
    expect(panel.region.get_by_role("radio", name="Balanced")).to_be_checked()
    assert panel.region.get_by_role("radio").evaluate_all("all => all.map((e) => e.value)") == list(STYLES)
    expect(panel.advanced).to_be_hidden()
    expect(panel.region.get_by_role("tab")).to_have_count(0)
    for name, description in STYLES.items():
        preset = next(preset for preset in PRESETS if preset.name == name)
        panel.region.get_by_role("radiogroup", name="Style").get_by_role("radio", name=name).check()
        panel.rest()
        expect(panel.region.get_by_role("radio", name=name)).to_have_accessible_description(description)
        expect(panel.region.get_by_text("Your own setting")).to_be_hidden()
        expect(panel.button).to_have_text("Style of drafts" if name == "Balanced" else f"Style of drafts · {name}")
        assert panel.last()["temperature"] == preset.temperature
        chosen = panel.last().get("sampling", {"rule": "none", "values": {}, "mode": "superposed"})
        assert (chosen["rule"], chosen["values"], chosen["mode"]) == (preset.rule, dict(preset.values), preset.mode)
    panel.page.keyboard.press("ArrowLeft")
    expect(panel.region.get_by_role("radio", name="Balanced")).to_be_checked()
    panel.region.get_by_role("button", name="For experts").click()
    panel.slide("Temperature", 1.35)
    expect(panel.region.get_by_text("Your own setting: see For experts.")).to_be_visible()
    expect(panel.button).to_have_text("Style of drafts · Custom")
    panel.page.get_by_role("button", name="Close the style of drafts").click()
    panel.reload()
    panel.button.click()
    expect(panel.advanced).to_be_visible()  # no style says what is set
    assert panel.errors == []


def test_each_style_has_an_example_while_the_panel_is_open(context: BrowserContext, site: tuple[Server, Path]) -> None:
    panel = Panel(context.new_page())
    panel.open(site[0].url)
    panel.put(TEXT)
    panel.rest()
    assert panel.examples == []
    panel.button.click()
    examples = panel.region.locator(".sm-example")

    def complete() -> bool:
        return len(panel.examples) == len(STYLES) and all(examples.all_text_contents())

    panel.wait(complete, "the examples")
    asked = {path for path, _ in panel.asked}
    assert asked == {"drafts"}, "charts are for experts"
    for name, body, example in zip(STYLES, panel.examples, examples.all_text_contents(), strict=True):
        preset = next(preset for preset in PRESETS if preset.name == name)
        sampling = body["settings"]["sampling"]
        assert (sampling["rule"], sampling["mode"]) == (preset.rule, preset.mode)
        assert body["settings"]["temperature"] == preset.temperature
        assert body["tab"] != panel.asked[-1][1]["tab"]
        assert TEXT.endswith(body["before"])
        assert example.startswith(f"… {TEXT.split()[-1]}")
    panel.examples.clear()
    panel.box.focus()
    panel.write(" and then")
    panel.wait(complete, "new examples")
    assert "then" in examples.first.text_content()
    panel.page.get_by_role("button", name="Close the style of drafts").click()
    panel.examples.clear()
    panel.box.focus()
    panel.write(" again")
    panel.rest()
    panel.page.wait_for_timeout(1500)
    assert panel.examples == []
    assert panel.errors == []


def test_temperatures_have_a_wide_view(panel: Panel) -> None:
    panel.rule("top-n-sigma")
    panel.region.get_by_role("tab", name="Temperatures").click()
    panel.region.get_by_role("button", name="Wide view").click()
    dialog = panel.page.get_by_role("dialog", name="Temperatures")
    expect(dialog.locator(".sm-line")).to_have_count(len(CATALOG) - 1)
    # Letters of at least 14 px, and no name over another.
    drawing = dialog.get_by_role("img")
    tops: list[float] = sorted(
        drawing.locator(".sm-label").evaluate_all("all => all.map((e) => e.getBoundingClientRect().top)")
    )
    heights: list[float] = drawing.locator(".sm-label").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect().height)"
    )
    assert min(heights) >= 13
    assert all(b - a >= 13 for a, b in pairwise(tops))
    dialog.get_by_role("button", name="Close").click()
    expect(panel.region.locator(".sm-line")).to_have_count(len(CATALOG) - 1)


def test_labels_begin_with_a_capital_and_each_word_has_one_meaning(panel: Panel) -> None:
    panel.open_settings()
    panel.page.locator("[data-do=more]").click()
    panel.region.get_by_role("combobox", name="Method").select_option("sampled")
    panel.region.get_by_role("combobox", name="Speculation").select_option("arc")
    labels: list[str] = panel.page.evaluate(
        "() => [...document.querySelectorAll('#pd :is(label, .pd-sampling option, .pd-sampling button)')]"
        ".map((e) => e.textContent.trim())"
    )
    symbols = {"k", "p", "n", "α", "β", "λ", "τ", "η", "ε", "θ", "m", "l2", "whitened", "cosine", "uniform", "×"}
    assert [label for label in labels if label not in symbols and label[:1] != label[:1].upper()] == []
    assert labels.count("Drafts") == 1, "the number; how they are made is the method"


# ---------------------------------------------------------------- presets and links


def test_a_papers_preset_sets_everything(panel: Panel) -> None:
    for preset in PRESETS:
        panel.region.get_by_role("combobox", name="Preset").select_option(label=preset.name)
        panel.rest()
        settings = panel.last()
        assert settings["temperature"] == preset.temperature
        sampling = settings.get("sampling", {"rule": "none", "values": {}})  # nothing is said about what is as usual
        assert sampling["rule"] == preset.rule
        assert preset.values.items() <= sampling["values"].items()
        panel.wait(lambda p=preset: drawn_as(panel, p.rule, dict(p.values), p.temperature), preset.name)


def test_the_papers_method_is_one_preset_and_leaves_with_it(panel: Panel) -> None:
    paper = next(preset for preset in PRESETS if preset.name == "Superposed Decoding, the paper's")
    presets = panel.region.get_by_role("combobox", name="Preset")
    before = panel.last()
    presets.select_option(label=paper.name)
    panel.rest()
    assert {name: panel.last()[name] for name in paper.drafting} == dict(paper.drafting)
    expect(presets.locator("option:checked")).to_have_text(paper.name)
    expect(panel.button).to_have_text("Style of drafts · Custom")
    presets.select_option(label="Balanced")
    panel.rest()
    assert panel.last() == before
    expect(panel.button).to_have_text("Style of drafts")


def test_mixing_is_a_setting_that_survives_a_reload_a_link_and_a_reset(panel: Panel) -> None:
    panel.open_settings()
    panel.page.locator("[data-do=more]").click()
    panel.page.get_by_role("combobox", name="Mixing of phrases").select_option("geometric")
    panel.rest()
    assert panel.last()["mixing"] == "geometric"
    panel.reload()
    panel.show()
    panel.rule("top-k")
    assert panel.last()["mixing"] == "geometric"
    panel.page.evaluate("location.hash = 'rule=none&mixing=linear&alpha=0.54'")
    panel.rest()
    assert (panel.last()["mixing"], panel.last()["alpha"]) == ("linear", 0.54)
    panel.page.evaluate("location.hash = 'rule=none&mixing=geometric'")
    panel.rest()
    assert panel.last()["mixing"] == "geometric"
    panel.open_settings()
    panel.page.locator("[data-do=more]").click()
    panel.page.get_by_role("button", name="Reset all").click()
    panel.rest()
    assert panel.last()["mixing"] == "linear"


def save(panel: Panel, name: str) -> None:
    panel.region.get_by_role("button", name="Save").first.click()
    panel.region.get_by_role("textbox", name="Name of the preset").fill(name)
    panel.page.keyboard.press("Enter")
    expect(panel.page.get_by_text(f"Saved as {name}.")).to_be_visible()


def test_an_own_preset_survives_a_reload_and_can_be_deleted(panel: Panel) -> None:
    panel.rule("top-k")
    panel.slide("k", 500)
    panel.slide("Temperature", 1.5)
    value = panel.last()["sampling"]["values"]["top_k"]
    save(panel, "Meine Wahl ü")
    panel.reload()
    panel.show()
    panel.rule("none")
    panel.region.get_by_role("combobox", name="Preset").select_option(label="Meine Wahl ü")
    panel.rest()
    assert panel.last()["sampling"] == {
        "rule": "top-k",
        "values": {"top_k": value},
        "mode": "superposed",
        "mode_values": {},
        "seed": 0,
    }
    assert panel.last()["temperature"] == 1.5
    panel.region.get_by_role("button", name="More about presets").click()
    panel.region.get_by_role("button", name="Delete").click()
    expect(panel.page.get_by_text("Deleted Meine Wahl ü.")).to_be_visible()
    assert "Meine Wahl ü" not in (panel.region.get_by_role("combobox", name="Preset").text_content() or "")


def test_a_preset_that_cannot_be_read_is_named_and_can_be_removed(panel: Panel, site: tuple[Server, Path]) -> None:
    save(panel, "mine")
    save(panel, "damaged")
    with closing(sqlite3.connect(site[1])) as file, file:
        file.execute("UPDATE presets SET content = '{}' WHERE name = 'damaged'")
    panel.reload()
    panel.show()
    expect(panel.region.get_by_text("damaged is a preset that cannot be read")).to_be_visible()
    assert "mine" in (panel.region.get_by_role("combobox", name="Preset").text_content() or "")
    panel.region.get_by_role("button", name="Remove damaged").click()
    expect(panel.region.get_by_role("button", name="Remove damaged")).to_have_count(0)
    panel.region.get_by_role("combobox", name="Preset").select_option(label="mine")
    panel.region.get_by_role("button", name="More about presets").click()
    panel.region.get_by_role("button", name="Delete").click()


def test_presets_are_exported_and_imported_and_bad_ones_refused(panel: Panel, tmp_path: Path) -> None:
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

    alert = panel.region.get_by_role("alert")
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
    panel.region.get_by_role("combobox", name="Preset").select_option(label="two")
    panel.rest()
    assert panel.last()["sampling"]["values"] == {"min_p": 0.5}


def test_a_link_carries_the_setting(panel: Panel, browser: Browser, site: tuple[Server, Path]) -> None:
    panel.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.rule("top-w")
    panel.slide("β", 4.2)
    panel.slide("Temperature", 1.5)
    panel.region.get_by_role("combobox", name="Method").select_option("sampled")
    panel.region.get_by_role("spinbutton", name="Seed").fill("12")
    panel.rest()
    panel.region.get_by_role("button", name="Copy link").click()
    expect(panel.page.get_by_text("Link copied.")).to_be_visible()
    link = panel.page.evaluate("navigator.clipboard.readText()")
    assert link == f"{site[0].url}/#rule=top-w&beta=4.2&temperature=1.5&mode=sampled&seed=12&k=3&length=10"
    with browser.new_context() as elsewhere:
        other = Panel(elsewhere.new_page())
        other.open(link)
        expect(other.region).to_be_visible()
        other.put(TEXT)
        other.rest()
        assert other.last()["sampling"] == panel.last()["sampling"]
        assert other.last()["temperature"] == 1.5
        assert "#" not in other.page.url
        assert other.errors == []


# ---------------------------------------------------------------- chains


def steps(panel: Panel) -> list[str]:
    """The rules of the chain, in the order that the panel shows."""
    return panel.page.eval_on_selector_all(".sm-chain select", "all => all.map((one) => one.value)")


def test_rules_are_put_into_a_chain_in_a_visible_order(panel: Panel) -> None:
    panel.rule("top-p")
    assert steps(panel) == ["top-p"]
    panel.region.get_by_role("button", name="Add a rule").click()
    second = panel.region.get_by_role("combobox", name="Rule 2")
    expect(second).to_be_focused()
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
    _, choice = seen("top-n-sigma+top-p", {"n": 0.5, "top_p": 0.9})
    assert sum(token["kept"] for token in panel.chart()["tokens"]) == sum(choice.kept)
    panel.region.get_by_role("button", name="Remove: Top-nσ").click()
    panel.rest()
    assert steps(panel) == ["top-p"]
    expect(notes).to_be_empty()
    expect(panel.region.get_by_role("button", name="Earlier")).to_have_count(0)


def test_a_chain_offers_only_rules_that_can_be_combined(panel: Panel) -> None:
    for alone in ("none", "greedy", "mirostat"):
        panel.rule(alone)
        expect(panel.region.get_by_role("button", name="Add a rule")).to_be_hidden()
    panel.rule("min-p")
    panel.region.get_by_role("button", name="Add a rule").click()
    options = panel.page.eval_on_selector_all("#sm-rule-2 option", "all => all.map((one) => [one.value, one.disabled])")
    assert not {"none", "greedy", "mirostat"} & {name for name, _ in options}
    assert [name for name, disabled in options if disabled] == ["min-p"]
    plain = panel.page.eval_on_selector("#sm-rule-2 option[value=top-h]", "one => one.textContent")
    assert plain == f"Top-H: {CATALOG['top-h'].plain}"


def test_links_presets_and_the_next_visit_carry_a_chain(
    panel: Panel, browser: Browser, site: tuple[Server, Path]
) -> None:
    panel.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.rule("top-n-sigma")
    panel.region.get_by_role("button", name="Add a rule").click()
    panel.region.get_by_role("combobox", name="Rule 2").select_option("top-p")
    panel.slide("n", 1.3)
    chosen = panel.last()["sampling"]
    assert chosen["rule"] == "top-n-sigma+top-p"
    panel.region.get_by_role("button", name="Copy link").click()
    link = panel.page.evaluate("navigator.clipboard.readText()")
    assert "#rule=top-n-sigma&n-sigma=1.3&rule=top-p&temperature=1" in link
    with browser.new_context() as elsewhere:
        other = Panel(elsewhere.new_page())
        other.open(link)
        other.wait_for_choice(chosen["rule"])
        other.put(TEXT)
        other.rest()
        assert other.last()["sampling"] == chosen
        assert other.errors == []
    save(panel, "both")
    panel.region.get_by_role("combobox", name="Preset").select_option(label="Balanced")
    panel.rest()
    panel.region.get_by_role("combobox", name="Preset").select_option(label="both")
    panel.rest()
    assert panel.last()["sampling"] == chosen
    panel.reload()
    panel.wait_for_choice(chosen["rule"])
    panel.put(TEXT)
    panel.rest()
    assert panel.last()["sampling"] == chosen


def test_top_ws_beta_follows_the_temperature_on_the_page(panel: Panel) -> None:
    panel.region.get_by_role("combobox", name="Preset").select_option(label="Top-W, the paper's, β by temperature")
    panel.rest()
    beta = panel.region.get_by_role("slider", name="β", exact=True)
    expect(beta).to_be_disabled()
    expect(beta).to_have_attribute("aria-valuetext", "3.75 = 1.5 + 1.5·T")
    panel.slide("Temperature", 2)
    expect(beta).to_have_attribute("aria-valuetext", "4.50 = 1.5 + 1.5·T")
    assert panel.last()["sampling"]["values"]["beta_by"] == "temperature"
    assert panel.region.get_by_role("combobox", name="Preset").input_value() == ""  # another temperature


def test_the_papers_temperatures_are_reachable(panel: Panel) -> None:
    exact = panel.region.get_by_role("spinbutton", name="Temperature")
    exact.fill("10")
    exact.press("Enter")
    panel.rest()
    assert panel.last()["temperature"] == 10
    expect(panel.region.get_by_role("slider", name="Temperature", exact=True)).to_have_value("10")
    exact.fill("99")
    exact.press("Enter")
    expect(exact).to_have_value("10")
    panel.slide("Temperature", 1)
    assert panel.last()["temperature"] == 1


def test_a_link_carries_all_that_decides_the_drafts(panel: Panel, browser: Browser, site: tuple[Server, Path]) -> None:
    panel.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.region.get_by_role("combobox", name="Method").select_option("sampled+superposed")
    panel.slide("n", 3)
    panel.slide("m", 4)
    panel.open_settings()
    panel.page.locator("#pd-k").fill("2")
    panel.page.locator("#pd-length").fill("6")
    panel.page.locator("[data-do=more]").click()
    panel.page.locator("#pd-tau").fill("0.8")
    panel.page.locator("#pd-distinct").uncheck()
    panel.rest()
    sampling = panel.last()["sampling"]
    assert (sampling["mode"], sampling["mode_values"]) == ("sampled+superposed", {"samples": 3, "sampled_tokens": 4})
    panel.region.get_by_role("button", name="Copy link").click()
    expect(panel.page.get_by_text("Link copied.")).to_be_visible()
    link = panel.page.evaluate("navigator.clipboard.readText()")
    with browser.new_context() as elsewhere:
        other = Panel(elsewhere.new_page())
        other.open(site[0].url + "/#k=9&alpha=0.5&length=200&reset-every=10")
        expect(other.region).to_be_visible()
        expect(other.page.locator("#pd-length")).to_have_value("200")
        other.page.goto(link)  # what it does not name goes back to its default
        other.put(TEXT)
        other.rest()
        assert other.last() == panel.last()
        assert other.errors == []


def test_an_own_preset_keeps_how_many_drafts_and_how_they_are_drawn(panel: Panel) -> None:
    panel.region.get_by_role("combobox", name="Method").select_option("sampled+superposed")
    panel.slide("n", 3)
    panel.region.get_by_role("spinbutton", name="Seed").fill("5")
    panel.open_settings()
    panel.page.locator("#pd-k").fill("2")
    panel.page.locator("[data-do=more]").click()
    panel.page.locator("#pd-mixing").select_option("geometric")
    panel.rest()
    saved = panel.last()
    save(panel, "two of three")
    panel.page.get_by_role("button", name="Reset all").click()
    panel.rest()
    assert panel.last() != saved
    panel.region.get_by_role("combobox", name="Preset").select_option(label="two of three")
    panel.rest()
    assert panel.last() == saved


BAD_LINKS = [
    ("rule=top-q", "rule top-q given; one of none, greedy"),
    ("rule=top-p&rule=top-q", "rule top-q given; one of none, greedy"),
    ("rule=top-p&rule=top-p", "every rule at most once expected."),
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


def test_a_bad_link_is_refused_by_name(panel: Panel) -> None:
    alert = panel.region.get_by_role("alert")
    for link, said in BAD_LINKS:
        panel.page.evaluate("(hash) => { location.hash = hash }", link)
        expect(alert).to_contain_text(said)
        expect(panel.region.get_by_role("combobox", name="Rule")).to_have_value("none")
        panel.rest()
        assert "sampling" not in panel.last(), link


# ---------------------------------------------------------------- speculation


@pytest.fixture
def speculating(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> Panel:
    """Sampled drafts, with drafters and costs that need no model."""
    monkeypatch.setattr("core.speculative.cost.known_curve", lambda _: lambda n: float(n))
    monkeypatch.setattr(speculation, "make_drafter", lambda *_: Any)
    panel.region.get_by_role("combobox", name="Method").select_option("sampled")
    panel.rest()
    return panel


def test_only_modes_that_can_offer_speculation_and_off_it_is_not_asked_for(panel: Panel) -> None:
    way = panel.region.get_by_role("combobox", name="Speculation")
    for mode in MODES:
        panel.region.get_by_role("combobox", name="Method").select_option(mode)
        panel.rest()
        expect(way).to_be_visible(visible=mode in SPECULATING)
        assert "speculation" not in panel.last().get("sampling", {})


def test_speculation_reaches_the_drafts_and_says_what_it_comes_to(speculating: Panel) -> None:
    panel = speculating
    way = panel.region.get_by_role("combobox", name="Speculation")
    way.select_option("lossless")
    panel.rest()
    said = {"mode": "lossless", "drafter": "ngram", "values": {"tree_size": 0}}
    assert panel.last()["sampling"]["speculation"] == said
    expect(panel.region.locator(".sp-figures")).to_have_text("2.50 tokens per pass · 1.75× as fast")
    expect(panel.region.get_by_role("slider", name="Tree size")).to_have_attribute("aria-valuetext", "Auto")
    expect(panel.region.get_by_role("slider", name="θ", exact=True)).to_have_count(0)
    expect(panel.region.locator(".sp-notice")).to_be_hidden()
    panel.slide("Tree size", 31)
    expect(panel.region.locator(".sp-notice")).to_have_text("Speculation was switched off, for a test.")
    way.select_option("off")
    panel.rest()
    assert "speculation" not in panel.last()["sampling"]
    expect(panel.region.locator(".sp-figures")).to_be_empty()


def test_a_drafter_that_the_model_cannot_have_says_why(speculating: Panel) -> None:
    """The model here is no torch model, so it hands over no hidden states."""
    panel = speculating
    panel.region.get_by_role("combobox", name="Speculation").select_option("lossless")
    eagle = panel.region.get_by_role("combobox", name="Proposals by").locator('[value="eagle3"]')
    expect(eagle).to_be_disabled()
    expect(eagle).to_have_attribute("title", re.compile("--backend torch"))


def test_tokens_are_coloured_by_how_they_came_on_demand(speculating: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = speculating
    panel.region.get_by_role("combobox", name="Speculation").select_option("arc")
    panel.slide("θ", 0.5)
    panel.slide("λ", 2)
    panel.slide("ε", 0.2)
    assert panel.last()["sampling"]["speculation"]["values"] == {
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


def test_a_link_carries_speculation(speculating: Panel, site: tuple[Server, Path]) -> None:
    panel = speculating
    panel.region.get_by_role("combobox", name="Speculation").select_option("arc")
    panel.slide("θ", 0.5)
    asked = panel.last()
    link = panel.page.evaluate("async () => (await import('/page/sampling/links.js')).address(polydraftSampling)")
    assert link.partition("&speculate=")[2] == "arc&drafter=ngram&theta=0.5&k=3&length=10"
    panel.region.get_by_role("combobox", name="Speculation").select_option("off")
    panel.rest()
    panel.page.evaluate("(link) => { location.hash = new URL(link).hash }", link)
    panel.wait(lambda: panel.page.evaluate("polydraftSampling.speculation.way") == "arc", "the link to be followed")
    panel.rest()
    assert panel.last() == asked


def test_without_a_calibration_arc_says_what_to_do(
    context: BrowserContext, site: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> None:
        raise CalibrationError("Scripted is not calibrated; run `polydraft calibrate` once.")

    monkeypatch.setattr("core.speculative.calibration.for_model", missing)
    panel = Panel(context.new_page()).begin(site[0].url)
    panel.region.get_by_role("combobox", name="Method").select_option("sampled")
    panel.rest()
    expect(panel.region).to_contain_text(
        "ARC cannot be used yet: Scripted is not calibrated; run `polydraft calibrate` once."
    )
    assert panel.region.locator("#sm-way [value=arc]").is_disabled()
    panel.page.evaluate("location.hash = '#mode=sampled&speculate=arc'")
    expect(panel.region.get_by_role("alert")).to_contain_text("not calibrated")
    assert panel.errors == []


# ---------------------------------------------------------------- looks and access


def test_the_choice_survives_a_reload_and_reset_all_takes_it_back(panel: Panel) -> None:
    panel.rule("top-h")
    panel.slide("α", 0.7)
    panel.reload()
    panel.wait_for_choice("top-h")
    expect(panel.region).to_be_hidden()
    expect(panel.button).to_contain_text("Custom")
    panel.put(TEXT)
    panel.rest()
    assert panel.last()["sampling"]["values"] == {"alpha": 0.7}
    panel.open_settings()
    panel.page.locator("[data-do=more]").click()
    panel.page.get_by_role("button", name="Reset all").click()
    panel.rest()
    assert "sampling" not in panel.last()
    expect(panel.button).to_have_text("Style of drafts")


@pytest.mark.parametrize(("width", "height"), [(360, 740), (820, 1180), (1280, 800), (1600, 900)])
def test_nothing_overflows_and_the_text_stays_in_sight(
    browser: Browser, site: tuple[Server, Path], width: int, height: int
) -> None:
    with browser.new_context(viewport={"width": width, "height": height}) as context:
        panel = Panel(context.new_page()).begin(site[0].url)
        panel.rule("top-w")
        for tab in ("bars", "rules", "sweep", "map"):
            panel.page.locator(f"#sm-tab-{tab}").click()
            panel.rest()
            expect(panel.region.locator(f"#sm-{tab}")).not_to_be_empty()
            outside = panel.page.evaluate(
                """() => [...document.querySelectorAll('#pd :is(button, input, select, td, svg, .pd-chance)')]
                    .filter((e) => e.checkVisibility() && !e.closest('.pd-unseen'))
                    .map((e) => [e.getBoundingClientRect(), e.outerHTML.slice(0, 90)])
                    .filter(([box]) => box.left < 0 || box.right > innerWidth + 0.5)
                    .map(([_, name]) => name)"""
            )
            assert outside == []
        assert panel.page.evaluate("document.documentElement.scrollWidth") <= width
        text = panel.box.bounding_box()
        assert text and text["y"] < height / 4 and text["height"] >= 50
        expect(panel.options.first).to_be_in_viewport()
        assert panel.errors == []


def test_keyboard_alone_is_enough(panel: Panel) -> None:
    panel.button.focus()
    reached = []
    for _ in range(13):  # from "Copy link" to the drawings' tabs
        panel.press("Tab")
        reached.append(panel.page.evaluate("document.activeElement.id || document.activeElement.className"))
        outline = panel.page.evaluate(  # a style's ring is drawn around its name
            """() => { const at = document.activeElement;
            return getComputedStyle(at.name === "sm-style" ? at.nextElementSibling : at).outlineStyle; }"""
        )
        assert outline != "none", str(reached)
    for name in ("sm-advanced-button", "sm-preset", "sm-rule", "sm-mode", "sm-temperature", "sm-tab-bars"):
        assert name in reached
    panel.page.locator("#sm-tab-bars").focus()
    panel.press("ArrowRight")
    expect(panel.page.locator("#sm-tab-rules")).to_be_focused()
    expect(panel.page.locator("#sm-tab-rules")).to_have_attribute("aria-selected", "true")
    panel.press("Escape")
    expect(panel.region).to_be_hidden()
    expect(panel.button).to_be_focused()
    expect(panel.button).to_have_attribute("aria-expanded", "false")
