"""`polydraft learn`: adapts the model to the text of a personal store."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from app.cli.shared import Json, show
from app.learning.child import MEMORY, MINUTES, Order, go_last, steps_of
from app.machine.output import plain

if TYPE_CHECKING:
    from training.personal import Outcome


def learn(
    store: Annotated[str, typer.Argument(help="The personal store, by name.", metavar="STORE", show_default=False)],
    minutes: Annotated[float, typer.Option(help="End after this many minutes.", min=0.1, metavar="N")] = MINUTES,
    memory: Annotated[float, typer.Option(help="Use at most this many GB of memory.", min=0.5, metavar="N")] = MEMORY,
    model: Annotated[
        str, typer.Option(help="[bold]default[/], a .gguf file, or a model's folder.", metavar="NAME")
    ] = "default",
    as_json: Json = False,
) -> None:
    """Adapt the model to your writing: train an adapter on the text of a personal store.

    The newest tenth of the text is held out, and drafts use the adapter only if it helps there. Run it again to resume,
    or when there is new text. Ctrl+C stops it; what is done is kept.

    Example: [bold]polydraft learn me --minutes 10[/]
    """
    go_last()
    from core.ngram.base import BASE_STORE
    from core.ngram.shelf import Shelf, stores_folder
    from training.personal import Outcome

    path = Shelf.existing(stores_folder(), store)
    console = Console(stderr=True)
    console.print("Loading the model …")
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    outcome: Outcome | None = None
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=1.0)
        try:
            with closing(steps_of(Order(str(path), model, str(BASE_STORE), minutes, memory))) as steps:
                for stage in steps:
                    if isinstance(stage, Outcome):
                        outcome = stage
                        continue
                    if stage.held_out is not None:
                        bar.console.print(f"{stage.share:4.0%}  ln p on held-out text {stage.held_out:.3f}")
                    bar.update(task, description=stage.description, completed=stage.share)
        except KeyboardInterrupt:
            bar.console.print(plain(f"Stopped; `polydraft learn {store}` goes on from there."))
            raise
    assert outcome is not None
    show(as_json, "learn", [row(store, outcome)], summary(store, outcome))


def row(store: str, outcome: Outcome) -> dict[str, object]:
    result = outcome.result
    return {
        "store": store,
        "tokens": result.tokens,
        "share": round(outcome.share, 4),
        "held_out": result.held_out,
        "gain": round(result.gain, 4),
        "error": round(result.error, 4),
        "strength": result.strength,
        "general": round(result.general, 4),
        "characters": result.characters,
        "keys_saved_percent": {"without": round(result.keys_alone, 2), "with": round(result.keys, 2)},
        "on": result.better,
        "new": outcome.new,
        "curve": [[tokens, round(value, 4)] for tokens, value in outcome.curve],
        "seconds": round(outcome.seconds, 1),
    }


def summary(store: str, outcome: Outcome) -> str:
    """The outcome in sentences."""
    from app.learning.personal import what_it_brought

    sentences = [f"{store}: {what_it_brought(outcome.result)}"]
    if not outcome.new:
        sentences.append("It had learned all of it before.")
    if not outcome.result.better:
        sentences.append("Add text, then learn again.")
    if outcome.share < 1:
        sentences.append(
            f"The time ended after {outcome.share:.0%} of the training; `polydraft learn {store}` goes on from there."
        )
    return " ".join(sentences)
