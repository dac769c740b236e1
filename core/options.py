"""The options of drafting. Each is defined here once: its name, label, default, range, step and a sentence.

`app.settings` makes the HTTP fields, sliders and flags from them, a test compares them with the table in docs/using.md,
and the library's functions take their defaults from `DEFAULT`. The options of rules, modes and speculation are in
`core.controls`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, cast

from core.errors import InputError

Value = bool | int | float | str  # of an option
Backend = Literal["auto", "torch", "llama.cpp"]
Precision = Literal["file", "float32", "bfloat16"]


@dataclass(frozen=True)
class Control:
    """One option.

    Attributes:
        name: the argument that takes it.
        label: as the page and the papers write it.
        flag: on the command line, without the dashes in front; unique.
        default, low, high, step: of a number; a whole one where `step` is an int. `choices` instead for words. A truth
            value has only its default.
        explain: what a change does.
        main: shown at once; the page shows the others on request.
        only: "page" or "command" if the other does not have it; a request may have it in any case.
        slider: the largest value of the page's slider, where it is below `high`; links and presets reach that.
        beyond: the option that values above `slider` need, which the page does not have; "" for none.
        library: the default of the library's functions, where it differs from the product's.
        modes: the draft modes that use it; () for all.
        needs: the name of another option that must be switched on; "" for none.
    """

    name: str
    label: str
    flag: str
    default: Value
    low: float
    high: float
    step: float
    explain: str
    choices: tuple[str, ...] = ()
    main: bool = True
    only: Literal["", "page", "command"] = ""
    slider: float | None = None
    beyond: str = ""
    library: float | None = None
    modes: tuple[str, ...] = ()
    needs: str = ""

    @property
    def kind(self) -> Literal["bool", "choice", "int", "float"]:
        if isinstance(self.default, bool):
            return "bool"
        if self.choices:
            return "choice"
        return "int" if isinstance(self.step, int) else "float"

    @property
    def on_page(self) -> Control:
        """The option with the range that links and presets of the page may use."""
        return replace(self, high=self.slider) if self.slider is not None and self.beyond else self

    def checked(self, value: object) -> Value:
        """The value in its own type. Raises InputError that names the option."""
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise InputError(f"{self.flag} {value!r} given; true or false expected.")
            return value
        if self.choices:
            if not isinstance(value, str) or value not in self.choices:
                raise InputError(f"{self.flag} {value!r} given; one of {', '.join(self.choices)} expected.")
            return value
        number = value if isinstance(value, int | float) and type(value) is not bool and math.isfinite(value) else None
        if number is None or not self.low <= number <= self.high or (self.kind == "int" and number != int(number)):
            kind = "a whole number" if self.kind == "int" else "a number"
            given = repr(value) if number is None else f"{number:g}"
            raise InputError(f"{self.flag} {given} given; {kind} from {self.low:.10g} to {self.high:.10g} expected.")
        return int(number) if self.kind == "int" else float(number)


def _number(
    name: str, default: float, low: float, high: float, step: float, label: str, explain: str, **more: Any
) -> Control:
    return Control(name, label, name.replace("_", "-"), default, low, high, step, explain, **more)


def _choice(name: str, choices: tuple[str, ...], label: str, explain: str, **more: Any) -> Control:
    return Control(name, label, name.replace("_", "-"), choices[0], 0, 0, 0, explain, choices, **more)


def _switch(name: str, default: bool, label: str, explain: str, **more: Any) -> Control:
    return Control(name, label, name.replace("_", "-"), default, 0, 1, 1, explain, **more)


LONGEST = 32  # tokens of a draft without resets

_GROWN = ("superposed", "branching", "sampled+superposed")
_MIXED = ("superposed", "beam", "greedy", "branching", "sampled+superposed")  # n-grams are mixed in

_CONTROLS = (
    _number("k", 3, 1, 9, 1, "Drafts", "How many drafts are shown."),
    _number(
        "length",
        10,
        1,
        256,
        1,
        "Length",
        "How far each draft looks ahead, in tokens. A token is a word or a piece of one.",
        slider=LONGEST,
        beyond="reset_every",
    ),
    _number(
        "reset_every",
        0,
        0,
        LONGEST,
        1,
        "Resets",
        "After so many tokens one of the drafts is drawn and becomes text, and drafts go on from there. 0: no resets. "
        f"Needed for more than {LONGEST} tokens.",
        modes=("superposed",),
        only="command",
    ),
    _number(
        "temperature",
        1.0,
        0.05,
        10.0,
        0.05,
        "Temperature",
        "Lower: safer words. Higher: more surprising words.",
        slider=4.0,
    ),
    _number(
        "min_confidence",
        0.0,
        0.0,
        0.95,
        0.01,
        "Minimum confidence",
        "Drafts that you would take less often than this are hidden.",
    ),
    _number(
        "tau",
        1.0,
        0.05,
        2.0,
        0.01,
        "Softmax τ",
        "A second temperature, applied after the sampling rule (τ in the paper).",
    ),
    _number(
        "exact_steps",
        2,
        0,
        31,
        1,
        "Exact steps",
        "How many tokens each draft computes on its own; the best one computes all. More: better and slower.",
        library=1,
        modes=("superposed", "sampled+superposed"),
    ),
    _number(
        "forks",
        2,
        0,
        16,
        1,
        "Forks",
        "How many passes search for places where drafts should branch, two in each. Higher: better and slower.",
        modes=("superposed",),
        needs="distinct",
    ),
    _number(
        "end_below",
        0.3,
        0.0,
        0.9,
        0.05,
        "End when unsure",
        "A draft ends before a word that is less likely than this. 0: drafts end only at their length.",
        library=0.0,
        modes=(*_GROWN, "greedy"),
        needs="distinct",
    ),
    _number(
        "min_branch",
        0.01,
        0.0,
        0.5,
        0.01,
        "Least likely draft",
        "A row stays empty rather than show a draft that you would take less often than this.",
        library=0.0,
        modes=_GROWN,
        needs="distinct",
    ),
    _switch(
        "refill",
        True,
        "Fresh at every key",
        "Every key requests drafts for the rows that no longer fit. Off: only when no row fits any more.",
        only="page",
    ),
    _number(
        "verify",
        0,
        0,
        32,
        1,
        "Checked tokens",
        "How many tokens of complete drafts one more pass checks and corrects. 0: no check.",
        modes=("superposed",),
        needs="distinct",
    ),
    _switch(
        "distinct",
        True,
        "Distinct beginnings",
        "Every draft is continued on its own and kept. Off: the best drafts replace the others, without forks.",
        modes=("superposed", "sampled+superposed"),
    ),
    _switch("ngrams", True, "Common phrases", "Favour common phrases, and yours.", modes=_MIXED),
    _choice(
        "mixing",
        ("linear", "geometric"),
        "Mixing of phrases",
        "linear: phrases only add probability. geometric: as in the paper, words outside common phrases are left out; "
        "yours are not used.",
        modes=_MIXED,
        needs="ngrams",
    ),
    _number(
        "alpha",
        0.9,
        0.0,
        1.0,
        0.01,
        "Weight of common phrases",
        "How much common phrases count (α in the paper).",
        modes=_MIXED,
        needs="ngrams",
    ),
    _number(
        "personal_weight",
        0.9,
        0.0,
        1.0,
        0.05,
        "Weight of your phrases",
        "How much the phrases in My writing count.",
        modes=_MIXED,
        needs="ngrams",
    ),
)

DRAFTING: dict[str, Control] = {control.name: control for control in _CONTROLS}

# Of sampled drafts; the page has it beside the method.
SEED = _number(
    "seed",
    0,
    0,
    2**31 - 1,
    1,
    "Seed",
    "The same seed draws the same drafts.",
    modes=("sampled", "sampled+superposed"),
)


class Defaults(TypedDict):
    """The types of the options' values, by name."""

    k: int
    length: int
    reset_every: int
    temperature: float
    min_confidence: float
    tau: float
    exact_steps: int
    forks: int
    end_below: float
    min_branch: float
    refill: bool
    verify: int
    distinct: bool
    ngrams: bool
    mixing: Literal["linear", "geometric"]
    alpha: float
    personal_weight: float
    seed: int


# The defaults of the library's functions.
DEFAULT = cast(
    Defaults,
    {control.name: control.default if control.library is None else control.library for control in (*_CONTROLS, SEED)},
)
