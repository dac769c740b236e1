"""The page: one Gradio Blocks with the editor component, and the code that mounts it.

The editor is a real component (`gr.HTML` with its own markup, style and script under `app/static/`). The browser holds
all its state; it requests `/api/drafts` directly, because a Gradio event per keystroke costs more than a draft.
"""

from __future__ import annotations

import posixpath
import re
from html import escape
from typing import TYPE_CHECKING

import gradio as gr
from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Mount

from app.web.markup import STATIC, markup
from app.web.panel import add_panel
from app.web.security import csp
from app.web.theme import PAPER, PAPER_DARK, theme
from app.wire.refusals import no_route, of_programs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The path of the files of STATIC on the server. Not /static: Gradio keeps its own files there.
STATIC_URL = "/page"

# A click on one of these demonstrates the page, in three kinds of writing. Each ends with a space, so that typing goes
# on with the next word. A test checks their drafts.
EXAMPLES = (
    "He knocked on the door, but nobody ",
    "Thank you for your message. Please let me know if you ",
    "Heat the oil in a pan, add the onions and cook until ",
)


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
# motion at every frame for some seconds, and the count for ever, which takes a tenth of a processor core; and each
# component of the panel has its own. So once the editor is there, all of them share a frame a second, except for
# scripts that ask for one `soon`.
FRAMES = """<script>{
  const request = requestAnimationFrame.bind(window);
  let mounted = false;
  let waiting = [];
  function drawAll(now) {
    const due = waiting;
    waiting = [];
    for (const draw of due) try { draw(now); } catch (error) { reportError(error); }
  }
  window.requestAnimationFrame = (draw) => {
    if (!mounted) return request(draw);
    if (!waiting.length) setTimeout(request, 1000, drawAll);
    return waiting.push(draw);
  };
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
<link rel="stylesheet" href="{STATIC_URL}/editor/page.css">
<link rel="stylesheet" href="{STATIC_URL}/panel/panel.css">
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

    page, catalogue = build_page()
    queue = next(value for value in vars(page).values() if isinstance(value, Queue))
    queue.sleep_when_free = queue.progress_update_sleep_when_free = QUEUE_LOOKS_EVERY
    mounted = gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=theme(),
        css=FRAME_CSS,
        favicon_path=str(STATIC / "icon-512.png"),
        footer_links=[],
        run_history=False,
        ssr_mode=False,
    )
    route = mounted.routes[-1]
    assert isinstance(route, Mount), f"Gradio mounted {route!r} last; a Mount expected."
    route.app = OnlyNeeded(route.app, catalogue)
    return mounted


# Browsers use the first manifest of a page, and fetch Gradio's without the cookie. `HEAD` links ours.
GRADIOS_MANIFEST = re.compile(r'<link rel="manifest" href="/manifest\.json" ?/?>')


class OnlyNeeded:
    """Gradio's app with all paths closed except those of `NEEDED`, and a policy for its page.

    Args:
        catalogue: what the panel's script has to know, as JSON.
    """

    def __init__(self, gradio: ASGIApp, catalogue: str) -> None:
        self.gradio = gradio
        data = catalogue.replace("<", "\\u003c")
        self.head = f'{HEAD}<script type="application/json" id="pd-catalogue">{data}</script></head>'

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
        html = GRADIOS_MANIFEST.sub("", body.decode(), count=1).replace("</head>", self.head, 1)
        policy = {"Content-Security-Policy": csp.of_the_page(html), "Cache-Control": "no-cache"}
        await HTMLResponse(html, status, policy)(scope, receive, send)


def build_page() -> tuple[gr.Blocks, str]:
    """The page with the editor and the panel in it, which `mount` puts on a server; and what the panel's script has to
    know, as JSON."""
    with gr.Blocks(title="Polydraft", analytics_enabled=False, fill_width=True, fill_height=True) as page:
        editor = gr.HTML(
            elem_id="pd-component",  # not "polydraft": the browser would make that window.polydraft
            html_template=editor_markup(),
            # Chromium compiles the same code of two servers' pages once, and resolves a path in it at the first server.
            js_on_load=f'import(location.origin + "{STATIC_URL}/editor/main.js").then((main) => {{'
            ' main.mount(element, () => trigger("fields")); dispatchEvent(new Event("pd-mounted")); });',
            apply_default_css=False,
        )
        return page, add_panel(editor)


def editor_markup() -> str:
    """`editor.html` with the examples filled in."""
    examples = "".join(f'<button type="button">{escape(text)}</button>' for text in EXAMPLES)
    return markup("editor/editor.html").replace("<!-- examples -->", examples)
