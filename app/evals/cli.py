"""`polydraft eval`: the command for the evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from app.evals import EVALS, WITHOUT_STORE, run
from app.evals.options import PREFIX

_KNOWN = "\n\n".join(f"{name}: {what}." for name, what in EVALS.items())


def register(app: typer.Typer) -> None:
    """Adds the command `eval NAME` to `app`."""
    app.command("eval", help=f"Evaluate the quality of drafts, beside their peers in the same run.\n\n{_KNOWN}")(
        evaluate
    )


def evaluate(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(EVALS)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    text: Annotated[Path | None, typer.Option(help="A file or folder of text to test on; .txt or .jsonl.zst.")] = None,
    past: Annotated[Path | None, typer.Option(help="The writer's earlier text: personal, adapter, tune.")] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            "--prefixes",
            "--repetitions",
            min=2,
            help="Places per kind of text (typing: characters); by default each evaluation's own.",
        ),
    ] = None,
    timed: Annotated[
        int | None,
        typer.Option(min=1, help="Places per kind whose drafts are completed and timed: drafts; by default 60."),
    ] = None,
    context: Annotated[int, typer.Option(min=1, help="Tokens before a place that the model sees.")] = PREFIX,
    part: Annotated[
        Literal["all", "validation", "test"],
        typer.Option(
            help="Which documents: every second one to choose settings on, the others to test on: drafts, tune-paper."
        ),
    ] = "all",
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw to this SVG file: drafts, samplers, linearity, repetition, answers.", metavar="FILE"),
    ] = None,
    backend: Annotated[Literal["auto", "llama.cpp", "torch"], typer.Option(help="Which backend to use.")] = "auto",
    minutes: Annotated[float | None, typer.Option(min=0.1, help="Minutes of training: adapter; 10.")] = None,
    model: Annotated[str, typer.Option(help="A model's name, file or folder.")] = "default",
    base_store: Annotated[
        str | None,
        typer.Option(help=f"An n-gram store's file, or none; not for {', '.join(WITHOUT_STORE)}.", metavar="FILE|none"),
    ] = None,
    verify_with: Annotated[
        str | None, typer.Option(help="A larger model with the same tokenizer that checks drafts: verified.")
    ] = None,
) -> None:
    raise typer.Exit(
        run(
            name,
            as_json,
            plot,
            text=text,
            past=past,
            repetitions=repetitions,
            timed=timed,
            context=context,
            part=part,
            minutes=minutes,
            backend=backend,
            model=model,
            base_store=base_store,
            verify_with=verify_with,
        )
    )
