"""The panel in real Chromium: real rules, charts and presets over distributions that are made up. test_setting.py has
what its settings do without a page."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from app.options import labels, speculation
from app.options import presets as presets_module
from app.web.routes.sampling import SWEPT
from core.controls import CATALOG, MODES, PRESETS, SPECULATING, Preset
from core.options import DRAFTING
from core.samplers.view import sweep
from core.speculative.calibration import CalibrationError
from tests.app.static.editor.editor_page import ENOUGH
from tests.app.static.panel.panel_page import BARS, FAKE, TEXT, Panel, seen, shown
from tests.fake_drafts import Server, serving
from tests.fake_sampling import STEPS, logits_after

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
expect.set_options(timeout=ENOUGH)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    file = tmp_path_factory.mktemp("data") / "presets.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presets_module, "presets_file", lambda: file)
        # As if there was one for a made-up model.
        patch.setattr("core.speculative.calibration.for_model", lambda *_: SimpleNamespace(check=lambda *_: None))
        with serving(FAKE.real, "scripted") as (_, server):
            yield server, file


@pytest.fixture
def context(context: BrowserContext, site: tuple[Server, Path]) -> BrowserContext:
    site[1].unlink(missing_ok=True)
    return context


@pytest.fixture
def panel(context: BrowserContext, site: tuple[Server, Path]) -> Iterator[Panel]:
    panel = Panel(context.new_page()).begin(site[0].url)
    yield panel
    assert panel.errors == []


# ---------------------------------------------------------------- rules, sliders, charts

# Of the controls with these flags, those that can be seen.
VISIBLE = "flags => flags.filter((flag) => document.querySelector(`#pd-${flag}`)?.checkVisibility())"


def test_a_rule_shows_its_sliders_reaches_the_drafts_and_is_drawn_as_the_core_has_it_beside_the_others(
    panel: Panel,
) -> None:
    titles = {name: labels.rule_label(name) for name in CATALOG}
    main = {each.flag: name for name, entry in CATALOG.items() for each in entry.controls if labels.shown(each).main}
    for rule in ("top-p", "top-w", "eta", "xtc"):
        if rule in labels.BUTTONS:
            panel.pick("rule", titles[rule])
        else:
            panel.pick("rule", "None")
            panel.pick("rule", "More…")
            panel.choose("Rules, in the order", re.compile(re.escape(titles[rule])))
        panel.wait_for_chart(rule)
        assert (panel.sampling()["rule"], panel.sampling()["mode"]) == (rule, "superposed")
        own = [flag for flag, owner in main.items() if owner == rule]
        panel.wait(lambda own=own: panel.page.evaluate(VISIBLE, [*main]) == own, f"the controls of {rule}")
        if rule in labels.BUTTONS:
            expect(panel.page.locator("#pd-rule")).to_contain_text(CATALOG[rule].description)

    panel.slide(temperature=2)
    panel.region.get_by_role("tab", name="All rules").click()
    figures_of = [name for name in CATALOG if name != "none"]
    figures = [
        [titles[name], f"{choice.count} · {shown(choice.mass)}"]
        for name in figures_of
        for _, choice in [seen(name, None, 2.0)]
    ]
    cards = "cards => cards.map((card) => [...card.querySelectorAll('.sm-name > *')].map((e) => e.textContent))"
    panel.wait(lambda: panel.page.eval_on_selector_all(".sm-grid [data-rule]", cards) == figures, "a card of each rule")
    panel.region.locator(".sm-grid [data-rule=top-n-sigma]").click()
    panel.rest()
    assert panel.sampling()["rule"] == "top-n-sigma"
    expect(panel.page.locator("#pd-rule label.selected")).to_have_text("Top-nσ")

    panel.region.get_by_role("tab", name="Temperatures").click()
    lines = panel.region.locator(".sm-line title")
    expect(lines).to_have_count(len(CATALOG) - 1)
    counts = sweep(logits_after(TEXT), None, FAKE.geometries, SWEPT)
    drawn = dict(title.split(". ", 1) for title in lines.all_text_contents())
    found = {name: [int(part.split(": ")[1]) for part in drawn[titles[name]].split(", ")] for name in figures_of}
    assert found == {name: counts[name] for name in figures_of}


def test_top_w_says_what_its_geometry_does_and_has_a_map_and_a_beta_by_temperature(panel: Panel) -> None:
    expect(panel.region.get_by_role("tab", name="Map")).to_be_hidden()
    panel.pick("rule", "Top-W")
    panel.section("More controls of the rule")
    mattered = set()
    for warm_start, beta in ((0.1, 8.0), (0.999, 2.8)):
        panel.slide(beta=beta, warm_start=warm_start)
        selection = seen("top-w", {"beta": beta, "warm_start": warm_start})[0].top_w
        mattered.add(selection.geometry_mattered)
        words = "changed the choice here" if selection.geometry_mattered else "made no difference here"
        expect(panel.region.locator(".sm-geometry")).to_contain_text(f"Distances between tokens {words}")
    assert mattered == {True, False}
    panel.region.get_by_role("tab", name="Map").click()
    expect(panel.region.locator(".sm-map circle")).to_have_count(120)
    kept = seen("top-w", {"beta": 2.8, "warm_start": 0.999})[1].count
    expect(panel.region.locator(".sm-map circle.sm-in")).to_have_count(kept)
    panel.pick("rule", "Top-p")
    expect(panel.region.get_by_role("tab", name="Tokens")).to_have_attribute("aria-selected", "true")

    paper = next(preset for preset in PRESETS if preset.name == "Top-W, the paper's, β by temperature")
    panel.choose("Preset", paper.name)
    panel.wait_for_chart("top-w", dict(paper.values), paper.temperature)
    beta = panel.slider("β · reward of probability")
    expect(beta).to_be_disabled()
    expect(panel.page.locator("#pd-beta")).to_contain_text("3.75 = 1.5 + 1.5·T")
    panel.slide(temperature=2)
    expect(beta).to_have_value("4.5")
    assert panel.sampling()["values"]["beta_by"] == "temperature"
    expect(panel.region.get_by_role("combobox", name="Preset")).to_have_value("")  # another temperature


def test_a_slider_changes_the_chart_and_the_next_drafts_and_sends_nothing_else_and_takes_no_pass_of_the_model(
    panel: Panel,
) -> None:
    panel.pick("rule", "Top-p")
    panel.asked.clear()
    passes = sum(FAKE.model.passes)
    panel.page.evaluate(
        """() => new Promise((done) => {
            const slider = document.querySelector('#pd-top-p input[type=range]');
            let n = 0;
            const moved = new Event('input', { bubbles: true });
            const move = () => { slider.value = 0.3 + n / 100; slider.dispatchEvent(moved);
                                 if (++n < 20) requestAnimationFrame.soon(move); else done() };
            move() })"""
    )
    panel.rest()
    panel.wait_for_chart("top-p", {"top_p": 0.49})  # the last place of the slider
    assert panel.sampling()["values"] == {"top_p": 0.49}
    assert {body["before"] for path, body in panel.asked if path == "api/drafts"} == {TEXT}
    assert 0 < panel.paths().count("api/view") <= 21  # the drafts that follow need no second look
    assert sum(FAKE.model.passes) - passes <= 20 * STEPS  # of the drafts that follow, none of the charts
    panel.section("For experts")
    panel.page.locator("#pd-distinct").get_by_role("checkbox").uncheck()
    panel.choose("Mixing of phrases", "As in the paper")
    panel.slide(top_p=0.8, k=2, tau=0.8)
    panel.choose("Method", "Sampled")
    panel.region.get_by_role("tab", name="Temperatures").click()
    expect(panel.region.locator(".sm-line")).to_have_count(len(CATALOG) - 1)
    assert {**panel.last(), "sampling": 0}.items() >= {
        "distinct": False,
        "mixing": "geometric",
        "k": 2,
        "tau": 0.8,
    }.items()
    assets = {path for path in panel.paths() if path.startswith("assets/")}  # of components that appeared
    sent = {*panel.paths()} - assets  # no event of a component is a request
    assert sent == {"api/drafts", "api/view", "api/sweep", "api/speculation"}
    panel.region.get_by_role("tab", name="Tokens").click()
    panel.section("For experts")
    expect(panel.page.locator("#pd-tau")).to_be_hidden()
    panel.section("For experts")
    panel.region.get_by_role("button", name="Reset all").click()
    usual = {name: control.default for name, control in DRAFTING.items()}
    panel.wait(lambda: panel.last() == usual, "the defaults")
    panel.wait_for_chart("none")

    panel.box.focus()
    panel.box.press("End")
    draft = panel.drafts()[0]
    panel.write(draft[:6])  # along a shown draft: no request for drafts would be needed
    for text, moves in ((TEXT + draft[:6], 0), ((TEXT + draft[:6])[:-9], 9)):  # inside a line no drafts are shown
        panel.press(*["ArrowLeft"] * moves)
        there = [token.text.replace(" ", "␣") for token in seen("none", text=text)[0].tokens[:BARS]]
        panel.wait(lambda there=there: [t["text"] for t in panel.chart()["tokens"]] == there, "the chart of this place")
    panel.box.press("Control+a")
    expect(panel.region).to_contain_text("Text is selected.")
    panel.page.get_by_role("button", name="New", exact=True).click()
    expect(panel.region).to_contain_text("Start writing")


def test_a_number_can_be_typed_and_reset_and_an_invalid_one_gives_way_to_the_present_one(panel: Panel) -> None:
    def typed(label: str, text: str) -> None:
        panel.number(label).focus()
        panel.press("Control+a", "Backspace")
        panel.page.keyboard.type(text, delay=30)
        panel.rest()

    def left(label: str, value: str) -> None:
        panel.number(label).blur()
        for field in (panel.number(label), panel.slider(label)):
            expect(field).to_have_value(value)
        panel.rest()

    panel.pick("rule", "Min-p")
    typed("p · share of the likeliest", "0.05")
    assert panel.sampling()["values"] == {"min_p": 0.05}
    typed("Temperature", "7.5")  # beyond the slider, within the option
    left("Temperature", "7.5")
    assert panel.last()["temperature"] == 7.5
    for wrong in ("99", ""):
        panel.number("Temperature").fill(wrong)
        left("Temperature", "7.5")
    assert panel.last()["temperature"] == 7.5
    panel.page.locator("#pd-temperature").get_by_role("button", name="Reset").click()
    left("Temperature", "1")
    assert panel.last()["temperature"] == 1

    expect(panel.slider("How far ahead")).to_have_attribute("max", "32")
    typed("How far ahead", "100")  # needs resets
    left("How far ahead", "10")
    panel.section("For experts")
    panel.slide(reset_every=10)
    typed("How far ahead", "100")
    left("How far ahead", "100")
    assert (panel.last()["length"], panel.last()["reset_every"]) == (100, 10)
    panel.slide(reset_every=0)
    left("How far ahead", "32")
    assert panel.last()["length"] == 32

    expect(panel.slider("Forks")).to_be_enabled()
    panel.page.locator("#pd-distinct").get_by_role("checkbox").uncheck()
    expect(panel.slider("Forks")).to_be_disabled()
    expect(panel.page.locator("#pd-forks")).to_contain_text("Changes nothing with Distinct beginnings off.")


def test_rules_make_a_chain_in_the_order_of_the_list_and_a_rule_that_stands_alone_replaces_it(panel: Panel) -> None:
    def chain(*rules: str) -> None:
        expect(panel.page.locator("#pd-rules .token")).to_have_text(
            [re.compile(f"^{re.escape(rule)}:") for rule in rules]
        )
        names = [next(name for name in CATALOG if labels.rule_label(name) == rule) for rule in rules]
        assert panel.sampling()["rule"] == ("+".join(names) or "none")

    panel.pick("rule", "Top-p")
    panel.pick("rule", "More…")
    chain("Top-p")
    panel.choose("Rules, in the order", re.compile("Top-nσ"))
    chain("Top-p", "Top-nσ")
    panel.slide(n_sigma=0.5, top_p=0.8)
    assert panel.sampling()["values"] == {"top_p": 0.8, "n": 0.5}
    expect(panel.page.locator("#pd-rules")).to_contain_text("top-nσ after top-p: σ is computed over the remaining")
    panel.wait_for_chart("top-p+top-n-sigma", {"top_p": 0.8, "n": 0.5})
    panel.page.locator("#pd-rules .token", has_text="Top-p").get_by_role("button").click()
    panel.rest()
    chain("Top-nσ")
    panel.choose("Rules, in the order", re.compile("Top-p"))
    chain("Top-nσ", "Top-p")
    expect(panel.page.locator("#pd-rules")).to_contain_text("top-p after top-nσ: its probabilities are those among")
    panel.choose("Rules, in the order", re.compile("Mirostat"))
    chain("Mirostat")
    panel.choose("Rules, in the order", re.compile("XTC"))
    chain("XTC")
    panel.page.locator("#pd-rules .token").get_by_role("button").click()
    panel.rest()
    chain()


# ---------------------------------------------------------------- method, seed, speculation


def test_every_method_reaches_the_drafts_a_seed_repeats_draws_and_speculation_says_what_it_comes_to(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.models.costs.known", lambda *_: lambda n: float(n))
    monkeypatch.setattr(speculation, "make_drafter", lambda *_: Any)
    panel.pick("rule", "Top-p")
    seed = panel.region.get_by_role("spinbutton", name="Seed")
    way = panel.page.locator("#pd-speculate")
    for mode in MODES:
        if mode != "superposed":
            panel.choose("Method", labels.MODES[mode])
        assert panel.sampling()["mode"] == mode
        expect(seed).to_be_visible(visible="sampled" in mode)
        for radio in way.get_by_role("radio").all():
            expect(radio).to_be_enabled(enabled=mode in SPECULATING)
        idle = f"Changes nothing in {labels.MODES[mode].lower()} drafts"
        expect(way).to_contain_text(idle) if mode not in SPECULATING else expect(way).not_to_contain_text(
            "Changes nothing"
        )
        assert "speculation" not in panel.sampling()
    panel.pick("rule", "None")
    panel.choose("Method", "Sampled")
    first = panel.drafts()

    def drawn_with(number: str) -> list[str]:
        seed.fill(number)
        panel.rest()
        assert panel.sampling()["seed"] == int(number)
        return panel.drafts()

    seven = drawn_with("7")
    assert seven != first
    panel.region.get_by_role("button", name="New seed").click()
    panel.rest()
    assert panel.sampling()["seed"] not in (0, 7)
    expect(seed).to_have_value(str(panel.sampling()["seed"]))
    assert drawn_with("7") == seven

    panel.pick("speculate", "Lossless")
    assert panel.sampling()["speculation"] == {"mode": "lossless", "drafter": "ngram", "values": {"tree_size": 0}}
    figures = panel.page.locator("#pd-speculating")
    expect(figures).to_have_text("2.50 tokens a pass · 1.75 × as fast")
    expect(panel.slider("θ · tolerance")).to_have_count(0)
    panel.slide(tree_size=31)
    expect(figures).to_contain_text("Speculation was switched off, for a test.")
    panel.choose("Proposals by", "EAGLE-3")  # the model here is no torch model, so it hands over no hidden states
    expect(way).to_contain_text(re.compile("Speculation is off. .*--backend torch"))
    panel.pick("speculate", "ARC")
    panel.slide(tree_size=0, theta=0.5, prune_lambda=2, prune_epsilon=0.2)
    values = {"tree_size": 0, "theta": 0.5, "lam": 2, "epsilon": 0.2}
    assert panel.sampling()["speculation"]["values"] == values
    panel.pick("speculate", "Off")
    assert "speculation" not in panel.sampling()
    expect(figures).to_be_hidden()


def test_a_speculation_that_the_server_refuses_is_taken_back_with_the_reason_and_is_not_kept(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise CalibrationError("ARC given with a rule, for a test.")

    reason = "Speculation is off. ARC given with a rule, for a test."
    panel.choose("Method", "Sampled")
    panel.pick("speculate", "ARC")
    assert panel.sampling()["speculation"]["mode"] == "arc"
    kept = panel.page.evaluate("localStorage['polydraft.settings']")
    monkeypatch.setattr(speculation, "chosen_by", refuse)
    panel.pick("rule", "Top-p")  # another setting that does not go with it
    way = panel.page.locator("#pd-speculate")
    expect(way).to_contain_text(reason)
    expect(way.get_by_role("radio", name="Off")).to_be_checked()
    panel.rest()
    assert panel.drafts() and "speculation" not in panel.sampling()

    panel.page.evaluate("kept => { localStorage['polydraft.settings'] = kept }", kept)  # by another version
    panel.page.evaluate("localStorage['polydraft.panel'] = '{\"open\": false}'")
    panel.reload()
    panel.put(TEXT)
    expect(panel.page.locator(".pd-toast")).to_have_text(f"{reason}Undo")
    panel.rest()
    assert panel.drafts() and panel.sampling()["mode"] == "sampled" and "speculation" not in panel.sampling()
    assert "arc" not in panel.page.evaluate("localStorage['polydraft.settings']")


# ---------------------------------------------------------------- presets, links, visits


def test_styles_and_presets_are_chosen_saved_renamed_deleted_exported_and_imported_and_bad_ones_are_named(
    panel: Panel, site: tuple[Server, Path], tmp_path: Path
) -> None:
    preset, notice = panel.region.get_by_role("combobox", name="Preset"), panel.page.locator("#pd-notice")
    style = panel.page.locator("#pd-style")
    for name, description in labels.STYLES.items():
        panel.pick("style", name)
        expect(style).to_contain_text(description)
        expect(preset).to_have_value(name)
        chosen = next(preset for preset in PRESETS if preset.name == name)
        assert (panel.sampling()["rule"], panel.sampling()["mode"]) == (chosen.rule, chosen.mode)
        assert (panel.sampling()["values"], panel.last()["temperature"]) == (chosen.values, chosen.temperature)
    panel.slide(temperature=1.35)
    expect(style).to_contain_text("Your own setting.")
    expect(style.get_by_role("radio", checked=True)).to_have_count(0)
    panel.section("Save and share presets")

    def do(button: str, name: str = "") -> None:
        if name:
            panel.page.get_by_role("textbox", name="Name").fill(name)
        panel.region.get_by_role("button", name=button, exact=True).click()

    for button in ("Rename", "Delete", "Export"):
        expect(panel.region.get_by_role("button", name=button)).to_be_disabled()
    do("Save")
    expect(notice).to_have_text("Write a name for the preset, then save it.")
    do("Save", PRESETS[0].name)
    expect(notice).to_contain_text("comes with Polydraft")
    do("Save", "mine")
    expect(panel.page.get_by_text("Saved as mine.")).to_be_visible()
    expect(preset).to_have_value("mine (yours)")
    expect(notice).to_be_hidden()
    do("Rename", "one")
    expect(preset).to_have_value("one (yours)")
    with panel.page.expect_download() as download:
        do("Export")
    content = json.loads(download.value.path().read_text("utf-8"))
    own = Preset("one", "top-n-sigma", {"n": 1.0}, 1.35, mode="sampled", k=3, length=10, seed=0)
    assert [Preset.from_dict(each) for each in content["presets"]] == [own]

    def take(changed: dict[str, Any]) -> None:
        file = tmp_path / "presets.json"
        file.write_text(json.dumps({**content, "presets": [{**content["presets"][0], **changed}]}), "utf-8")
        with panel.page.expect_file_chooser() as chooser:
            do("Import…")
        chooser.value.set_files(file)

    take({"name": "two", "values": {"n": 7}})
    expect(notice).to_contain_text("Preset 1 (two): n-sigma 7 given; a number from 0 to 3.5 expected.")
    take({"name": "two", "temperature": 2.0})
    expect(panel.page.get_by_text("Imported two.")).to_be_visible()
    panel.choose("Preset", "two (yours)")
    assert panel.last()["temperature"] == 2
    do("Delete")
    expect(panel.page.get_by_text("Deleted two.")).to_be_visible()
    expect(preset).to_have_value("")

    with closing(sqlite3.connect(site[1])) as file, file:
        file.execute("UPDATE presets SET content = '{}' WHERE name = 'one'")
    panel.reload()
    unreadable = panel.region.get_by_text("one is a preset that cannot be read")
    panel.section("Save and share presets")
    unreadable.click()
    do("Remove it")
    expect(unreadable).to_be_hidden()


def test_a_link_and_the_next_visit_carry_all_that_decides_the_drafts_and_a_bad_link_changes_nothing(
    panel: Panel, site: tuple[Server, Path]
) -> None:
    usual = panel.last()
    panel.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.pick("rule", "Top-p")
    panel.pick("rule", "More…")
    panel.choose("Rules, in the order", re.compile("Top-W"))
    panel.choose("Method", labels.MODES["sampled+superposed"])
    panel.section("For experts")
    panel.slide(top_p=0.8, beta=4.2, temperature=1.5, samples=3, k=2, tau=0.8)
    panel.section("Save and share presets")
    panel.region.get_by_role("button", name="Copy link").click()
    expect(panel.page.get_by_text("Link copied.")).to_be_visible()
    link, chosen = panel.page.evaluate("navigator.clipboard.readText()"), panel.last()
    assert chosen["sampling"]["values"].items() >= {"top_p": 0.8, "beta": 4.2}.items()
    assert link.startswith(f"{site[0].url}/#rule=top-p&rule=top-w&mode=sampled%2Bsuperposed&")

    panel.page.evaluate("location.hash = 'rule=top-q&k=9'")  # test_setting.py has other bad links
    refused = re.compile("rule top-q given; one of none.*The link was not followed.")
    expect(panel.page.locator("#pd-notice")).to_contain_text(refused)
    panel.rest()
    assert panel.last() == chosen
    panel.page.evaluate("location.hash = 'k=9&alpha=0.5&length=40&reset-every=10'")
    expect(panel.slider("How far ahead")).to_have_value("40")
    expect(panel.page.locator("#pd-notice")).to_be_hidden()
    panel.rest()
    assert panel.last() == {**usual, "k": 9, "alpha": 0.5, "length": 40, "reset_every": 10}
    panel.page.goto("about:blank")
    panel.open(link)  # what it does not name goes back to its default
    for visit in ("by the link", "the next one"):
        if visit == "the next one":
            panel.reload()
        panel.put(TEXT)
        panel.rest()
        assert panel.last() == chosen, visit
        assert "#" not in panel.page.url
    expect(panel.page.locator("#pd-rules .token")).to_have_count(2)
    expect(panel.slider("Temperature")).to_have_value("1.5")


def test_open_or_closed_is_remembered_and_closed_it_requests_no_charts(panel: Panel) -> None:
    button, toggle = panel.page.locator("[data-do=panel]"), panel.region.get_by_role("button", name="Toggle Sidebar")

    def is_open(opened: bool) -> None:
        expect(panel.slider("Temperature")).to_be_visible(visible=opened)
        expect(button).to_have_attribute("aria-expanded", str(opened).lower())

    is_open(True)
    hide: list[Callable[[], None]] = [button.click, lambda: panel.press("Alt+p"), toggle.click]
    for close in hide:
        close()
        is_open(False)
        panel.asked.clear()
        panel.write(" o")
        panel.rest()
        assert {*panel.paths()} == {"api/drafts"}
        if close is not hide[-1]:
            panel.press("Alt+p")
            is_open(True)
            panel.rest()
            assert "api/view" in panel.paths()
    panel.reload()
    is_open(False)
    button.click()
    is_open(True)
    panel.reload()
    is_open(True)


# ---------------------------------------------------------------- a token, two settings, how drafts were made


def test_a_click_on_a_token_asks_for_a_draft_that_begins_with_it_until_the_next_key(panel: Panel) -> None:
    panel.page.evaluate("polydraft.showing.choose('always')")
    token = panel.region.locator(".sm-bars button").nth(3)
    text = (token.get_attribute("data-token") or "").removeprefix(" ")

    def chosen() -> list[str]:
        """The beginnings that the newest request keeps because the writer chose them."""
        kept = [body.get("kept", []) for path, body in panel.asked if path == "api/drafts" and "show" in body][-1]
        return [row["text"].strip() for row in kept if row.get("chosen")]

    token.click()
    panel.wait(lambda: chosen() == [text], "a request with the token")
    panel.rest()
    panel.box.focus()
    panel.write(" o")
    panel.wait(lambda: chosen() == [], "a request without it")


def test_the_other_button_on_a_word_shows_what_could_stand_there(panel: Panel) -> None:
    draft = panel.options.first.locator(".pd-draft")
    first, second = (draft.text_content() or "").split()[:2]
    at = draft.evaluate(
        """(draft, word) => {
            const walker = document.createTreeWalker(draft, NodeFilter.SHOW_TEXT), range = new Range();
            for (let node = walker.nextNode(); node; node = walker.nextNode()) {
                const from = node.data.indexOf(word, 1);
                if (from < 0) continue;
                range.setStart(node, from); range.setEnd(node, from + word.length);
                const box = range.getBoundingClientRect(), whole = draft.getBoundingClientRect();
                return { x: box.left + box.width / 2 - whole.left, y: box.top + box.height / 2 - whole.top };
            } }""",
        second,
    )
    draft.click(button="right", position=at)
    panel.page.get_by_role("menuitem", name="What else could stand here").click()
    expect(panel.region.locator(".sm-after")).to_contain_text(f"after “{first}”")
    assert any(body["before"] == f"{TEXT} {first}" for path, body in panel.asked if path == "api/drafts")
    panel.region.get_by_role("button", name="Back to the caret").click()
    expect(panel.region.locator(".sm-after")).to_be_hidden()


def test_two_settings_stand_side_by_side_at_every_key_and_one_is_kept(panel: Panel) -> None:
    panel.region.get_by_role("button", name="Compare").click()
    panel.pick("rule", "Top-p")
    panel.slide(temperature=2)
    compared = panel.page.get_by_role("region", name="Two settings compared")
    expect(compared.get_by_role("heading")).to_have_text(["A · Defaults", "B · Top-p · Temperature 2"])
    expect(panel.page.locator("#pd-list")).to_be_hidden()
    panel.box.focus()
    panel.write(" o")
    for column in range(2):
        expect(compared.locator("ol").nth(column).get_by_role("button").first).not_to_be_empty()
        expect(compared.locator(".cp-head p").nth(column)).to_contain_text("First draft after")
    a, b = ([body for path, body in panel.asked if path == "api/drafts" and body["tab"] == tab] for tab in tabs(panel))
    assert {a[-1]["before"], b[-1]["before"]} == {f"{TEXT} o"}
    assert {body["settings"]["temperature"] for body in (a[-1], b[-1])} == {1, 2}

    compared.get_by_role("button", name="Swap").click()
    expect(compared.get_by_role("heading")).to_have_text(["A · Top-p · Temperature 2", "B · Defaults"])
    panel.choose("A is", "Precise")
    expect(compared.get_by_role("heading").first).to_have_text("A · Precise")
    compared.get_by_role("button", name="Keep A").click()
    panel.rest()
    expect(compared).to_be_hidden()
    expect(panel.page.locator("#pd-list")).to_be_visible()
    assert panel.sampling()["rule"] == "min-p"


def tabs(panel: Panel) -> list[str]:
    """The sessions of the server that requested drafts, in their order."""
    return list(dict.fromkeys(body["tab"] for path, body in panel.asked if path == "api/drafts"))
