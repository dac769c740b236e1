"""The editor with its drafts as a Gradio component, for other people's `gr.Blocks`: docs/embedding.md.

The component has the text; `app.web.attaching` gives it a server of drafts. Its script is
app/static/editor/embedded.js, which the browser loads from that server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar

import gradio as gr
from gradio.components.base import Component
from gradio.events import EventListener, Events

from app.options.given import ALL_FLAGS, settings_of
from app.options.settings import DraftSettings
from app.web.gradio_import import without_stubs
from app.web.markup import markup
from core.controls import CATALOG, DRAFTERS, MODES, SPECULATING, SPECULATIONS, entries_of, named
from core.errors import InputError
from core.options import Value

PATH = "polydraft"  # of the server of drafts, below the root of the Blocks
NAMES = {"rule": CATALOG, "mode": MODES, "speculate": SPECULATIONS, "drafter": DRAFTERS}  # options that name something

# Gradio runs it when the component appears. The editor's script is below the root of the Blocks, wherever a proxy
# serves them. What is typed and which options sliders set while it is loaded is kept for it.
_ON_LOAD = f"""
const early = {{}};
element.querySelector("#pd-text").value = props.value ?? "";
window.polydraftEditor = {{ set: (option, value) => {{ early[option] = value; }} }};
const root = (window.gradio_config?.root ?? location.origin).replace(/[/]*$/, "/");
const script = new URL(root + "{PATH}/page/editor/embedded.js", location.href).href;
const started = props.access ? import(script) : Promise.reject(new Error("No server of drafts is attached."));
started.then((editor) => editor.mount({{ element, props, trigger, watch, early }})).catch((error) => {{
  const notice = element.querySelector(".pd-notice");
  const remedy = props.access
    ? `Load the page again. polydraft.attach needs allow_host=["${{location.host}}"] for a page at that host.`
    : "Call polydraft.attach(blocks) before blocks.launch().";
  notice.textContent = `${{error.message}} ${{remedy}}`;
  notice.hidden = false;
  element.querySelector(".polydraft").style.opacity = 1;
}});
"""


class _Event(EventListener):
    """An event of the editor. A listener without a `trigger_mode` gets this one, because with Gradio's own, "once",
    events are lost while an earlier one is handled."""

    def __init__(self, event_name: str, trigger_mode: str, doc: str) -> None:
        super().__init__(event_name, doc=doc)
        plain: Any = self.listener

        @wraps(plain)
        def listener(*arguments: Any, **options: Any) -> Any:
            return plain(*arguments, **({"trigger_mode": trigger_mode} | options))

        self.listener: Any = listener

    def copy(self) -> EventListener:
        return self


_TAKE = _Event("take", "multiple", "Triggered when a whole draft was taken; event data: `before` and `text`.")
_DRAFTS = _Event(
    "drafts", "always_last",
    "Triggered when drafts are complete; event data: `drafts`, a list of {text, probability}.",
)  # fmt: skip


def settings_from(options: Mapping[str, Value]) -> DraftSettings:
    """The settings for options by the flags of the command line.

    Raises: InputError for an unknown option, a value out of range, or an option that would have no effect.
    """
    for option, value in options.items():
        check_option(option, value)
    if "speculate" in options and "mode" not in options:
        raise InputError(f"speculate given without mode; add one of {', '.join(SPECULATING)}.")
    names: dict[str, Any] = {name: value for name, value in options.items() if name in NAMES}
    return settings_of({flag: value for flag, value in options.items() if flag not in names}, **names)


def check_option(option: str, value: object) -> None:
    """Raises InputError for an unknown option, or a value that it cannot have."""
    if option in NAMES:
        if not isinstance(value, str):
            raise InputError(f"{option} {value!r} given; a name expected.")
        if option == "rule":
            entries_of(value)
        else:
            named(option, value, NAMES[option])
    elif option in ALL_FLAGS:
        ALL_FLAGS[option].control.checked(value)
    else:
        raise InputError(f"{option!r} given, which is no option; `polydraft complete --help` lists them, without `--`.")


with without_stubs():

    class DraftEditor(gr.HTML):
        """A text field with drafts: several continuations of the text, made while the writer types.

        `polydraft.attach` gives the drafts; a page has at most one editor. As an input of an event it gives its text,
        as an output it takes a text, or another `DraftEditor` with what shall change. Options that an event sets
        replace all earlier ones.

        Events:
            change: the text has changed; at most every 150 ms.
            take: a whole draft was taken; `gr.EventData` has `before`, the text before it, and `text`.
            drafts: the drafts at the caret are complete; `gr.EventData` has `drafts`, a list of {text, probability}.
        """

        EVENTS: ClassVar[Any] = [Events.change, _TAKE, _DRAFTS]

        def __init__(
            self,
            value: str | Callable[[], str] | None = "",
            *,
            placeholder: str = "",
            options: Mapping[str, Value] | None = None,
            **layout: Any,
        ) -> None:
            """Args:
                value: the text at first, or a function that returns it when the page is loaded.
                placeholder: shown while there is no text.
                options: of drafting, by the flags of `polydraft complete`, as {"k": 5, "rule": "min-p", "min-p": 0.1}.
                layout: what any `gr.HTML` takes: elem_id, visible, scale, min_width, render, key, …

            Raises: InputError for an unknown option, a value out of range, or an option that would have no effect.
            """
            self.placeholder, self.options = placeholder, dict(options or {})
            settings_from(self.options)
            super().__init__(
                value,
                html_template=markup("editor/embedded.html"),
                js_on_load=_ON_LOAD,
                apply_default_css=False,
                placeholder=placeholder,
                options=self.options,
                access="",  # the key, which attach adds
                **layout,
            )

        def bind(self, option: str, component: Component) -> None:
            """Lets a component set an option, from its present value on. All of it happens in the browser, so the next
            drafts follow a slider without a request to Python.

            Raises: InputError for an unknown option, and for a present value that it cannot have.
            """
            bound: Any = component
            check_option(option, bound.value)
            self.props["options"] = {**self.props["options"], option: bound.value}
            set_it = f"(value) => window.polydraftEditor?.set({json.dumps(option)}, value)"
            bound.change(None, component, None, js=set_it)

        def preprocess(self, payload: str | None) -> str:
            return payload or ""

        def postprocess(self, value: str | None) -> str:
            if value is not None and not isinstance(value, str):
                raise InputError(f"A value of the type {type(value).__name__} given; a text expected.")
            return value or ""
