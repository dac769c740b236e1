"""`polydraft bench` and `polydraft eval`: the commands for measurements of speed and of draft quality."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Protocol, cast, get_type_hints

import typer
from rich.console import Console

from app.cli.flags import command_with, options_of, values_of
from core.errors import InputError
from core.files import write_whole
from measure.bench import BENCHES
from measure.evals import EVALS
from measure.options import EvalOptions
from measure.report import BenchOptions, Report, show
from measure.uses import refuse_unused, uses_of


class Measurement(Protocol):
    """The module of a measurement or an evaluation."""

    def measure(self, options: BenchOptions, progress: Callable[[str], None]) -> Report:
        """Measures; an evaluation needs `EvalOptions`. `progress` is called with a description of each phase."""
        ...

    def plots(self, report: Report) -> str:
        """Returns an SVG image; for evaluations with the option `plot`."""
        ...


def module_of(command: str, name: str) -> Measurement:
    folder = {"bench": "bench", "eval": "evals"}[command]
    return cast("Measurement", import_module(f"{__package__}.{folder}.{name.replace('-', '_')}"))


def register(app: typer.Typer) -> None:
    """Adds the commands `bench NAME` and `eval NAME` to `app`."""
    for command, known, options, description in (
        ("bench", BENCHES, BenchOptions, "Measure this machine; each measurement runs beside its peer."),
        ("eval", EVALS, EvalOptions, "Evaluate the quality of drafts, beside their peers in the same run."),
    ):
        names = "\n\n".join(f"{name}: {what}." for name, what in known.items())
        as_json = "as_json", Annotated[bool, typer.Option("--json", help="Print one JSON object.")], False
        cls = command_with(options_of(_fields(options)), options_of([as_json]))
        app.command(command, help=f"{description}\n\n{names}", cls=cls)(_command(command, known, options))


def _fields(options: type[BenchOptions]) -> Iterator[tuple[str, Any, Any]]:
    """The fields of a class of options that have a `Use`, as flags."""
    hints = get_type_hints(options)
    for name, use in uses_of(options).items():
        flags = use.flags or ((f"--{name}",) if hints[name] is bool else ())
        about = typer.Option(*flags, help=use.help, min=use.low, max=use.high, metavar=use.metavar)
        yield name, Annotated[hints[name], about], getattr(options, name)


def _command(command: str, known: Mapping[str, str], options: type[BenchOptions]) -> Callable[..., None]:
    """The function of a command; the generated flags are the fields of `options` that have a `Use`."""
    uses = uses_of(options)

    argument = typer.Argument(help=f"One of {', '.join(known)}.")

    def run(ctx: typer.Context, name: str = argument) -> None:
        if name not in known:
            raise InputError(f"{command} {name!r} given; one of {', '.join(known)} expected.")
        refuse_unused(name, uses, ctx)
        given = values_of(ctx)
        as_json, module, chosen = given.pop("as_json"), module_of(command, name), options(**given)
        console = Console(stderr=True, soft_wrap=True)
        asks = getattr(module, "asks_a_person", None)
        if asks is not None and asks(chosen):  # nothing else may draw where the person answers
            report = module.measure(chosen, lambda text: console.print(f"{name}: {text}", markup=False))
        else:
            with console.status(f"{name}: loading …") as status:
                report = module.measure(chosen, lambda text: status.update(f"{name}: {text} …"))
        if plot := given.get("plot"):
            write_whole(plot, module.plots(report).encode(), private=False)
        show(report, as_json)

    return run
