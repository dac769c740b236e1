"""Import into and export from personal stores: files, a portable file, merging stores, compiling a trie store."""

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
    """The result of adding to a store.

    Attributes:
        files, tokens: numbers of both that were read.
        damage: everything that could not be read.
    """

    files: int = 0
    tokens: int = 0
    damage: list[Damage] = field(default_factory=list)


def add(store: PersonalStore, sources: Iterable[str | Path], progress: Progress = lambda *_: None) -> Added:
    """Adds the documents of files, folders and glob patterns to a store. A file that the store already has is replaced;
    each file is added as a whole or not at all.

    Args:
        progress: called with the share done (0 to 1) and the current file.
    Raises: InputError when a source contains no file; StoreError when the store cannot be written.
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
    """Adds one file to a store and replaces the text of the same origin; but a file of which nothing can be read
    replaces nothing.

    Args:
        progress: called with the share of the file that was read (0 to 1), at the start and then repeatedly, also
            within a document. If it raises, nothing is added and the store stays unchanged.
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
    """Raised to roll the store's transaction back."""


def origin_of(file: Any) -> str:
    """The origin under which a store keeps a file: its absolute path, so that any working directory finds it; a URL
    unchanged."""
    name = file.address if isinstance(file, File) else str(file)
    return spelled(name if "://" in name else str(Path(name).resolve()))


def export(store: PersonalStore, out: Path) -> int:
    """Writes all texts of a store to a portable file: JSON lines, packed as .zst, for any tokenizer. Returns the
    number of documents. Raises OSError when the disk refuses."""
    handle, name = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)  # private, like the store
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
            packed.write(_line({"end": written}))  # a truncated file lacks this line
            packed.flush(zstandard.FLUSH_FRAME)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(out)
    finally:
        Path(name).unlink(missing_ok=True)
    return written


def restore(store: PersonalStore, path: Path) -> int:
    """Adds the contents of a file written by `export`, except documents that the store already has. Returns the
    number of tokens added.

    All or nothing. Raises InputError when the file is not an export, or damaged; OSError when it cannot be read.
    """
    return store.restore(_exported(path))


def gather(stores: Iterable[PersonalStore], into: PersonalStore) -> int:
    """Adds the documents of several stores to one, each once. Returns the number of tokens added."""
    return sum(into.restore(store.texts()) for store in stores)


def compile_store(store: PersonalStore, out: Path, min_count: int = 1, exact: bool = True) -> BuildReport:
    """Writes a store's counts, without its texts, as a trie store; forgotten text is not in it.

    Raises: InputError when the store is empty; OSError when the disk refuses.
    """
    if not any(document.tokens for document in store.documents()):
        raise InputError(f"The store {store.name} is empty; add text to it before compiling.")
    return merge([cast("NgramStore", store)], out, min_count=min_count, exact=exact)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"


def _exported(path: Path) -> Iterator[StoredText]:
    from core.ngram.personal import MOST_TIMES, StoredText

    with path.open("rb") as file:
        lines = _lines(file, path)
        head = next(lines, {})
        if head.get("format") != FORMAT:
            raise InputError(f"{path} is not an exported personal store.")
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
                    raise InputError(f"{path} is damaged: line {number} is not a document. Nothing was added.")
        if not ended:
            raise InputError(f"{path} is truncated. Nothing was added.")


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
        raise InputError(
            f"{path} is not an exported personal store, or damaged ({error}). Nothing was added."
        ) from error
