"""Plain text and notes: a file is one document; a very long file is split at blank lines. A chat of WhatsApp is such a
file, too."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from ngram_builder.readers import base, chats
from ngram_builder.readers.base import Document, Source
from ngram_builder.readers.charsets import NO_TEXT, encoding_of, undoubled
from ngram_builder.readers.notes import written
from ngram_builder.readers.packed import until_cut

_HEAD = 1 << 16  # bytes, at least, by which an encoding and a kind are known


def text_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    held, first, chat = "", True, False
    for text in _decoded(pieces, source):
        held += text
        if first and not chat and chats.is_whatsapp(held, source.path):
            chat = True
        if chat:
            if len(held) > base.LONGEST:
                source.damaged(f"a chat longer than {base.LONGEST >> 20} Mi characters")
                return
        elif len(held) > base.LONGEST_TEXT:
            *parts, held = base.divided(held)
            for part in parts:
                yield Document(written(part, source.path, first), source.path)
                first = False
    if chat:
        yield from chats.documents(chats.of_whatsapp(held), source)
    elif text := written(held, source.path, first):
        yield Document(text, source.path)


def _decoded(pieces: Iterable[bytes], source: Source) -> Iterator[str]:
    """The text of the pieces, with "\\n" at the ends of its lines. What is no text is reported, and ends it."""
    decoder, decided, ended = None, False, ""
    for piece in _with_head(until_cut(pieces)):
        if not decided:
            if (encoding := encoding_of(piece)) is None:
                source.damaged(NO_TEXT)
                return
            decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            decided = encoding != "utf-8" or not piece.isascii()  # ASCII alone says nothing of what follows
        assert decoder is not None
        text = ended + decoder.decode(piece)
        ended = "\r" if text.endswith("\r") else ""
        yield undoubled(text.removesuffix(ended).replace("\r\n", "\n").replace("\r", "\n"))
    if decoder is not None and (rest := ended + decoder.decode(b"", final=True)):
        yield rest.replace("\r", "\n")


def _with_head(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces, of which the first is long enough to know the file by."""
    head = b""
    for piece in pieces:
        if len(head) < _HEAD:
            head += piece
            if len(head) >= _HEAD:
                yield head
        else:
            yield piece
    if 0 < len(head) < _HEAD:
        yield head
