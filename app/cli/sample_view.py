"""`polydraft sample-view`: the tokens that each sampling rule keeps, side by side, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli import flags
from app.cli.complete import without_surrogates
from app.cli.shared import Backend, Json, Model
from app.machine.output import say_json, visible
from app.options.given import RULE_FLAGS, of_rules
from core.chains import joined
from core.controls import DEFAULT_RULE
from core.errors import InputError
from core.options import DRAFTING, SelectAt

if TYPE_CHECKING:
    from core.autocomplete import Autocomplete
    from core.options import Value
    from core.samplers.view import RuleView, View

SHOWN = 8  # tokens listed in the table per rule
_TEMPERATURE = DRAFTING["temperature"]


def sample_view(
    ctx: typer.Context,
    text: Annotated[
        str, typer.Argument(help="The text so far, in quotation marks.", metavar="TEXT", show_default=False)
    ],
    temperature: Annotated[
        float,
        typer.Option(
            help="Divides the logits before the rules.", metavar="N", min=_TEMPERATURE.low, max=_TEMPERATURE.high
        ),
    ] = float(_TEMPERATURE.default),
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", help="Given several times: print this chain of rules, too.", metavar="NAME"),
    ] = None,
    select_at: Annotated[
        SelectAt, typer.Option(help=DRAFTING["select_at"].explain, metavar="|".join(get_args(SelectAt)))
    ] = "temperature",
    model: Model = "default",
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Print the tokens that each rule would keep, side by side.

    Example: [bold]polydraft sample-view "The capital of" --temperature 2[/]
    """
    text = without_surrogates(text)
    if rule is not None and len(rule) < 2:
        raise InputError("--rule given once, and all rules are printed alone already; give a chain of two or more.")
    together = of_rules(flags.given(ctx, RULE_FLAGS), temperature, joined(rule or [DEFAULT_RULE]))
    from core.autocomplete import load_autocomplete

    view = _view(load_autocomplete(model, backend, None), text, temperature, together, select_at)
    if as_json:
        say_json({"text": text} | view.as_dict())
    else:
        Console(highlight=False).print(*_table(view))


def _view(
    autocomplete: Autocomplete,
    text: str,
    temperature: float,
    settings: Mapping[str, Mapping[str, Value]],
    select_at: SelectAt,
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


def _table(view: View) -> list[RenderableType]:
    """The comparison as a table for a terminal: one row per rule."""
    printed = Table(title=f"next token at T = {view.temperature:g}", title_justify="left")
    for column, width in (("rule", 8), ("kept", 5), ("mass", 6), ("entropy", 7)):
        printed.add_column(column, justify="left" if column == "rule" else "right", no_wrap=True, min_width=width)
    printed.add_column("kept tokens", overflow="ellipsis", no_wrap=True)
    for choice in view.choices:
        printed.add_row(
            choice.title, str(choice.count), f"{choice.mass:.1%}", f"{choice.entropy:.2f}", _tokens(view, choice)
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


def _tokens(view: View, choice: RuleView) -> Text:
    """The most probable tokens; dropped ones are struck through."""
    line = Text()
    for token, kept in list(zip(view.tokens, choice.kept, strict=True))[:SHOWN]:
        line.append(visible(token.text).replace(" ", "␣"), style="bold" if kept else "dim strike").append(" ")
    if choice.count > sum(choice.kept[:SHOWN]):
        line.append("…")
    return line
