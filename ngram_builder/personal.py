"""Personal stores in and out: files into them, a portable file out and in again, several into one, a trie store."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import zstandard

from core.errors import InputError
from ngram_builder.pipeline import BuildReport, merge
from ngram_builder.readers import Damage, File, Reading, expand, read_file, spelled

if TYPE_CHECKING:
    from core.ngram import NgramStore
    from core.ngram.personal import PersonalStore, StoredText

FORMAT, VERSION = "polydraft personal store", 1

Progress = Callable[[float, str], None]


@dataclass
class Added:
    """What was put into a store.

    Attributes:
        files, tokens: read.
        damage: everything that could not be read.
    """

    files: int = 0
    tokens: int = 0
    damage: list[Damage] = field(default_factory=list)


def add(store: PersonalStore, sources: Iterable[str | Path], progress: Progress = lambda *_: None) -> Added:
    """Put the documents of files, folders and glob patterns into a store. A file that is in it already is replaced;
    each file goes in as a whole or not at all.

    Args:
        progress: called with the share done (0 to 1) and the file that is read.
    Raises: InputError when a source leads to no file; StoreError when the store cannot be written.
    """
    files, added = expand(sources), Added()
    for number, file in enumerate(files):
        begun, each = number / len(files), 1 / len(files)
        one = add_file(
            store, file, origin_of(file), lambda share, a=begun, b=each, f=str(file): progress(a + b * share, f)
        )
        added.files += one.files
        added.tokens += one.tokens
        added.damage += one.damage
    progress(1.0, "")
    return added


def add_file(
    store: PersonalStore, file: File, origin: str, progress: Callable[[float], None] = lambda _: None
) -> Added:
    """Put one file into a store in place of what came from the same origin before; but a file of which nothing can be
    read replaces nothing.

    Args:
        progress: called with the share of the file that was read (0 to 1), before it and then again and again, also
            within a document. What it raises ends the adding, and the store is as it was.
    """
    added, done = Added(), 0

    def consumed(size: int = 0) -> None:
        nonlocal done
        done += size
        progress(min(done / file.size, 1.0) if file.size else 0.0)

    def texts() -> Iterator[str]:
        found = False
        progress(0.0)
        for document in read_file(file, Reading(added.damage.append, consumed)):
            found = True
            yield document.text
        if added.damage and not found:
            raise _NothingRead

    with suppress(_NothingRead):
        added.tokens = store.add(origin, texts(), consumed)
        added.files = 1
    return added


class _NothingRead(Exception):
    """Takes the store's transaction back."""


def origin_of(file: Any) -> str:
    """What a file is called in a store: its whole path, so that it is found again from any folder; a URL as it is."""
    name = file.address if isinstance(file, File) else str(file)
    return spelled(name if "://" in name else str(Path(name).resolve()))


def export(store: PersonalStore, out: Path) -> int:
    """Write everything in a store to a portable file: JSON lines, packed as .zst, for any tokenizer. Returns the
    number of documents. Raises OSError when the disk refuses."""
    handle, name = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)  # private, as the store is
    written = 0
    try:
        compressor = zstandard.ZstdCompressor(write_checksum=True)
        with os.fdopen(handle, "wb") as file, compressor.stream_writer(file, closefd=False) as packed:
            packed.write(_line({"format": FORMAT, "version": VERSION}))
            for text in store.texts():
                packed.write(
                    _line({"origin": text.origin, "added": text.added, "times": text.times, "passages": text.passages})
                )
                written += 1
            packed.write(_line({"end": written}))  # a file that was cut short lacks it
            packed.flush(zstandard.FLUSH_FRAME)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(out)
    finally:
        Path(name).unlink(missing_ok=True)
    return written


def restore(store: PersonalStore, path: Path) -> int:
    """Put what `export` wrote into a store, but documents that are in it already. Returns the tokens put in.

    All or nothing. Raises InputError when the file is none of ours, or damaged; OSError when it cannot be read.
    """
    return store.restore(_exported(path))


def gather(stores: Iterable[PersonalStore], into: PersonalStore) -> int:
    """Put the documents of several stores into one, each once. Returns the tokens put in."""
    return sum(into.restore(store.texts()) for store in stores)


def compile_store(store: PersonalStore, out: Path, min_count: int = 1, exact: bool = True) -> BuildReport:
    """Write a store's counts, not its texts, as a trie store; what was forgotten is not in it.

    Raises: InputError when the store is empty; OSError when the disk refuses.
    """
    if not any(document.tokens for document in store.documents()):
        raise InputError(f"The store {store.name} is empty: there is nothing to compile.")
    return merge([cast("NgramStore", store)], out, min_count=min_count, exact=exact)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"


def _exported(path: Path) -> Iterator[StoredText]:
    from core.ngram.personal import MOST_TIMES, StoredText

    with path.open("rb") as file:
        lines = _lines(file, path)
        head = next(lines, {})
        if head.get("format") != FORMAT:
            raise InputError(f"{path} is no exported personal store.")
        if head.get("version") != VERSION:
            raise InputError(f"{path} has version {head.get('version')}; this program reads {VERSION}. Update it.")
        ended = False
        for number, entry in enumerate(lines, start=2):
            match entry:
                case {"end": int(documents)} if documents == number - 2 and not ended:
                    ended = True
                case {"origin": str(origin), "added": str(added), "times": int(times), "passages": [*passages]} if (
                    0 < times <= MOST_TIMES and all(isinstance(text, str) for text in passages)
                ):
                    yield StoredText(origin, added, times, tuple(passages))
                case _:
                    raise InputError(f"{path} is damaged: line {number} is no document. Nothing was put in.")
        if not ended:
            raise InputError(f"{path} is cut short. Nothing was put in.")


def _lines(file: Any, path: Path) -> Iterator[dict[str, Any]]:
    held = b""
    try:
        with zstandard.ZstdDecompressor().stream_reader(file) as unpacked:
            while piece := unpacked.read(1 << 20):
                *whole, held = (held + piece).split(b"\n")
                for line in whole:
                    entry = json.loads(line)
                    yield entry if isinstance(entry, dict) else {}
    except (zstandard.ZstdError, ValueError) as error:
        raise InputError(f"{path} is no exported personal store, or damaged ({error}). Nothing was put in.") from error
