"""Where the page's files are, and their HTML as Gradio's components take it."""

from __future__ import annotations

import re
from pathlib import Path

STATIC = Path(__file__).parents[1] / "static"


def markup(name: str) -> str:
    """An HTML file of STATIC, as the template of a `gr.HTML`, which has nothing to fill in. A comment with the name
    of another file beside it stands for that file.

    Raises: ValueError if it contains what Gradio would read as Handlebars, or as JavaScript in a template string.
    """
    path = STATIC / name

    def beside(comment: re.Match[str]) -> str:
        return path.with_name(comment[1]).read_text(encoding="utf-8")

    text = re.sub(r"<!-- (\w+\.html) -->", beside, path.read_text(encoding="utf-8"))
    for special in ("{{", "${", "`", "\\"):
        if special in text:
            raise ValueError(f"{name} must not contain {special!r}: Gradio's template engine would read it.")
    return text
