"""The panel beside the text: Gradio's own sliders, lists and buttons, one for each option and rule that is declared.

All of it runs in the browser. An event of a component calls a script (`fn=None`), so no request is sent:

    a slider ── polydraftPanel.given(name, value) ──► static/panel/panel.js ──► the next request for drafts
        ▲                                                    │
        └──────── updates of all fields ◄── the editor's event "fields"

The script gets the names of the fields, and everything that it knows about options, as JSON in the page (`catalogue`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
from gradio.blocks import Block

from app.options import labels
from app.options.catalogue import catalogue
from core.controls import CATALOG, DRAFTERS, MODE_CONTROLS, MODES, PRESETS, SPECULATIONS
from core.options import DRAFTING, SEED, Control

MORE = "more"  # the button that shows the other rules

# How the page looks. The server does not need these settings.
CHANCES = [("Darker ink", "ink"), ("Numbers", "number"), ("Bars", "bar"), ("Off", "off")]
SHOWING = [("When they save time", "time"), ("Always", "always"), ("After a pause", "pause"), ("On demand", "demand")]
FONTS = [("Serif", "serif"), ("Sans", "sans"), ("Mono", "mono")]
USUAL_LOOK = {"font": "serif", "size": 100, "width": 72, "spacing": 1.6}
LOOK_SLIDERS = [
    ("size", "Text size, in %", 70, 200, 5),
    ("width", "Line width, in letters", 40, 120, 4),
    ("spacing", "Line spacing", 1.2, 2.4, 0.1),
]
COLOURS = [("Off", "off"), ("By how likely they are", "chance"), ("By how they were made", "made")]


class Fields:
    """The components of the panel that a script reads or sets, by name."""

    def __init__(self) -> None:
        self.all: dict[str, Block] = {}

    def add(self, name: str, component: Any) -> None:
        """A component that a person changes."""
        self.all[name] = component
        # To Gradio, pasting a text is a change and no input, and a slider's reset is a release alone.
        self._tell("given", name, component, component.change if isinstance(component, gr.Textbox) else component.input)
        if isinstance(component, gr.Slider):
            self._tell("settled", name, component, component.release)
        elif isinstance(component, gr.Number):
            self._tell("settled", name, component, component.blur)

    def _tell(self, method: str, name: str, component: Any, event: Any) -> None:
        """At an event, calls a method of the script's panel with the component's name and value."""
        event(None, component, None, js=f"(value) => window.polydraftPanel?.{method}({json.dumps(name)}, value)")

    def show(self, name: str, component: Block) -> None:
        """A component that scripts alone change."""
        self.all[name] = component

    def button(self, name: str, label: str, **more: Any) -> None:
        button = gr.Button(label, size="sm", elem_id=_id(name), **more)
        button.click(None, None, None, js=f"() => window.polydraftPanel?.press({json.dumps(name)})")
        self.all[name] = button

    def opening(self, name: str, component: Any) -> None:
        """A component that a person opens and closes."""
        self.all[name] = component
        for event, opened in ((component.expand, True), (component.collapse, False)):
            event(None, None, None, js=f"() => window.polydraftPanel?.given({json.dumps(name)}, {json.dumps(opened)})")

    @contextmanager
    def section(self, name: str, label: str, open: bool = False, **more: Any) -> Iterator[None]:
        with gr.Accordion(label, open=open, elem_id=_id(name), **more) as self.all[name]:
            yield


def add_panel(editor: gr.HTML) -> str:
    """Adds the panel to the present Blocks. Returns what its script has to know, as JSON.

    Args:
        editor: has the event "fields", with which the script sets fields.
    """
    fields = Fields()
    with gr.Sidebar(position="right", open=True, elem_id="pd-panel") as panel:
        _add_presets(fields)
        _add_rule(fields)
        _add_part("next")
        _add_speculation(fields)
        _add_drafts(fields)
        _add_made(fields)
        _add_own_presets(fields)
        _add_experts(fields)
        _add_view(fields)
    fields.opening("panel", panel)
    components = [*fields.all.values()]
    editor.fields(None, None, components, js="() => window.polydraftPanel?.updates() ?? []")
    return json.dumps({**catalogue(), "look": USUAL_LOOK, "fields": [*fields.all]}, ensure_ascii=False)


def _add_presets(fields: Fields) -> None:
    styles = [(name, name) for name in labels.STYLES]
    fields.add("style", gr.Radio(styles, label="Style", elem_id=_id("style"), elem_classes="pd-buttons"))
    names = [preset.name for preset in PRESETS]
    with gr.Row():
        preset = gr.Dropdown(
            names, value=None, label="Preset", elem_id=_id("preset"), filterable=False, scale=3, min_width=120
        )
        fields.add("preset", preset)
        fields.button("compare", "Compare", scale=1, min_width=90)
    fields.add(
        "against", gr.Dropdown([], value=None, label="A is", visible=False, filterable=False, elem_id=_id("against"))
    )
    fields.show("notice", gr.Markdown(visible=False, elem_id=_id("notice")))


def _add_rule(fields: Fields) -> None:
    buttons = [(labels.rule_label(name), name) for name in labels.BUTTONS if name in CATALOG]
    rule = gr.Radio([*buttons, ("More…", MORE)], label="Rule", elem_id=_id("rule"), elem_classes="pd-buttons", info=" ")
    fields.add("rule", rule)
    all_rules = [(f"{labels.rule_label(name)}: {labels.PLAIN.get(name, entry.description)}", name)
                 for name, entry in CATALOG.items()]  # fmt: skip
    chain = gr.Dropdown(
        all_rules, value=[], multiselect=True, label="Rules, in the order in which they are applied", visible=False,
        info="The temperature comes first, then the rules from left to right.", elem_id=_id("rules"),
    )  # fmt: skip
    fields.add("rules", chain)
    expert: list[Control] = []
    for entry in CATALOG.values():
        for control in entry.controls:
            if labels.shown(control).main:
                _add_control(fields, control, visible=False)
            else:
                expert.append(control)
    with fields.section("rule-more", "More controls of the rule", visible=False):
        for control in expert:
            _add_control(fields, control, visible=False)
    _add_control(fields, DRAFTING["temperature"])


def _add_speculation(fields: Fields) -> None:
    ways = labels.choices(SPECULATIONS, labels.WAYS)
    speculate = gr.Radio(ways, label="Speculation", info=" ", elem_id=_id("speculate"), elem_classes="pd-buttons")
    fields.add("speculate", speculate)
    drafters = labels.choices(DRAFTERS, labels.DRAFTERS)
    fields.add(
        "drafter",
        gr.Dropdown(drafters, label="Proposals by", info=" ", visible=False, filterable=False, elem_id=_id("drafter")),
    )
    for control in {c.flag: c for _, controls in SPECULATIONS.values() for c in controls}.values():
        _add_control(fields, control, visible=False)
    fields.show("speculating", gr.Markdown(visible=False, elem_id=_id("speculating")))


def _add_drafts(fields: Fields) -> None:
    with fields.section("drafts", "Drafts", open=True):
        for control in labels.in_order([*DRAFTING.values()]):
            if labels.shown(control).main and control.name != "temperature":
                _add_control(fields, control)
        modes = labels.choices(MODES, labels.MODES)
        fields.add("mode", gr.Dropdown(modes, label="Method", info=" ", filterable=False, elem_id=_id("mode")))
        for control in {c.flag: c for controls in MODE_CONTROLS.values() for c in controls}.values():
            _add_control(fields, control, visible=False)
        fields.add(
            "seed",
            gr.Number(
                label=labels.shown(SEED).label, info=SEED.explain, precision=0, minimum=SEED.low, maximum=SEED.high,
                visible=False, elem_id=_id("seed"),
            ),
        )  # fmt: skip
        fields.button("new-seed", "New seed", visible=False)


def _add_made(fields: Fields) -> None:
    with fields.section("made", "How these drafts were made"):
        _add_part("cells")
        colours = gr.Dropdown(
            COLOURS, label="Colour the tokens of drafts", info=" ", filterable=False, elem_id=_id("colour")
        )
        fields.add("colour", colours)
    fields.opening("made", fields.all["made"])


def _add_own_presets(fields: Fields) -> None:
    with fields.section("presets", "Save and share presets"):
        fields.add("preset-name", gr.Textbox(label="Name", max_length=80, elem_id=_id("preset-name")))
        with gr.Row():
            fields.button("save", "Save")
            fields.button("rename", "Rename")
            fields.button("delete", "Delete")
        with gr.Row():
            fields.button("export", "Export")
            fields.button("import", "Import…")
            fields.button("link", "Copy link")
        fields.add("unreadable", gr.Radio([], label="Cannot be read", visible=False, elem_id=_id("unreadable")))
        fields.button("remove-unreadable", "Remove it", visible=False)


def _add_experts(fields: Fields) -> None:
    with fields.section("experts", "For experts"):
        for control in labels.in_order([*DRAFTING.values()]):
            if not labels.shown(control).main:
                _add_control(fields, control)
        fields.button("reset", "Reset all")


def _add_view(fields: Fields) -> None:
    with fields.section("view", "This page"):
        fields.add("show", gr.Dropdown(SHOWING, label="Show drafts", elem_id=_id("show"), filterable=False))
        fields.add(
            "chances",
            gr.Dropdown(
                CHANCES, label="How likely", elem_id=_id("chances"), filterable=False,
                info="Likely drafts are dark, others grey or faint; or numbers or bars.",
            ),
        )  # fmt: skip
        fonts = gr.Radio(FONTS, value=USUAL_LOOK["font"], label="Font", elem_id=_id("font"), elem_classes="pd-buttons")
        fields.add("font", fonts)
        for name, label, low, high, step in LOOK_SLIDERS:
            value: Any = USUAL_LOOK[name]
            fields.add(name, gr.Slider(low, high, value, step=step, label=label, elem_id=_id(name)))
        with gr.Row():
            fields.button("focus", "Focus mode", min_width=90)
            fields.button("pause", "Pause drafts", min_width=90)
            fields.button("usual-look", "Reset view", min_width=90)
        with gr.Row():
            fields.button("models", "Change the model…")
            fields.button("pair", "Pair browser…")
    fields.opening("view", fields.all["view"])


def _add_part(name: str) -> None:
    """A place for a drawing of the page's own."""
    gr.HTML(
        elem_id=_id(name),
        html_template='<div class="pd-part"></div>',
        js_on_load='dispatchEvent(new Event("pd-part"));',
        apply_default_css=False,
    )


def _add_control(fields: Fields, control: Control, visible: bool = True) -> None:
    """One option as the component of its kind."""
    shown = labels.shown(control)
    same: dict[str, Any] = {
        "value": control.default,
        "label": shown.label,
        "info": labels.info(control),
        "visible": visible,
        "elem_id": _id(control.flag),
    }
    if control.kind == "bool":
        component: Any = gr.Checkbox(**same)
    elif control.kind == "choice":
        named = labels.CHOICES.get(control.flag, {})
        component = gr.Dropdown([(named.get(c, c), c) for c in control.choices], filterable=False, **same)
    else:
        most = min(control.without_beyond.high, shown.most or control.high)
        component = gr.Slider(control.low, most, step=control.step, **same)
    fields.add(control.flag, component)


def _id(name: str) -> str:
    return f"pd-{name}"
