"""Builds n-gram stores from text: reading, counting, merging. Imports go one way: app → ngram_builder → core.ngram.

Its parts are imported at their first use: the process that reads files needs the readers alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngram_builder.pipeline import BuildReport, TooMuchDamage, build, merge
    from ngram_builder.readers import Damage, Signals
    from ngram_builder.selection import DocumentSelection
    from ngram_builder.work import NoRoom

_FROM = {
    "ngram_builder.pipeline": ("BuildReport", "TooMuchDamage", "build", "merge"),
    "ngram_builder.readers": ("Damage", "Signals"),
    "ngram_builder.selection": ("DocumentSelection",),
    "ngram_builder.work": ("NoRoom",),
}

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


def __getattr__(name: str) -> Any:
    for module, names in _FROM.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
