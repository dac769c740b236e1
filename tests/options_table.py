"""The table of the options in docs/using.md. `python -m tests.options_table` writes it anew."""

from __future__ import annotations

from app.service.settings import PAGE_CONTROLS
from tests.paths import ROOT

PAGE = ROOT / "docs" / "using.md"
HEAD = "| slider | flag | default | range | |\n| --- | --- | --- | --- | --- |\n"


def rows() -> list[str]:
    """One row for each option of the page."""
    found = []
    for control in PAGE_CONTROLS:
        flag = "–" if control.only == "page" else f"`--{control.flag}`"
        if control.kind == "bool":
            default, limits = "on" if control.default else "off", ""
        elif control.kind == "choice":
            default, limits = control.default, ", ".join(control.choices)
        else:
            default, limits = str(control.default), f"{control.low:g}-{control.slider or control.high:g}"
        found.append(f"| {control.label} | {flag} | {default} | {limits} | {control.explain} |")
    return found


def parts() -> tuple[str, str, str]:
    """The page before the rows, the rows, and the page after them."""
    before, head, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
    written, end, after = rest.partition("\n\n")
    return before + head, written, end + after


if __name__ == "__main__":
    before, _, after = parts()
    PAGE.write_text(before + "\n".join(rows()) + after, encoding="utf-8")
