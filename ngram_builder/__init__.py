"""From shards of text to an n-gram store: readers, counting, merging. Arrow: app → ngram_builder →
core.ngram."""

from ngram_builder.pipeline import BuildReport, TooMuchDamage, build, merge
from ngram_builder.readers import Damage

__all__ = ["BuildReport", "Damage", "TooMuchDamage", "build", "merge"]
