"""Options of drafting in requests of programs: the flags of the command line as fields of a request.

`--exact-steps 3` on the command line is `"exact_steps": 3` here. Every option is defined once, in `core.options` and
`core.controls`, and the command line's errors apply here too.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from app import flags
from app.refused import Refused
from app.settings import DraftSettings
from core.chains import joined
from core.controls import DEFAULT_METHOD, DEFAULT_MODE, DEFAULT_RULE, DRAWN
from core.errors import InputError
from core.options import DRAFTING, LONGEST, SEED, Value

COMMON = ("k", "length", "temperature", "seed")  # flags for which the interfaces have their own names
FIELDS = {flag.replace("-", "_"): flag for flag in flags.ALL_FLAGS if flag not in COMMON}

_FLAG = re.compile(r"--([a-z][a-z0-9-]*)")
_NUMBER = re.compile(r"^([a-z][a-z0-9-]*)(?= .* given;)")


class ClientOptions(BaseModel):
    """The fields that a request for drafts may have in every interface, in addition to `FIELDS`.

    Attributes:
        rule, mode, speculate, drafter: as the flags of these names.
        stores: the personal stores to use, instead of those that are on.
        heal: complete a half-typed word.
        temperature: 0 is deterministic.
        seed: of sampled drafts; None samples different ones each time.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    rule: str | None = None
    mode: str | None = None
    speculate: str | None = None
    drafter: str | None = None
    stores: list[str] | None = None
    heal: bool = True
    temperature: float | None = None
    seed: int | None = None

    @property
    def most_tokens(self) -> int:
        """The most tokens of a draft with these fields."""
        return int(DRAFTING["length"].high) if (self.model_extra or {}).get("reset_every") else LONGEST

    def settings(
        self,
        drafts: int,
        tokens: int,
        names: Mapping[str, str],
        superposed: Mapping[str, Value] | None = None,
        drawn: Mapping[str, Value] | None = None,
    ) -> DraftSettings:
        """The settings for the fields.

        Args:
            drafts, tokens: number of drafts, and their length, within the limits of the options.
            names: the interface's names of k and length.
            superposed, drawn: further flags, for superposed and for sampled drafts.
        Raises: Refused for an unknown field, a value out of range, and an option that would have no effect.
        """
        given: dict[str, Value] = {"k": drafts, "length": tokens}
        for name, value in (self.model_extra or {}).items():
            if name not in FIELDS:
                raise Refused(422, f"{name} is no field that the server knows.", "docs/clients.md names them.", name)
            if value is not None:
                given[FIELDS[name]] = value
        mode = self.mode or (DEFAULT_MODE if self.speculate is None else DEFAULT_METHOD)
        if mode in DRAWN:
            given |= {"seed": secrets.randbelow(int(SEED.high)) if self.seed is None else self.seed, **(drawn or {})}
        elif mode == DEFAULT_MODE and given.get("distinct", True):
            given = {**(superposed or {}), **given}
        if self.temperature == 0 and mode in DRAWN:
            raise Refused(422, "temperature 0 allows no sampling.", "Raise it, or leave mode out.", "temperature")
        if self.temperature:
            given["temperature"] = self.temperature
        try:
            if self.seed is not None:
                SEED.checked(self.seed)
            settings = flags.settings_of(given, self._rule(given), mode, self.speculate, self.drafter)
            if self.stores:
                flags.refuse_stores(settings)
        except InputError as error:
            message, name = in_fields(str(error), names)
            raise Refused(422, message, param=name) from None
        return settings

    def _rule(self, given: dict[str, Value]) -> str:
        """The rule's name. Rules with a field in the request need not be named: they form a chain in the order of the
        fields. A top_p of 1 selects no rule."""
        if self.rule is None and given.get("top-p") == 1:
            del given["top-p"]
        if self.rule is not None:
            return self.rule
        owners = [flags.RULE_FLAGS[name].owners[0] for name in given if name in flags.RULE_FLAGS]
        return joined(dict.fromkeys(owners)) or DEFAULT_RULE


def in_fields(message: str, names: Mapping[str, str]) -> tuple[str, str | None]:
    """Converts a sentence about flags to one about fields; returns also the first field that it names."""
    found: list[str] = []

    def field(match: re.Match[str]) -> str:
        flag = match[1].removeprefix("no-") if match[1].startswith("no-") else match[1]
        name = names.get(flag, flag.replace("-", "_"))
        found.append(name)
        return f"{name} false" if match[1].startswith("no-") else name

    message = _NUMBER.sub(field, message)
    return _FLAG.sub(field, message), found[0] if found else None
