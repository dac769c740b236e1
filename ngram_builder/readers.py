"""Documents out of files: RedPajama shards (.jsonl, .json, plain or .gz or .zst) and plain text (.txt, .md).

Everything streams. Damage never stops a reader: what can be read is read, and each thing that can't is handed
to `report` with file, line and reason. Knows nothing about tokens.
"""

from __future__ import annotations

import codecs
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import BinaryIO

import zstandard

from core.errors import InputError

PIECE = 1 << 20  # bytes read, and at most about as many decompressed, at a time
LONGEST_LINE = 1 << 26  # bytes; a longer line is damage, not a document
TEXT_PIECE = 1 << 23  # characters; longer plain files are taken as several documents

_JSON = (".jsonl", ".json", ".ndjson")
_TEXT = (".txt", ".md", ".markdown", ".rst", ".text")
_PACKED = (".gz", ".zst")

# RedPajama-1T keeps the text in "text", RedPajama-V2 (CCNet) in "raw_content".
_FIELDS = ("text", "raw_content")


@dataclass(frozen=True)
class Damage:
    """Something that could not be read. `line` counts from 1; 0 means the file as a whole."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}" if self.line else f"{self.path}: {self.reason}"


Report = Callable[[Damage], None]


def expand(sources: Iterable[str | Path]) -> list[Path]:
    """The files behind files, folders and glob patterns: in the order given, each folder's sorted by name,
    each once.

    From a folder, every file below it of a kind we read. Raises InputError when a source leads to no file.
    """
    files: dict[Path, None] = {}
    for source in sources:
        path = Path(source)
        if path.is_dir():
            found = [f for f in sorted(path.rglob("*")) if f.is_file() and _kind(f) and not f.name.startswith(".")]
        elif path.is_file():
            if _kind(path) is None:
                kinds = ", ".join((*_JSON, *_TEXT))
                raise InputError(f"{path} is of no kind we read. Known: {kinds}, each also with .gz or .zst.")
            found = [path]
        elif has_magic(str(source)):
            plain = next(i for i, part in enumerate(path.parts) if has_magic(part))
            pattern = str(Path(*path.parts[plain:]))
            found = [f for f in sorted(Path(*path.parts[:plain]).glob(pattern)) if f.is_file() and _kind(f)]
        else:
            raise InputError(f"{source} does not exist.")
        if not found:
            raise InputError(f"Nothing to read in {source}: no file of a kind we know.")
        files.update(dict.fromkeys(found))
    return list(files)


def documents(path: Path, report: Report) -> Iterator[str]:
    """The documents of one file, in order."""
    try:
        with path.open("rb") as file:
            pieces = _unpacked(file, path, report)
            if _kind(path) == "json":
                yield from _json_documents(pieces, path, report)
            else:
                yield from _text_documents(pieces, path, report)
    except OSError as error:
        report(Damage(str(path), 0, f"cannot be read: {error.strerror or error}"))


def _kind(path: Path) -> str | None:
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    return "json" if last in _JSON else "text" if last in _TEXT else None


def _unpacked(file: BinaryIO, path: Path, report: Report) -> Iterator[bytes]:
    """The file's bytes, decompressed; ends early, with a report, where the compressed stream is damaged."""
    packing = path.suffix.lower()
    if packing not in _PACKED:
        while piece := file.read(PIECE):
            yield piece
        return

    def fresh() -> zstandard.ZstdDecompressionObj | zlib._Decompress:
        return zstandard.ZstdDecompressor().decompressobj() if packing == ".zst" else zlib.decompressobj(wbits=31)

    name = packing[1:]
    stream, started = fresh(), False
    try:
        while piece := file.read(PIECE >> 4):
            while piece:
                started = True
                if data := stream.decompress(piece):
                    yield data
                if not stream.eof:
                    break
                piece = stream.unused_data  # shards are often several frames, one after the other
                stream, started = fresh(), False
    except (zstandard.ZstdError, zlib.error) as error:
        report(Damage(str(path), 0, f"no intact {name} stream: {error}"))
        return
    if started:
        report(Damage(str(path), 0, f"the {name} stream is cut off; what came before the cut was read"))


def _lines(pieces: Iterable[bytes], path: Path, report: Report) -> Iterator[tuple[int, bytes]]:
    """(line number, line without its end); a line longer than LONGEST_LINE is reported and passed over."""
    number, held, size, skipping = 1, [], 0, False
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for end in whole:
            if skipping:
                report(Damage(str(path), number, f"longer than {LONGEST_LINE >> 20} MiB"))
            else:
                yield number, b"".join([*held, end])
            number, held, size, skipping = number + 1, [], 0, False
        size += len(rest)
        skipping = skipping or size > LONGEST_LINE
        held = [] if skipping else [*held, rest] if rest else held
    if skipping:
        report(Damage(str(path), number, f"longer than {LONGEST_LINE >> 20} MiB"))
    elif held:
        yield number, b"".join(held)


def _json_documents(pieces: Iterable[bytes], path: Path, report: Report) -> Iterator[str]:
    for number, line in _lines(pieces, path, report):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        line = line.strip()
        if not line:
            continue
        text, reason = _text_of(line)
        if text is None:
            report(Damage(str(path), number, reason))
        elif text:
            yield text


def _text_of(line: bytes) -> tuple[str | None, str]:
    """The text in one line of JSON, or None and the reason why there is none."""
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
    for field in _FIELDS:
        if field in found:
            if isinstance(found[field], str):
                return found[field], ""
            return None, f'"{field}" is {type(found[field]).__name__}, not text'
    return None, 'no field "text" or "raw_content"'


def _text_documents(pieces: Iterable[bytes], path: Path, report: Report) -> Iterator[str]:
    """A plain file is one document; a very long one several, divided at blank lines."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    held, damaged = "", False
    for piece in pieces:
        text = decoder.decode(piece)
        damaged = damaged or ("\ufffd" in text and "\ufffd".encode() not in piece)
        held += text
        while len(held) > TEXT_PIECE:
            cut = held.rfind("\n\n", 1, TEXT_PIECE)
            cut = TEXT_PIECE if cut < 0 else cut + 2
            yield _plain(held[:cut])
            held = held[cut:]
    tail = decoder.decode(b"", final=True)
    if damaged or tail:
        report(Damage(str(path), 0, "not UTF-8 throughout; wrong bytes were replaced"))
    if held + tail:
        yield _plain(held + tail)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")
