"""`polydraft eval`: the command for the evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from app.evals import EVALS, run
from app.evals.options import KS, LENGTH, PREFIX, USES, numbers_of_drafts
from app.uses import refuse_unused
from core.errors import InputError

_KNOWN = "\n\n".join(f"{name}: {what}." for name, what in EVALS.items())


def register(app: typer.Typer) -> None:
    """Adds the command `eval NAME` to `app`."""
    app.command("eval", help=f"Evaluate the quality of drafts, beside their peers in the same run.\n\n{_KNOWN}")(
        evaluate
    )


def _option(name: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=USES[name].help, **more)


def evaluate(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(EVALS)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    text: Annotated[Path | None, _option("text")] = None,
    past: Annotated[Path | None, _option("past")] = None,
    share: Annotated[float, _option("share", min=0.1, max=100)] = 100.0,
    learned: Annotated[Path | None, _option("learned", metavar="FOLDER")] = None,
    repetitions: Annotated[int | None, _option("repetitions", "--prefixes", "--repetitions", min=2)] = None,
    timed: Annotated[int | None, _option("timed", min=1)] = None,
    context: Annotated[int, _option("context", min=1)] = PREFIX,
    part: Annotated[Literal["all", "validation", "test"], _option("part")] = "all",
    k: Annotated[str, _option("k", metavar="N,N,…")] = ",".join(map(str, KS)),
    length: Annotated[int, _option("length", min=1, max=100)] = LENGTH,
    plot: Annotated[Path | None, _option("plot", metavar="FILE")] = None,
    backend: Annotated[Literal["auto", "llama.cpp", "torch"], _option("backend")] = "auto",
    minutes: Annotated[float | None, _option("minutes", min=0.1)] = None,
    model: Annotated[str, _option("model")] = "default",
    base_store: Annotated[str | None, _option("base_store", metavar="FILE|none")] = None,
    verify_with: Annotated[str | None, _option("verify_with")] = None,
) -> None:
    try:
        if name in EVALS:
            refuse_unused(name, USES, ctx)
        ks = numbers_of_drafts(k)
    except InputError as error:
        Console(stderr=True, soft_wrap=True).print(str(error), style="red", markup=False)
        raise typer.Exit(1) from None
    raise typer.Exit(
        run(
            name,
            as_json,
            plot,
            text=text,
            past=past,
            share=share,
            learned=learned,
            repetitions=repetitions,
            timed=timed,
            context=context,
            part=part,
            ks=ks,
            length=length,
            minutes=minutes,
            backend=backend,
            model=model,
            base_store=base_store,
            verify_with=verify_with,
        )
    )
