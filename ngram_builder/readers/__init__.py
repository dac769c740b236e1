"""Reads documents from files of many kinds, one after the other, with the origin of each.

    RedPajama-1T, RedPajama-V2, any JSON lines with "text"   .jsonl .json .ndjson      shards.py, signals.py
    Parquet with a column of text                            .parquet                  parquet.py
    plain text, notes                                        .txt .md .markdown .org    plain.py, notes.py
    mail, also files without an ending                       .eml .emlx .mbox          mail.py, mbox.py
    pages                                                    .html .htm                pages.py
    Word documents, of LibreOffice, rich text                .docx .odt .rtf           letters.py, odt.py, rtf.py
    chats                                                    .txt .json .zip           chats.py, archives.py

All but Parquet, .docx, .odt and .zip also packed, as .gz or .zst. A source is a file, a folder, a glob pattern or an
fsspec URL (files.py). Everything streams. Damage never stops a reader: it reads all readable parts and passes each
damaged place to `report` with file, line and reason; a bad document does not affect the others. Time and memory are
bounded for each document, whatever it contains, and reading can be stopped at any moment. Readers do not tokenise.
"""

from ngram_builder.readers.apart import ReaderProcess
from ngram_builder.readers.base import Damage, Document, ReportDamage, spelled
from ngram_builder.readers.files import File, expand
from ngram_builder.readers.read import Reading, documents, read_file
from ngram_builder.readers.senders import Senders
from ngram_builder.readers.signals import Signals
from ngram_builder.readers.walk import FolderListing, walk

__all__ = [
    "Damage",
    "Document",
    "File",
    "FolderListing",
    "ReaderProcess",
    "Reading",
    "ReportDamage",
    "Senders",
    "Signals",
    "documents",
    "expand",
    "read_file",
    "spelled",
    "walk",
]
