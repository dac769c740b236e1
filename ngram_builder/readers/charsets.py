"""Text whose declared encoding may be missing or wrong, as in mail."""

from __future__ import annotations

import codecs
import re

# Encodings that are considered for text that names none, or a wrong one: those that mail was written in.
_LIKELY = [
    "cp1252", "cp1250", "cp1251", "koi8_r", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr", "cp1253", "cp1254",
    "cp1255", "cp1256",
]  # fmt: skip
_SAMPLE = 1 << 14  # bytes of a text by which its encoding is found
# Of what is neither ASCII, all that Western languages use: text in another encoding has other characters too.
_WESTERN = re.compile(
    r"(?:[À-ÏÑ-ÖØ-Üß-ïñ-öø-üÿŒœŠšŽžŸ‘’“”„‚«»‹›–—…€£§°·•©®™¡¿\xa0\x00-\x7f]|(?<![^\W\d_])[½¼¾²³µ±×÷ºª´](?![^\Wm\d_]))*+"
)
_LETTER = re.compile(r"[^\W\d_]")
_FOREIGN_LETTER = re.compile(r"[^\W\d_a-zA-Z]")
_WRONG = re.compile("\ufffd+")
_LATIN = ("latin_1", "iso8859-1", "cp1252")  # what programs name, whatever the encoding is


def decoded(data: bytes, codec: str) -> str:
    """Text in the encoding that a mail names, or in another one if it cannot be in that: programs name ASCII, Latin-1
    or UTF-8 for any text. What cannot be decoded is U+FFFD."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if not codec.startswith("utf-16") and not codec.startswith("utf-32") and data.count(0) * 4 > len(data):
        return data.decode("utf-16-be" if data[::2].count(0) > data[1::2].count(0) else "utf-16-le", "replace")
    latin = codec in _LATIN
    for encoding in ("utf-8",) if latin or codec == "ascii" else (codec, "utf-8"):
        try:
            return data.decode(encoding)
        except UnicodeError:
            continue
    text = data.decode("utf-8" if latin or codec == "ascii" else codec, "replace")
    if len(_WRONG.findall(text)) <= len(_FOREIGN_LETTER.findall(text)):
        return text  # a few wrong bytes
    first = next((number for number, byte in enumerate(data) if byte > 127), 0)
    sample = data[max(first - _SAMPLE // 2, 0) :][:_SAMPLE]
    letters = _LETTER.findall(sample.decode("cp1252", "replace"))
    western = data.decode("cp1252", "replace")
    if sum(map(str.isascii, letters)) * 3 >= len(letters) * 2 and (latin or _WESTERN.fullmatch(western)):
        return western
    import charset_normalizer  # here, because nearly no mail needs it

    found = charset_normalizer.from_bytes(sample, cp_isolation=_LIKELY).best()
    return data.decode(found.encoding if found else "cp1252" if latin else codec, "replace")
