"""JSON lines: RedPajama-1T keeps the text in "text", RedPajama-V2 (CCNet) in "raw_content". A file whose first line is
no such object is read as a whole: a chat, or documents in one list."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from ngram_builder.readers import base, charsets, chats
from ngram_builder.readers.base import Document, Source, sound
from ngram_builder.readers.packed import lines

_FIELDS = ("text", "raw_content")
_PLAIN = 1 << 22  # characters of a line outside strings
_WHOLE = 1 << 24  # of a file that is read as a whole
_LONG = f"a file without lines longer than {base.LONGEST >> 20} MiB"
_TRIED = 100  # lines among which a line of JSON lines is looked for, if the first is none
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def json_documents(
    pieces: Iterable[bytes], source: Source, wanted: Callable[[int], bool] | None = None
) -> Iterator[Document]:
    """Yields the texts of JSON lines. `wanted` is called for every non-empty line, in order, with its number 0, 1, …"""
    rest = lines(pieces, source)
    held = list[tuple[int, bytes]]() if wanted else _unlike_lines(rest)
    if held and not _is_document(next((each for each in held if each[1].strip()), held[0])):
        whole = b"\n".join(line for _, line in held)
        parsed, reason = _parsed(whole) if len(whole) <= base.LONGEST else (None, _LONG)
        lines_alike = sum(bool(line.strip()) for _, line in held) == 1 or any(map(_is_document, held[:_TRIED]))
        if not reason or not lines_alike:
            yield from _whole(parsed, reason, source)
            return
    position = -1
    for number, line in chain(held, rest):
        line = _bare(number, line)
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


def _bare(number: int, line: bytes) -> bytes:
    return (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip()


def _unlike_lines(rest: Iterator[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The lines of a file whose first line is no document, up to LONGEST bytes; else the first line alone."""
    held, size, first = list[tuple[int, bytes]](), 0, True
    for number, line in rest:
        held.append((number, line))
        size += len(line) + 1
        if size > base.LONGEST or (first and _is_document((number, line))):
            break
        first = first and not line.strip()
    return held


def _is_document(numbered: tuple[int, bytes]) -> bool:
    """Whether a line is the object of a document."""
    found, _ = parse(_bare(*numbered))
    return found is not None and any(field in found for field in _FIELDS)


def _parsed(data: bytes) -> tuple[Any, str]:
    """The value of JSON that a whole file is, in any encoding."""
    text = charsets.decoded(data)
    return (None, "not JSON") if text is None else parse_any(text.encode("utf-8", "surrogatepass"), _WHOLE)


def _whole(parsed: Any, reason: str, source: Source) -> Iterator[Document]:
    """The documents of a file that is one value of JSON."""
    if not reason and (messages := chats.of_json(parsed)) is not None:
        yield from chats.documents(messages, source)
        return
    objects = [each for each in (parsed if isinstance(parsed, list) else [parsed]) if isinstance(each, dict)]
    found = [(number, each, text) for number, each in enumerate(objects, 1) if (text := _text_of(each)[0])]
    for number, each, text in found:
        yield Document(text, source.path, number, _name_of(each))
    if not found:
        source.damaged(reason or 'JSON of no kind that is read: neither documents with "text" nor a known chat')


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
    parsed, reason = parse_any(line, plain)
    if not reason and not isinstance(parsed, dict):
        return None, f"a JSON object expected, {type(parsed).__name__} found"
    return parsed, reason


def parse_any(line: bytes, plain: int | None = None) -> tuple[Any, str]:
    """The value of JSON in these bytes, or None and the reason; see `parse`."""
    plain = plain or _PLAIN
    try:
        text = line.decode("utf-8")
        # A list of small values takes thirty times its length in memory.
        if len(text) > plain and _is_more_outside(text, plain):
            return None, f"more than {plain >> 20} MiB of JSON outside its strings"
        return json.loads(text), ""
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 (byte {error.start} of the line)"
    except json.JSONDecodeError as error:
        return None, f"not JSON ({error.msg} at character {error.pos})"
    except (ValueError, RecursionError) as error:
        return None, f"unreadable JSON ({error})"


def _is_more_outside(text: str, most: int) -> bool:
    """Whether more than `most` characters are outside strings. Holds no list of the strings, which may be millions."""
    inside = 0
    for string in _STRING.finditer(text):
        if string.start() - inside > most:
            return True
        inside += string.end() - string.start()
    return len(text) - inside > most
