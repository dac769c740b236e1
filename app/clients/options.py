"""Options of drafting in requests of programs: the flags of the command line as fields of a request.

`--exact-steps 3` on the command line is `"exact_steps": 3` here. Every option is defined once, in `core.options` and
`core.controls`, and the command line's errors apply here too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.clients.bans import biases, with_bans
from app.clients.choices import only_grows
from app.clients.harmless import translated
from app.options import given as options
from app.options.settings import DraftSettings
from app.service.showing import Showing
from app.wire.bounds import (
    Avoided,
    Biases,
    Breakers,
    Label,
    LastTokens,
    LongText,
    Name,
    Names,
    Phrases,
    Real,
    Value,
    Whole,
)
from app.wire.refused import Refused
from core.chains import joined, names_of
from core.controls import CATALOG, DEFAULT_METHOD, DEFAULT_MODE, DEFAULT_RULE, DRAWN
from core.errors import InputError, Mention, OptionError, plainly
from core.options import DRAFTING, LONGEST, OPTIONS, SEED
from core.options import Value as Option
from core.text import following

COMMON = ("k", "length", "temperature", "seed")  # flags for which the interfaces have their own names
FIELDS = {flag.replace("-", "_"): flag for flag in options.ALL_FLAGS if flag not in COMMON}

# llama-server's names of samplers, with the letters of its short form, and those of the fields that they own
SAMPLERS = {
    "dry": "d", "top_k": "k", "typ_p": "y", "top_p": "p", "top_n_sigma": "s", "min_p": "m", "temperature": "t",
    "xtc": "x", "infill": "i", "penalties": "e", "adaptive_p": "a", "typical_p": "", "tfs_z": "", "temp": "",
}  # fmt: skip
OF_SAMPLERS = {"mass": "typ_p", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "n_sigma": "top_n_sigma"}
OF_SAMPLERS |= dict.fromkeys(("dry_multiplier", "dry_base", "dry_allowed"), "dry")
OF_SAMPLERS |= dict.fromkeys(("xtc_probability", "xtc_threshold"), "xtc")

# KoboldCpp's numbers of samplers, in its `sampler_order`
NUMBERED = ("top_k", "top_a", "top_p", "tfs_z", "typ_p", "temperature", "penalties")

DROPS_NONE = {"top-p": (1,), "top-k": (0, -1), "min-p": (0,)}  # values with which programs switch a rule off


def _named(samplers: Any) -> Any:
    """The short form of samplers, "kpt", as their names. Some programs name one twice."""
    if isinstance(samplers, str):
        names = {letter: name for name, letter in SAMPLERS.items() if letter}
        samplers = [names.get(letter, letter) for letter in samplers[: 2 * len(SAMPLERS)]]
    hashable = isinstance(samplers, list) and all(isinstance(name, str) for name in samplers)
    if not hashable:
        return samplers
    return list(dict.fromkeys("typ_p" if name == "typical_p" else name for name in samplers))


def _lines(names: Any) -> Any:
    """A list of names, or one in a text with a name a line."""
    return names.split() if isinstance(names, str) and len(names) < 2000 else names


def _numbered(numbers: Any) -> Any:
    """The names for KoboldCpp's numbers."""
    if not isinstance(numbers, list):
        return numbers
    known = range(len(NUMBERED))
    return [NUMBERED[each] if type(each) is int and each in known else each for each in numbers]


class ClientOptions(BaseModel):
    """The fields that a request for drafts may have in every interface, in addition to `FIELDS`.

    Attributes:
        rule, mode, speculate, drafter: as the flags of these names.
        samplers: llama-server's list of those that are applied, or its short form; a rule that it leaves out is off.
            The order of the rules is that of the fields.
        sampler_priority, sampler_order: the same order in text-generation-webui and KoboldCpp; they switch nothing off.
            In these three lists a temperature after the rules selects at 1 (`select_at`).
        temperature_last: the same as a switch.
        dry_breakers: texts over which no repetition of DRY extends, instead of its source's.
        dry_last_n: the number of last tokens in which DRY looks for repetitions; None: all.
        mirostat_version: 1 or 2.
        stores: the personal stores to use, instead of those that are on.
        heal: complete a half-typed word.
        background: text that the model reads before the text and that the drafts do not continue.
        never: words and phrases that no draft contains.
        logit_bias: numbers that are added to the logits of tokens; see `app.clients.bans`.
        avoid: drafts that were shown for the text: no other begins with the first word of one.
        no_slurs: no draft contains one of the slurs that come with the app.
        temperature: 0, and what is too small for the option of this name, is deterministic.
        seed: of sampled drafts; None samples different ones each time.
        show: "time": only drafts that are expected to save a writer time, best first, each up to where it does; the
            other texts stay empty. "all": every draft.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    __pydantic_extra__: dict[str, Value | None]  # pyright: ignore[reportIncompatibleVariableOverride]

    rule: Label | None = None
    mode: Name | None = None
    speculate: Name | None = None
    drafter: Name | None = None
    samplers: Annotated[Names, BeforeValidator(_named)] = Field(default=[])
    sampler_priority: Annotated[Names, BeforeValidator(_lines)] = Field(default=[])
    sampler_order: Annotated[Names, BeforeValidator(_numbered)] = Field(default=[])
    temperature_last: bool = False
    dry_breakers: Breakers | None = None
    dry_last_n: LastTokens | None = None
    mirostat_version: Literal[1, 2] = 2
    stores: Names | None = None
    heal: bool = True
    background: LongText = ""
    never: Phrases = Field(default=[])
    logit_bias: Annotated[Biases, BeforeValidator(biases)] = Field(default=[])
    avoid: Avoided = Field(default=[])
    no_slurs: bool = False
    temperature: Real | None = None
    seed: Whole | None = None
    show: Literal["all", "time"] = "all"

    @model_validator(mode="before")
    @classmethod
    def _translated(cls, body: Any) -> Any:
        return translated(with_bans(body) if isinstance(body, dict) else body, cls.model_fields.keys())

    def requested(self, after: str, background: str, likeliest: int | None) -> dict[str, Any]:
        """What is requested beside the text and the settings, as fields of `DraftRequest`. Where only drafts that save
        time are wanted, they are those of a writer of whom nothing is known."""
        return {
            "after": after,
            "background": background,
            "likeliest": likeliest,
            "heal": self.heal,
            "stores": self.stores,
            "show": Showing(only=True) if self.show == "time" else None,
            "never": self.never,
            "avoid": self.avoid,
            "no_slurs": self.no_slurs,
            "token_bias": self.logit_bias,
        }

    def only_grow(self, settings: DraftSettings, after: str, likeliest: int | None) -> bool:
        """Whether the texts of a response only grow, so that they can be sent meanwhile: which drafts save time, which
        one leads to the text after the caret, and how likely each token was is known at the end; and where a draft
        steps back from a phrase, others may change."""
        known_at_the_end = self.show != "all" or self.never or likeliest is not None or following(after)
        return not known_at_the_end and only_grows(settings)

    @property
    def most_tokens(self) -> int:
        """The most tokens of a draft with these fields."""
        return int(DRAFTING["length"].high) if (self.model_extra or {}).get("reset_every") else LONGEST

    def settings(
        self,
        drafts: int,
        tokens: int,
        names: Mapping[str, str],
        superposed: Mapping[str, Option] | None = None,
        drawn: Mapping[str, Option] | None = None,
    ) -> DraftSettings:
        """The settings for the fields.

        Args:
            drafts, tokens: number of drafts, and their length, within the limits of the options.
            names: the interface's names of k and length.
            superposed, drawn: further flags, for superposed and for sampled drafts.
        Raises: Refused for an unknown field, a value out of range, and an option that would have no effect.
        """
        if unknown := [name for name in self.samplers if name not in SAMPLERS]:
            raise Refused(422, f"The sampler {unknown[0]} is not known; {', '.join(SAMPLERS)} are.", param="samplers")
        given: dict[str, Option] = {"k": drafts, "length": tokens}
        for name, value in (self.model_extra or {}).items():
            if self.samplers and OF_SAMPLERS.get(name, self.samplers[0]) not in self.samplers:
                continue
            if name not in FIELDS:
                raise Refused(422, f"{name} is no field that the server knows.", "docs/clients.md names them.", name)
            if value is not None:
                given[FIELDS[name]] = value
        mode = self.mode or (DEFAULT_MODE if self.speculate is None else DEFAULT_METHOD)
        if mode in DRAWN:
            given |= {"seed": secrets.randbelow(int(SEED.high)) if self.seed is None else self.seed, **(drawn or {})}
        elif mode == DEFAULT_MODE and given.get("distinct", True):
            given = {**(superposed or {}), **given}
        certain = self.temperature is not None and 0 <= self.temperature < OPTIONS["temperature"].low
        if certain and mode in DRAWN:
            message = f"temperature {self.temperature:g} allows no sampling."
            raise Refused(422, message, "Raise it, or leave mode out.", "temperature")
        rule = self._rule(given)
        if self.temperature is not None and not certain:
            given["temperature"] = self.temperature
            if "select-at" not in given and self._selects_first(given):
                given["select-at"] = "1"
        try:
            if self.seed is not None:
                SEED.checked(self.seed)
            settings = options.settings_of(given, rule, mode, self.speculate, self.drafter)
            if self.stores:
                options.refuse_stores(settings)
            settings = self._with_more(settings)
        except InputError as error:
            message, name = in_fields(error, names)
            raise Refused(422, message, param=name) from None
        return settings

    def _with_more(self, settings: DraftSettings) -> DraftSettings:
        """The settings with what DRY and Mirostat take that are no flags. Raises Refused if the rule is off, unless
        `samplers` left it out."""
        rules, more = names_of(settings.sampling.rule), dict[str, Any]()
        for field, own, rule, switch in (
            ("dry_breakers", "breakers", "dry", "dry_multiplier"),
            ("dry_last_n", "dry_last_n", "dry", "dry_multiplier"),
            ("mirostat_version", "mirostat_version", "mirostat", "mirostat"),
        ):
            if field not in self.model_fields_set or (value := getattr(self, field)) is None:
                continue
            if rule in rules:
                more[own] = value
            elif not self.samplers or rule in self.samplers:
                raise Refused(422, f"{field} changes nothing without {CATALOG[rule].title}.", f"Add {switch}.", field)
        return settings.model_copy(update={"sampling": settings.sampling.model_copy(update=more)}) if more else settings

    def _selects_first(self, given: Mapping[str, Option]) -> bool:
        """Whether the temperature comes after the rules. Raises Refused if it comes between two of them."""
        rules = [OF_SAMPLERS[name] for flag in given if (name := flag.replace("-", "_")) in OF_SAMPLERS]
        rules = [name for name in rules if name != "dry"]  # it comes before the temperature in any case
        order = [
            "temperature" if name == "temp" else name
            for name in self.samplers or self.sampler_priority or self.sampler_order
        ]
        if not rules or self.rule is not None or "temperature" not in order:
            return self.temperature_last and bool(rules)
        place = order.index("temperature")
        earlier = [name for name in rules if name in order[:place]]
        if earlier and len(earlier) < len(rules):
            message = f"temperature between {earlier[-1]} and other samplers is not supported."
            raise Refused(422, message, "Put it before or after all of them.", "samplers")
        return bool(earlier) or self.temperature_last

    def _rule(self, given: dict[str, Option]) -> str:
        """The rule's name. Rules with a field in the request need not be named: they form a chain in the order of the
        fields. A value that drops no token selects no rule."""
        if self.rule is not None:
            return self.rule
        for name, values in DROPS_NONE.items():
            if name in given and given[name] in values:
                del given[name]
        owners = [options.RULE_FLAGS[name].owners[0] for name in given if name in options.RULE_FLAGS]
        return joined(dict.fromkeys(owners)) or DEFAULT_RULE


def in_fields(error: InputError, names: Mapping[str, str]) -> tuple[str, str | None]:
    """The error with its options as fields, and the first field that it names."""
    if not isinstance(error, OptionError):
        return str(error), None
    fields: list[str] = []

    def field(mention: Mention) -> str:
        fields.append(names.get(mention.name, mention.name.replace("-", "_")))
        return plainly(Mention(fields[-1], mention.value))

    return error.written(field), fields[0]
