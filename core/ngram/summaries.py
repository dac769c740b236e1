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


class FolderSummary(TypedDict):
    """A folder that a store stays in step with: what is left out of it, how many files were read, how many of them a
    person forgot, and why some could not be read whole, by origin."""

    path: str
    excluded: list[str]
    files: int
    forgotten: int
    problems: dict[str, str]


class StoreSummary(TypedDict):
    """A store in a list of stores: its name, switches, bytes, last change (UTC, ISO 8601), tokens and documents; the
    folders that it stays in step with, and whose mails it learns ([]: everybody's)."""

    store: str
    enabled: bool
    learning: bool
    bytes: int
    changed: str
    tokens: int
    documents: list[LearnedText]
    folders: list[FolderSummary]
    senders: list[str]
