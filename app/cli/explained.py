"""Prints how drafts were made: one line for each draft, one cell for each token, and what the passes took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from app.machine.output import visible

if TYPE_CHECKING:
    from core.completion import Completion, Explained
    from core.drafting.record import Made
    from core.present import TextDraft

# By the origin of a token: its mark, which also tells without colours, its style, and what the legend says.
ORIGINS = {
    "own": ("ᵒ", "", "in a row of its own"),
    "superposed": ("ˢ", "yellow", "from the superposed row"),
    "base": ("ⁿ", "cyan", "by a base store"),
    "personal": ("ᵖ", "magenta", "by a personal store"),
    "healing": ("ʰ", "green", "completes the half-typed word"),
    "accepted": ("ᵃ", "blue", "accepted proposal"),
    "tolerated": ("ᵗ", "red", "tolerated proposal"),
    "corrected": ("ᶜ", "bright_red", "corrected"),
    "bonus": ("ᵇ", "bright_blue", "after accepted proposals"),
}


def print_explained(drafts: list[TextDraft], completion: Completion) -> None:
    """Prints what the drafts of a completion took, and of the shown ones how they were made, with the legend."""
    lines = [[_cell(draft, *token) for token in draft.made] for draft in drafts]
    widths = [max(cell.cell_len for cell in column) for column in _columns(lines)]
    console = Console(highlight=False, soft_wrap=True)
    if completion.explained is not None:
        console.print(f"\n{summary(completion.drafts, completion.explained)}")
    for number, cells in enumerate(lines, start=1):
        row = Text(f"{number}  ")
        for cell, width in zip(cells, widths, strict=False):
            row.append(cell).append(" " * (width - cell.cell_len + 1))
        row.rstrip()
        console.print(row)
    used = {_origin(made) for draft in drafts for _, _, made in draft.made}
    marks = [(mark, style, means) for name, (mark, style, means) in ORIGINS.items() if name in used]
    console.print(Text("   ").join([Text(f"{mark} {means}", style=style) for mark, style, means in marks]))


def summary(drafts: list[TextDraft], explained: Explained) -> str:
    """What the passes made, and their cost: "3 drafts of 8 tokens in 9 passes, 31 ms"."""
    lengths = sorted({len(draft.made) for draft in drafts})
    tokens = _counted(lengths[-1], "token")
    if len(lengths) > 1:
        tokens = f"{lengths[0]} to {tokens}"
    made = f"{_counted(len(drafts), 'draft')} of {tokens} in {_counted(explained.passes, 'pass', 'passes')}"
    taken = f"{made}, {explained.ms:.0f} ms"
    if explained.apart_ms is None or len(drafts) < 2:
        return taken
    return f"{taken}; apart they would take {explained.apart_ms:.0f} ms here"


def _counted(n: int, one: str, several: str = "") -> str:
    return f"{n} {one if n == 1 else several or one + 's'}"


def _origin(made: Made) -> str:
    return made.store or made.by


def _cell(draft: TextDraft, start: int, end: int, made: Made) -> Text:
    mark, style, _ = ORIGINS[_origin(made)]
    return Text(f"{visible(draft.text[start:end])}{mark}", style=style)


def _columns(lines: list[list[Text]]) -> list[list[Text]]:
    return [[line[n] for line in lines if n < len(line)] for n in range(max(map(len, lines), default=0))]
