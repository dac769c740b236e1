"""`polydraft bench`: the command for the measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from app.bench import BENCHES, run
from app.bench.report import BenchOptions
from app.bench.uses import USES
from app.uses import refuse_unused
from core.errors import InputError

_KNOWN = "\n\n".join(f"{name}: {what}." for name, what in BENCHES.items())


def register(app: typer.Typer) -> None:
    """Adds the command `bench NAME` to `app`."""
    app.command(help=f"Measure this machine; each measurement runs beside its peer.\n\n{_KNOWN}")(bench)


def _option(name: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=USES[name].help, **more)


def bench(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    text: Annotated[Path | None, _option("text")] = None,
    backend: Annotated[Literal["auto", "llama.cpp", "torch"], _option("backend")] = "auto",
    model: Annotated[str, _option("model")] = "default",
    base_store: Annotated[str | None, _option("base_store", metavar="FILE|none")] = None,
    repetitions: Annotated[int | None, _option("repetitions", min=1)] = None,
    tiny: Annotated[bool, _option("tiny", "--tiny")] = False,
    prompts: Annotated[int | None, _option("prompts", min=1)] = None,
    head: Annotated[Path | None, _option("head", metavar="FOLDER")] = None,
    precision: Annotated[Literal["file", "float32", "bfloat16"], _option("precision")] = "file",
    pruning: Annotated[bool, _option("pruning", "--pruning")] = False,
    sweep: Annotated[bool, _option("sweep", "--sweep")] = False,
    plots: Annotated[Path | None, _option("plots", metavar="FILE")] = None,
    minutes: Annotated[float | None, _option("minutes", min=0.05, max=240)] = None,
    typists: Annotated[int | None, _option("typists", min=1, max=512)] = None,
    vllm: Annotated[str | None, _option("vllm", metavar="PYTHON")] = None,
) -> None:
    try:
        if name in BENCHES:
            refuse_unused(name, USES, ctx)
        if plots is not None and not sweep:
            raise InputError("--plots changes nothing without --sweep, whose curves it draws; add --sweep.")
        if pruning and sweep:
            raise InputError("--pruning changes nothing with --sweep; leave one of them out.")
    except InputError as error:
        Console(stderr=True, soft_wrap=True).print(str(error), style="red", markup=False)
        raise typer.Exit(1) from None
    options = BenchOptions(
        text=text,
        model=model,
        backend=backend,
        precision=precision,
        base_store=base_store,
        repetitions=repetitions,
        tiny=tiny,
        prompts=prompts,
        head=head,
        pruning=pruning,
        sweep=sweep,
        plots=plots,
        minutes=minutes,
        typists=typists,
        vllm=vllm,
    )
    raise typer.Exit(run(name, as_json, options))
