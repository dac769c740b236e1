"""`polydraft bench`: the command for the measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from app.bench import BENCHES, WITH_STORE, run
from app.bench.report import BenchOptions

_KNOWN = "\n\n".join(f"{name}: {what}." for name, what in BENCHES.items())


def register(app: typer.Typer) -> None:
    """Adds the command `bench NAME` to `app`."""
    app.command(help=f"Measure this machine; each measurement runs beside its peer.\n\n{_KNOWN}")(bench)


def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    text: Annotated[
        Path | None, typer.Option(help="A file or folder of text to measure on; .txt or .jsonl.zst.")
    ] = None,
    backend: Annotated[Literal["auto", "llama.cpp", "torch"], typer.Option(help="The backend to measure.")] = "auto",
    model: Annotated[str, typer.Option(help="A model's name, file or folder.")] = "default",
    base_store: Annotated[
        str | None,
        typer.Option(help=f"An n-gram store's file, or none: {', '.join(WITH_STORE)}.", metavar="FILE|none"),
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="Rounds, words or passages; the default depends on the measurement.")
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="gpu only: a tiny shape, on any device, to test the measurement.")
    ] = False,
    prompts: Annotated[int | None, typer.Option(min=1, help="speculative only: prompts of each kind.")] = None,
    head: Annotated[Path | None, typer.Option(help="speculative only: the folder of an EAGLE-3 head.")] = None,
    precision: Annotated[
        Literal["file", "float32", "bfloat16"],
        typer.Option(help="speculative only: weights of torch on a CPU; see polydraft --help."),
    ] = "file",
    pruning: Annotated[
        bool, typer.Option("--pruning", help="speculative only: also other rules of pruning (the paper's Table 8).")
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="speculative only: temperatures and θ, instead of all methods at T = 1.")
    ] = False,
    plots: Annotated[Path | None, typer.Option(help="speculative --sweep: the SVG file for the curves.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.05, max=240, help="soak, serve: duration; for serve, of each number of clients."),
    ] = None,
    typists: Annotated[int | None, typer.Option(min=1, max=512, help="soak, serve: typists at once.")] = None,
    vllm: Annotated[
        str | None,
        typer.Option(
            help="serve only: the Python of an environment with vLLM, which is measured too.", metavar="PYTHON"
        ),
    ] = None,
) -> None:
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
