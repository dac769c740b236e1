"""Where the page's files are, and their HTML as Gradio's components take it."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parents[1] / "static"


def markup(name: str) -> str:
    """An HTML file of STATIC, as the template of a `gr.HTML`, which has nothing to fill in.

    Raises: ValueError if it contains what Gradio would read as Handlebars, or as JavaScript in a template string.
    """
    text = (STATIC / name).read_text(encoding="utf-8")
    for special in ("{{", "${", "`", "\\"):
        if special in text:
            raise ValueError(f"{name} must not contain {special!r}: Gradio's template engine would read it.")
    return text
