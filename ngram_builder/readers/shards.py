"""JSON lines: RedPajama-1T keeps the text in "text", RedPajama-V2 (CCNet) in "raw_content"."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ngram_builder.readers.base import Damage, Document, Report
from ngram_builder.readers.packed import lines

_FIELDS = ("text", "raw_content")


def json_documents(
    pieces: Iterable[bytes], path: str, report: Report, wanted: Callable[[int], bool] | None = None
) -> Iterator[Document]:
    """`wanted` is asked for every line with something in it, in order, whether its document is: 0, 1, …"""
    position = -1
    for number, line in lines(pieces, path, report):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        line = line.strip()
        if not line:
            continue
        position += 1
        if wanted is not None and not wanted(position):
            continue
        text, reason = _text_of(line)
        if text is None:
            report(Damage(path, number, reason))
        elif text:
            yield Document(text, path, number)


def _text_of(line: bytes) -> tuple[str | None, str]:
    """The text in one line of JSON, or None and the reason why there is none."""
    found, reason = parse(line)
    if found is None:
        return None, reason
    for field in _FIELDS:
        if field in found:
            if isinstance(found[field], str):
                return _sound(found[field]) if b"\\ud" in line.lower() else found[field], ""
            return None, f'"{field}" is {type(found[field]).__name__}, not text'
    return None, 'no field "text" or "raw_content"'


def _sound(text: str) -> str:
    """Halves of surrogate pairs, which JSON can spell and UTF-8 can not, become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The JSON object in a line, or None and the reason why there is none."""
    try:
        found = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 (byte {error.start} of the line)"
    except json.JSONDecodeError as error:
        return None, f"not JSON ({error.msg} at character {error.pos})"
    except (ValueError, RecursionError) as error:
        return None, f"not JSON we can read ({error})"
    if not isinstance(found, dict):
        return None, f"a JSON object expected, {type(found).__name__} found"
    return found, ""
