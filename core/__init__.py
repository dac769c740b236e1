"""Decoding: models, Superposed Decoding, token healing. Imports nothing from `app` or `ngram_builder`."""
