"""Plain text: a file is one document; a very long file is split at blank lines."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from ngram_builder.readers import base
from ngram_builder.readers.base import Document, Source
from ngram_builder.readers.packed import until_cut


def text_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    held, damaged = "", False
    for piece in until_cut(pieces):
        text = decoder.decode(piece)
        damaged = damaged or ("\ufffd" in text and "\ufffd".encode() not in piece)
        held += text
        if len(held) > base.LONGEST_TEXT:
            *parts, held = base.divided(held)
            for part in parts:
                yield Document(_plain(part), source.path)
    tail = decoder.decode(b"", final=True)
    if damaged or tail:
        source.damaged("not UTF-8 throughout; wrong bytes were replaced")
    if held + tail:
        yield Document(_plain(held + tail), source.path)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")
