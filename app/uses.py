"""Which options an evaluation or a measurement uses; one that changes nothing is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import typer

from app.flags import was_given
from core.errors import InputError


@dataclass(frozen=True)
class Use:
    """One option of `polydraft eval` or `polydraft bench`.

    Attributes:
        description: its help text, without the names of `only` and `but`.
        only: the evaluations or measurements that use it; () for all except `but`.
        but: those that do not use it.
        flag: its name on the command line; "" is made from the parameter's name.
    """

    description: str
    only: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    flag: str = ""

    def by(self, name: str) -> bool:
        """Whether this evaluation or measurement uses the option."""
        return name in self.only if self.only else name not in self.but

    @property
    def help(self) -> str:
        if self.only:
            return f"{self.description} For {', '.join(self.only)}."
        return f"{self.description} Not for {', '.join(self.but)}." if self.but else self.description


def refuse_unused(name: str, uses: Mapping[str, Use], ctx: typer.Context) -> None:
    """Raises InputError for a given option that this evaluation or measurement does not use.

    Args:
        uses: by the name of the parameter.
    """
    for parameter in ctx.params:
        if parameter in uses and was_given(ctx, parameter) and not uses[parameter].by(name):
            use = uses[parameter]
            flag = use.flag or "--" + parameter.replace("_", "-")
            which = f"It is for {', '.join(use.only)}." if use.only else "The others use it."
            raise InputError(f"{flag} changes nothing in {name}; leave it out. {which}")
