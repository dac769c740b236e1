"""From shards of text to an n-gram store: readers, counting, merging. Arrow: app → ngram_builder →
core.ngram."""

from ngram_builder.build import BuildReport, build

__all__ = ["BuildReport", "build"]
