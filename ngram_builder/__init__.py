"""Builds n-gram stores from text: reading, counting, merging. Imports go one way: app → ngram_builder → core.ngram."""

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
