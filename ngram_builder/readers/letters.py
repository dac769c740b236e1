"""Word documents: the body, including tables; headers, footers and comments are left out.

A .docx file is a ZIP archive. Only the member with the body is unpacked, and it is parsed as a stream. Pictures cost
nothing, nor do damaged or huge members.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ngram_builder.readers import base
from ngram_builder.readers.base import Document, Source, Unreadable, guarded, sound

_BODY = re.compile(r"word/document\d*\.xml")  # some programs number it
_MOST = 1 << 28  # bytes of XML in a body
_LISTED = 1 << 23  # bytes of an archive's list of members: some hundred thousand
_PIECE = 1 << 16
_WRONG = "not an intact Word document"


def docx_documents(file: BinaryIO, source: Source, consumed: Callable[[int], None], size: int) -> Iterator[Document]:
    """The document, as one text."""
    body = _Body()
    try:
        # Imported here, because most readers never need these.
        import lxml.etree

        archive = guarded(_WRONG, _archive, file)
        document = next((entry for entry in archive.infolist() if _BODY.fullmatch(entry.filename)), None)
        if document is None:
            raise Unreadable(f"{_WRONG}: it has no body")
        # No entity is replaced and nothing is fetched; libxml2 limits depth and length.
        parser = lxml.etree.XMLParser(target=body, resolve_entities=False, no_network=True)
        taken = 0
        member = guarded(_WRONG, archive.open, document)
        while piece := guarded(_WRONG, member.read, _PIECE):
            taken += len(piece)
            if taken > _MOST or taken > max(base.FREE, base.RATIO * document.compress_size):
                raise Unreadable(f"unpacks to more than {taken >> 20} MiB of XML, which is too much for a document")
            guarded(_WRONG, parser.feed, piece)
            source.check_cancelled()
        guarded(_WRONG, parser.close)
    except Unreadable as error:
        source.damaged(str(error))
        return
    if not body.begun:
        source.damaged(f"{_WRONG}: it has no body")
    consumed(size)
    if text := sound("".join(body.out)).strip():
        yield Document(text, source.path)


def _archive(file: BinaryIO) -> zipfile.ZipFile:
    """The archive that a Word document is. Raises Unreadable, in words of a writer, who knows of no archive."""
    try:
        return zipfile.ZipFile(_Sips(file))
    except zipfile.BadZipFile as error:
        raise Unreadable(f"{_WRONG}: it is cut off or damaged; save it again as .docx, and add it again") from error


class _Sips:
    """A file that returns at most `_LISTED` bytes at once, because the archive itself declares the size of its list."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, _LISTED + 1) if size >= 0 else _LISTED + 1)
        if len(data) > _LISTED:
            raise Unreadable(f"{_WRONG}: its list of members is longer than {_LISTED >> 20} MiB")
        return data


class _Body:
    """Collects the text of a body: one line per paragraph; the cells of a row are separated by tabs."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.begun = False
        self._due = ""  # the separator between the collected text and the next text
        self._in_text = False
        self._left_out = 0  # depth inside content that is a duplicate for old programs

    def start(self, tag: str, attributes: Any) -> None:
        name = _local(tag)
        if name == "Fallback" or self._left_out:
            self._left_out += 1
        elif name == "body":
            self.begun = True
        elif name == "t":
            self._in_text = True
        elif name == "tab":
            self._say("\t")
        elif name in ("br", "cr"):
            self._say("\n")
        elif name == "noBreakHyphen":
            self._say("-")

    def end(self, tag: str) -> None:
        name = _local(tag)
        if self._left_out:
            self._left_out -= 1
        elif name == "t":
            self._in_text = False
        elif name == "p":
            self._due += "\n"
        elif name == "tc":
            self._due = self._due.removesuffix("\n") + "\t"
        elif name == "tr":
            self._due = self._due.removesuffix("\t") + "\n"

    def data(self, data: str) -> None:
        if self._in_text and not self._left_out:
            self._say(data)

    def close(self) -> None:
        pass

    def _say(self, text: str) -> None:
        if self.begun:
            self.out += [self._due, text]
            self._due = ""


def _local(tag: str) -> str:
    """A tag's name without its namespace, of which Word has two."""
    return tag.rpartition("}")[2]
