"""The flags of rules and draft modes, made from their catalogue, and `sample-view`: all rules side by side."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from app.settings import SamplingSettings
from core.controls import CATALOG, MODE_CONTROLS, MODES, Control, checked, checked_mode
from core.errors import InputError

if TYPE_CHECKING:
    from app.settings import DraftSettings
    from core.autocomplete import Autocomplete
    from core.samplers.view import Choice, View

SHOWN = 8  # tokens that the table writes out per rule
_RULES = {control.flag: (entry.name, control) for entry in CATALOG.values() for control in entry.controls}
_MODES = {control.flag: (mode, control) for mode, controls in MODE_CONTROLS.items() for control in controls}


def with_controls(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with one flag per control of the rules, and of the modes if it has a mode, in place of its `values`
    argument.

    `values` becomes a dict: flag to value, of the flags that were given.
    """
    own = inspect.signature(command, eval_str=True)
    controls = _RULES | (_MODES if "mode" in own.parameters else {})

    def wrapped(**given: Any) -> Any:
        values = {flag: given.pop(_argument(flag)) for flag in controls}
        return command(**given, values={flag: value for flag, value in values.items() if value is not None})

    flags = [
        inspect.Parameter(
            _argument(flag), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_flag(rule, control)
        )
        for flag, (rule, control) in controls.items()
    ]
    taken = set(controls) & {name.replace("_", "-") for name in own.parameters}
    assert not taken, f"{taken} are flags of the command itself"
    kept = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.parameters.values() if p.name != "values"]
    wrapped.__signature__ = inspect.Signature([*kept, *flags])  # pyright: ignore[reportFunctionMemberAccess]
    wrapped.__annotations__ = {p.name: p.annotation for p in (*kept, *flags)}
    wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
    return wrapped


def _argument(flag: str) -> str:
    return "control_" + flag.replace("-", "_")


def _flag(rule: str, control: Control) -> Any:
    kind = str if control.choices else int if isinstance(control.step, int) else float
    reach = "|".join(control.choices) if control.choices else f"{control.low:g}-{control.high:g}"
    help_ = f"{rule}: {control.explain} ({reach}; {control.default})"
    return Annotated[kind | None, typer.Option(f"--{control.flag}", metavar="N", help=help_, show_default=False)]


def values_of(rule: str, given: dict[str, Any]) -> dict[str, Any]:
    """The values of a rule's controls by name. Raises InputError for a flag of another rule, or out of range."""
    values = _owned(_RULES, "rule", rule, given)
    checked(rule, values)
    return values


def chosen(rule: str, given: dict[str, Any], mode: str, seed: int) -> SamplingSettings:
    """What the flags say. Raises InputError for a rule or a mode that is none, a flag of another one, or a value out of
    range."""
    values = values_of(rule, {flag: value for flag, value in given.items() if flag in _RULES})
    checked_mode(mode, {})
    of_mode = _owned(_MODES, "mode", mode, {flag: value for flag, value in given.items() if flag in _MODES})
    checked_mode(mode, of_mode)
    return SamplingSettings(rule=rule, values=values, mode=mode, mode_values=of_mode, seed=seed)


def _owned(controls: dict[str, tuple[str, Control]], kind: str, chosen: str, given: dict[str, Any]) -> dict[str, Any]:
    for flag in given:
        owner, _ = controls[flag]
        if owner != chosen:
            raise InputError(f"--{flag} is a flag of {owner}, and the {kind} is {chosen}; add --{kind} {owner}.")
    return {controls[flag][1].name: value for flag, value in given.items()}


def asked(given: dict[str, Any], temperature: float) -> dict[str, dict[str, Any]]:
    """All rules, with the values that were given to some. Raises InputError for a value out of range."""
    found: dict[str, dict[str, Any]] = {name: {} for name in CATALOG}
    for flag, value in given.items():
        owner, control = _RULES[flag]
        found[owner][control.name] = value
    for name, values in found.items():
        checked(name, values, temperature)
    return found


def options(autocomplete: Autocomplete, settings: DraftSettings) -> dict[str, Any]:
    """What `Session.complete` takes for these settings, besides their own `drafting`. Raises InputError."""
    if settings.plain:
        return {}
    from core.modes import Mode

    chosen = settings.sampling
    rule = autocomplete.sampler(chosen.rule, chosen.values, settings.temperature)
    speculation = None
    if settings.speculates:
        from app.speculation import chosen_by

        speculation = chosen_by(autocomplete, settings)
    mode = Mode(chosen.mode, **checked_mode(chosen.mode, chosen.mode_values), speculation=speculation)
    return {"mode": mode, "rule": rule, "seed": chosen.seed}


def view(autocomplete: Autocomplete, text: str, temperature: float, settings: dict[str, dict[str, Any]]) -> View:
    """All rules on the token after the text. Raises ContextFull."""
    from core.samplers.view import look

    tokenizer = autocomplete.model.tokenizer
    ids = tokenizer.start_ids + tokenizer.encode(text)[-autocomplete.window :]
    sequence = autocomplete.model.open()
    try:
        logits = sequence.sync(ids or [tokenizer.document_start])
    finally:
        sequence.close()
    return look(logits, tokenizer, temperature, settings, autocomplete.geometries)


Rule = Annotated[str, typer.Option(help=f"Which tokens are kept: {', '.join(CATALOG)}.", metavar="NAME")]
ModeName = Annotated[str, typer.Option("--mode", help=f"How drafts are made: {', '.join(MODES)}.", metavar="NAME")]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The same seed draws the same drafts.", metavar="N")]


def table(view: View, text: Callable[[str], str] = str) -> list[Any]:
    """The comparison for a terminal: one row per rule. `text` makes a token's text fit to be shown."""
    made = Table(title=f"next token at T = {view.temperature:g}", title_justify="left")
    for column, width in (("rule", 8), ("kept", 5), ("mass", 6), ("entropy", 7)):
        made.add_column(column, justify="left" if column == "rule" else "right", no_wrap=True, min_width=width)
    made.add_column("kept tokens", overflow="ellipsis", no_wrap=True)
    for choice in view.choices:
        made.add_row(
            choice.title, str(choice.count), f"{choice.mass:.1%}", f"{choice.entropy:.2f}", _tokens(view, choice, text)
        )
    notes = [f"The whole distribution has {view.entropy:.2f} nats of entropy."]
    if view.top_w is not None:
        n = len(set(view.top_w.ids) ^ set(view.top_w.without_geometry))
        notes.append(
            f"Distances between tokens changed Top-W's choice here, by {n} token{'' if n == 1 else 's'}."
            if view.top_w.geometry_mattered
            else "Distances between tokens made no difference to Top-W here."
        )
    return [made, Text(" ".join(notes))]


def _tokens(view: View, choice: Choice, text: Callable[[str], str]) -> Text:
    """The likeliest kept tokens; dropped ones among them stand struck through."""
    line = Text()
    for token, kept in list(zip(view.tokens, choice.kept, strict=True))[:SHOWN]:
        line.append(text(token.text).replace(" ", "␣"), style="bold" if kept else "dim strike").append(" ")
    if choice.count > sum(choice.kept[:SHOWN]):
        line.append("…")
    return line
