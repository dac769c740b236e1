"""Flags that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.machine.output import say, say_json
from core import options
from core.errors import InputError

Model = Annotated[
    str, typer.Option(help="[bold]default[/], a .gguf file, a model's folder, or a Hugging Face id.", metavar="NAME")
]
Backend = Annotated[
    options.Backend,
    typer.Option(help="The engine that runs the model: auto (the fastest here), torch or llama.cpp.", metavar="NAME"),
]
Precision = Annotated[
    options.Precision,
    typer.Option(
        help="Weights of torch on a CPU: [bold]file[/], in the file's format; [bold]float32[/], unpacked (the same "
        "results, slower); [bold]bfloat16[/], rounded. [bold]int8[/] also rounds the inputs of products to 8 bits: "
        "faster. [bold]auto[/] is int8 where it can be, else file.",
        metavar="NAME",
    ),
]
BaseStores = Annotated[
    list[str] | None,
    typer.Option(
        "--base-store",
        help="An n-gram store of common phrases: a file that [bold]polydraft ngram build[/] wrote, [bold]default[/] "
        "for the one that comes with the app, or [bold]none[/]. Several are mixed, each with a weight if you add one.",
        metavar="FILE[=WEIGHT]",
        show_default="those chosen on the page",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Replace what is at --out already.")]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object.")]

DraftModel = Annotated[
    str | None,
    typer.Option(
        help="For the drafter [bold]model[/] of speculation: a smaller model with the same tokenizer.", metavar="NAME"
    ),
]

AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        help="A site or an extension of a browser that may request drafts, with the token: app://obsidian.md, "
        "chrome-extension://ID, http://localhost:3000. Give it once for each.",
        metavar="ORIGIN",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        help="A further name by which programs reach this machine, such as host.docker.internal. Give it once for "
        "each.",
        metavar="NAME",
    ),
]

CacheMemory = Annotated[
    str | None,
    typer.Option(
        help="The most memory for the texts that the model has read, such as 1G: what is cached answers sooner.",
        show_default="a twelfth of the machine's",
        metavar="SIZE",
    ),
]


def bytes_of(text: str, what: str = "Memory", unit: int = 1024) -> int:
    """The number of bytes that a size like 800M states. Raises InputError."""
    if not (match := re.fullmatch(r"(\d+(?:\.\d*)?)\s*([KMG]?)(i?B)?", text.strip(), re.IGNORECASE)):
        raise InputError(f"{what} {text!r} given; something like 2G or 800M expected.")
    return int(float(match[1]) * unit ** " KMG".index(match[2].upper() or " "))


def show(as_json: bool, name: str, rows: Sequence[object], printed: str | Callable[[], None]) -> None:
    """Prints a result: its rows as one JSON object, or a sentence, or what a function prints."""
    if as_json:
        say_json({"name": name, "rows": rows})
    elif isinstance(printed, str):
        say(printed)
    else:
        printed()


def refuse_in_dry_run(given: Mapping[str, object]) -> None:
    """Raises InputError if one of these flags has a value: a dry run writes nothing, so they would change nothing."""
    for flag, value in given.items():
        if value:
            raise InputError(f"{flag} changes nothing with --dry-run, which writes nothing; leave one of them out.")


def refuse_to_replace(out: Path, yes: bool, is_own: Callable[[Path], bool] = lambda _: False) -> None:
    """Raises InputError if there is something at `--out` that the command did not write: it would be lost.

    Args:
        yes: whether the user gave `--yes`.
        is_own: whether a file or a folder that is there is of the kind that the command writes, and made anew.
    """
    if yes or not (out.exists() or out.is_symlink()) or (out.is_dir() and not any(out.iterdir())) or is_own(out):
        return
    raise InputError(f"{out} is there already, and would be lost; give another --out, or add --yes to replace it.")


def begins_with(magic: bytes) -> Callable[[Path], bool]:
    """Whether a path is a file with these first bytes."""

    def does(path: Path) -> bool:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(magic)) == magic

    return does
