"""Rules, draft modes and speculation by name, with their controls; and presets. Plain data.

Flags, sliders, tables and the documentation are generated from this module, so it imports nothing heavy.
`core.samplers.catalog.sampler` creates the rules, `core.modes.start` the drafts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.chains import ALONE, names_of, refuse
from core.errors import InputError, OptionError
from core.files import parsed_json
from core.options import BY_FLAG, DRAFTING, SEED, Control, NoEffect, Value

_TEMPERATURE = DRAFTING["temperature"]


TIED = "temperature"  # the value of `Tie.by` with which a control follows the temperature


@dataclass(frozen=True)
class Tie:
    """A control that can follow the temperature: it is `at` + `per`·T while the control `by` has the value TIED."""

    control: str
    by: str
    at: float
    per: float

    def value(self, temperature: float) -> float:
        return self.at + self.per * temperature


@dataclass(frozen=True)
class CatalogEntry:
    """One rule.

    Attributes:
        name: in commands.
        title: as the papers write it.
        controls: its options.
        description: a sentence on the tokens that it keeps.
        tie: the control that can follow the temperature, if there is one.
        made_by: the module of `core.samplers` and the class in it, whose arguments are the controls; "" for no class.
    """

    name: str
    title: str
    controls: tuple[Control, ...]
    description: str
    tie: Tie | None = None
    made_by: str = ""

    def control(self, name: str) -> Control:
        return next(control for control in self.controls if control.name == name)

    @property
    def alone(self) -> bool:
        """Whether it cannot be combined with other rules in a chain."""
        return self.name == DEFAULT_RULE or self.title in ALONE


def _number(
    name: str, default: float, reach: tuple[float, float, float], explain: str, flag: str = "", **more: Any
) -> Control:
    """A control of a number; `reach` is its lowest and highest value, and the step."""
    return Control(name, flag or name.replace("_", "-"), default, *reach, explain, **more)


def _choice(name: str, choices: tuple[str, ...], explain: str, **more: Any) -> Control:
    """A control of one of several words, by default the first."""
    return Control(name, name.replace("_", "-"), choices[0], 0, 0, 0, explain, choices, **more)


_NO_DISTANCES = (NoEffect("potential", "none"),)
_TOP_W = (
    _number(
        "beta", 3.6, (0.0, 10.0, 0.1), "Higher: more tokens are kept; at λ or below, one.",
        no_effect=(NoEffect("beta-by", TIED),),
    ),
    _choice("beta_by", ("value", TIED), "value: β as set. temperature: β = 1.5 + 1.5·T, as in table 8 of its paper."),
    _number("lam", 2.2, (0.0, 10.0, 0.1), "The price of entropy. Higher: fewer tokens are kept."),
    _number(
        "geom_scale", 1.0, (0.0, 4.0, 0.1), "How much the distance between tokens counts.", no_effect=_NO_DISTANCES
    ),
    _number(
        "warm_start", 0.5, (0.0, 1.0, 0.001),
        "The probability of the first set that distances are measured to. Near 1: distances hardly matter.",
        no_effect=_NO_DISTANCES,
    ),
    _choice(
        "metric", ("l2", "whitened", "cosine", "uniform"),
        "How distances are measured. l2: as in the paper; whitened: its appendix A; cosine: its code.",
        no_effect=_NO_DISTANCES,
    ),
    _choice(
        "potential", ("attractive", "none", "repulsive"),
        "attractive: tokens near kept ones count more, as in its paper; repulsive: far ones; none: all alike.",
    ),
    _number("top_m", 1200, (1, 10000, 1), "How many likely tokens are considered."),
    _number("alternations", 9, (1, 50, 1), "The most rounds of choosing.", no_effect=_NO_DISTANCES),
    _number(
        "neighbours", 1, (1, 50, 1), "How many kept tokens each distance is averaged over.", no_effect=_NO_DISTANCES
    ),
)  # fmt: skip

_ENTRIES = (
    CatalogEntry("none", "no rule", (), "Keeps every token."),
    CatalogEntry("greedy", "greedy", (), "Keeps only the likeliest token.", made_by="greedy:Greedy"),
    CatalogEntry(
        "top-k", "top-k",
        (_number("top_k", 50, (1, 1000, 1), "How many tokens are kept."),),
        "Keeps the k likeliest tokens.",
        made_by="top_k:TopK",
    ),
    CatalogEntry(
        "top-p", "top-p",
        (_number("top_p", 0.9, (0.0, 1.0, 0.01), "Nearer to 1: more unlikely tokens are kept."),),
        "Keeps the likeliest tokens that together reach probability p.",
        made_by="top_p:TopP",
    ),
    CatalogEntry(
        "min-p", "min-p",
        (_number("min_p", 0.1, (0.0, 1.0, 0.01), "Nearer to 0: more tokens are kept."),),
        "Keeps tokens at least p times as likely as the likeliest one.",
        made_by="min_p:MinP",
    ),
    CatalogEntry(
        "p-less", "p-less", (),
        "Keeps tokens at least as likely as two draws are to be the same token; nothing to set.",
        made_by="p_less:PLess",
    ),
    CatalogEntry(
        "top-n-sigma", "top-nσ",
        (_number("n", 1.0, (0.0, 3.5, 0.05), "Higher: more tokens are kept.", "n-sigma"),),
        "Keeps logits within n standard deviations of the largest: the same tokens at every temperature.",
        made_by="top_n_sigma:TopNSigma",
    ),
    CatalogEntry(
        "top-h", "top-H",
        (_number("alpha", 0.4, (0.01, 1.0, 0.01), "Higher: more tokens are kept.", "top-h"),),
        "Keeps the likeliest tokens while their entropy stays within the share α of the whole.",
        made_by="top_h:TopH",
    ),
    CatalogEntry(
        "typical", "typical",
        (_number("mass", 0.9, (0.01, 1.0, 0.01), "Nearer to 1: more untypical tokens are kept."),),
        "Keeps tokens about as surprising as the model expects the next one to be.",
        made_by="typical:Typical",
    ),
    CatalogEntry(
        "eta", "η",
        (_number("epsilon", 9e-4, (1e-5, 0.1, 1e-4), "Higher: fewer tokens are kept."),),
        "Keeps tokens above a threshold, which is lower where the model is unsure.",
        made_by="eta:Eta",
    ),
    CatalogEntry(
        "dry", "DRY",
        (
            _number("multiplier", 0.8, (0.0, 5.0, 0.05), "Higher: repetitions are less likely.", "dry-multiplier"),
            _number("base", 1.75, (1.0, 4.0, 0.05), "How much each further token adds.", "dry-base"),
            _number("allowed", 2, (1, 20, 1), "The shortest repetition, in tokens, that counts.", "dry-allowed"),
        ),
        "Makes tokens unlikely that would continue a repetition. It drops none, so the charts do not show it.",
        made_by="dry:DRY",
    ),
    CatalogEntry(
        "xtc", "XTC",
        (
            _number(
                "threshold", 0.1, (0.01, 0.5, 0.01),
                "Tokens at least this likely count as good choices; all but the least likely of them are dropped.",
                "xtc-threshold",
            ),
            _number(
                "probability", 0.5, (0.0, 1.0, 0.05),
                "At which share of the places tokens are dropped. The charts show such a place.",
                "xtc-probability",
            ),
        ),
        "Drops the likeliest tokens where there are several good choices, and keeps the least likely of these.",
        made_by="xtc:XTC",
    ),
    CatalogEntry(
        "mirostat", "mirostat",
        (
            _number("tau", 5.0, (0.0, 15.0, 0.1), "The surprise to aim for, in bits per token.", "surprise"),
            _number("eta", 0.1, (0.0, 1.0, 0.01), "How fast the cut follows the drawn tokens.", "rate"),
        ),
        "Keeps tokens up to a level of surprise, which follows the tokens drawn before.",
        made_by="mirostat:Mirostat",
    ),
    CatalogEntry(
        "top-w", "Top-W", _TOP_W,
        "Keeps likely tokens that lie close together in the model's space of meanings.",
        Tie("beta", "beta_by", 1.5, 1.5),
        made_by="top_w:TopW",
    ),
)  # fmt: skip

CATALOG: dict[str, CatalogEntry] = {entry.name: entry for entry in _ENTRIES}


def default_numbers(rule: str) -> dict[str, float]:
    """The numbers among the defaults of a rule's controls, by name. The rule's class has the same defaults; that of
    Top-W has its paper's instead."""
    controls = CATALOG[rule].controls
    return {control.name: control.default for control in controls if not isinstance(control.default, bool | str)}


MODES = {
    "superposed": "All drafts in one pass per token: the fastest.",
    "sampled": "Drafts drawn by chance from the tokens that the rule keeps. The same seed gives the same drafts.",
    "beam": "The likeliest texts that a beam search finds.",
    "greedy": "One draft: always the likeliest token.",
    "branching": "The likeliest first tokens, each followed by the likeliest tokens.",
    "sampled+superposed": "A few beginnings are drawn by chance, and superposed drafts continue them.",
}

DRAWN = SEED.modes  # modes that sample tokens

# The controls of a mode besides k and the length.
MODE_CONTROLS: dict[str, tuple[Control, ...]] = {
    "sampled+superposed": (
        _number("samples", 2, (1, 4, 1), "How many beginnings are drawn."),
        _number("sampled_tokens", 2, (1, 8, 1), "How many tokens each beginning has."),
    )
}

_TREE = _number("tree_size", 0, (0, 32, 1), "How many proposals one pass checks. 0: as many as pay off here.")
_ARC_CONTROLS = (
    _number("theta", 0.3, (-1.0, 1.0, 0.05), "The lowest tolerance score that is accepted. Near 1: hardly any."),
    _number(
        "lam", 1.0, (0.0, 4.0, 0.1),
        "Higher: where the model is unsure, fewer proposals after the first. 0: as in the paper's equations.",
        "prune-lambda",
    ),
    _number(
        "epsilon", 0.05, (0.0, 0.9, 0.01),
        "The share of the proposals' probability that may be dropped at each depth.",
        "prune-epsilon",
    ),
)  # fmt: skip
# How greedy and sampled drafts can be made several tokens per pass, with the controls of each way.
SPECULATIONS: dict[str, tuple[str, tuple[Control, ...]]] = {
    "off": ("One token per pass.", ()),
    "lossless": ("One pass checks several proposed tokens. The drafts are the same as without.", (_TREE,)),
    "arc": (
        "Like lossless, but proposals that are nearly right are accepted too, which changes the drafts.",
        (_TREE, *_ARC_CONTROLS),
    ),
}
SPECULATING = ("greedy", "sampled")  # draft modes that support speculation

# The sources of the tokens that one pass checks.
DRAFTERS = {
    "ngram": "Words that followed before, in the text or the n-gram store; costs no pass.",
    "suffix": "What followed the end of the text before, there or in your writing, after a match of any length, or in "
    "the n-gram store; costs no pass.",
    "superposed": "Three superposed drafts, of the draft model if there is one; costs a pass per level.",
    "model": "A smaller model with the same tokenizer, which --draft-model names.",
    "eagle3": "A small head that was trained on the model's own hidden states.",
}
WITH_STORES = ("ngram", "suffix", "superposed")  # those that look words up in the base stores
WITH_DRAFT_MODEL = ("model", "superposed")  # those that let a smaller model propose

# The defaults. DEFAULT_METHOD is the default mode with speculation.
DEFAULT_RULE, DEFAULT_MODE, DEFAULT_SPECULATION, DEFAULT_DRAFTER = "none", "superposed", "off", "ngram"
DEFAULT_METHOD = "sampled"

# θ, λ and ε of ARC, for functions of the library.
THETA, PRUNE_LAMBDA, PRUNE_EPSILON = (float(control.default) for control in _ARC_CONTROLS)


_MAPPINGS = ("values", "mode_values", "drafting")  # fields of a preset that are mappings


@dataclass(frozen=True)
class Preset:
    """A named setting.

    Attributes:
        name: of the preset.
        rule: a name of the catalogue, or several as `core.chains` joins them.
        values: of its controls; missing ones have their defaults.
        temperature: T, before the rule.
        source: the origin of the setting.
        mode: the draft mode; "" leaves the current one.
        mode_values: of the mode's own controls; missing ones have their defaults.
        k, length, seed: of the drafts; None leaves the current value.
        drafting: further options of drafting; missing ones keep their value.
    """

    name: str
    rule: str
    values: Mapping[str, float | str]
    temperature: float = float(_TEMPERATURE.default)
    source: str = ""
    mode: str = ""
    mode_values: Mapping[str, float] = field(default_factory=dict)
    k: int | None = None
    length: int | None = None
    seed: int | None = None
    drafting: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_rule(self.rule, self.values, self.temperature)
        if self.mode or self.mode_values:
            checked_mode(self.mode, self.mode_values)
        for control in (DRAFTING["k"], DRAFTING["length"], SEED):
            if (value := getattr(self, control.name)) is not None:
                whole = control.beyond and self.drafting.get(BY_FLAG[control.beyond].name)
                (control if whole else control.without_beyond).checked(value)
        own = ("k", "length", "temperature")
        for name, value in self.drafting.items():
            named("drafting", name, [o.name for o in DRAFTING.values() if o.name not in own])
            DRAFTING[name].checked(value)

    def as_dict(self) -> dict[str, object]:
        """Plain data, without the settings that the preset does not change."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields |= {name: dict(getattr(self, name)) for name in _MAPPINGS}
        return {name: value for name, value in fields.items() if value is not None}

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Preset:
        """The preset that `as_json` wrote. Raises InputError that names an unknown or out-of-range value."""
        try:
            parsed = parsed_json(text)
        except ValueError as error:
            raise InputError(f"The preset is not JSON ({error}); give an exported preset.") from error
        return cls.from_dict(parsed)

    @classmethod
    def from_dict(cls, parsed: object) -> Preset:
        """The preset that `as_dict` returned. Raises as `from_json` does."""
        values = [parsed.get(name, {}) for name in _MAPPINGS] if isinstance(parsed, dict) else [None]
        if not isinstance(parsed, dict) or not all(isinstance(value, dict) for value in values):
            raise InputError("The preset is not a JSON object with name, rule and values; give an exported preset.")
        unknown = set(parsed) - set(cls.__dataclass_fields__)
        if unknown or not {"name", "rule"} <= set(parsed):
            what = f"unknown field {min(unknown)!r}" if unknown else "no name or no rule"
            raise InputError(f"The preset has {what}; {', '.join(cls.__dataclass_fields__)} are expected.")
        for name in ("name", "rule", "source", "mode"):
            if not isinstance(parsed.get(name, ""), str):
                raise InputError(f"The preset's {name} {parsed[name]!r} is not text; give an exported preset.")
        return cls(**{"values": {}, **parsed})


def named(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises OptionError if the name is not among the known ones."""
    if name not in known:
        expected = f"one of {', '.join(known)}"
        raise OptionError("{0} {given!r} given; {expected} expected.", kind, given=name, expected=expected)


def checked_rule(rule: str, values: Mapping[str, object], temperature: float = 1.0) -> dict[str, Value]:
    """All values of the controls of a rule, or of all rules of a chain, defaults filled in. No two rules have a control
    of the same name. Raises InputError that names the invalid value, or the rules that cannot be combined."""
    _TEMPERATURE.checked(temperature)
    entries = entries_of(rule)
    return complete("rule", rule, {rule: [control for entry in entries for control in entry.controls]}, values)


def entries_of(rule: str) -> list[CatalogEntry]:
    """The rules of a chain, in their order; of one rule, itself. Raises InputError as `checked_rule` does."""
    names = names_of(rule)
    for name in names:
        named("rule", name, CATALOG)
    if len(names) > 1 and DEFAULT_RULE in names:
        raise InputError(f"rule {DEFAULT_RULE} given with other rules; leave it out.")
    entries = [CATALOG[name] for name in names]
    refuse([entry.title for entry in entries])
    return entries


def title_of(rule: str) -> str:
    """The title of a rule, or those of a chain's rules in their order."""
    return ", then ".join(entry.title for entry in entries_of(rule))


def checked_mode(mode: str, values: Mapping[str, object]) -> dict[str, Value]:
    """All values of a mode's own controls, defaults filled in. Raises InputError that names the invalid value."""
    return complete("mode", mode, {name: MODE_CONTROLS.get(name, ()) for name in MODES}, values)


def checked_speculation(way: str, values: Mapping[str, object]) -> dict[str, Value]:
    """All values of the controls of one way to speculate. Raises InputError that names the invalid value."""
    return complete("speculation", way, {name: controls for name, (_, controls) in SPECULATIONS.items()}, values)


def complete(
    kind: str, chosen: str, controls: Mapping[str, Iterable[Control]], values: Mapping[str, object]
) -> dict[str, Value]:
    """All values of a choice's controls, defaults filled in.

    Raises: InputError for an unknown choice or control, and for a value out of range.
    """
    named(kind, chosen, controls)
    known = {control.name: control for control in controls[chosen]}
    for name in values:
        if name not in known:
            of = f"its controls are {', '.join(known)}" if known else "it has no controls"
            owner = chosen if kind == "rule" else f"{kind} {chosen}"
            raise InputError(f"{name} given for {owner}; {of}.")
    return {name: control.checked(values.get(name, control.default)) for name, control in known.items()}


# Superposed Decoding by its paper: section 3, and appendix B's α and τ for Llama-2-7B.
PAPER_METHOD: Mapping[str, Value] = {
    "distinct": False,
    "exact_steps": 0,
    "forks": 0,
    "ngrams": True,
    "mixing": "geometric",
    "alpha": 0.54,
    "tau": 0.06,
}

PRESETS: tuple[Preset, ...] = (
    Preset("Precise", "min-p", {"min_p": 0.1}, 1.0, "Polydraft", mode="superposed"),
    Preset("Balanced", "none", {}, 1.0, "Polydraft's defaults", mode="superposed"),
    Preset("Wild", "top-n-sigma", {"n": 1.0}, 1.2, "Polydraft", mode="sampled"),
    Preset(
        "Superposed Decoding, the paper's",
        "none",
        {},
        1.0,
        "arXiv 2405.18400, section 3 and appendix B",
        mode="superposed",
        drafting=PAPER_METHOD,
    ),
    Preset("Top-nσ, the paper's", "top-n-sigma", {"n": 1.0}, 1.5, "arXiv 2411.07641, section 5"),
    Preset("Top-nσ, focused (its paper)", "top-n-sigma", {"n": 0.8}, 1.5, "arXiv 2411.07641, appendix: n for focus"),
    Preset(
        "Top-nσ, diverse (its paper)", "top-n-sigma", {"n": 1.3}, 1.5, "arXiv 2411.07641, appendix: n for diversity"
    ),
    Preset("Min-p (top-nσ paper)", "min-p", {"min_p": 0.1}, 1.0, "arXiv 2411.07641, section 5"),
    Preset("Top-p (top-nσ paper)", "top-p", {"top_p": 0.9}, 1.0, "arXiv 2411.07641, section 5"),
    Preset("Top-k (top-nσ paper)", "top-k", {"top_k": 20}, 1.0, "arXiv 2411.07641, section 5"),
    Preset("Eta (top-nσ paper)", "eta", {"epsilon": 9e-4}, 1.0, "arXiv 2411.07641, section 5"),
    Preset("Mirostat (top-nσ paper)", "mirostat", {"tau": 5.0}, 1.0, "arXiv 2411.07641, section 5"),
    Preset("Top-H, its paper's", "top-h", {"alpha": 0.4}, 1.0, "arXiv 2509.02510"),
    Preset("Top-W, ours", "top-w", {}, 1.0, "`polydraft eval top-w`; research/docs/samplers.md"),
    Preset(
        "Top-W, the paper's",
        "top-w",
        {"lam": 2.2, "beta": 2.8, "alternations": 3, "metric": "l2", "geom_scale": 1.0, "warm_start": 0.999},
        1.0,
        "arXiv 2602.10346, section 5; unit vectors, the warm start of its code",
    ),
    Preset(
        "Top-W, the authors' code",
        "top-w",
        {"lam": 2.2, "beta": 2.8, "metric": "cosine", "geom_scale": 0.6, "warm_start": 0.999},
        1.0,
        "arashgholami/top-w-decoding, logit_processor_w1.py",
    ),
    Preset(
        "Top-W, the paper's, β by temperature",
        "top-w",
        {
            "lam": 2.2,
            "beta_by": TIED,
            "alternations": 3,
            "metric": "l2",
            "geom_scale": 1.0,
            "warm_start": 0.999,
        },
        1.5,
        "arXiv 2602.10346, table 8: β = 1.5 + 1.5·T",
    ),
)
