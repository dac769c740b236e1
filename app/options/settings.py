"""The options of drafting as the server and the command line accept them: `core.options` as one validated object.

Sliders, flags and the HTTP fields are made from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from app.options.labels import shown
from app.wire.bounds import LABEL, Breakers, Counts, Label, LastTokens, Name, Numbers, Values
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
from core.errors import InputError, Mention, OptionError, plainly
from core.options import DRAFTING, SEED, Control, DraftOptions, Value

Checked = Callable[[str, Mapping[str, object]], dict[str, Value]]


def _field(control: Control) -> Any:
    """The field of one option; pydantic checks its range."""
    limits: dict[str, Any] = {"ge": control.low, "le": control.high} if control.kind in ("int", "float") else {}
    return Field(control.default, title=shown(control).label, description=control.explain, **limits)


def _completed(given: dict[str, Any], chosen: str, values: str, checks: Checked) -> dict[str, Any]:
    """Fills in the other values of the chosen rule or mode. Raises ValueError for pydantic."""
    name = given.get(chosen)
    if not isinstance(name, str) or len(name) > LABEL or not isinstance(given.get(values, {}), Mapping):
        return given  # pydantic reports the wrong type, or the length
    try:
        return given | {values: checks(name, given.get(values, {}))}
    except InputError as error:
        raise ValueError(str(error)) from None


def _as_field(mention: Mention) -> str:
    return plainly(Mention(mention.name.replace("-", "_"), mention.value))


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

    mode: Name = DEFAULT_SPECULATION
    drafter: Name = DEFAULT_DRAFTER
    values: Numbers = {}

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
        breakers: texts over which no repetition of dry extends; None: its source's.
        dry_last_n: the number of last tokens in which dry looks for repetitions; None: all.
        mirostat_version: of Mirostat.
    """

    rule: Label = DEFAULT_RULE
    values: Values = {}
    mode: Name = DEFAULT_MODE
    mode_values: Counts = {}
    seed: int = _field(SEED)
    speculation: SpeculationSettings = SpeculationSettings()
    breakers: Breakers | None = None
    dry_last_n: LastTokens | None = None
    mirostat_version: Literal[1, 2] = 2

    @property
    def more(self) -> dict[str, dict[str, int | None]]:
        """What rules take that are no controls of theirs, by the name of the rule."""
        return {"dry": {"last": self.dry_last_n}, "mirostat": {"version": self.mirostat_version}}

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        given = {"rule": DEFAULT_RULE, "mode": DEFAULT_MODE} | given
        return _completed(_completed(given, "rule", "values", checked_rule), "mode", "mode_values", checked_mode)


_KINDS: dict[str, Any] = {"bool": bool, "int": int, "float": float}
_FIELDS: dict[str, Any] = {
    name: (_KINDS.get(control.kind) or Literal[control.choices], _field(control)) for name, control in DRAFTING.items()
}

if TYPE_CHECKING:
    from core.ask import Ask

    class _Drafting(Strict, DraftOptions): ...  # pyright: ignore[reportGeneralTypeIssues] frozen, as its configuration says
else:
    _Drafting = create_model("_Drafting", __base__=Strict, **_FIELDS)


class DraftSettings(_Drafting):
    """How drafts are made: the fields of `DraftOptions`, and the sampling. Out-of-range and unknown fields are refused
    by name, never clamped."""

    sampling: SamplingSettings = SamplingSettings()

    @model_validator(mode="after")
    def _within_reach(self) -> DraftSettings:
        chosen = {control.flag: getattr(self, name) for name, control in DRAFTING.items()}
        try:
            for control in DRAFTING.values():
                control.refuse_beyond(chosen[control.flag], chosen)
        except OptionError as error:
            raise ValueError(error.written(_as_field)) from None  # for pydantic
        return self

    @property
    def chooses_exact_steps(self) -> bool:
        """Whether the number of exact steps was given."""
        return "exact_steps" in self.model_fields_set

    @property
    def plain(self) -> bool:
        """Whether drafts are made the default way: superposed, no rule, T = 1, and nothing is drawn."""
        usual = (self.sampling.rule, self.sampling.mode) == (DEFAULT_RULE, DEFAULT_MODE)
        return self.temperature == 1 and usual and not self.reset_every

    @property
    def speculates(self) -> bool:
        """Whether drafts are made several tokens per pass."""
        return self.sampling.speculation.mode != "off" and self.sampling.mode in SPECULATING


def drafting(settings: DraftSettings, **more: Any) -> Ask:
    """What is asked with these options, and with the method, the rule and the other fields that `more` has."""
    from core.ask import READ, Ask

    values: dict[str, Any] = {name: getattr(settings, name) for name in READ if name != "seed"}
    values["seed"] = settings.sampling.seed
    if not values.pop("ngrams"):
        values |= {"alpha": 0.0, "personal_weight": 0.0, "mixing": "linear"}
    if settings.reset_every:  # texts with resets have their whole length, over several lines
        values |= {"end_below": 0.0, "one_line": False}
    return Ask(**values | more)
