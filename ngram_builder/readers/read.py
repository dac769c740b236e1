"""Reads one file of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from core.ngram.plain import plain
from ngram_builder.readers.archives import zip_documents
from ngram_builder.readers.base import Damage, Document, ReportDamage, Source, divided, spelled, whole_words
from ngram_builder.readers.files import File, kind_of, mail_at
from ngram_builder.readers.letters import DOCX
from ngram_builder.readers.mail import eml_documents, emlx_documents
from ngram_builder.readers.mbox import FIRST, kind_of_mail, mbox_documents
from ngram_builder.readers.odt import ODT
from ngram_builder.readers.packed import CutOff, unpacked
from ngram_builder.readers.pages import html_documents
from ngram_builder.readers.parquet import parquet_documents
from ngram_builder.readers.plain import text_documents
from ngram_builder.readers.rtf import rtf_documents
from ngram_builder.readers.senders import Senders
from ngram_builder.readers.shards import json_documents
from ngram_builder.readers.signals import Signals

_READERS = {
    "text": text_documents,
    "eml": eml_documents,
    "emlx": emlx_documents,
    "mbox": mbox_documents,
    "html": html_documents,
    "rtf": rtf_documents,
}
_SEEKING = {"parquet": parquet_documents, "docx": DOCX.documents, "odt": ODT.documents, "zip": zip_documents}
_TEXT = ("text", "")  # of a file of no known kind
_CORPORA = ("json", "parquet")  # where a broken word in a document of many is no news


@dataclass
class Reading:
    """The input and output of a reader.

    Attributes:
        report: called with each place that cannot be read.
        consumed: called with the number of bytes of the file that were read since the last call, often 0: within long
            documents, too. If it raises, reading ends.
        signals: which documents to read; None is all.
        left_out: number of documents that `signals` excluded so far; `duplicates` of them because they are listed as
            duplicates.
        note: called with each document that is sound and contains nothing to read.
        senders: those whose mails and messages are read.
    """

    report: ReportDamage
    consumed: Callable[[int], None] = lambda _: None
    signals: Signals | None = None
    left_out: int = 0
    duplicates: int = 0
    note: ReportDamage = lambda _: None
    senders: Senders = field(default_factory=Senders)


def documents(file: File | str | Path, report: ReportDamage) -> Iterator[str]:
    """The texts of one file, in order."""
    known = file if isinstance(file, File) else File(str(file), 0, "")
    return (document.text for document in read_file(known, Reading(report)))


def read_file(file: File, reading: Reading) -> Iterator[Document]:
    """Yields the documents of one file, in order; very long ones in parts."""
    path = spelled(file.address)
    try:
        for document in _documents(file, reading):
            text, broken = whole_words(plain(document.text))
            if broken and (kind_of(file.name) or _TEXT)[0] not in _CORPORA:
                reason = f"{broken:,} words with characters that cannot be read were left out"
                reading.report(Damage(path, document.line, reason))
            if broken and not text.strip():
                continue
            for part in divided(text):
                yield replace(document, text=part)
    except OSError as error:
        reading.report(Damage(path, 0, f"cannot be read: {error.strerror or error}"))


def _documents(file: File, reading: Reading) -> Iterator[Document]:
    mail = "" if file.remote or kind_of(file.name) else mail_at(Path(file.address))
    kind, packing = kind_of(file.name) or (mail or "text", "")
    source = Source(spelled(file.address), reading.report, lambda: reading.consumed(0), reading.note, reading.senders)
    selection = reading.signals.selection(file, reading.report) if reading.signals else None
    with closing(file.open()) as opened:
        pieces = unpacked(opened, packing, source, reading.consumed)
        if kind in _SEEKING:
            yield from _SEEKING[kind](opened, source, reading.consumed, file.size)
        elif kind == "json":
            yield from json_documents(pieces, source, selection.wanted if selection else None)
        else:
            if kind == "text":  # archives of mailing lists are mailboxes with this ending
                with suppress(CutOff):
                    first = next(pieces, b"")
                    pieces = chain([first], pieces)
                    kind = "mbox" if kind_of_mail(first[:FIRST]) == "mbox" else kind
            yield from _READERS[kind](pieces, source)
    if selection:
        reading.left_out += selection.left_out
        reading.duplicates += selection.duplicates
