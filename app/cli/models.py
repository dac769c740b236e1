"""`polydraft models`: the models on this machine and those worth a download; and `polydraft models get`, the only
command, beside `ngram build` with a URL, that connects to another machine. The page's button uses the same code."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from app.cli.shared import Json
from app.machine.offline import stay_offline, without_telemetry
from app.machine.output import plain, say, say_json, visible

if TYPE_CHECKING:
    from pathlib import Path

    from core.models.listed import Listed
    from core.models.recommended import Advice

app = typer.Typer(help="Models on this machine, and those worth a download.", rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def models(
    ctx: typer.Context,
    speed: Annotated[
        bool, typer.Option(help="Estimate the time of a key, from up to ten seconds of passes of the default model.")
    ] = True,
    as_json: Json = False,
) -> None:
    """List the models on this machine, and a few that are worth a download."""
    if ctx.invoked_subcommand is not None:
        return
    stay_offline()
    from core.models.estimate import measure
    from core.models.listed import listed
    from core.models.memory import total_bytes
    from core.models.on_machine import models_folder, on_machine
    from core.models.recommended import advice

    measured = measure() if speed else None
    lines = [listed(each, measured) for each in on_machine()]
    advised = advice(measured, total_bytes())
    if as_json:
        stated = [each.stated() for each in lines]
        recommended = [each.stated() for each in advised]
        say_json({"folder": str(models_folder()), "models": stated, "recommended": recommended})
        return
    console = Console(highlight=False)
    console.print(_table(lines) if lines else "There is no model here beside the default one.")
    console.print(plain(f"Polydraft's folder is {models_folder()}. Load one with --model and its file."), "\n")
    console.print(_advice(advised))
    console.print("Get one with [bold]polydraft models get NAME[/], with the name as it is in the first column.")


def _table(lines: Sequence[Listed]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("Model", "In", "Size", "Type", "Family", "Runs in", "ms a key"):
        table.add_column(name, justify="right" if name in ("Size", "ms a key") else "left")
    for line in lines:
        file, about = line.file, line.about
        runs = (
            "–" if about.unusable else "compiled code" if about.compiled else "llama.cpp" if about.slower else "torch"
        )
        reason = about.unusable or about.slower
        table.add_row(
            _two(file.name, file.path),
            file.source,
            _size(file.bytes),
            plain(about.type or "–"),
            plain(about.family or "–"),
            _two(runs, reason),
            "–" if line.ms is None else f"{line.ms:.0f}",
        )
    return table


def _advice(advised: Sequence[Advice]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("Worth a download", no_wrap=True, overflow="fold")  # the name is typed again
    for name in ("Size", "ms a key", "Here"):
        table.add_column(name, justify="left" if name == "Here" else "right")
    for each in advised:
        here = "suits best" if each.best else "suits" if each.suits else "too slow" if each.fits else "too large"
        table.add_row(
            _two(each.model.name, each.model.why),
            _size(each.model.bytes),
            "–" if each.ms is None else str(each.ms),
            here,
        )
    return table


def _two(first: str, second: object) -> Text:
    """A cell with a second line in grey, if there is one."""
    return Text("\n" if second else "").join([plain(first), Text(visible(str(second)), "dim")])


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


@app.command()
def get(
    name: Annotated[
        str,
        typer.Argument(
            help="OWNER/REPO on the Hugging Face Hub, OWNER/REPO:TYPE for a file of one type, such as Q8_0, or the "
            "address of a page there.",
            metavar="NAME",
            show_default=False,
        ),
    ],
) -> None:
    """Download a model file from the Hugging Face Hub. This connects to the internet.

    A download that was interrupted continues. HF_ENDPOINT names another server.
    """
    without_telemetry()
    from core.errors import ModelFileError
    from core.models.on_machine import models_folder, read_about

    path = _downloaded(name, models_folder())
    about = read_about(path)
    if about.unusable:
        raise ModelFileError(
            f"{path} is the file as the Hub has it, but no model that can be loaded: "
            f"{about.unusable} Remove it, and choose another file or repository."
        )
    if about.reason:
        say(about.reason, err=True)
    say(f"It is {path}. Start Polydraft with it: polydraft --model {shlex.quote(str(path))}")


def _downloaded(name: str, folder: Path) -> Path:
    """The file that a name means, downloaded with a progress bar on stderr. Raises as `download`."""
    from core.hub.connection import host
    from core.hub.download import download

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    console, path, told = Console(stderr=True, highlight=False), None, ""
    with Progress(TextColumn("{task.description}", markup=False), *columns, console=console, transient=True) as bar:
        task = bar.add_task(visible(f"Asking {host()}"), total=None)
        for at in download(name, folder):
            if at.bytes:
                bar.update(task, description="", completed=at.come, total=at.bytes)
            said = {
                "asking": f"Asking {host()}.",
                "coming": f"{at.file}: {_size(at.bytes)}",
                "waiting": "The connection was interrupted. Trying again.",
                "checking": "Its digest is compared with the Hub's.",
            }.get(at.stage, "")
            if said and told != said:
                console.print(plain(said), soft_wrap=True)
                told = said
            path = at.path
    assert path is not None
    return path
