"""The commands of research: `polydraft bench` for speed, `polydraft eval` for the quality of drafts, and `polydraft
train` for heads and adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast, get_type_hints

import typer
from rich.console import Console

from app.cli.flags import command_with, options_of, values_of
from app.machine.output import plain
from core.errors import InputError
from core.files import write_whole
from research import train
from research.bench import BENCHES
from research.evals import EVALS

if TYPE_CHECKING:  # every start of `polydraft` imports this module, and few need the options
    from research.report import BenchOptions, Report


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


def options_for(command: str) -> type[BenchOptions]:
    from research.options import EvalOptions
    from research.report import BenchOptions

    return {"bench": BenchOptions, "eval": EvalOptions}[command]


def register(app: typer.Typer) -> None:
    """Adds the commands `bench NAME`, `eval NAME` and `train NAME` to `app`."""
    app.add_typer(train.app, name="train")
    for command, known, description in (
        ("bench", BENCHES, "Measure this machine; each measurement runs beside its peer."),
        ("eval", EVALS, "Evaluate the quality of drafts, beside their peers in the same run."),
    ):
        names = "\n\n".join(f"{name}: {what}." for name, what in known.items())
        cls = command_with(partial(_flags, command), _json)
        app.command(command, help=f"{description}\n\n{names}", cls=cls)(_command(command, known))


def _json() -> list[Any]:
    return options_of([("as_json", Annotated[bool, typer.Option("--json", help="Print one JSON object.")], False)])


def _flags(command: str) -> list[Any]:
    return options_of(_fields(options_for(command)))


def _fields(options: type[BenchOptions]) -> Iterator[tuple[str, Any, Any]]:
    """The fields of a class of options that have a `Use`, as flags."""
    from research.uses import uses_of

    hints = get_type_hints(options)
    for name, use in uses_of(options).items():
        flags = use.flags or ((f"--{name}",) if hints[name] is bool else ())
        about = typer.Option(*flags, help=use.help, min=use.low, max=use.high, metavar=use.metavar)
        yield name, Annotated[hints[name], about], getattr(options, name)


def _command(command: str, known: Mapping[str, str]) -> Callable[..., None]:
    """The function of a command."""
    argument = typer.Argument(help=f"One of {', '.join(known)}.")

    def run(ctx: typer.Context, name: str = argument) -> None:
        from research.report import show
        from research.uses import refuse_unused, uses_of

        if name not in known:
            raise InputError(f"{command} {name!r} given; one of {', '.join(known)} expected.")
        options = options_for(command)
        refuse_unused(name, uses_of(options), ctx)
        given = values_of(ctx)
        as_json, module, chosen = given.pop("as_json"), module_of(command, name), options(**given)
        console = Console(stderr=True, soft_wrap=True)
        asks = getattr(module, "asks_a_person", None)
        if asks is not None and asks(chosen):  # nothing else may draw where the person answers
            report = module.measure(chosen, lambda text: console.print(plain(f"{name}: {text}")))
        else:
            with console.status(f"{name}: loading …") as status:
                report = module.measure(chosen, lambda text: status.update(plain(f"{name}: {text} …")))
        if plot := given.get("plot"):
            write_whole(plot, module.plots(report).encode(), private=False)
        show(report, as_json)

    return run
