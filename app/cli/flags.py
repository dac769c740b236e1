"""Generates the command line flags from the definitions of the options, and writes errors with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand
from typer.main import get_command

from app.options.given import Flag, Given
from core.errors import Mention, OptionError

Chosen = TypeVar("Chosen")
_VALUES = "polydraft.values"  # of the generated options, in the context of a command


def sentence_of(error: Exception) -> str:
    """The error in one line, with the options as flags."""
    return " ".join((error.written(as_flag) if isinstance(error, OptionError) else str(error)).split())


def as_flag(mention: Mention) -> str:
    """An option as the command line writes it: --end-below, --mixing geometric, --no-distinct."""
    name, value = mention.name.replace("_", "-"), mention.value
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}" if value is None else f"--{name} {value}"


def options_of(fields: Iterable[tuple[str, Any, Any]]) -> list[Any]:
    """Typer's own options for the fields of a dataclass: name, annotation and default. `values_of` has their values."""
    members = [(name, kind, field(default=default)) for name, kind, default in fields]
    typed = typer.Typer(add_completion=False)
    typed.command()(make_dataclass("Values", members))
    options = get_command(typed).params
    for option in options:
        option.expose_value, option.callback = False, _store
    return options


def _store(ctx: Any, option: Any, value: Any) -> Any:
    if value == ():  # an option that may be given several times, and was not
        value = None
    ctx.meta.setdefault(_VALUES, {})[option.name] = value
    return value


def values_of(ctx: typer.Context) -> dict[str, Any]:
    """The values of the generated options of a command, by name."""
    return ctx.meta.get(_VALUES, {})


def command_with(last: Callable[[], Sequence[Any]], first: Callable[[], Sequence[Any]] = tuple) -> type[TyperCommand]:
    """The class of a command with generated options: `first` after the command's first argument, `last` at the end.

    They are generated when they are first read: every start makes all commands, and reads the options of one.
    """

    class Generated(TyperCommand):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self._written = self.params
            del self.params

        def __getattr__(self, name: str) -> Any:  # called for a missing attribute
            if name != "params":
                raise AttributeError(name)
            self.params = [*self._written[:1], *first(), *self._written[1:], *last()]
            return self.params

    return Generated


def command_for(
    options: Callable[[], type[Any] | None] = lambda: None, flags: Mapping[str, Flag] | None = None
) -> type[TyperCommand]:
    """The class of a command whose options are the fields of a dataclass, which `chosen` returns, and these flags,
    whose values `given` returns."""

    def of_its_fields() -> list[Any]:
        if (of := options()) is None:
            return []
        hints = get_type_hints(of, include_extras=True)
        return options_of((each.name, hints[each.name], each.default) for each in fields(of))

    def generated(general: bool) -> list[Any]:
        return options_of(_field(flag) for flag in (flags or {}).values() if bool(flag.kind) is not general)

    return command_with(lambda: [*of_its_fields(), *generated(False)], lambda: generated(True))


def chosen(ctx: typer.Context, options: type[Chosen]) -> Chosen:
    """The values of a command's options as their dataclass."""
    values: Any = options
    return options(**{each.name: values_of(ctx)[each.name] for each in fields(values)})


def given(ctx: typer.Context, flags: Mapping[str, Flag]) -> Given:
    """The values of the flags that the user gave, by flag."""
    values = values_of(ctx)
    return {flag: values[_name(flag)] for flag in flags if was_given(ctx, _name(flag))}


def was_given(ctx: typer.Context, name: str) -> bool:
    """Whether the user gave this parameter on the command line."""
    return getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"


def _name(flag: str) -> str:
    return "control_" + flag.replace("-", "_")


def _field(flag: Flag) -> tuple[str, Any, Any]:
    """A flag as a field for `options_of`."""
    control, name = flag.control, _name(flag.control.flag)
    if control.kind == "bool":
        about = typer.Option(f"--{control.flag}/--no-{control.flag}", metavar="", help=control.explain)
        return name, Annotated[bool, about], control.default
    kind: Any = {"int": int, "float": float, "choice": str}[control.kind]
    written, choices = f"--{control.flag}", "|".join(control.choices)
    if flag.kind:
        reach = choices or f"{control.low:g}-{control.high:g}"
        help_ = f"{' or '.join(flag.owners)}: {control.explain} ({reach}; {control.default})"
        return name, Annotated[kind | None, typer.Option(written, metavar="N", help=help_, show_default=False)], None
    limits: dict[str, Any] = {} if choices else {"min": control.low, "max": control.high}
    about = typer.Option(written, metavar=choices or "N", help=control.explain, **limits)
    return name, Annotated[kind, about], control.default
