"""What was removed from a personal store: how much it was, and the rows themselves while the removal can be undone.

A removal leaves nothing on the disk, so only the memory of the process that removed the text can undo it. The process
bounds what it keeps there, and drops it when the user can no longer ask for it (`app.learning.forgotten`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.ngram.passages import StoredPassage


@dataclass(frozen=True)
class Extent:
    """How much a removal takes away.

    Attributes:
        documents: removed as a whole.
        passages: removed or cut.
        occurrences: of a phrase; 0 for a document.
        characters: of the removed text.
        bytes: of the rows that undoing it needs.
    """

    documents: int
    passages: int
    occurrences: int
    characters: int
    bytes: int


@dataclass(frozen=True)
class RemovedDocument:
    """A row of `documents` with its passages, as they were before the removal."""

    number: int
    origin: str
    added: str
    times: int
    passages: tuple[StoredPassage, ...]


@dataclass(frozen=True)
class Removed:
    """What undoes a removal.

    Attributes:
        store: which store, see `PersonalStore.identity`; a new one of the same name is another.
        before, after: the number of the store's removals.
        last: the largest number of a document at that time.
        documents: those removed or cut.
        adapter: the files of the adapter that was removed with the text, by name; {} if there was none, or no room.
    """

    store: str
    before: int
    after: int
    last: int
    documents: tuple[RemovedDocument, ...]
    adapter: Mapping[str, bytes]

    @property
    def bytes(self) -> int:
        rows = [passage for document in self.documents for passage in document.passages]
        return sum(len(row.text.encode()) + len(row.ids) for row in rows) + sum(map(len, self.adapter.values()))


@dataclass(frozen=True)
class Forgotten(Extent):
    """The result of forgetting.

    Attributes:
        complete: False while another program keeps the old state of the file open, or the disk is full; the log is then
            truncated the next time the store is opened.
        adapter: whether an adapter had learned the text, and was removed with it.
        removed: undoes it; None if that was not requested, or needs more room.
    """

    complete: bool
    adapter: bool
    removed: Removed | None


@dataclass(frozen=True)
class Undone:
    """The result of undoing a removal: the tokens that are in the store again, the new number of removals, and whether
    the adapter that was removed is in place again."""

    tokens: int
    removals: int
    adapter: bool
