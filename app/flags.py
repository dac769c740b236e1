"""Generates the command line flags from the definitions of the options, and the settings from given flags.

A flag that would have no effect is refused, with a sentence that names it and a remedy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from app.settings import DraftSettings
from core.chains import JOIN, names_of
from core.controls import (
    CATALOG,
    DEFAULT_DRAFTER,
    DEFAULT_METHOD,
    DEFAULT_MODE,
    DEFAULT_RULE,
    DEFAULT_SPECULATION,
    DRAFTERS,
    MODE_CONTROLS,
    MODES,
    SPECULATING,
    SPECULATIONS,
    TIED,
    checked_rule,
    entries_of,
    named,
)
from core.errors import InputError
from core.options import DRAFTING, SEED, Control, Value

Given = dict[str, Value]  # values of the flags that were given, by flag


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        kind: the flag that selects the owner of this option: "rule", "mode" or "speculate"; "" for drafts in general.
        owners: the values of that flag to which this option belongs.
    """

    control: Control
    kind: str = ""
    owners: tuple[str, ...] = ()


def _owned(kind: str, controls: Iterable[tuple[str, Iterable[Control]]]) -> dict[str, Flag]:
    found: dict[str, Flag] = {}
    for owner, ones in controls:
        for control in ones:
            earlier = found.get(control.flag)
            found[control.flag] = Flag(control, kind, (*(earlier.owners if earlier else ()), owner))
    return found


DRAFT_FLAGS = {control.flag: Flag(control) for control in (*DRAFTING.values(), SEED) if control.only != "page"}
RULE_FLAGS = _owned("rule", ((name, entry.controls) for name, entry in CATALOG.items()))
_CHOSEN_FLAGS = (
    RULE_FLAGS
    | _owned("mode", MODE_CONTROLS.items())
    | _owned("speculate", ((name, controls) for name, (_, controls) in SPECULATIONS.items()))
)
ALL_FLAGS = DRAFT_FLAGS | _CHOSEN_FLAGS


def with_flags(flags: Mapping[str, Flag]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: adds these flags to a command, and passes the values of the given ones as its argument `given`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command, eval_str=True).parameters.values()

        def wrapped(ctx: typer.Context, **arguments: Any) -> Any:
            values = {flag: arguments.pop(_argument(flag)) for flag in flags}
            return command(
                **arguments, given={flag: v for flag, v in values.items() if was_given(ctx, _argument(flag))}
            )

        def parameter(flag: Flag) -> inspect.Parameter:
            default = None if flag.kind else flag.control.default
            name, annotation = _argument(flag.control.flag), _annotation(flag)
            return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

        kept = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own if p.name != "given"]
        drafting = [parameter(flag) for flag in flags.values() if not flag.kind]
        rest = [parameter(flag) for flag in flags.values() if flag.kind]
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context, *kept[:1], *drafting, *kept[1:], *rest]
        wrapped.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        wrapped.__doc__, wrapped.__name__ = command.__doc__, command.__name__
        return wrapped

    return decorate


def was_given(ctx: typer.Context, name: str) -> bool:
    """Whether the user gave this parameter on the command line."""
    return getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"


def settings_of(
    given: Given,
    rule: str = DEFAULT_RULE,
    mode: str | None = None,
    speculate: str | None = None,
    drafter: str | None = None,
) -> DraftSettings:
    """The settings for the given flags.

    Args:
        rule: a name, or several as `core.chains` joins them.
        mode: None is the default; with `speculate` it is the default method of speculation.
        drafter: None is the default.
    Raises: InputError for an unknown name, a value out of range, or a flag that would have no effect.
    """
    mode = mode or (DEFAULT_MODE if speculate is None else DEFAULT_METHOD)
    entries_of(rule)
    named("mode", mode, MODES)
    named("speculate", speculate or DEFAULT_SPECULATION, SPECULATIONS)
    named("drafter", drafter or DEFAULT_DRAFTER, DRAFTERS)
    chosen = {"rule": rule, "mode": mode, "speculate": speculate or DEFAULT_SPECULATION}
    if speculate is not None and mode not in SPECULATING:
        raise InputError(_useless("speculate", mode, SPECULATING))
    speculating = chosen["speculate"] != DEFAULT_SPECULATION
    if drafter is not None and not speculating:
        raise InputError("--drafter changes nothing without --speculate lossless or --speculate arc; add one of them.")
    for name, value in given.items():
        _refuse_useless(name, value, given, chosen)
    of: dict[str, dict[str, Value]] = {"": {}, "rule": {}, "mode": {}, "speculate": {}}
    for name, value in given.items():
        flag = ALL_FLAGS[name]
        of[flag.kind][flag.control.name] = flag.control.checked(value)
    sampling: dict[str, object] = {"rule": rule, "values": of["rule"], "mode": mode, "mode_values": of["mode"]}
    sampling["speculation"] = {
        "mode": chosen["speculate"],
        "drafter": drafter or DEFAULT_DRAFTER,
        "values": of["speculate"],
    }
    if "seed" in of[""]:
        sampling["seed"] = of[""].pop("seed")
    return DraftSettings.model_validate(of[""] | {"sampling": sampling})


def refuse_draft_model(settings: DraftSettings, draft_model: str | None) -> None:
    """Raises InputError if a draft model is named and would have no effect, or is missing."""
    wanted = settings.speculates and settings.sampling.speculation.drafter == "model"
    if wanted and draft_model is None:
        raise InputError("--drafter model needs --draft-model FILE, a smaller model with the same tokenizer; add it.")
    if draft_model is not None and not wanted:
        raise InputError("--draft-model changes nothing without --speculate and --drafter model; add them.")


def refuse_stores(settings: DraftSettings) -> None:
    """Raises InputError if naming personal stores would have no effect."""
    weight = DRAFTING["personal_weight"]
    if settings.sampling.mode not in weight.modes:
        raise InputError(_useless("store", settings.sampling.mode, weight.modes))
    for flag, off in (
        ("--no-ngrams", not settings.ngrams),
        ("--mixing geometric", settings.mixing == "geometric"),
        ("--personal-weight 0", settings.personal_weight == 0),
    ):
        if off:
            raise InputError(f"--store changes nothing with {flag}; leave one of them out.")


def refuse_base_store(settings: DraftSettings) -> None:
    """Raises InputError if naming a base store would have no effect."""
    speculation = settings.sampling.speculation
    if settings.speculates and speculation.drafter in ("ngram", "superposed"):
        return  # the drafter looks words up in it
    modes = DRAFTING["ngrams"].modes
    if settings.sampling.mode not in modes:
        raise InputError(_useless("base-store", settings.sampling.mode, modes))
    if not settings.ngrams:
        raise InputError("--base-store changes nothing with --no-ngrams; leave one of them out.")


def of_rules(given: Given, temperature: float, chain: str = DEFAULT_RULE) -> dict[str, dict[str, Value]]:
    """All rules, with the given values, and the chain if it has several rules. Raises InputError for a value out of
    range, and for rules that cannot be combined."""
    found: dict[str, dict[str, Value]] = {name: {} for name in CATALOG}
    for name, value in given.items():
        flag = RULE_FLAGS[name]
        found[flag.owners[0]][flag.control.name] = value
    if len(names := names_of(chain)) > 1:
        entries_of(chain)
        found[chain] = {name: value for rule in names for name, value in found[rule].items()}
    return {name: checked_rule(name, values, temperature) for name, values in found.items()}


def _refuse_useless(name: str, value: Value, given: Given, chosen: Mapping[str, str]) -> None:
    """Raises InputError if this flag would have no effect with the others."""
    flag, mode, rule = ALL_FLAGS[name], chosen["mode"], chosen["rule"]
    control, speculating = flag.control, chosen["speculate"] != DEFAULT_SPECULATION
    if flag.kind and not set(names_of(rule) if flag.kind == "rule" else [chosen[flag.kind]]) & {*flag.owners}:
        of, now = " or ".join(flag.owners), f"the {flag.kind} is {chosen[flag.kind].replace(JOIN, ', then ')}"
        if flag.kind == "speculate":
            now = f"--speculate is {chosen['speculate']}" if speculating else "there is no --speculate"
        raise InputError(f"--{name} is a flag of {of}, and {now}; add --{flag.kind} {flag.owners[0]}.")
    drawn_resets = name == "seed" and mode == DEFAULT_MODE and given.get("reset-every")
    if control.modes and mode not in control.modes and not drawn_resets:
        raise InputError(_useless(name, mode, control.modes))
    if name == "k" and mode == "greedy" and float(value) > 1:
        raise InputError("--k changes nothing in greedy drafts, because there is only one; leave it out.")
    if control.beyond and float(value) > (most := control.on_page.high) and not given.get(_flag(control.beyond)):
        more = f"--{_flag(control.beyond)}"
        raise InputError(f"--{name} {value} given; at most {most:g} is accepted without {more}. Add {more} 10.")
    if name == "reset-every" and float(value) >= float(given.get("length", DRAFTING["length"].default)):
        raise InputError("--reset-every changes nothing in drafts that are not longer; raise --length or lower it.")
    excluded = {
        f"--no-{control.needs}": control.needs and given.get(control.needs, True) is False,
        "--mixing geometric, which uses the base store alone": name == "personal-weight"
        and given.get("mixing") == "geometric",
        "--rule greedy": name == "temperature" and rule == "greedy",
        "--reset-every": name in ("end-below", "verify") and given.get("reset-every"),
        "--speculate": name == "end-below" and speculating,
    }
    for entry in entries_of(rule):
        if (tie := entry.tie) and control == entry.control(tie.control):
            by = entry.control(tie.by).flag
            excluded[f"--{by} {TIED}"] = given.get(by) == TIED
    for other, useless in excluded.items():
        if useless:
            raise InputError(f"--{name} changes nothing with {other}; leave one of them out.")


def _useless(flag: str, mode: str, modes: Iterable[str]) -> str:
    wanted = " or ".join(f"--mode {name}" for name in modes)
    return f"--{flag} changes nothing in {mode} drafts; leave it out, or choose {wanted}."


def _flag(option: str) -> str:
    return DRAFTING[option].flag


def _argument(flag: str) -> str:
    return "control_" + flag.replace("-", "_")


def _annotation(flag: Flag) -> Any:
    """The type and typer's option of a flag."""
    control = flag.control
    if control.kind == "bool":
        names = f"--{control.flag}/--no-{control.flag}"
        return Annotated[bool, typer.Option(names, metavar="", help=control.explain)]
    kind: Any = {"int": int, "float": float, "choice": str}[control.kind]
    name, choices = f"--{control.flag}", "|".join(control.choices)
    if flag.kind:
        reach = choices or f"{control.low:g}-{control.high:g}"
        help_ = f"{' or '.join(flag.owners)}: {control.explain} ({reach}; {control.default})"
        return Annotated[kind | None, typer.Option(name, metavar="N", help=help_, show_default=False)]
    if choices:
        return Annotated[kind, typer.Option(name, metavar=choices, help=control.explain)]
    return Annotated[kind, typer.Option(name, min=control.low, max=control.high, metavar="N", help=control.explain)]
