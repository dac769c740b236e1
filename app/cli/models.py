"""`polydraft models`: the models on this machine and those worth a download; and `polydraft models get`, the only
command, beside `ngram build` with a URL, that connects to another machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import psutil
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.web.security.offline import stay_offline, without_telemetry

if TYPE_CHECKING:
    from core.models.estimate import Speed
    from core.models.listed import Listed

app = typer.Typer(help="Models on this machine, and those worth a download.", rich_markup_mode="rich")

SHARE = 0.5  # of the memory that a model may take, beside the page, the stores and other programs
TAKES = 1.25  # bytes in memory for each byte of a file
PATIENCE = 600  # ms a key: drafts that come later are rarely read


@app.callback(invoke_without_command=True)
def models(
    ctx: typer.Context,
    speed: Annotated[
        bool, typer.Option(help="Estimate the time of a key, from up to ten seconds of passes of the default model.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object.")] = False,
) -> None:
    """List the models on this machine, and a few that are worth a download."""
    if ctx.invoked_subcommand is not None:
        return
    stay_offline()
    from core.models.estimate import measure
    from core.models.listed import listed
    from core.models.on_machine import models_folder, on_machine

    measured = measure() if speed else None
    lines = [listed(each, measured) for each in on_machine()]
    advised = recommendations(measured, psutil.virtual_memory().total)
    if as_json:
        stated = [each.stated() for each in lines]
        typer.echo(json.dumps({"folder": str(models_folder()), "models": stated, "recommended": advised}))
        return
    console = Console(highlight=False)
    console.print(_table(lines) if lines else "There is no model here beside the default one.")
    console.print(f"Polydraft's folder is {escape(str(models_folder()))}. Load one with --model and its file.\n")
    console.print(_advice(advised))
    console.print("Get one with [bold]polydraft models get NAME[/], with the name as it is in the first column.")


def recommendations(measured: Speed | None, memory: int) -> list[dict[str, object]]:
    """The recommended models, each with whether it suits this machine: its memory, and its speed if it was measured."""
    from core.models.recommended import RECOMMENDED

    rows = []
    for each in RECOMMENDED:
        ms = None if measured is None else round(measured.ms(each.bytes))
        fits = each.bytes * TAKES < memory * SHARE
        suits = fits and (ms is None or ms <= PATIENCE)
        rows.append({"name": each.name, "bytes": each.bytes, "why": each.why, "fits": fits, "ms": ms, "suits": suits})
    return rows


def _table(lines: list[Listed]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("Model", "In", "Size", "Type", "Family", "Runs in", "ms a key"):
        table.add_column(name, justify="right" if name in ("Size", "ms a key") else "left")
    for line in lines:
        file, about = line.file, line.about
        runs = (
            "–" if about.unusable else "compiled code" if about.compiled else "llama.cpp" if about.slower else "torch"
        )
        table.add_row(
            f"{escape(file.name)}\n[dim]{escape(str(file.path))}[/]",
            file.source,
            _size(file.bytes),
            about.type or "–",
            about.family or "–",
            runs + (f"\n[dim]{escape(about.unusable or about.slower)}[/]" if about.unusable or about.slower else ""),
            "–" if line.ms is None else f"{line.ms:.0f}",
        )
    return table


def _advice(advised: list[dict[str, object]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("Worth a download", no_wrap=True, overflow="fold")  # the name is typed again
    for name in ("Size", "ms a key", "Here"):
        table.add_column(name, justify="left" if name == "Here" else "right")
    for each in advised:
        here = "suits" if each["suits"] else "too slow" if each["fits"] else "too large"
        ms = "–" if each["ms"] is None else str(each["ms"])
        name = f"{each['name']}\n[dim]{each['why']}[/]"
        table.add_row(name, _size(int(str(each["bytes"]))), ms, here)
    return table


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


@app.command()
def get(
    name: Annotated[
        str,
        typer.Argument(
            help="OWNER/REPO on the Hugging Face Hub, or OWNER/REPO:TYPE for a file of one type, such as Q8_0.",
            metavar="NAME",
            show_default=False,
        ),
    ],
) -> None:
    """Download a model file from the Hugging Face Hub. This connects to the internet.

    A download that was interrupted continues. HF_ENDPOINT names another server.
    """
    without_telemetry()
    from core.models import hub
    from core.models.on_machine import models_folder, read_about

    remote = hub.find(name)
    typer.echo(f"{remote.file} of {remote.repo}: {_size(remote.bytes)}", err=True)
    path = hub.get(remote, models_folder(), lambda: typer.echo("Its digest is compared with the Hub's.", err=True))
    about = read_about(path)
    if about.reason:
        typer.echo(about.reason, err=True)
    typer.echo(f"It is {path}. Start Polydraft with it: polydraft --model {path}")
