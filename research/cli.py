"""The commands of research: `polydraft bench` for speed, `polydraft eval` for the quality of drafts, and `polydraft
train` for heads and adapters.

A measurement is a module with `measure(options, progress) -> Report`. The fields of the class of `options` are the
flags of its command. Two more functions are optional: `plots(report)` draws an SVG image for the flag --plot, and
`asks_a_person(options)` says whether the terminal is needed for questions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from app.cli.flags import command_with, options_of, values_of
from app.machine.output import plain
from core.files import write_whole
from research import bench, evals, train


def register(app: typer.Typer) -> None:
    """Adds the commands `bench NAME`, `eval NAME` and `train NAME` to `app`."""
    app.add_typer(train.app, name="train")
    for command, package, known, description in (
        ("bench", bench, bench.BENCHES, "Measure this machine; each measurement runs beside its peer."),
        ("eval", evals, evals.EVALS, "Evaluate the quality of drafts, beside their peers in the same run."),
    ):
        group = typer.Typer(help=description, no_args_is_help=True)
        app.add_typer(group, name=command)
        for name, what in known.items():
            load = partial(import_module, f"{package.__name__}.{name.replace('-', '_')}")
            group.command(name, help=f"{what}.", cls=command_with(partial(_flags, load)))(_command(name, load))


def options_class(module: ModuleType) -> type[Any]:
    """Returns the class of a measurement's options."""
    return get_type_hints(module.measure)["options"]


def _flags(load: Callable[[], ModuleType]) -> list[Any]:
    options = options_class(load())
    hints = get_type_hints(options, include_extras=True)
    as_json = "as_json", Annotated[bool, typer.Option("--json", help="Print one JSON object.")], False
    return options_of([*((field.name, hints[field.name], field.default) for field in fields(options)), as_json])


def _command(name: str, load: Callable[[], ModuleType]) -> Callable[..., None]:
    """The function of a command."""

    def run(ctx: typer.Context) -> None:
        from research.report import show

        module, given = load(), values_of(ctx)
        as_json = given.pop("as_json")
        options = options_class(module)(**given)
        console = Console(stderr=True, soft_wrap=True)
        asks = getattr(module, "asks_a_person", None)
        if asks is not None and asks(options):  # nothing else may draw where the person answers
            report = module.measure(options, lambda text: console.print(plain(f"{name}: {text}")))
        else:
            with console.status(f"{name}: loading …") as status:
                report = module.measure(options, lambda text: status.update(plain(f"{name}: {text} …")))
        if plot := given.get("plot"):
            write_whole(plot, module.plots(report).encode(), private=False)
        show(report, as_json)

    return run
