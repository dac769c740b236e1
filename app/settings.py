"""The options of drafting as the server and the command line accept them: `core.options` as one validated object.

Sliders, flags and the HTTP fields are made from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.controls import (
    DEFAULT_DRAFTER,
    DEFAULT_MODE,
    DEFAULT_RULE,
    DEFAULT_SPECULATION,
    DRAFTERS,
    SPECULATING,
    checked_mode,
    checked_rule,
    checked_speculation,
)
from core.errors import InputError
from core.options import DRAFTING, SEED, Control, Value

if TYPE_CHECKING:
    from core.autocomplete import CompleteOptions

PAGE_CONTROLS = [control for control in DRAFTING.values() if control.only != "command"]  # in the page's order

Checked = Callable[[str, Mapping[str, object]], dict[str, Value]]


def _field(control: Control) -> Any:
    """The field of one option; pydantic checks its range."""
    limits: dict[str, Any] = {"ge": control.low, "le": control.high} if control.kind in ("int", "float") else {}
    return Field(control.default, title=control.label, description=control.explain, **limits)


def _completed(given: dict[str, Any], chosen: str, values: str, checks: Checked) -> dict[str, Any]:
    """Fills in the other values of the chosen rule or mode. Raises ValueError for pydantic."""
    if not isinstance(given.get(chosen), str) or not isinstance(given.get(values, {}), Mapping):
        return given  # pydantic reports the wrong type
    try:
        return given | {values: checks(given[chosen], given.get(values, {}))}
    except InputError as error:
        raise ValueError(str(error)) from None


class Strict(BaseModel):
    """A body without fields that are not declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SpeculationSettings(Strict):
    """How greedy and sampled drafts are made several tokens per pass.

    Attributes:
        mode: a name of `core.controls.SPECULATIONS`.
        drafter: the source of proposals, a name of `core.controls.DRAFTERS`.
        values: of the mode's controls, all of them.
    """

    mode: str = DEFAULT_SPECULATION
    drafter: str = DEFAULT_DRAFTER
    values: dict[str, int | float] = {}

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        drafter = given.get("drafter", DEFAULT_DRAFTER)
        if isinstance(drafter, str) and drafter not in DRAFTERS:
            raise ValueError(f"drafter {drafter!r} given; one of {', '.join(DRAFTERS)} expected")
        return _completed({"mode": DEFAULT_SPECULATION} | given, "mode", "values", checked_speculation)


class SamplingSettings(Strict):
    """The rule that crops the distributions, and the method that makes drafts of the remaining tokens.

    Attributes:
        rule: a name of `core.controls.CATALOG`, or several as `core.chains` joins them.
        values: of the rules' controls, all of them.
        mode: a name of `core.controls.MODES`.
        mode_values: of the mode's own controls, all of them.
        seed: the same seed gives the same sampled drafts.
        speculation: for the modes that support it.
    """

    rule: str = DEFAULT_RULE
    values: dict[str, Value] = {}
    mode: str = DEFAULT_MODE
    mode_values: dict[str, int] = {}
    seed: int = _field(SEED)
    speculation: SpeculationSettings = SpeculationSettings()

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        given = {"rule": DEFAULT_RULE, "mode": DEFAULT_MODE} | given
        return _completed(_completed(given, "rule", "values", checked_rule), "mode", "mode_values", checked_mode)


class DraftSettings(Strict):
    """How drafts are made. Out-of-range and unknown fields are refused by name, never clamped."""

    k: int = _field(DRAFTING["k"])
    length: int = _field(DRAFTING["length"])
    reset_every: int = _field(DRAFTING["reset_every"])
    temperature: float = _field(DRAFTING["temperature"])
    min_confidence: float = _field(DRAFTING["min_confidence"])
    tau: float = _field(DRAFTING["tau"])
    exact_steps: int = _field(DRAFTING["exact_steps"])
    forks: int = _field(DRAFTING["forks"])
    end_below: float = _field(DRAFTING["end_below"])
    min_branch: float = _field(DRAFTING["min_branch"])
    refill: bool = _field(DRAFTING["refill"])
    verify: int = _field(DRAFTING["verify"])
    distinct: bool = _field(DRAFTING["distinct"])
    ngrams: bool = _field(DRAFTING["ngrams"])
    mixing: Literal["linear", "geometric"] = _field(DRAFTING["mixing"])
    alpha: float = _field(DRAFTING["alpha"])
    personal_weight: float = _field(DRAFTING["personal_weight"])

    sampling: SamplingSettings = SamplingSettings()

    @model_validator(mode="after")
    def _within_reach(self) -> DraftSettings:
        for control in DRAFTING.values():
            if control.beyond and not getattr(self, control.beyond):
                value, most = getattr(self, control.name), control.on_page.high
                if value > most:
                    raise ValueError(f"{control.name} {value} given; at most {most:g} without {control.beyond}")
        return self

    @property
    def plain(self) -> bool:
        """Whether drafts are made the default way: superposed, no rule, T = 1, and nothing is drawn."""
        usual = (self.sampling.rule, self.sampling.mode) == (DEFAULT_RULE, DEFAULT_MODE)
        return self.temperature == 1 and usual and not self.reset_every

    @property
    def speculates(self) -> bool:
        """Whether drafts are made several tokens per pass."""
        return self.sampling.speculation.mode != "off" and self.sampling.mode in SPECULATING

    def drafting(self) -> CompleteOptions:
        """Arguments for `Session.complete`; those of the rule and the mode come from `app.sampling.options`."""
        weight = 1.0 if self.ngrams else 0.0
        made: CompleteOptions = {
            "k": self.k,
            "length": self.length,
            "tau": self.tau,
            "exact_steps": self.exact_steps,
            "forks": self.forks,
            "end_below": self.end_below,
            "min_branch": self.min_branch,
            "verify": self.verify,
            "distinct": self.distinct,
            "mixing": self.mixing if self.ngrams else "linear",
            "alpha": weight * self.alpha,
            "personal_weight": weight * self.personal_weight,
        }
        if self.reset_every:  # texts with resets have their whole length, over several lines
            made |= {"reset_every": self.reset_every, "end_below": 0.0, "one_line": False}
        return made
