"""Rich text (.rtf) of TextEdit, WordPad, Scrivener and old versions of Word, as a reader of the page sees it: without
headers, footers, notes, comments, deleted and hidden text. The grammar is that of Microsoft's RTF specification 1.9.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ngram_builder.readers.base import LONGEST, Document, Source, sound
from ngram_builder.readers.letters import GENERATED_FIELD
from ngram_builder.readers.packed import CutOff

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,9})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|([^\\{}\r\n]+)", re.DOTALL
)
_PICTURES = 8  # a document with pictures may be longer than its text, by this factor
# Groups whose text is not on the page, besides those that begin with \*.
_UNSEEN = frozenset(
    b"fonttbl colortbl stylesheet info pict objdata objclass objname header headerl headerr headerf footer footerl "
    b"footerr footerf footnote annotation fldinst xe tc rxe txe nonshppict pntext listtext pgdsctbl private".split()
)
_MARKS = {
    b"par": "\n", b"line": "\n", b"sect": "\n", b"page": "\n", b"row": "\n", b"nestrow": "\n", b"tab": "\t",
    b"cell": "\t", b"nestcell": "\t", b"emdash": "—", b"endash": "–", b"bullet": "•", b"lquote": "‘", b"rquote": "’",
    b"ldblquote": "“", b"rdblquote": "”", b"emspace": " ", b"enspace": " ", b"qmspace": " ",
    b"~": "\xa0", b"_": "\u2011", b"\n": "\n", b"\r": "\n", b"{": "{", b"}": "}", b"\\": "\\",
}  # fmt: skip
_CHARSETS = {
    b"77": "mac_roman", b"128": "cp932", b"129": "cp949", b"130": "johab", b"134": "gbk", b"136": "big5",
    b"161": "cp1253", b"162": "cp1254", b"163": "cp1258", b"177": "cp1255", b"178": "cp1256", b"186": "cp1257",
    b"204": "cp1251", b"222": "cp874", b"238": "cp1250", b"254": "cp437", b"255": "cp850",
}  # fmt: skip
_PAGES = {b"65001": "utf-8", b"10000": "mac_roman"}  # whose names are not those of Python


def rtf_documents(pieces: Iterable[bytes], source: Source) -> Iterator[Document]:
    """The document, as one text."""
    data = bytearray()
    try:
        for piece in pieces:
            data += piece
            if len(data) > _PICTURES * LONGEST:
                source.damaged(f"longer than {_PICTURES * LONGEST >> 20} MiB, which is too much for a document")
                return
    except CutOff:  # reported; the part before it is read
        pass
    if not data.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"{\\rtf"):
        source.damaged(r"no rich text: it does not begin with {\rtf")
        return
    reader = _Reader(source)
    reader.read(bytes(data))
    if reader.depth:
        source.damaged("cut off; the part before was read")
    text = re.sub(r"\t(?=\n|\Z)", "", sound("".join(reader.out))).strip()  # the last cell of a row ends with a tab, too
    if text:
        yield Document(text, source.path)


@dataclass(frozen=True)
class _Group:
    """What a `}` restores: whether the text is not on the page (as a group, as hidden letters, as deleted ones), its
    encoding, how many letters stand in for one of Unicode, and what the group is, where that matters."""

    unseen: bool = False
    hidden: bool = False
    deleted: bool = False
    encoding: str = ""  # of the document
    stand_ins: int = 1
    kind: bytes = b""


class _Reader:
    """Collects the text of a document in `out`. `depth` is the number of open groups."""

    def __init__(self, source: Source) -> None:
        self.out: list[str] = []
        self._source = source
        self._groups = [_Group()]
        self._bytes = bytearray()  # of letters in an old encoding; one letter may take two
        self._encoding = "cp1252"
        self._fonts: dict[bytes, str] = {}
        self._font = b""  # the entry of the table that is being read
        self._instruction = ""  # of the innermost field
        self._skip = 0  # stand-ins to leave out

    @property
    def depth(self) -> int:
        return len(self._groups) - 1

    def read(self, data: bytes) -> None:
        at = tokens = 0
        while match := _TOKEN.search(data, at):
            at, tokens = match.end(), tokens + 1
            word, value, code, mark, brace, text = match.groups()
            if code:
                self._letters(bytes.fromhex(code.decode()))
            elif text:
                self._letters(text)
            elif brace == b"{":
                self._flush()
                self._groups.append(self._groups[-1])
            elif brace:
                self._flush()
                self._groups.pop()
                self._skip = 0
                if not self.depth:
                    break  # what follows the document belongs to no document
            elif word == b"bin":
                at += max(int(value or 0), 0)
            elif mark == b"*":
                self._set(unseen=True)
            else:
                self._flush()
                self._control(word or mark, value)
            if not tokens % 4096:
                self._source.check_cancelled()
        self._flush()

    def _control(self, word: bytes, value: bytes | None) -> None:
        group, on = self._groups[-1], value != b"0"
        if word == b"u" and value is not None:
            self._say(chr(int(value) & 0xFFFF))  # halves of pairs are joined at the end
            self._skip = group.stand_ins
            return
        if self._skip:  # a control word may be a stand-in
            self._skip -= 1
        elif word in _MARKS:
            if word in (b"cell", b"nestcell") and self.out[-1:] == ["\n"]:
                self.out.pop()  # of the cell's last paragraph
            self._say(_MARKS[word])
        elif word in _UNSEEN:
            self._set(unseen=True, kind=word)
            if word == b"fldinst":
                self._instruction = ""
        elif word == b"fldrslt" and GENERATED_FIELD.match(self._instruction):
            self._set(unseen=True)
        elif word == b"v":
            self._set(hidden=on)
        elif word == b"deleted":
            self._set(deleted=on)
        elif word == b"plain":
            self._set(hidden=False, deleted=False, encoding="")
        elif word == b"uc":
            self._set(stand_ins=min(int(value or 1), 8))
        elif word == b"f" and group.kind == b"fonttbl":
            self._font = value or b""
        elif word == b"f":
            self._set(encoding=self._fonts.get(value or b"", ""))
        elif word == b"fcharset" and (value or b"") in _CHARSETS:
            self._fonts[self._font] = _CHARSETS[value or b""]
        elif word in (b"mac", b"pc", b"pca"):
            self._encoding = {b"mac": "mac_roman", b"pc": "cp437", b"pca": "cp850"}[word]
        elif word == b"ansicpg" and value:
            name = _PAGES.get(value, f"cp{value.decode()}")
            try:
                self._encoding = codecs.lookup(name).name
            except LookupError:
                self._source.damaged(f"the code page {value.decode()} is not known; read as {self._encoding}")

    def _letters(self, letters: bytes) -> None:
        skipped = min(self._skip, len(letters))
        self._skip -= skipped
        if self._groups[-1].kind == b"fldinst":
            self._instruction += letters[skipped:].decode("ascii", "replace")
        else:
            self._bytes += letters[skipped:]

    def _flush(self) -> None:
        if self._bytes:
            self._say(self._bytes.decode(self._groups[-1].encoding or self._encoding, "replace"))
            self._bytes.clear()

    def _say(self, text: str) -> None:
        group = self._groups[-1]
        if not (group.unseen or group.hidden or group.deleted):
            self.out.append(text)

    def _set(self, **changes: Any) -> None:
        self._groups[-1] = replace(self._groups[-1], **changes)
