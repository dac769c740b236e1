"""Import into and export from personal stores: files, a portable file, merging stores, compiling a trie store."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import zstandard

from core.errors import BackendUnavailable, InputError
from core.files import replacing, scratch
from ngram_builder.pipeline import BuildReport, merge
from ngram_builder.readers import Damage, File, ReaderProcess, Reading, Senders, base, expand, packed, spelled
from ngram_builder.readers.base import Source, sound
from ngram_builder.readers.shards import parse

if TYPE_CHECKING:
    from core.models import LanguageModel
    from core.models.adapter import Adapter
    from core.ngram import NgramStore
    from core.ngram.personal import PersonalStore, StoredText

FORMAT, VERSION, WITH_ADAPTER = "polydraft personal store", 1, 2
# Limits of an import, besides those of all readers.
LONGEST_NAME, LONGEST_TIME = 1 << 14, 40  # characters of an origin, and of the time when it was added
PLAIN = 1 << 20  # characters of a line outside strings: a document with 500,000 passages
HELD = 512  # bytes that a document, and each passage, take in memory besides their text

FULL = "the store is full"  # begins the reason why text was left out
_MORE_ROOM = "Forget some text and add this again, or add it to another store: several may be on"
_FORGET_FIRST = "forget the document first to replace it"

Progress = Callable[[float, str], None]


@dataclass
class Added:
    """The result of adding to a store.

    Attributes:
        files, tokens: numbers of both that were read.
        damage: everything that could not be read.
        notes: sound documents that contain nothing to learn.
        senders: of the mails that were read.
    """

    files: int = 0
    tokens: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[Damage] = field(default_factory=list)
    senders: Senders = field(default_factory=Senders)

    def include(self, other: Added) -> None:
        """Counts another result, whose senders are counted already."""
        self.files += other.files
        self.tokens += other.tokens
        self.damage += other.damage
        self.notes += other.notes


def add(
    store: PersonalStore,
    sources: Iterable[str | Path],
    progress: Progress = lambda *_: None,
    senders: Senders | None = None,
) -> Added:
    """Adds the documents of files, folders and glob patterns to a store. A file that the store already has is replaced;
    each file is added as a whole or not at all.

    Args:
        progress: called with the share done (0 to 1) and the current file.
        senders: whose mails and messages are added; it counts them.
    Raises: InputError when a source contains no file; StoreError when the store cannot be written.
    """
    added = Added(senders=senders or Senders())
    for _ in add_each(store, expand(sources), added, progress):
        pass
    return added


def add_each(
    store: PersonalStore, files: Sequence[File], added: Added, progress: Progress
) -> Iterator[tuple[File, Added]]:
    """Adds files to a store and to what is `added`; yields each with its own result."""
    total, done = sum(file.size for file in files) or 1, 0
    with ReaderProcess() as reader:
        for file in files:

            def share_of_all(part: float, file: File = file, done: int = done) -> None:
                progress((done + part * file.size) / total, str(file))

            of_file = add_file(store, file, origin_of(file), reader, share_of_all, added.senders)
            added.include(of_file)
            yield file, of_file
            done += file.size
    progress(1.0, "")


def add_file(
    store: PersonalStore,
    file: File,
    origin: str,
    reader: ReaderProcess,
    progress: Callable[[float], None] = lambda _: None,
    senders: Senders | None = None,
) -> Added:
    """Adds one file to a store and replaces the text of the same origin; but what is worse than that replaces nothing:
    a file of which nothing can be read, and a damaged one of which less can be read than the store has. If the store
    has no room for all of its documents, the last ones are added: the newest mails.

    Args:
        reader: reads the file.
        progress: called with the share of the file that was read (0 to 1), at the start and then repeatedly, also
            within a document. If it raises, nothing is added and the store stays unchanged.
        senders: whose mails and messages are added; it counts the mails.
    """
    added, done, characters, documents = Added(senders=senders or Senders()), 0, 0, 0
    others, left_out = added.senders.others, list[int]()

    def consumed(size: int = 0) -> None:
        nonlocal done
        done += size
        progress(min(done / file.size, 1.0) if file.size else 0.0)

    def stored() -> int:
        return sum(document["characters"] for document in store.documents() if document["origin"] == origin)

    def narrowed() -> bool:
        """Whether mails of others were left out. Those that the store has go, so it has less afterwards."""
        return added.senders.others > others

    def full(reason: str) -> None:
        added.damage.append(Damage(str(file), 0, f"{FULL}, so {reason}. {_MORE_ROOM}"))

    def texts() -> Iterator[str]:
        nonlocal characters, documents
        progress(0.0)
        if store.is_full(without=origin):
            full("it was left out")
            raise _Worse
        reading = Reading(added.damage.append, consumed, note=added.notes.append, senders=added.senders)
        for document in reader.read(file, reading):
            characters, documents = characters + len(document.text), documents + 1
            yield document.text
        if not characters and (added.damage or (added.notes and not narrowed())):
            raise _Worse
        if (added.damage or not (characters or narrowed())) and characters < stored():
            reason = f"less of it can be read than before, so the store keeps what it has; {_FORGET_FIRST}"
            added.damage.append(Damage(str(file), 0, reason))
            raise _Worse
        if left_out:
            number = f"{len(left_out):,} of its {documents:,} documents ({sum(left_out):,} tokens), the first ones,"
            full(f"{number} were left out" if len(left_out) < documents else "it was left out")
        if left_out and len(left_out) == documents:
            raise _Worse

    with suppress(_Worse):
        added.tokens = store.add(origin, texts(), consumed, lambda passage: left_out.append(passage.tokens))
        added.files = int(characters > 0 or not narrowed())
    return added


class _Worse(Exception):
    """Raised so that a reading adds nothing to the store."""


def origin_of(file: File | str) -> str:
    """The origin under which a store keeps a file: its absolute path, so that any working directory finds it; a URL
    unchanged."""
    name = file.address if isinstance(file, File) else file
    return spelled(name if "://" in name else str(Path(name).resolve()))


@dataclass(frozen=True)
class Exported:
    """What `export` wrote: the number of documents; whether the store's adapter is with them, and if it was left out,
    the reason."""

    documents: int
    adapter: bool
    left_out: str = ""


@dataclass(frozen=True)
class Restored:
    """What `restore` added: the number of tokens; the adapter in the file, if there is one."""

    tokens: int
    adapter: Adapter | None


def export(store: PersonalStore, out: Path) -> Exported:
    """Writes all texts of a store to a portable file: JSON lines, packed as .zst, for any tokenizer; and its adapter,
    if it has one, for the adapter's model. Raises OSError when the disk refuses."""
    from core.models import adapter as files

    parts, left_out = {}, ""
    if (store.learned / files.WEIGHTS).exists():
        try:
            files.load(store.learned)
            for part in (files.CONFIG, files.WEIGHTS):
                parts[part] = b64encode((store.learned / part).read_bytes()).decode()
        except files.AdapterError as error:
            parts, left_out = {}, str(error)
    line = _line({"adapter": parts}) if parts else b""
    if len(line) > base.LONGEST:
        parts, left_out = {}, f"it takes {len(line):,} bytes, and an import reads {base.LONGEST:,}"
    written, compressor = 0, zstandard.ZstdCompressor(write_checksum=True)
    with replacing(out) as file, compressor.stream_writer(file, closefd=False) as stream:
        stream.write(_line({"format": FORMAT, "version": WITH_ADAPTER if parts else VERSION}))
        for text in store.texts():
            stream.write(
                _line({"origin": text.origin, "added": text.added, "times": text.times, "passages": text.passages})
            )
            written += 1
        if parts:
            stream.write(line)
        stream.write(_line({"end": written}))  # a truncated file lacks this line
    return Exported(written, bool(parts), left_out)


def restore(store: PersonalStore, path: Path) -> Restored:
    """Adds the texts of a file written by `export`, except documents that the store already has. The adapter in it is
    validated and returned; `adopt` puts it beside the store.

    All or nothing. Raises InputError when the file is not an export, or damaged; OSError when it cannot be read.
    """
    adapters: list[Adapter] = []
    return Restored(store.restore(_exported(path, adapters)), adapters[0] if adapters else None)


def adopt(store: PersonalStore, adapter: Adapter, model: LanguageModel) -> str:
    """Puts an imported adapter beside the store, whose texts contain all that it learned. Returns the reason if the
    model or the store does not take it, or ""."""
    from core.models import adapter as files
    from core.models.prose import prose_of

    removals = store.removals
    if (store.learned / files.WEIGHTS).exists():
        return f"{store.name} has one of its own"
    prose = prose_of(model)
    try:
        # Checks the model's fingerprint and the shapes.
        model.adapt([*([(prose, 1.0)] if prose and adapter.model == prose.identity else []), (adapter, 1.0)])
        model.adapt([])
    except BackendUnavailable:
        if adapter.model not in {model.fingerprint, prose and prose.identity}:
            return "it was trained for another model"
    except files.AdapterError as error:
        return str(error).rstrip(".")
    with store.unless_removed(removals, learned=True):
        files.save(adapter, store.learned)
    return ""


def compile_store(store: PersonalStore, out: Path, min_count: int = 1) -> BuildReport:
    """Writes a store's counts, without its texts, as a trie store; forgotten text is not in it.

    Raises: InputError when the store is empty; OSError when the disk refuses.
    """
    if not any(document["tokens"] for document in store.documents()):
        raise InputError(f"The store {store.name} is empty; add text to it before compiling.")
    return merge([cast("NgramStore", store)], out, min_count=min_count, exact=True)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"


def _exported(path: Path, adapters: list[Adapter]) -> Iterator[StoredText]:
    """The documents of an exported file; its adapter is added to the list."""
    from core.ngram.personal import MOST_TIMES, StoredText

    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a file; give one that `polydraft ngram export` wrote.")
    so_far = packed.Unpacked()
    with path.open("rb") as file:
        entries = _entries(file, path, so_far)
        _, head = next(entries, (1, {}))
        if head.get("format") != FORMAT:
            raise InputError(f"{path} is not an exported personal store.")
        if head.get("version") not in (VERSION, WITH_ADAPTER):
            version = f"{head.get('version')!r:.40}"
            raise InputError(f"{path} has version {version}; this program reads {WITH_ADAPTER}. Update it.")
        ended, count = False, 0
        for number, entry in entries:
            match entry:
                case {"end": int(documents)} if documents == count and not ended:
                    ended = True
                case {"adapter": {**parts}} if not adapters:
                    adapters.append(_adapter_of(parts, path))
                case {"origin": str(origin), "added": str(added), "times": int(times), "passages": [*passages]} if (
                    0 < times <= MOST_TIMES
                    and len(origin) <= LONGEST_NAME
                    and len(added) <= LONGEST_TIME
                    and all(isinstance(text, str) and len(text) <= base.LONGEST_TEXT for text in passages)
                    and not ended
                ):
                    count += 1
                    so_far.given += HELD * (1 + len(passages))
                    if so_far.too_much:
                        raise _damaged(path, packed.too_much())
                    yield StoredText(sound(origin), sound(added), times, tuple(passages))
                case _:
                    raise _damaged(path, f"line {number} is not a document")
        if not ended:
            raise InputError(f"{path} is truncated. Nothing was added.")


def _entries(file: BinaryIO, path: Path, so_far: packed.Unpacked) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of an exported file with their lines, within the limits of every other reader. Raises InputError."""

    def refuse(damage: Damage) -> None:
        raise _damaged(path, f"line {damage.line} is {damage.reason}" if damage.line else damage.reason)

    source = Source(str(path), refuse)
    for number, line in packed.lines(packed.unpacked(file, ".zst", source, lambda _: None, so_far), source):
        entry, reason = parse(line, PLAIN)
        if entry is None:
            raise _damaged(path, f"line {number} is {reason}")
        yield number, entry


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} is damaged: {reason}. Nothing was added.")


def _adapter_of(parts: dict[str, Any], path: Path) -> Adapter:
    """The adapter in an export, from its files as base64: validated in a private folder. Raises InputError."""
    from core.models import adapter as files

    with scratch() as folder:
        try:
            for part in (files.CONFIG, files.WEIGHTS):
                files.write(folder / part, b64decode(parts[part], validate=True))
            return files.load(folder)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged: its adapter is incomplete. Nothing was added.") from error
        except files.AdapterError as error:
            reason = str(error).replace(f"{folder}{os.sep}", "")
            raise InputError(f"{path} is damaged: {reason} Nothing was added.") from error
