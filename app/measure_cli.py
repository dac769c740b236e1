"""`polydraft bench` and `polydraft eval`: the commands for measurements of speed and of draft quality."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter, Signature
from typing import Annotated, Any, Protocol, cast, get_type_hints

import typer
from rich.console import Console

from app.bench import BENCHES
from app.bench.report import BenchOptions, Report, show
from app.evals import EVALS
from app.evals.options import EvalOptions
from app.uses import refuse_unused, uses_of
from core.errors import InputError
from core.files import write_whole


class Measurement(Protocol):
    """The module of a measurement or an evaluation."""

    def measure(self, options: BenchOptions, progress: Callable[[str], None]) -> Report:
        """Measures; an evaluation needs `EvalOptions`. `progress` is called with a description of each phase."""
        ...

    def plots(self, report: Report) -> str:
        """Returns an SVG image; for evaluations with the option `plot`."""
        ...


def module_of(command: str, name: str) -> Measurement:
    package = {"bench": "app.bench", "eval": "app.evals"}[command]
    return cast("Measurement", import_module(f"{package}.{name.replace('-', '_')}"))


def register(app: typer.Typer) -> None:
    """Adds the commands `bench NAME` and `eval NAME` to `app`."""
    for command, known, options, description in (
        ("bench", BENCHES, BenchOptions, "Measure this machine; each measurement runs beside its peer."),
        ("eval", EVALS, EvalOptions, "Evaluate the quality of drafts, beside their peers in the same run."),
    ):
        names = "\n\n".join(f"{name}: {what}." for name, what in known.items())
        app.command(command, help=f"{description}\n\n{names}")(_command(command, known, options))


def _command(command: str, known: Mapping[str, str], options: type[BenchOptions]) -> Callable[..., None]:
    """The function of a command, whose parameters are the fields of `options` that have a `Use`."""
    uses, hints = uses_of(options), get_type_hints(options)

    def run(ctx: typer.Context, name: str, as_json: bool, **given: Any) -> None:
        if name not in known:
            raise InputError(f"{command} {name!r} given; one of {', '.join(known)} expected.")
        refuse_unused(name, uses, ctx)
        module, chosen = module_of(command, name), options(**given)
        with Console(stderr=True, soft_wrap=True).status(f"{name}: loading …") as status:
            report = module.measure(chosen, lambda text: status.update(f"{name}: {text} …"))
        if plot := given.get("plot"):
            write_whole(plot, module.plots(report).encode(), private=False)
        show(report, as_json)

    def parameter(name: str, kind: Any, default: Any = Parameter.empty) -> Parameter:
        return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)

    parameters = [
        parameter("ctx", typer.Context),
        parameter("name", Annotated[str, typer.Argument(help=f"One of {', '.join(known)}.")]),
        parameter("as_json", Annotated[bool, typer.Option("--json", help="Print one JSON object.")], False),
    ]
    for name, use in uses.items():
        flags = use.flags or ((f"--{name}",) if hints[name] is bool else ())
        option = typer.Option(*flags, help=use.help, min=use.low, max=use.high, metavar=use.metavar)
        parameters.append(parameter(name, Annotated[hints[name], option], getattr(options, name)))
    run.__signature__ = Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
