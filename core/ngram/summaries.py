"""The entries of personal stores in lists, as the page and the command line show them."""

from __future__ import annotations

from typing import TypedDict


class LearnedText(TypedDict):
    """One addition to a store: a file's document, or all typed text.

    Attributes:
        number: its own in this store.
        origin: where it came from; several documents may share one.
        added: UTC, ISO 8601.
    """

    number: int
    origin: str
    added: str
    passages: int
    characters: int
    tokens: int


class StoreSummary(TypedDict):
    """A store in a list of stores: its name, switches, bytes, last change (UTC, ISO 8601), tokens and documents."""

    store: str
    enabled: bool
    learning: bool
    bytes: int
    changed: str
    tokens: int
    documents: list[LearnedText]
