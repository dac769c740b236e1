"""Builds n-gram stores from text: reading, counting, merging. Imports go one way: app → ngram_builder → core.ngram.

Its parts are imported at their first use: the process that reads files needs the readers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.lazy import imported_at_first_use

if TYPE_CHECKING:
    from ngram_builder.pipeline import BuildReport, TooMuchDamage, build, merge
    from ngram_builder.readers import Damage, Signals
    from ngram_builder.selection import DocumentSelection
    from ngram_builder.work import NoRoom

__all__ = [
    "BuildReport",
    "Damage",
    "DocumentSelection",
    "NoRoom",
    "Signals",
    "TooMuchDamage",
    "build",
    "merge",
]

__getattr__ = imported_at_first_use(
    __name__,
    {
        "pipeline": ("BuildReport", "TooMuchDamage", "build", "merge"),
        "readers": ("Damage", "Signals"),
        "selection": ("DocumentSelection",),
        "work": ("NoRoom",),
    },
)
