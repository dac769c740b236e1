"""Every option of drafting, once: the sliders, the command line's flags and the HTTP fields are derived from here."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from core.controls import (
    CATALOG,
    MODES,
    MOST_DRAFTS,
    MOST_SEED,
    MOST_TOKENS,
    SPECULATING,
    SPECULATIONS,
    T_HIGH,
    T_LOW,
    checked,
    checked_mode,
)
from core.errors import InputError


def _option(
    default: Any, label: str, explain: str, *, step: float | None = None, page_only: bool = False, **limits: Any
) -> Any:
    extra = {"step": step, "page_only": page_only}
    return Field(default, title=label, description=explain, json_schema_extra=extra, **limits)


class SpeculationSettings(BaseModel):
    """How greedy and sampled drafts are made several tokens per pass. Names and ranges are those of
    `core.controls.SPECULATIONS`.

    Attributes:
        mode: off, lossless or arc.
        drafter: what proposes, a name of `app.speculation.DRAFTERS`.
        values: of the mode's controls, by name; the rest have their defaults.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: str = "off"
    drafter: str = "ngram"
    values: dict[str, Any] = {}

    @model_validator(mode="after")
    def _known(self) -> SpeculationSettings:
        from app.speculation import DRAFTERS

        for what, name, known in (("speculation", self.mode, SPECULATIONS), ("drafter", self.drafter, DRAFTERS)):
            if name not in known:
                raise ValueError(f"{what} {name!r} given; one of {', '.join(known)} expected")
        controls = {control.name: control for control in SPECULATIONS[self.mode][1]}
        for name, value in self.values.items():
            if name not in controls:
                raise ValueError(f"{name} given for speculation {self.mode}, which has no control of that name")
            try:
                controls[name].checked(value)
            except InputError as error:
                raise ValueError(str(error)) from None
        return self


class SamplingSettings(BaseModel):
    """Which rule crops the distributions, and how drafts are made of what is left. The names, the controls and their
    ranges are those of `core.controls`.

    Attributes:
        rule: a name of the catalogue.
        values: of its controls, by name; the rest have their defaults.
        mode: one of MODES.
        mode_values: of the mode's own controls, by name.
        seed: drawn drafts are the same for the same one.
        speculation: of the modes that can.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: str = "none"
    values: dict[str, Any] = {}
    mode: str = "superposed"
    mode_values: dict[str, Any] = {}
    seed: int = Field(default=0, ge=0, le=MOST_SEED)
    speculation: SpeculationSettings = SpeculationSettings()

    @field_validator("rule")
    @classmethod
    def _known_rule(cls, rule: str) -> str:
        if rule not in CATALOG:
            raise ValueError(f"{rule!r} given; one of {', '.join(CATALOG)} expected")
        return rule

    @field_validator("mode")
    @classmethod
    def _known_mode(cls, mode: str) -> str:
        if mode not in MODES:
            raise ValueError(f"{mode!r} given; one of {', '.join(MODES)} expected")
        return mode

    @model_validator(mode="after")
    def _fitting_values(self) -> SamplingSettings:
        try:
            checked(self.rule, self.values)
            checked_mode(self.mode, self.mode_values)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self


class DraftSettings(BaseModel):
    """How drafts are made. Out-of-range and unknown fields are refused by name, never clamped."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k: int = _option(3, "Drafts", "How many drafts are shown.", ge=1, le=MOST_DRAFTS, step=1)
    length: int = _option(
        10,
        "Length",
        "How far each draft looks ahead, in tokens. A token is a word or a piece of one.",
        ge=1,
        le=MOST_TOKENS,
        step=1,
    )
    temperature: float = _option(
        1.0, "Temperature", "Lower: safer words. Higher: more surprising words.", ge=T_LOW, le=T_HIGH, step=0.05
    )
    min_confidence: float = _option(
        0.0,
        "Minimum confidence",
        "Drafts that you would take less often than this are hidden.",
        ge=0.0,
        le=0.95,
        step=0.01,
    )
    tau: float = _option(
        1.0,
        "Softmax τ",
        "A second temperature, applied after the sampling rule (τ in the paper).",
        ge=0.05,
        le=2.0,
        step=0.05,
    )
    exact_steps: int = _option(
        2,
        "Exact steps",
        "How many tokens after the first each draft computes on its own. More: better and slower.",
        ge=0,
        le=31,
        step=1,
    )
    forks: int = _option(
        3,
        "Forks",
        "How carefully drafts are chosen: passes that look where the text may go on differently. Higher: slower.",
        ge=0,
        le=16,
        step=1,
    )
    end_below: float = _option(
        0.3,
        "End when unsure",
        "A draft ends before a word that is less likely than this. 0: drafts end only at their length.",
        ge=0.0,
        le=0.9,
        step=0.05,
    )
    min_branch: float = _option(
        0.01,
        "Least likely draft",
        "A row stays empty rather than show a draft that you would take less often than this.",
        ge=0.0,
        le=0.5,
        step=0.01,
    )
    refill: bool = _option(
        True,
        "Fresh at every key",
        "Every key requests drafts for the rows that no longer fit. Off: only when no row fits any more.",
        page_only=True,
    )
    verify: int = _option(
        0,
        "Checked tokens",
        "How many tokens one more pass checks and corrects once the drafts are there. 0: no check.",
        ge=0,
        le=32,
        step=1,
    )
    distinct: bool = _option(
        True,
        "Distinct beginnings",
        "Every draft is a line of its own and is kept. Off: as in the paper, without forks.",
    )
    ngrams: bool = _option(True, "Common phrases", "Favour common phrases, and yours.")
    alpha: float = _option(
        0.9, "Weight of common phrases", "How much common phrases count (α in the paper).", ge=0.0, le=1.0, step=0.05
    )
    personal_weight: float = _option(
        0.9, "Weight of your phrases", "How much the phrases in My writing count.", ge=0.0, le=1.0, step=0.05
    )

    sampling: SamplingSettings = SamplingSettings()

    @property
    def plain(self) -> bool:
        """Whether drafts are made the default way: superposed, no rule, T = 1."""
        return self.temperature == 1 and (self.sampling.rule, self.sampling.mode) == ("none", "superposed")

    @property
    def speculates(self) -> bool:
        """Whether drafts are made several tokens per pass."""
        return self.sampling.speculation.mode != "off" and self.sampling.mode in SPECULATING

    def drafting(self) -> dict[str, Any]:
        """Arguments for `Session.complete`; those of the rule and the mode come from `app.sampling.options`."""
        weight = 1.0 if self.ngrams else 0.0
        return {
            **self.model_dump(
                exclude={"min_confidence", "refill", "ngrams", "alpha", "personal_weight", "temperature", "sampling"}
            ),
            "alpha": weight * self.alpha,
            "personal_weight": weight * self.personal_weight,
        }


def options() -> list[dict[str, Any]]:
    """One entry per setting, in order: name, flag of `polydraft complete` ("" for a setting of the page alone), label,
    explain, default, kind ("int", "float", "bool"), min, max, step."""
    fields = DraftSettings.model_json_schema()["properties"]
    kinds = {"integer": "int", "number": "float", "boolean": "bool"}
    return [
        {
            "name": name,
            "flag": "" if field["page_only"] else "--" + name.replace("_", "-"),
            "label": field["title"],
            "explain": field["description"],
            "default": field["default"],
            "kind": kinds[field["type"]],
            "min": field.get("minimum"),
            "max": field.get("maximum"),
            "step": field.get("step"),
        }
        for name, field in fields.items()
        if name != "sampling"  # its controls are `core.controls`
    ]
