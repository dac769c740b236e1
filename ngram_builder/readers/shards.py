"""JSON lines: RedPajama-1T keeps the text in "text", RedPajama-V2 (CCNet) in "raw_content"."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ngram_builder.readers.base import Document, Source, sound
from ngram_builder.readers.packed import lines

_FIELDS = ("text", "raw_content")
_PLAIN = 1 << 22  # characters of a line outside strings
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def json_documents(
    pieces: Iterable[bytes], source: Source, wanted: Callable[[int], bool] | None = None
) -> Iterator[Document]:
    """Yields the texts of JSON lines. `wanted` is called for every non-empty line, in order, with its number 0, 1, …"""
    position = -1
    for number, line in lines(pieces, source):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        line = line.strip()
        if not line:
            continue
        position += 1
        if wanted is not None and not wanted(position):
            continue
        line_object, reason = parse(line)
        text, reason = (None, reason) if line_object is None else _text_of(line_object)
        if line_object is None or text is None:
            source.damaged(reason, number)
        elif text:
            yield Document(text, source.path, number, _name_of(line_object))


def _text_of(document: dict[str, Any]) -> tuple[str | None, str]:
    """The text in the object of a line, or None and the reason."""
    for field in _FIELDS:
        if field in document:
            if isinstance(document[field], str):
                return sound(document[field]), ""  # JSON can contain halves of surrogate pairs
            return None, f'"{field}" is {type(document[field]).__name__}, not text'
    return None, 'no field "text" or "raw_content"'


def _name_of(document: dict[str, Any]) -> str:
    meta = document.get("meta")
    name = meta.get("name") if isinstance(meta, dict) else None
    return sound(name) if isinstance(name, str) else ""


def parse(line: bytes, plain: int | None = None) -> tuple[dict[str, Any] | None, str]:
    """The JSON object in a line, or None and the reason. `plain` limits the characters outside strings."""
    plain = plain or _PLAIN
    try:
        text = line.decode("utf-8")
        # A list of small values takes thirty times its length in memory.
        if len(text) > plain and _is_more_outside(text, plain):
            return None, f"more than {plain >> 20} MiB of JSON outside its strings"
        parsed = json.loads(text)
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 (byte {error.start} of the line)"
    except json.JSONDecodeError as error:
        return None, f"not JSON ({error.msg} at character {error.pos})"
    except (ValueError, RecursionError) as error:
        return None, f"unreadable JSON ({error})"
    if not isinstance(parsed, dict):
        return None, f"a JSON object expected, {type(parsed).__name__} found"
    return parsed, ""


def _is_more_outside(text: str, most: int) -> bool:
    """Whether more than `most` characters are outside strings. Holds no list of the strings, which may be millions."""
    inside = 0
    for string in _STRING.finditer(text):
        if string.start() - inside > most:
            return True
        inside += string.end() - string.start()
    return len(text) - inside > most
