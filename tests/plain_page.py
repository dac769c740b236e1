"""The page without Gradio and its panel, for tests of other parts: it loads in half the processor time."""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI
from starlette.responses import HTMLResponse

from app.web.page import HEAD, STATIC_URL, build_page, editor_markup
from app.web.security import csp

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Polydraft</title>
{head}
<script type="application/json" id="pd-catalogue">{catalogue}</script>
</head>
<body>
<div class="gradio-container"><div id="pd-component">{editor}</div></div>
<script type="module">
  import {{ mount }} from "{static}/editor/main.js";
  mount(document.querySelector("#pd-component"), () => {{}});
  dispatchEvent(new Event("pd-mounted"));
</script>
</body>
</html>
"""


def mount(app: FastAPI) -> FastAPI:
    """In place of `app.web.page.mount`."""
    html = _html()
    headers = {"Content-Security-Policy": csp.of_the_page(html), "Cache-Control": "no-cache"}

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(html, headers=headers)

    return app


@cache
def _html() -> str:
    catalogue = build_page()[1].replace("<", "\\u003c")
    return PAGE.format(head=HEAD, catalogue=catalogue, editor=editor_markup(), static=STATIC_URL)
