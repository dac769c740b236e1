"""Which documents of the input are counted. By default all are; whatever leaves one out is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from core.errors import InputError
from ngram_builder import quality
from ngram_builder.readers import Document, File, Reading, Signals, read_file

Dedup = Literal["documents", "paragraphs"]
DEDUP: tuple[Dedup, ...] = ("documents", "paragraphs")


@dataclass(frozen=True)
class DocumentSelection:
    """What is counted.

    Attributes:
        signals: documents of RedPajama-V2 with these signals.
        rules: documents that meet these rules of `quality`.
        sample: this share of the documents, chosen by their content.
        dedup: of equal documents or paragraphs only the first; see `repeats`.
    """

    signals: Signals | None = None
    rules: tuple[str, ...] = ()
    sample: float = 1.0
    dedup: Dedup | None = None

    @classmethod
    def of(cls, signals: Signals | None, rules: Sequence[str], sample: float, dedup: str | None) -> DocumentSelection:
        """Raises InputError for what cannot be."""
        if not 0 < sample <= 1:
            raise InputError(f"A sample of {sample:g} given; a share above 0, of at most 1, expected.")
        if dedup not in (None, *DEDUP):
            raise InputError(f"Dedup {dedup!r} given; {' or '.join(DEDUP)} expected.")
        return cls(signals, quality.parse(rules), sample, dedup)

    def identity(self) -> list[str]:
        signals = [*map(repr, self.signals.bounds), repr(self.signals.unique)] if self.signals else []
        return [*signals, *self.rules, repr(self.sample), repr(self.dedup)]

    def refuses(self, text: str) -> str | None:
        """The reason why a document is not counted, whatever other documents are."""
        if self.sample < 1 and _hash(text, b"sample") >= self.sample * 2**64:
            return "sample"
        return quality.broken(text, self.rules) if self.rules else None


def chosen(file: File, reading: Reading, selection: DocumentSelection, left_out: Counter[str]) -> Iterator[Document]:
    """Yields the documents of a file to count, before repeated ones are left out. `left_out` counts the others by the
    reason; when the file ends, also those that its signals and its list of duplicates exclude."""
    for document in read_file(file, reading):
        if reason := selection.refuses(document.text):
            left_out[reason] += 1
        else:
            yield document
    left_out["signals"] += reading.left_out - reading.duplicates
    left_out["duplicates"] += reading.duplicates


def hash_of(text: str) -> int:
    """64 bits that are the same for equal texts, on every machine. Among n different texts, n² / 2⁶⁵ pairs have equal
    ones."""
    return _hash(text, b"")


def _hash(text: str, use: bytes) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, person=use).digest(), "little")
