"""The note of a document that is kept as a file: everything about it but its text, as JSON.

Other programs may damage notes, so they are read through a strict model: a note is sound as a whole, or `Damaged`. A
newer Polydraft may write fields that this one does not know; they stay in the note.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from core.errors import InputError

VERSION = 1  # of what a note contains
OPENING = 80  # characters of the first line used as a title
MOST_STORES = 64  # that one document uses
MOST_TITLE = 1000  # characters; a file's name has 255 at most, and copies of copies add to it
MOST_BACKGROUND = 1 << 18  # UTF-16 units, as the page counts; see background.js
MOST_NEVER = 1 << 18  # characters, of which the page counts at least as many units; see never.js
MOST_NOTE = 4 << 20  # bytes; 10,000 private ranges are 300 kB
ID = re.compile(r"[0-9a-f][0-9a-f-]{7,63}")


def _plain(name: str) -> str:
    """Checks that a note's file name stays inside its folder."""
    if name in (".", "..") or re.search(r"[/\\\0]", name):
        raise ValueError("a name without a folder expected")
    return name


def units(text: str) -> int:
    """The length of a text in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def joined(ranges: Iterable[Sequence[int]]) -> list[list[int]]:
    """Sorts ranges, joins those that touch, and drops empty ones."""
    ranges_joined: list[list[int]] = []
    for start, end in sorted((start, end) for start, end in ranges if start < end):
        if ranges_joined and start <= ranges_joined[-1][1]:
            ranges_joined[-1][1] = max(ranges_joined[-1][1], end)
        else:
            ranges_joined.append([start, end])
    return ranges_joined


def short_background(text: str) -> str:
    """Checks a background in the page's unit: the file has one character where the page may count two."""
    if (given := units(text)) > MOST_BACKGROUND:
        raise ValueError(f"it has {given:,} characters; a background has at most {MOST_BACKGROUND:,}")
    return text


def _range(given: list[int]) -> list[int]:
    if given[0] > given[1]:
        raise ValueError("the start before the end expected")
    return given


_Whole = Annotated[int, Field(ge=-(1 << 53), le=1 << 53)]  # as a number of JavaScript
_Time = _Whole  # ms since 1970
_Stamp = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]  # ns since 1970, or bytes
_Digest = Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]
_File = Annotated[str, Field(min_length=1, max_length=4096)]
_Count = Annotated[int, Field(ge=0, le=1 << 53)]
_Range = Annotated[list[_Count], Field(min_length=2, max_length=2), AfterValidator(_range)]


@dataclass
class Entry:
    """One document without its text.

    Attributes:
        id: a UUID of the page or of this folder.
        title: given by the writer, or empty; `opening` is used in place of an empty title.
        opening: the beginning of the first line that is not empty.
        words: counted at spaces.
        caret: start and end of the selection, in UTF-16 units as the page counts.
        private: ranges that were typed in incognito, in UTF-16 units.
        unsure: whether all of the text is private, because another program wrote it and it may contain private text.
        keys: the page's counters for the number of keys that drafts have saved.
        stores: files of base stores that this document uses beside those that every document uses; "default" is the one
            that comes with Polydraft.
        background: text that the model reads before the document, and that is no part of it.
        never: the words and phrases that no draft of it contains, one a line.
        created, changed: ms since 1970.
        binned: when the document went into the bin, in ms since 1970; None outside the bin.
        file: the text's name in the folder, or in bin/.
        digest, stamp: SHA-256 of the file's bytes, and the size and time at which it was computed.
        coming: the digest and the private ranges of the text that is being written, so that a crash loses no range.
        missing: when the file was first not found, in ms since 1970; None while it is there.
        version: of the Polydraft that wrote the note; see `VERSION`.
        unknown: what a newer one wrote into the note beside these fields.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)

    id: Annotated[str, Field(pattern=f"^{ID.pattern}$")]
    title: Annotated[str, Field(max_length=MOST_TITLE)] = ""
    opening: Annotated[str, Field(max_length=2 * OPENING)] = ""
    words: _Count = 0
    caret: Annotated[list[_Count], Field(min_length=2, max_length=2)] = field(default_factory=lambda: [0, 0])
    private: Annotated[list[_Range], Field(max_length=10_000)] = field(default_factory=list)
    unsure: bool = False
    keys: Annotated[dict[str, _Whole], Field(max_length=8)] = field(default_factory=dict)
    stores: Annotated[list[_File], Field(max_length=MOST_STORES)] = field(default_factory=list)
    background: Annotated[str, Field(max_length=MOST_BACKGROUND)] = ""
    never: Annotated[str, Field(max_length=MOST_NEVER)] = ""
    created: _Time = 0
    changed: _Time = 0
    binned: _Time | None = None
    file: Annotated[str, Field(max_length=300), AfterValidator(_plain)] = ""
    digest: _Digest = ""
    stamp: Annotated[list[_Stamp], Field(max_length=2)] = field(default_factory=list)
    coming: tuple[_Digest, Annotated[list[_Range], Field(max_length=10_000)]] | None = None
    missing: _Time | None = None
    version: Annotated[int, Field(ge=1, le=1 << 53)] = VERSION
    unknown: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def hides(self) -> bool:
        """Whether some of the text is private, or may be."""
        return self.unsure or bool(self.private)


_MODEL = TypeAdapter(Entry)


class Damaged(InputError):
    """A note that cannot be read. The message says why, and repeats nothing of what is in it."""


def as_note(entry: Entry) -> bytes:
    """The note of a document. Raises InputError when a field is out of range, so that it could not be read again."""
    fields = asdict(entry)
    unknown = fields.pop("unknown")
    note = json.dumps(unknown | fields, ensure_ascii=False).encode("utf-8", "replace")
    try:
        _MODEL.validate_json(note)
    except ValidationError as error:
        raise InputError(f"A document cannot be kept: {_reason(error)}.") from None
    return note


def read_note(path: Path) -> Entry | None:
    """The document of a note; None if there is no such note. Raises Damaged."""
    data = b""
    try:
        data = _read_plain(path, MOST_NOTE)
        entry = _MODEL.validate_json(data)
        fields = json.loads(data)
    except FileNotFoundError:
        return None
    except ValidationError as error:
        newer = re.search(rb'"version": ?(\d{1,9})\b', data)
        if newer and int(newer[1]) > VERSION:
            raise Damaged(
                f"The note {path.name} in {path.parent} is one of a newer Polydraft. Update this one."
            ) from None
        raise Damaged(f"The note {path.name} in {path.parent} is damaged ({_reason(error)}).") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Damaged(f"The note {path.name} in {path.parent} cannot be read ({reason}).") from None
    entry.unknown = {name: fields[name] for name in fields.keys() - Entry.__dataclass_fields__.keys()}
    if entry.id != path.stem or not entry.file:
        raise Damaged(f"The note {path.name} in {path.parent} belongs to another document.")
    return entry


def _reason(error: ValidationError) -> str:
    """The first mistake, in words, without the value."""
    first: Any = error.errors(include_input=False, include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" if field else "it is not a JSON object"


def _read_plain(path: Path, most: int) -> bytes:
    """The bytes of a plain file. Does not wait for the writer of a pipe, and follows no link.

    Raises: OSError; ValueError if it is no plain file, or has more than `most` bytes.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise ValueError("it is no plain file")
        if state.st_size > most:
            raise ValueError(f"it has {state.st_size:,} bytes; {most:,} at most")
        return file.read(most)
