"""The fields of a class of options that are flags of `polydraft bench` or `polydraft eval`, and who uses each. A flag
that changes nothing is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_type_hints

import typer

from app.cli.flags import was_given
from core.errors import InputError


@dataclass(frozen=True)
class Use:
    """The flag of one field, in the annotation of its type.

    Attributes:
        description: its help text, without the names of `only` and `but`.
        only: the evaluations or measurements that use it; () for all except `but`.
        but: those that do not use it.
        flags: its names on the command line; () is made from the field's name.
        low, high: the bounds of a number.
        metavar: what the help shows for the value; None is the type.
    """

    description: str
    only: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    metavar: str | None = None

    def by(self, name: str) -> bool:
        """Whether this evaluation or measurement uses the option."""
        return name in self.only if self.only else name not in self.but

    @property
    def help(self) -> str:
        if self.only:
            return f"{self.description} For {', '.join(self.only)}."
        return f"{self.description} Not for {', '.join(self.but)}." if self.but else self.description


def uses_of(options: type) -> dict[str, Use]:
    """The flags among the fields that a class of options itself declares."""
    hints = get_type_hints(options, include_extras=True)
    return {
        field: use
        for field in options.__annotations__
        for use in getattr(hints[field], "__metadata__", ())
        if isinstance(use, Use)
    }


def refuse_unused(name: str, uses: Mapping[str, Use], ctx: typer.Context) -> None:
    """Raises InputError for a given flag that this evaluation or measurement does not use."""
    for field, use in uses.items():
        if was_given(ctx, field) and not use.by(name):
            flag = use.flags[0] if use.flags else "--" + field.replace("_", "-")
            which = f"It is for {', '.join(use.only)}." if use.only else "The others use it."
            raise InputError(f"{flag} changes nothing in {name}; leave it out. {which}")
