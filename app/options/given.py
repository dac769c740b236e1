"""The settings for the options that a person or a program gives, each by its flag.

An option that would have no effect is refused, with a sentence that names it and a remedy. The command line writes the
options of such an error as flags, and the interfaces for programs as fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.options.labels import OF_THE_PAGE
from app.options.settings import DraftSettings
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
    WITH_DRAFT_MODEL,
    WITH_STORES,
    checked_rule,
    entries_of,
    named,
)
from core.errors import Mention, OptionError
from core.options import BASE_STORE, OPTIONS, STORE, Control, Value, useless_in

Given = dict[str, Value]  # values of the options that were given, by flag


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
    flags: dict[str, Flag] = {}
    for owner, options in controls:
        for control in options:
            earlier = flags.get(control.flag)
            flags[control.flag] = Flag(control, kind, (*(earlier.owners if earlier else ()), owner))
    return flags


DRAFT_FLAGS = {control.flag: Flag(control) for control in OPTIONS.values() if control.flag not in OF_THE_PAGE}
RULE_FLAGS = _owned("rule", ((name, entry.controls) for name, entry in CATALOG.items()))
_CHOSEN_FLAGS = (
    RULE_FLAGS
    | _owned("mode", MODE_CONTROLS.items())
    | _owned("speculate", ((name, controls) for name, (_, controls) in SPECULATIONS.items()))
)
ALL_FLAGS = DRAFT_FLAGS | _CHOSEN_FLAGS


def settings_of(
    given: Given,
    rule: str = DEFAULT_RULE,
    mode: str | None = None,
    speculate: str | None = None,
    drafter: str | None = None,
) -> DraftSettings:
    """The settings for the given options.

    Args:
        rule: a name, or several as `core.chains` joins them.
        mode: None is the default; with `speculate` it is the default method of speculation.
        drafter: None is the default.
    Raises: OptionError for an unknown name, a value out of range, or an option that would have no effect; InputError
        for rules that cannot be combined.
    """
    mode = mode or (DEFAULT_MODE if speculate is None else DEFAULT_METHOD)
    entries_of(rule)
    named("mode", mode, MODES)
    named("speculate", speculate or DEFAULT_SPECULATION, SPECULATIONS)
    named("drafter", drafter or DEFAULT_DRAFTER, DRAFTERS)
    chosen = {"rule": rule, "mode": mode, "speculate": speculate or DEFAULT_SPECULATION}
    if speculate is not None and mode not in SPECULATING:
        raise useless_in("speculate", mode, SPECULATING)
    if drafter is not None and chosen["speculate"] == DEFAULT_SPECULATION:
        ways = [Mention("speculate", way) for way in SPECULATIONS if way != DEFAULT_SPECULATION]
        raise OptionError("{0} changes nothing without {1} or {2}; add one of them.", "drafter", *ways)
    for name, value in given.items():
        _refuse_foreign(ALL_FLAGS[name], chosen)
        ALL_FLAGS[name].control.refuse_without_effect(value, {**given, **chosen})
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
    """Raises OptionError if a draft model is named and would have no effect, or is missing."""
    drafter = settings.sampling.speculation.drafter if settings.speculates else None
    if drafter == "model" and draft_model is None:
        sentence = "{0} needs {1}, a smaller model with the same tokenizer; add it."
        raise OptionError(sentence, Mention("drafter", "model"), Mention("draft-model", "FILE"))
    if draft_model is not None and drafter not in WITH_DRAFT_MODEL:
        needed = "speculate", Mention("drafter", "model")
        raise OptionError("{0} changes nothing without {1} and {2}; add them.", "draft-model", *needed)


def refuse_stores(settings: DraftSettings) -> None:
    """Raises OptionError if naming personal stores would have no effect."""
    if not (settings.speculates and settings.sampling.speculation.drafter == "suffix"):
        STORE.refuse_without_effect("", _chosen(settings))  # that drafter reads their texts


def refuse_base_store(settings: DraftSettings) -> None:
    """Raises OptionError if naming a base store would have no effect."""
    if not (settings.speculates and settings.sampling.speculation.drafter in WITH_STORES):
        BASE_STORE.refuse_without_effect("", _chosen(settings))


def _chosen(settings: DraftSettings) -> dict[str, Value]:
    """The values by flag, and the mode."""
    values = {control.flag: getattr(settings, name) for name, control in OPTIONS.items() if not control.within}
    return values | {"mode": settings.sampling.mode}


def of_rules(given: Given, temperature: float, chain: str = DEFAULT_RULE) -> dict[str, dict[str, Value]]:
    """All rules, with the given values, and the chain if it has several rules. Raises InputError for a value out of
    range, and for rules that cannot be combined."""
    by_rule: dict[str, dict[str, Value]] = {name: {} for name in CATALOG}
    for name, value in given.items():
        flag = RULE_FLAGS[name]
        by_rule[flag.owners[0]][flag.control.name] = value
    if len(names := names_of(chain)) > 1:
        entries_of(chain)
        by_rule[chain] = {name: value for rule in names for name, value in by_rule[rule].items()}
    return {name: checked_rule(name, values, temperature) for name, values in by_rule.items()}


def _refuse_foreign(flag: Flag, chosen: Mapping[str, str]) -> None:
    """Raises OptionError for an option of another rule, mode or way to speculate than the chosen one."""
    if not flag.kind:
        return
    name, kind = flag.control.flag, flag.kind
    if {*(names_of(chosen[kind]) if kind == "rule" else [chosen[kind]])} & {*flag.owners}:
        return
    sentence, now = (
        "{0} is a flag of {owners}, and the {kind} is {now}; add {1}.",
        chosen[kind].replace(JOIN, ", then "),
    )
    if kind == "speculate" and now == DEFAULT_SPECULATION:
        sentence = "{0} is a flag of {owners}, and there is no {2}; add {1}."
    elif kind == "speculate":
        sentence = "{0} is a flag of {owners}, and {2} is {now}; add {1}."
    wanted, owners = Mention(kind, flag.owners[0]), " or ".join(flag.owners)
    raise OptionError(sentence, name, wanted, kind, owners=owners, kind=kind, now=now)
