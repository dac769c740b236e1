"""ZIP archives: their members, within limits. An archive declares all sizes itself, so none is trusted."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from ngram_builder.readers import base
from ngram_builder.readers.base import Document, Source, Unreadable, guarded
from ngram_builder.readers.plain import text_documents
from ngram_builder.readers.shards import json_documents

_LISTED = 1 << 23  # bytes of an archive's list of members: some hundred thousand
_MOST = 1 << 28  # bytes of a member
_PIECE = 1 << 16
# The exports of chats: WhatsApp's of iOS and Android, ChatGPT's, Claude's.
_CHAT = re.compile(r"(?:.*/)?(?:_chat|[^/]*WhatsApp[^/]*)\.txt", re.IGNORECASE)
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations\.json")


def archive_of(file: BinaryIO, wrong: str, remedy: str) -> zipfile.ZipFile:
    """Opens an archive. Raises Unreadable, in words of a writer, who may know of no archive."""

    def opened() -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(_Sips(file, wrong))
        except zipfile.BadZipFile as error:
            raise Unreadable(f"{wrong}: it is cut off or damaged; {remedy}") from error

    return guarded(wrong, opened)


def member(archive: zipfile.ZipFile, name: re.Pattern[str]) -> zipfile.ZipInfo | None:
    """The first member whose whole name matches."""
    return next((entry for entry in archive.infolist() if name.fullmatch(entry.filename)), None)


def pieces_of(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, wrong: str, source: Source) -> Iterator[bytes]:
    """The bytes of a member. Raises Unreadable."""
    taken, opened = 0, guarded(wrong, archive.open, entry)
    while piece := guarded(wrong, opened.read, _PIECE):
        taken += len(piece)
        if taken > _MOST or taken > max(base.FREE, base.RATIO * entry.compress_size):
            raise Unreadable(f"unpacks to more than {taken >> 20} MiB, which is too much for a document")
        yield piece
        source.check_cancelled()


class _Sips:
    """A file that returns at most `_LISTED` bytes at once, because the archive itself declares the size of its list."""

    def __init__(self, file: BinaryIO, wrong: str) -> None:
        self._file, self._wrong = file, wrong
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, _LISTED + 1) if size >= 0 else _LISTED + 1)
        if len(data) > _LISTED:
            raise Unreadable(f"{self._wrong}: its list of members is longer than {_LISTED >> 20} MiB")
        return data


def zip_documents(file: BinaryIO, source: Source, consumed: Callable[[int], None], size: int) -> Iterator[Document]:
    """The messages of a chat that its program exported as an archive, with pictures that are not read."""
    wrong = "not an intact archive"
    try:
        archive = archive_of(file, wrong, "export the chat again")
        for name, documents in ((_CHAT, text_documents), (_CONVERSATIONS, json_documents)):
            if entry := member(archive, name):
                yield from documents(pieces_of(archive, entry, wrong, source), source)
                break
        else:
            raise Unreadable("an archive without a chat; unpack it, and add the files in it")
    except Unreadable as error:
        source.damaged(str(error))
    consumed(size)
