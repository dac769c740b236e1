"""Settings as options of drafts, notes on their rules, and `sample-view`: all rules side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from core import chains
from core.controls import entries_of

if TYPE_CHECKING:
    from app.options.settings import DraftSettings
    from core.ask import Ask
    from core.autocomplete import Autocomplete
    from core.options import SelectAt, Value
    from core.samplers.view import RuleView, View

SHOWN = 8  # tokens listed in the table per rule


def drafting(settings: DraftSettings, **more: Any) -> Ask:
    """What is asked with these options, and with the method, the rule and the other fields that `more` has."""
    from core.ask import READ, Ask

    values: dict[str, Any] = {name: getattr(settings, name) for name in READ if name != "seed"}
    values["seed"] = settings.sampling.seed
    if not values.pop("ngrams"):
        values |= {"alpha": 0.0, "personal_weight": 0.0, "mixing": "linear"}
    if settings.reset_every:  # texts with resets have their whole length, over several lines
        values |= {"end_below": 0.0, "one_line": False}
    return Ask(**values | more)


def notes(settings: DraftSettings) -> list[str]:
    """Explanations of the chosen chain of rules, where its order may surprise."""
    return chains.notes([entry.title for entry in entries_of(settings.sampling.rule)])


def view(
    autocomplete: Autocomplete,
    text: str,
    temperature: float,
    settings: Mapping[str, Mapping[str, Value]],
    select_at: SelectAt = "temperature",
) -> View:
    """Applies all rules to the token after the text. Raises ContextFull."""
    from core.samplers.view import look

    tokenizer = autocomplete.model.tokenizer
    ids = tokenizer.start_ids + tokenizer.encode(text)[-autocomplete.window :]
    sequence = autocomplete.model.open()
    try:
        logits = sequence.sync(ids or [tokenizer.document_start])
    finally:
        sequence.close()
    return look(logits, tokenizer, temperature, settings, autocomplete.geometries, select_at=select_at)


def table(view: View, text: Callable[[str], str] = str) -> list[RenderableType]:
    """The comparison as a table for a terminal: one row per rule. `text` converts a token's text for display."""
    printed = Table(title=f"next token at T = {view.temperature:g}", title_justify="left")
    for column, width in (("rule", 8), ("kept", 5), ("mass", 6), ("entropy", 7)):
        printed.add_column(column, justify="left" if column == "rule" else "right", no_wrap=True, min_width=width)
    printed.add_column("kept tokens", overflow="ellipsis", no_wrap=True)
    for choice in view.choices:
        printed.add_row(
            choice.title, str(choice.count), f"{choice.mass:.1%}", f"{choice.entropy:.2f}", _tokens(view, choice, text)
        )
    notes = [f"The whole distribution has {view.entropy:.2f} nats of entropy."]
    if view.top_w is not None:
        n = len(set(view.top_w.ids) ^ set(view.top_w.without_geometry))
        notes.append(
            f"Distances between tokens changed Top-W's choice here, by {n} token{'' if n == 1 else 's'}."
            if view.top_w.geometry_mattered
            else "Distances between tokens made no difference to Top-W here."
        )
    return [printed, Text(" ".join(notes))]


def _tokens(view: View, choice: RuleView, text: Callable[[str], str]) -> Text:
    """The most probable tokens; dropped ones are struck through."""
    line = Text()
    for token, kept in list(zip(view.tokens, choice.kept, strict=True))[:SHOWN]:
        line.append(text(token.text).replace(" ", "␣"), style="bold" if kept else "dim strike").append(" ")
    if choice.count > sum(choice.kept[:SHOWN]):
        line.append("…")
    return line
