"""The tables of the documentation that are made from the options: those of the page in docs/using.md, those of the
sampling rules in docs/samplers.md. `python -m tests.options_table` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.options.labels import OF_THE_PAGE, shown
from core.controls import CATALOG
from core.options import DRAFTING, Control
from tests.paths import ROOT


def rows_of_options() -> list[str]:
    """One row for each option of the page."""
    found = []
    for control in DRAFTING.values():
        flag = "–" if control.flag in OF_THE_PAGE else f"`--{control.flag}`"
        if control.kind == "bool":
            default, limits = "on" if control.default else "off", ""
        elif control.kind == "choice":
            default, limits = control.default, ", ".join(control.choices)
        else:
            most = min(control.without_beyond.high, shown(control).most or control.high)  # as the panel's sliders
            default, limits = str(control.default), f"{control.low:g}-{most:g}"
        found.append(f"| {shown(control).label} | {flag} | {default} | {limits} | {control.explain} |")
    return found


def rows_of_rules() -> list[str]:
    """One row for each sampling rule."""
    found = []
    for entry in CATALOG.values():
        options = ", ".join(f"{symbol(option)}: `--{option.flag}` {option.default}" for option in entry.controls)
        found.append(f"| {entry.title} | `{entry.name}` | {options} | {entry.description} |")
    return found


def symbol(option: Control) -> str:
    """The beginning of its label: its symbol, if it has one."""
    return shown(option).label.split(" · ")[0]


@dataclass(frozen=True)
class Table:
    """A table of a page: its columns, and what makes its rows."""

    page: Path
    columns: str
    rows: Callable[[], list[str]]

    def parts(self) -> tuple[str, str, str]:
        """The page before the rows, the rows, and the page after them."""
        before, head, rest = self.page.read_text(encoding="utf-8").partition(
            f"{self.columns}\n{'| --- ' * (self.columns.count('|') - 1)}|\n"
        )
        written, end, after = rest.partition("\n\n")
        return before + head, written, end + after

    def write(self) -> None:
        before, _, after = self.parts()
        self.page.write_text(before + "\n".join(self.rows()) + after, encoding="utf-8")


TABLES = (
    Table(ROOT / "docs" / "using.md", "| slider | flag | default | range | |", rows_of_options),
    Table(ROOT / "docs" / "samplers.md", "| rule | `--rule` | flags and defaults | what it does |", rows_of_rules),
)

if __name__ == "__main__":
    for table in TABLES:
        table.write()
