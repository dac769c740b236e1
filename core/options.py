"""The options of drafting. Each is one field of `DraftOptions`: its name, type, default and, in its metadata, its
control: range, step, a sentence, the methods that use it and the choices with which it has no effect.

`app.options.settings` makes the HTTP fields from them, `app.web.panel` the sliders, `app.cli.flags` the flags, and a
test compares them with the table in docs/using.md. Their labels are in `app.options.labels`.
`core.drafting.drafts.Options` and `core.ask.Ask` inherit the fields. The options of rules, modes and speculation are in
`core.controls`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from core.errors import Mention, OptionError

Value = bool | int | float | str  # of an option
Backend = Literal["auto", "torch", "llama.cpp"]
Precision = Literal["auto", "file", "float32", "bfloat16", "int8"]
# When a rule selects: after the logits are divided by T, or before (T_sel of arXiv 2602.10346, Algorithm 1).
SelectAt = Literal["temperature", "1"]
Class = TypeVar("Class", bound=type)


@dataclass(frozen=True)
class NoEffect:
    """A choice with which an option changes nothing.

    Attributes:
        other: the flag of another option, or "rule", "mode" or "speculate".
        value: of that one; None for every value that switches it on.
        above: for values of the option itself above this alone.
        why: a clause for the error.
    """

    other: str
    value: Value | None = None
    above: float | None = None
    why: str = ""

    def holds(self, value: Value, chosen: Mapping[str, Value]) -> bool:
        """Whether a value of the option changes nothing with the chosen values, which are named by flag."""
        if self.other not in chosen or (self.above is not None and float(value) <= self.above):
            return False
        other = chosen[self.other]
        return other not in (False, 0, "off") if self.value is None else other == self.value

    def error(self, flag: str) -> OptionError:
        """The error for a flag that changes nothing."""
        why = f", {self.why}" if self.why else ""
        if self.other == "mode":
            return OptionError(
                "{0} changes nothing in {mode} drafts{why}; leave it out.", flag, mode=self.value, why=why
            )
        other = Mention(self.other, self.value)
        return OptionError("{0} changes nothing with {1}{why}; leave one of them out.", flag, other, why=why)


@dataclass(frozen=True)
class Control:
    """One option.

    Attributes:
        name: the argument that takes it.
        flag: on the command line, without the dashes in front; unique.
        default, low, high, step: of a number; a whole one where `step` is an int. `choices` instead for words. A truth
            value has only its default.
        explain: what a change does.
        beyond: the flag of the option that values above `high_alone` need; "" for none.
        high_alone: the largest value without that option.
        library: the default of the library's functions, where it differs from the product's.
        modes: the draft modes that use it; () for all.
        used_by: the flag of an option that uses it in the other modes; "" for none.
        below: the flag of an option; it has an effect only below that one's value.
        no_effect: the choices with which it changes nothing.
        reader: the lowest layer that reads it: the drafting of ids, a session of text, or the app.
        within: the field of the settings that contains it; "" for the settings themselves.
    """

    name: str
    flag: str
    default: Value
    low: float
    high: float
    step: float
    explain: str
    choices: tuple[str, ...] = ()
    beyond: str = ""
    high_alone: float = math.inf
    library: float | None = None
    modes: tuple[str, ...] = ()
    used_by: str = ""
    below: str = ""
    no_effect: tuple[NoEffect, ...] = ()
    reader: Literal["drafting", "session", "app"] = "drafting"
    within: str = ""

    @property
    def kind(self) -> Literal["bool", "choice", "int", "float"]:
        if isinstance(self.default, bool):
            return "bool"
        if self.choices:
            return "choice"
        return "int" if isinstance(self.step, int) else "float"

    @property
    def without_beyond(self) -> Control:
        """The option with the range that it has without the one that `beyond` names."""
        return replace(self, high=min(self.high, self.high_alone))

    def checked(self, value: object) -> Value:
        """The value in its own type. Raises OptionError."""
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise self._refused(repr(value), "true or false")
            return value
        if self.choices:
            if not isinstance(value, str) or value not in self.choices:
                raise self._refused(repr(value), f"one of {', '.join(self.choices)}")
            return value
        number = value if isinstance(value, int | float) and type(value) is not bool and math.isfinite(value) else None
        if number is None or not self.low <= number <= self.high or (self.kind == "int" and number != int(number)):
            kind = "a whole number" if self.kind == "int" else "a number"
            given = repr(value) if number is None else f"{number:g}"
            raise self._refused(given, f"{kind} from {self.low:.10g} to {self.high:.10g}")
        return int(number) if self.kind == "int" else float(number)

    def _refused(self, given: str, expected: str) -> OptionError:
        return OptionError("{0} {given} given; {expected} expected.", self.flag, given=given, expected=expected)

    def refuse_beyond(self, value: Value, chosen: Mapping[str, Value]) -> None:
        """Raises OptionError if a value needs the option `beyond`, which the chosen ones, named by flag, lack."""
        if self.beyond and float(value) > (most := self.without_beyond.high) and not chosen.get(self.beyond):
            sentence = "{0} {given} given; at most {most:g} is accepted without {1}. Add {2}."
            raise OptionError(sentence, self.flag, self.beyond, Mention(self.beyond, 10), given=value, most=most)

    def refuse_without_effect(self, value: Value, chosen: Mapping[str, Value]) -> None:
        """Raises OptionError if a value changes nothing with the chosen ones, which are named by flag, and "mode"."""
        mode = chosen["mode"]
        if self.modes and mode not in self.modes and not chosen.get(self.used_by):
            raise useless_in(self.flag, mode, self.modes)
        self.refuse_beyond(value, chosen)
        if self.below and float(value) >= float(chosen.get(self.below, BY_FLAG[self.below].default)):
            sentence = "{0} changes nothing in drafts that are not longer; raise {1} or lower it."
            raise OptionError(sentence, self.flag, self.below)
        for case in self.no_effect:
            if case.holds(value, chosen):
                raise case.error(self.flag)


def useless_in(flag: str, mode: Value, modes: Iterable[str]) -> OptionError:
    """The error for a flag that changes nothing in a mode, with the modes that use it."""
    others = [Mention("mode", name) for name in modes]
    wanted = " or ".join(f"{{{n}}}" for n in range(1, 1 + len(others)))
    sentence = "{0} changes nothing in {mode} drafts; leave it out, or choose " + wanted + "."
    return OptionError(sentence, flag, *others, mode=mode)


def _number(default: float, reach: tuple[float, float, float], explain: str, **more: Any) -> Any:
    """A number; `reach` is its lowest and highest value, and the step."""
    return _option(Control("", "", default, *reach, explain, **more))


def _choice(choices: tuple[str, ...], explain: str, **more: Any) -> Any:
    return _option(Control("", "", choices[0], 0, 0, 0, explain, choices, **more))


def _switch(default: bool, explain: str, **more: Any) -> Any:
    return _option(Control("", "", default, 0, 1, 1, explain, **more))


def _option(control: Control) -> Any:
    """The field of an option; `controls_of` names the control after it."""
    return field(default=control.default, metadata={"control": control})


LONGEST = 32  # tokens of a draft without resets

_GROWN = ("superposed", "branching", "sampled+superposed")
_MIXED = ("superposed", "beam", "greedy", "branching", "sampled+superposed")  # n-grams are mixed in

_NOT_DISTINCT, _RESETS, _NO_NGRAMS = NoEffect("distinct", False), NoEffect("reset-every"), NoEffect("ngrams", False)
_PAPERS_MIXING = NoEffect("mixing", "geometric", why="which uses the base store alone")


@dataclass(frozen=True)
class DraftOptions:
    """What a person chooses about drafts."""

    k: int = _number(
        3,
        (1, 9, 1),
        "How many drafts are shown.",
        no_effect=(NoEffect("mode", "greedy", above=1, why="because there is only one"),),
    )
    length: int = _number(
        10,
        (1, 256, 1),
        "How far each draft looks ahead, in tokens. A token is a word or a piece of one.",
        high_alone=LONGEST,
        beyond="reset-every",
    )
    reset_every: int = _number(
        0,
        (0, LONGEST, 1),
        f"After so many tokens one draft is drawn and becomes text. 0: no resets. Needed above {LONGEST} tokens.",
        modes=("superposed",),
        below="length",
    )
    temperature: float = _number(
        1.0,
        (0.05, 10.0, 0.05),
        "Lower: safer words. Higher: more surprising words.",
        no_effect=(NoEffect("rule", "greedy"),),
        reader="app",
    )
    select_at: Literal["temperature", "1"] = _choice(
        ("temperature", "1"),
        "At which temperature the rule selects. temperature: at the one above. 1: before it, so a high temperature "
        "brings in no further tokens.",
        no_effect=(NoEffect("rule", "none"), NoEffect("rule", "greedy")),
        reader="app",
    )
    min_confidence: float = _number(
        0.0,
        (0.0, 0.95, 0.01),
        "Drafts that you would take less often than this are hidden.",
        reader="app",
    )
    tau: float = _number(
        1.0,
        (0.05, 2.0, 0.01),
        "A second temperature, applied after the sampling rule (τ in the paper).",
    )
    exact_steps: int = _number(
        2,
        (0, 31, 1),
        "How many tokens each draft computes on its own. More: better and slower. Not set: complete drafts choose by "
        "its cost.",
        library=1,
        modes=("superposed", "sampled+superposed"),
    )
    forks: int = _number(
        2,
        (0, 16, 1),
        "How many passes search for places where drafts should branch, two in each. Higher: better and slower.",
        modes=("superposed",),
        no_effect=(_NOT_DISTINCT,),
    )
    end_below: float = _number(
        0.3,
        (0.0, 0.9, 0.05),
        "Higher: fewer, shorter, surer drafts. Each ends before a word less likely than this; 0: only at its length.",
        library=0.0,
        modes=(*_GROWN, "greedy"),
        no_effect=(_NOT_DISTINCT, _RESETS, NoEffect("speculate")),
    )
    min_branch: float = _number(
        0.01,
        (0.0, 0.5, 0.01),
        "A row stays empty rather than show a draft that you would take less often than this.",
        library=0.0,
        modes=_GROWN,
        no_effect=(_NOT_DISTINCT,),
    )
    refill: bool = _switch(
        True,
        "Every key requests drafts for the rows that no longer fit. Off: only when no row fits any more.",
        reader="app",
    )
    without_slurs: bool = _switch(
        True,
        "Drafts that appear by themselves contain none of the slurs of the list that comes with Polydraft.",
        reader="session",
    )
    verify: int = _number(
        0,
        (0, 32, 1),
        "How many tokens of complete drafts one more pass checks and corrects. 0: no check.",
        modes=("superposed",),
        no_effect=(_NOT_DISTINCT, _RESETS),
        reader="session",
    )
    distinct: bool = _switch(
        True,
        "Every draft is continued on its own and kept. Off: the best drafts replace the others, without forks.",
        modes=("superposed", "sampled+superposed"),
    )
    prose: bool = _switch(
        True,
        "Draft with the model as adapted to general prose, where there is such an adapter. Off: the model as it came.",
        reader="app",
    )
    ngrams: bool = _switch(True, "Favour common phrases, and yours.", modes=_MIXED)
    mixing: Literal["linear", "geometric"] = _choice(
        ("linear", "geometric"),
        "linear: phrases only add probability. geometric: as in the paper, words outside common phrases are left out; "
        "yours are not used.",
        modes=_MIXED,
        no_effect=(_NO_NGRAMS,),
    )
    alpha: float = _number(
        0.9,
        (0.0, 1.0, 0.01),
        "How much common phrases count (α in the paper).",
        modes=_MIXED,
        no_effect=(_NO_NGRAMS,),
    )
    personal_weight: float = _number(
        0.9,
        (0.0, 1.0, 0.05),
        "How much the phrases in My writing count.",
        modes=_MIXED,
        no_effect=(_NO_NGRAMS, _PAPERS_MIXING),
        reader="session",
    )
    seed: int = _number(  # of sampled drafts
        0,
        (0, 2**32 - 1, 1),
        "The same seed draws the same drafts.",
        modes=("sampled", "sampled+superposed"),
        used_by="reset-every",
        within="sampling",
    )


# Flags beside the options: the names of stores.
STORE = Control(
    "stores",
    "store",
    "",
    0,
    0,
    0,
    "Use these personal stores, instead of those that are on.",
    modes=_MIXED,
    no_effect=(_NO_NGRAMS, NoEffect("mixing", "geometric"), NoEffect("personal-weight", 0)),
)
BASE_STORE = Control(
    "base_store",
    "base-store",
    "",
    0,
    0,
    0,
    "An n-gram store of common phrases.",
    modes=_MIXED,
    no_effect=(_NO_NGRAMS,),
)


def controls_of(options: type[DraftOptions]) -> dict[str, Control]:
    """The controls of the fields, by name."""
    controls = {each.name: each.metadata["control"] for each in fields(options)}
    return {name: replace(control, name=name, flag=name.replace("_", "-")) for name, control in controls.items()}


OPTIONS = controls_of(DraftOptions)
BY_FLAG = {control.flag: control for control in OPTIONS.values()}
DRAFTING = {name: control for name, control in OPTIONS.items() if not control.within}
SEED = OPTIONS["seed"]

_LIBRARY: dict[str, Any] = {name: control.library for name, control in OPTIONS.items() if control.library is not None}
LIBRARY = DraftOptions(**_LIBRARY)  # the defaults of the library's functions


def check_types(options: Any) -> None:
    """Raises OptionError for a field of a dataclass of options whose value has another type than its annotation."""
    for name, kind in _kinds(type(options)):
        value = getattr(options, name)
        if type(value) is not kind and not _fits(value, kind):
            expected = " or ".join(dict.fromkeys(map(_in_words, _alternatives(kind))))
            raise OptionError("{0} {given!r:.80} given; {expected} expected.", name, given=value, expected=expected)


@cache
def _kinds(options: type) -> list[tuple[str, Any]]:
    hints = get_type_hints(options)
    return [(each.name, hints[each.name]) for each in fields(options)]


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of a kind. The contents of lists, and the words of a choice, are checked where they are
    read."""
    origin = get_origin(kind) or kind
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if origin is Literal:
        return any(type(value) is type(word) for word in get_args(kind))
    if kind in (int, float):
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    if isinstance(origin, type) and issubclass(origin, Iterable) and origin is not str:
        return isinstance(value, Iterable) and not isinstance(value, str)
    if origin is Callable:
        return callable(value)
    if not isinstance(origin, type) or getattr(origin, "_is_protocol", False):
        return True
    return isinstance(value, origin)


def _in_words(kind: Any) -> str:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return " or ".join(map(repr, get_args(kind)))
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "None"}
    named = {Callable: "a function"}
    return words.get(origin) or named.get(origin) or getattr(origin, "__name__", str(origin))


def with_library_defaults(options: Class) -> Class:
    """Decorator, below `dataclass`: gives a class of options the defaults of `LIBRARY`."""
    for name, default in _LIBRARY.items():
        options.__annotations__[name] = DraftOptions.__annotations__[name]
        setattr(options, name, default)
    return options
