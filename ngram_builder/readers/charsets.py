"""The encoding of a text that may name none, or a wrong one: marks, UTF-8, UTF-16 without a mark, and 8-bit encodings.

Western encodings share most of their letters with others, and short texts decide nothing by statistics: charset-
normalizer takes "café crème" for Polish. So an encoding of the West is taken if all its letters and marks stand where
people write them, and charset-normalizer finds the others among those in use.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

import charset_normalizer

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOST_MARKS = tuple(mark.encode() for mark in ("ÿþ", "þÿ"))  # UTF-16 that a program took for Latin-1
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_OTHERS = (
    "cp1250", "iso8859_2", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp932", "euc_jp",
    "gb18030", "big5", "cp949",
)  # fmt: skip
_SIGNS = "“”‘’‚„…–—•€£§°«»‹›¡¿ºª·©®™´¨½¼¾×²³µ†±¹÷¬¦¶‰ƒ\xa0\xad"
_WEST = "àâäáãåæçéèêëíìîïñóòôöõøœßúùûüýÿ"
_ANY = re.compile("")
# Encodings by their letters beyond ASCII, and what must be among them; the first that holds is taken.
_KNOWN = (
    ("cp1250", "áéíóöőúüű", re.compile("[őű].*[öü]|[öü].*[őű]", re.DOTALL | re.IGNORECASE)),
    ("cp1252", _WEST, _ANY),
    ("iso8859_15", _WEST + "šž", re.compile("€")),
    ("cp1254", "âîûçöüğışi̇", _ANY),
    ("cp1252", "äåöšžõü", _ANY),
    ("cp1252", "áéíóúýæöðþ", _ANY),
    *(
        (encoding, letters, _ANY)
        for letters in ("ąćęłńóśźż", "áčďéěíňóřšťúůýž")
        for encoding in ("cp1250", "iso8859_2")
    ),
    ("cp1257", "ąčęėįšųūžāēģīķļņ", _ANY),
    ("mac_roman", _WEST, _ANY),
    ("cp850", _WEST, _ANY),
)
_INNER = "".join(sign for sign in _SIGNS if sign not in "’´·\xad")  # signs that do not stand within a word
_ODD = re.compile(
    rf"[^\W\d_][{re.escape(_INNER)}][^\W\d_]|[^\Wl\d_]·|[a-z][{_WEST.replace('ß', '').replace('ÿ', '').upper()}]"
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_NOT_TEXT = frozenset(("Cc", "Cn", "Co", "Cs"))
NO_TEXT = "no text in an encoding that is known; save it as UTF-8, and add it again"
_SAMPLE = 1 << 14  # bytes that decide
_MOST_FOREIGN = 0.4  # of the letters of a Western text are not of ASCII at most
_MOST_WRONG = 0.2  # of the characters beyond ASCII are wrong at most in text that is UTF-8 all the same
_LATIN = ("iso8859-1", "cp1252")
_CLAIMED = (*_LATIN, "ascii", "utf-8")  # programs name these for text in any encoding
_IN_ASCII = ("utf-7", "hz", "iso2022")  # encodings that write all characters in ASCII begin so


def encoding_of(data: bytes, declared: str | None = None) -> str | None:
    """The codec of a text from its first bytes, which may end within a character; None for what is no text.

    Args:
        declared: the codec that the text itself names. It counts if the text is not UTF-8. One that programs name for
            any text counts only if no other is found.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    if data.startswith(_LOST_MARKS):
        return None
    if declared and declared.startswith(_IN_ASCII) and data.isascii():
        return declared
    named = None if declared in _CLAIMED else declared
    head = data[:_SAMPLE].rstrip(b"\0")  # a disk that was full leaves zeros at the end
    few = len(_CONTROLS.findall(head)) * 20 <= len(head)
    is_utf8 = _is_utf8(data, 1 if declared == "utf-8" else _MOST_WRONG)
    if not few or (b"\0" in head and not is_utf8):
        return _wide(data[:_SAMPLE]) or named
    if b"\x1b$" in data or b"\x1b(" in data:
        return "iso2022_jp"
    if is_utf8:
        return "utf-8"
    return named or _narrow(_sample(data)) or ("cp1252" if declared in _LATIN else declared)


def _is_utf8(data: bytes, most_wrong: float) -> bool:
    """Whether bytes are UTF-8, but for a cut character at the end and a few wrong bytes among many of its letters."""
    try:
        data.decode("utf-8", "surrogatepass")  # some programs write halves of surrogate pairs
        return True
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and error.end == len(data) and not data[: error.start].isascii():
            return True
    text = data.decode("utf-8", "backslashreplace")
    wrong = text.count("\\x") - data.count(b"\\x")
    beyond = len(text) - len(text.encode("ascii", "ignore"))
    return wrong <= most_wrong * beyond


def decoded(data: bytes, declared: str | None = None) -> str | None:
    """A whole text; None for what is no text. Wrong bytes become U+FFFD."""
    encoding = encoding_of(data, declared)
    return None if encoding is None else data.decode(encoding, "replace")


def charset(name: str) -> str | None:
    """The codec that a page or a mail names, or None if it is not a text encoding.

    Python also has codecs that are not: `unicode_escape` and `idna` decode programs and host names, others unpack.
    """
    try:
        "".encode(name)  # refuses codecs that are no text encodings
        codec = codecs.lookup(name)
    except (LookupError, ValueError):  # a zero byte in the name is a ValueError
        return None
    named = codec.name.replace("-", "_")
    no_text = named in ("unicode_escape", "raw_unicode_escape", "idna", "punycode", "undefined")
    return None if no_text else codec.name


def _wide(data: bytes) -> str | None:
    """The form of UTF-16 or UTF-32 with the most spaces and letters of ASCII, if all its characters are text's."""
    best: tuple[int, str] | None = None
    for encoding in _WIDE:
        size = 2 if "16" in encoding else 4
        try:
            text = data[: len(data) // size * size].decode(encoding)
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                continue
            text = data[: error.start].decode(encoding)
        plain = len(text.encode("ascii", "ignore"))
        if text and _is_text(text) and (best is None or plain > best[0]):
            best = plain, encoding
    return best[1] if best and best[0] else None


def _is_text(text: str) -> bool:
    return all(character in "\t\n\r\f\ufeff" or unicodedata.category(character) not in _NOT_TEXT for character in text)


def _sample(data: bytes) -> bytes:
    """Lines with bytes beyond ASCII."""
    lines, size = list[bytes](), 0
    for line in data.splitlines(keepends=True):
        if not line.isascii():
            lines.append(line[:_SAMPLE])
            size += len(lines[-1])
        if size > _SAMPLE:
            break
    return b"".join(lines)


def _narrow(data: bytes) -> str | None:
    for encoding, own, needed in _KNOWN:
        text = _strictly(data, encoding)
        beyond = {character for character in text if not character.isascii()}
        letters = sum(map(str.isalpha, text))
        foreign = sum(character.isalpha() and not character.isascii() for character in text)
        if (
            beyond
            and beyond <= {*own, *own.upper(), *_SIGNS}
            and needed.search(text)
            and not _ODD.search(text)
            and foreign <= max(_MOST_FOREIGN * letters, 1)
        ):
            return encoding
    for encoding in ("euc_jp", "cp932"):
        text = _strictly(data, encoding)
        if 5 * sum("\u3040" <= character <= "\u30ff" for character in text) > len(text):
            return encoding
    found = charset_normalizer.from_bytes(data, cp_isolation=list(_OTHERS)).best()
    return found.encoding if found else None


def _strictly(data: bytes, encoding: str) -> str:
    """The text, or "" if these bytes are not of this encoding."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return ""


# The letters of cp1252, and of the bytes that it lacks, as programs have them that mistake UTF-8 for it.
_BYTES = {bytes((byte,)).decode("latin-1"): byte for byte in range(256)} | {
    character: byte for byte in range(256) if (character := bytes((byte,)).decode("cp1252", "ignore"))
}
_TWICE = re.compile("[ÂÃÄÅÎÏÐÑØÙâãð][^\\x00-\\x7f]")


def undoubled(text: str) -> str:
    """A text of which some lines were encoded twice ("cafÃ©"), with these decoded twice."""
    if not _TWICE.search(text):
        return text
    return "".join(_undoubled(line) if _TWICE.search(line) else line for line in text.splitlines(keepends=True))


def _undoubled(line: str) -> str:
    try:
        return bytes(map(_BYTES.__getitem__, line)).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return line
