"""The page: one Gradio Blocks with the editor component, and the code that mounts it.

The editor is a real component (`gr.HTML` with its own markup, style and script under `app/static/`). The browser holds
all its state; it requests `/api/drafts` directly, because a Gradio event per keystroke costs more than a draft.
"""

from __future__ import annotations

import posixpath
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr
from fastapi import FastAPI
from gradio.themes import Base
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Mount

from app.options.settings import PAGE_CONTROLS
from app.web.security import csp
from app.wire.refusals import no_route, of_programs
from core.options import BY_FLAG

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from core.options import Control

STATIC = Path(__file__).parents[1] / "static"
# The path of those files on the server. Not /static: Gradio keeps its own files there.
STATIC_URL = "/page"

# The options that are shown at first, in the words of a writer.
SIMPLE = ("k", "length", "end_below")
# All others are for experts, in the order in which a draft is made: what is done to the model's logits, what is mixed
# in, where drafts branch, how they grow and end, and when they are made anew. Each with its symbol and its source: a
# place in the paper on Superposed Decoding (arXiv 2405.18400), or a page of docs/ if Polydraft adds it.
EXPERTS = {
    "temperature": "T · divides the logits before the rule",
    "tau": "τ · Superposed Decoding, appendix B",
    "ngrams": "p_ngram · Superposed Decoding, eq. 5",
    "mixing": "p_f · Superposed Decoding, eqs. 6 and 7; linear: Polydraft’s, ngram-stores.md",
    "alpha": "α · Superposed Decoding, eq. 6",
    "personal_weight": "α of your stores · Polydraft’s, personal-stores.md",
    "distinct": "Off: Superposed Decoding, eq. 2. On: Polydraft’s, superposed-decoding.md",
    "forks": "Polydraft’s, superposed-decoding.md",
    "exact_steps": "r · Polydraft’s, superposed-decoding.md. 0: Superposed Decoding, eqs. 3 and 4",
    "verify": "Polydraft’s, superposed-decoding.md",
    "reset_every": "s · Superposed Decoding, section 5.3",
    "refill": "When rows are made anew",
}
TOKEN = 0.75  # words of English

# How the page shows how likely drafts are; the server does not need this setting.
CHANCES = (
    '<div class="pd-option"><span><label for="pd-chances">How likely</label></span>'
    '<select id="pd-chances" aria-describedby="pd-chances-how"><option value="ink">Darker ink</option>'
    '<option value="number">Numbers</option>'
    '<option value="bar">Bars</option><option value="off">Off</option></select>'
    '<small id="pd-chances-how">Likely drafts are dark, others grey or faint; or numbers or bars.</small></div>'
)

# Opens the choice of the model.
MODEL = (
    '<div class="pd-option"><span><span id="pd-models-label">Model</span>'
    '<button type="button" id="pd-models-open" data-do="models" aria-haspopup="dialog" '
    'aria-labelledby="pd-models-label pd-models-name pd-models-open" '
    'aria-describedby="pd-models-how">Change…</button></span>'
    '<span class="pd-model-name" id="pd-models-name"></span>'
    '<small id="pd-models-how">Load another model while this one goes on drafting.</small></div>'
)

# A click on one of these demonstrates the page, in three kinds of writing. Each ends with a space, so that typing goes
# on with the next word. A test checks their drafts.
EXAMPLES = (
    "He knocked on the door, but nobody ",
    "Thank you for your message. Please let me know if you ",
    "Heat the oil in a pan, add the onions and cook until ",
)

# Few components would show Gradio's own look (none at the moment); colours follow the editor's.
SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Consolas", "monospace")

# The editor's background, in editor.css too: also the window's while the page loads.
PAPER, PAPER_DARK = "#fbfaf6", "#17181a"


def modules(start: str = "editor/main.js") -> list[str]:
    """The scripts that `start` imports, directly or indirectly, beginning with itself; each by its path in STATIC."""
    names = [start]
    for name in names:
        text, folder = (STATIC / name).read_text("utf-8"), posixpath.dirname(name)
        imported = re.findall(r'^(?:import|} from|export) .*?"(\.[\w./]+)";$', text, re.M)
        paths = [posixpath.normpath(posixpath.join(folder, module)) for module in dict.fromkeys(imported)]
        names += [path for path in paths if path not in names]
    return names


# Without these lines the browser would discover the scripts one after the other, each in the one that imports it.
PRELOADS = "\n".join(f'<link rel="modulepreload" href="{STATIC_URL}/{name}">' for name in modules())

# While it loads, Gradio shows a sign that moves and counts seconds. When the sign is gone, scripts still compute its
# motion at every frame for some seconds, and the count for ever, which takes a tenth of a processor core. So once the
# editor is there, a frame takes a second, except for scripts that ask for it `soon`.
FRAMES = """<script>{
  const request = requestAnimationFrame.bind(window);
  let mounted = false;
  window.requestAnimationFrame = (draw) => mounted ? setTimeout(request, 1000, draw) : request(draw);
  window.requestAnimationFrame.soon = request;
  addEventListener("pd-mounted", () => { mounted = true; });
}</script>"""

# The page, its cookie and the browser's storage belong to a whole address, and its files have paths from the root on.
# Behind a proxy that serves it under a path none of them would load, and the page would be blank.
AT_ROOT = """<script>
  if (location.pathname !== "/") {
    window.stop();
    const page = document.documentElement;
    page.innerHTML = "<title>Polydraft</title><body><p>";
    page.style = "color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; padding: 2em; max-width: 34em";
    page.querySelector("p").textContent =
      `Polydraft works only at the root of an address, and this is ${location.pathname}. ` +
      "Let the proxy give it a host name or a port of its own.";
  }
</script>"""

HEAD = f"""
{AT_ROOT}
{FRAMES}
<link rel="stylesheet" href="{STATIC_URL}/editor/editor.css">
<link rel="stylesheet" href="{STATIC_URL}/sampling/sampling.css">
<link rel="stylesheet" href="{STATIC_URL}/documents/documents.css">
{PRELOADS}
<link rel="manifest" href="/manifest.json" crossorigin="use-credentials">
<link rel="icon" href="{STATIC_URL}/icon.svg" type="image/svg+xml">
<link rel="apple-touch-icon" href="{STATIC_URL}/icon-192.png">
<meta name="theme-color" content="{PAPER}" media="(prefers-color-scheme: light)">
<meta name="theme-color" content="{PAPER_DARK}" media="(prefers-color-scheme: dark)">
<meta name="description" content="Several drafts of your next words while you type, on your own machine.">
"""

# Gradio's frame around the component has no margins of its own.
FRAME_CSS = ".gradio-container { padding: 0; max-width: none; }"

# Gradio looks for work in its queue a thousand times a second. No route leads to the queue, so it has none.
QUEUE_LOOKS_EVERY = 10.0  # seconds


# The only paths of Gradio that the page requests. Gradio has many more, which accept uploads, fetch addresses, return
# files of this machine and describe the server.
NEEDED = re.compile(
    r"/|/assets/[\w.-]+|/theme\.css|/favicon\.ico|/static/js/iframeResizer\.contentWindow\.min\.js", re.ASCII
)


def mount(app: FastAPI) -> FastAPI:
    """Mounts the page at / of an app, after its existing routes, with only the parts of Gradio that the page needs."""
    from gradio.queueing import Queue

    page = build_page()
    queue = next(value for value in vars(page).values() if isinstance(value, Queue))
    queue.sleep_when_free = queue.progress_update_sleep_when_free = QUEUE_LOOKS_EVERY
    mounted = gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=Base(font=SANS, font_mono=MONO).set(body_background_fill=PAPER, body_background_fill_dark=PAPER_DARK),
        css=FRAME_CSS,
        favicon_path=str(STATIC / "icon-512.png"),
        footer_links=[],
        run_history=False,
        ssr_mode=False,
    )
    route = mounted.routes[-1]
    assert isinstance(route, Mount), f"Gradio mounted {route!r} last; a Mount expected."
    route.app = OnlyNeeded(route.app)
    return mounted


# Browsers use the first manifest of a page, and fetch Gradio's without the cookie. `HEAD` links ours.
GRADIOS_MANIFEST = re.compile(r'<link rel="manifest" href="/manifest\.json" ?/?>')


class OnlyNeeded:
    """Gradio's app with all paths closed except those of `NEEDED`, and a policy for its page."""

    def __init__(self, gradio: ASGIApp) -> None:
        self.gradio = gradio

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not NEEDED.fullmatch(path):
            await self._refuse(scope, receive, send)
        elif path == "/":
            await self._page(scope, receive, send)
        else:
            await self.gradio(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if of_programs(scope["path"]) or scope["path"].startswith("/api/"):
            await no_route(scope["path"], scope["method"])(scope, receive, send)
            return
        what = {"message": f"There is nothing at {scope['path'][:80]}.", "fix": "Open the page at /."}
        await JSONResponse(what, 404, {"Connection": "close"})(scope, receive, send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Delays the response: the policy lists the scripts in the page's text, so all of it is needed before the
        headers."""
        status, body = 500, bytearray()

        async def collect(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))

        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]  # not compressed
        await self.gradio({**scope, "method": "GET", "headers": plain}, receive, collect)
        html = GRADIOS_MANIFEST.sub("", body.decode(), count=1).replace("</head>", f"{HEAD}</head>", 1)
        policy = {"Content-Security-Policy": csp.of_the_page(html), "Cache-Control": "no-cache"}
        await HTMLResponse(html, status, policy)(scope, receive, send)


def build_page() -> gr.Blocks:
    """The page with the editor in it; `mount` puts it on a server."""
    with gr.Blocks(title="Polydraft", analytics_enabled=False, fill_width=True, fill_height=True) as page:
        gr.HTML(
            elem_id="pd-component",  # not "polydraft": the browser would make that window.polydraft
            html_template=editor_markup(),
            # Chromium compiles the same code of two servers' pages once, and resolves a path in it at the first server.
            js_on_load=f'import(location.origin + "{STATIC_URL}/editor/main.js")'
            '.then((main) => { main.mount(element); dispatchEvent(new Event("pd-mounted")); });',
            apply_default_css=False,
        )
    return page


def editor_markup() -> str:
    """`editor.html` with the options and the examples filled in."""
    by_name = {control.name: control for control in PAGE_CONTROLS}
    more = [by_name[name] for name in EXPERTS]
    more += [control for control in PAGE_CONTROLS if control.name not in (*SIMPLE, *EXPERTS)]
    controls = (
        "".join(_control(by_name[name]) for name in SIMPLE)
        + MODEL
        + (
            '<div class="pd-doors">'
            '<button type="button" data-do="pair" aria-haspopup="dialog">Pair browser…</button>'
            '<button type="button" data-do="more" aria-controls="pd-more" aria-expanded="false">For experts</button>'
            "</div>"
            f'<div class="pd-more" id="pd-more" hidden>{"".join(map(_control, more))}{CHANCES}'
            '<button type="button" data-do="reset">Reset all</button></div>'
        )
    )
    examples = "".join(f'<button type="button">{escape(text)}</button>' for text in EXAMPLES)
    markup = (STATIC / "editor/editor.html").read_text(encoding="utf-8")
    markup = markup.replace("<!-- options -->", controls).replace("<!-- examples -->", examples)
    # Gradio reads the template as Handlebars inside a JavaScript template string.
    for special in ("{{", "${", "`", "\\"):
        if special in markup:
            raise ValueError(f"editor.html must not contain {special!r}: Gradio's template engine would read it.")
    return markup


def _control(control: Control) -> str:
    """One option as a labelled native input, which supports keyboard, touch and screen reader."""
    name, label, explain = (escape(text) for text in (control.name, control.label, control.explain))
    described = f'id="pd-{name}" name="{name}" title="{explain}" aria-describedby="pd-{name}-how"'
    paper = f"<cite>{escape(EXPERTS[control.name])}</cite>" if control.name in EXPERTS else ""
    how = f'<small id="pd-{name}-how">{explain}{paper}</small>'
    if control.kind == "bool":
        checked = " checked" if control.default else ""
        return (
            f'<div class="pd-option"><label for="pd-{name}">'
            f'<input type="checkbox" role="switch" {described}{checked}>{label}</label>{how}</div>'
        )
    if control.kind == "choice":
        choices = "".join(f"<option{' selected' * (c == control.default)}>{c}</option>" for c in control.choices)
        return (
            f'<div class="pd-option"><span><label for="pd-{name}">{label}</label></span>'
            f"<select {described}>{choices}</select>{how}</div>"
        )
    low, high, most, step = control.low, control.slider or control.high, control.high, control.step
    more = f' data-slider="{high:g}" data-most="{most:g}"' if most > high else ""
    more += f' data-beyond="{BY_FLAG[control.beyond].name}"' if control.beyond else ""
    more += f' data-word="{TOKEN}"' if control.name == "length" else ""
    form = "%" if control.kind == "float" and low >= 0 and high <= 1 else str(len(f"{step:g}".partition(".")[2]))
    return (
        f'<div class="pd-option"><span><label for="pd-{name}">{label}</label>'
        f'<output for="pd-{name}"></output></span>'
        f'<input type="range" {described} min="{low:g}" max="{high:g}" step="{step:g}" value="{control.default:g}" '
        f'data-format="{form}"{more}>{how}</div>'
    )
