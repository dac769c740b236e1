"""The bytes of a document's text in its file, as other programs write it, too; and the name of that file."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from app.documents.notes import OPENING, Entry

NAME = 60  # characters of a file's name
KEPT_MARKS = "_,.'’()&+-"  # in a file's name
JOINERS = "\u200c\u200d"  # of letters, in Persian and in Indian scripts
RESERVED = re.compile(r"(con|prn|aux|nul|(com|lpt)[\d¹²³])\s*(\..*)?", re.IGNORECASE)  # names of devices on Windows
MARK = b"\xef\xbb\xbf"  # the byte order mark, with which some programs begin a text in UTF-8


def file_name(entry: Entry) -> str:
    """A file name, without its ending, that every system can store."""
    name = ""
    for letter in unicodedata.normalize("NFC", entry.title or entry.opening):
        kind = unicodedata.category(letter)[0]
        # A mark belongs to the letter before it; a joiner stands between the letters of one word.
        joins = (kind == "M" or letter in JOINERS) and name[-1:] not in ("", " ")
        name += letter if kind in "LN" or letter in KEPT_MARKS or joins else " "
    cut = NAME
    while cut < len(name) and unicodedata.category(name[cut])[0] == "M":
        cut -= 1  # so that no letter loses its marks
    name = " ".join(name[: cut or NAME].split()).strip(" ." + JOINERS)
    return "Untitled" if not name or RESERVED.fullmatch(name) else name


def folded(name: str) -> str:
    """What a file system that ignores case, and forms of a letter, compares."""
    return unicodedata.normalize("NFKC", name).casefold()


def is_numbered(stem: str, name: str) -> bool:
    return re.fullmatch(re.escape(name) + r" \(\d+\)", stem) is not None


def opening_of(text: str) -> str:
    return next((line.strip()[:OPENING] for line in text[:10_000].splitlines() if line.strip()), "")


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def decoded(data: bytes) -> str:
    """Decodes text as other programs write it: UTF-8, UTF-16 with a byte order mark, or else a Western single-byte
    code. Lines end with "\\n"."""
    return in_lines(_text_of(data))[0]


def _text_of(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def encoded(text: str, old: bytes) -> bytes:
    """The bytes of a text that takes the place of another one: the old ones if the text is the same."""
    before = _text_of(old)
    if old and in_lines(before)[0] == text:
        return old
    ends = before.count("\n"), before.count("\r")
    if ends[0] and ends == (before.count("\r\n"),) * 2:
        text = text.replace("\n", "\r\n")
    elif ends[1] and not ends[0]:
        text = text.replace("\n", "\r")
    # Of two marks, reading drops the first: a text may itself begin with this character.
    mark = MARK if old.startswith(MARK) or text.startswith("\ufeff") else b""
    return mark + text.encode("utf-8", "replace")


def in_lines(text: str, ranges: list[list[int]] | None = None) -> tuple[str, list[list[int]]]:
    """A text whose lines end with "\\n", as in the page's field, and these ranges of it in UTF-16 units."""
    if "\r" not in text:
        return text, ranges or []
    data = text.encode("utf-16-le", "surrogatepass")
    places = [[at - data[: 2 * at].decode("utf-16-le", "replace").count("\r\n") for at in one] for one in ranges or []]
    return text.replace("\r\n", "\n").replace("\r", "\n"), places
