"""Documents as plain text files in one folder, for writers who chose this on the page.

    documents/                  0700
        The lighthouse.txt      0600, UTF-8: the text and nothing else; other programs may read and change it
        bin/                    the same for documents in the bin
        .polydraft/             metadata
            kept                exists while documents are kept as files
            ID.json             one document's name, title, caret, private ranges, and the digest of its text

A file is written under a temporary name, flushed to the disk and renamed, so a crash leaves the old text or the new
one. A text is replaced only if it is still the one that its writer started from; otherwise `Changed` is raised, and
both texts are kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from core.errors import InputError
from core.files import write_whole

ENDINGS = (".txt", ".md")
OPENING = 80  # characters of the first line used as a title
NAME = 60  # characters of a file's name
WAIT = 10  # s to wait for another server that works in the folder
ID = re.compile(r"[0-9a-f][0-9a-f-]{7,63}")


def documents_folder() -> Path:
    """The folder for documents kept as files, in the user's data folder."""
    return platformdirs.user_data_path("polydraft", appauthor=False) / "documents"


class Changed(InputError):
    """The text on the disk is not the one that the writer started from."""


@dataclass
class Entry:
    """One document without its text.

    Attributes:
        id: a UUID of the page or of this folder.
        title: given by the writer, or empty; `opening` is used in place of an empty title.
        opening: the beginning of the first line that is not empty.
        words: counted at spaces.
        caret: start and end of the selection, in UTF-16 units as the page counts.
        private: ranges that were typed in incognito, in UTF-16 units.
        keys: the page's counters for the number of keys that drafts have saved.
        created, changed: ms since 1970.
        binned: when the document went into the bin, in ms since 1970; None outside the bin.
        file: the text's name in the folder, or in bin/.
        digest, stamp: SHA-256 of the file's bytes, and the size and time at which it was computed.
    """

    id: str
    title: str = ""
    opening: str = ""
    words: int = 0
    caret: list[int] = field(default_factory=lambda: [0, 0])
    private: list[list[int]] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    created: int = 0
    changed: int = 0
    binned: int | None = None
    file: str = ""
    digest: str = ""
    stamp: list[int] = field(default_factory=list)


class DocumentFolder:
    """The documents in one folder. Several threads and several servers may work in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.notes = folder, folder / "bin", folder / ".polydraft"
        self._thread = threading.RLock()

    @property
    def kept(self) -> bool:
        """Whether the writer chose to keep documents here."""
        return (self.notes / "kept").exists()

    def keep(self, on: bool) -> None:
        """Switches keeping documents here on or off; existing files are not touched."""
        with self._alone():
            if on:
                write_whole(self.notes / "kept", b"")
            else:
                (self.notes / "kept").unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """Lists every document, the last changed first. Text files that other programs have added become documents."""
        if not self.notes.exists():
            return []
        with self._alone():
            entries = {entry.id: entry for entry in map(self._noted, sorted(self.notes.glob("*.json"))) if entry}
            missing = [entry for entry in entries.values() if not self._path(entry).is_file()]
            claimed = {self._path(entry) for entry in entries.values()}
            for path in self._text_files():
                if path not in claimed:
                    entry = self._adopted(path, missing)
                    entries[entry.id] = entry
            for entry in missing:  # the remaining ones: their files were deleted by other programs
                self._note_file(entry.id).unlink(missing_ok=True)
                del entries[entry.id]
            for entry in entries.values():
                self._refresh(entry)
            return sorted(entries.values(), key=lambda entry: -entry.changed)

    def read(self, id: str) -> tuple[Entry, str]:
        """A document and its text.

        Raises: InputError when no document has this id.
        """
        with self._alone():
            entry = self._known(id)
            data = self._refresh(entry) or self._path(entry).read_bytes()
            return entry, _decoded(data)

    def write(self, entry: Entry, text: str, base: str | None) -> Entry:
        """Writes a document's text and metadata.

        Args:
            entry: `file`, `digest`, `stamp`, `opening` and `words` are filled in here.
            base: the digest of the text that the writer started from; None for a new document.
        Raises: Changed when the file has another text by now, is gone, or exists although it should be new.
        """
        with self._alone():
            found = self._noted(self._note_file(entry.id))
            if found and not self._path(found).is_file():
                found = None
            if found:
                self._refresh(found)
            if (found.digest if found else None) != base:
                state = "has been changed elsewhere" if found else "is no longer there"
                raise Changed(f"The file of “{entry.title or _opening(text) or 'Untitled'}” {state}.")
            data = text.encode("utf-8", "replace")
            entry.opening, entry.words, entry.digest = _opening(text), len(text.split()), _digest(data)
            entry.binned = found.binned if found else entry.binned
            entry.file = found.file if found else self._free_name(entry)
            path = self._path(entry)
            if not found or found.digest != entry.digest:
                write_whole(path, data)
            self._stamp(entry, path)
            self._note(entry)
            # The name follows the title. It changes last, so that after a crash in between the note still points to the
            # text.
            if found and Path(found.file).stem != (name := _file_name(entry)) and not _numbered(found.file, name):
                self._move(entry, entry.binned, self._free_name(entry))
            return entry

    def put_in_bin(self, id: str, on: bool) -> None:
        """Moves a document into the bin, or out of it.

        Raises: InputError when no document has this id.
        """
        with self._alone():
            entry = self._known(id)
            if (entry.binned is not None) == on:
                return
            self._move(entry, _now() if on else None, entry.file)

    def remove(self, id: str) -> None:
        """Deletes a document permanently.

        Raises: InputError when no document has this id.
        """
        with self._alone():
            entry = self._known(id)
            self._path(entry).unlink(missing_ok=True)
            self._note_file(id).unlink(missing_ok=True)

    # ---------------------------------------------------------------- inside

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Creates the folder if it is missing, and locks it against other threads and other servers."""
        with self._thread:
            for folder in (self.folder, self.bin, self.notes):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                with filelock.FileLock(self.notes / "lock", timeout=WAIT, mode=0o600):
                    yield
            except filelock.Timeout:
                raise InputError(f"{self.folder} is in use by another program. Try again in a moment.") from None

    def _path(self, entry: Entry) -> Path:
        return (self.folder if entry.binned is None else self.bin) / entry.file

    def _note_file(self, id: str) -> Path:
        if not ID.fullmatch(id):
            raise InputError(f"{id[:40]!r} given as a document's id; a UUID is expected.")
        return self.notes / f"{id}.json"

    def _text_files(self) -> list[Path]:
        found: list[Path] = []
        for folder in (self.folder, self.bin):
            with suppress(FileNotFoundError):
                found += [path for path in sorted(folder.iterdir()) if path.suffix.lower() in ENDINGS]
        return [path for path in found if path.is_file() and not path.is_symlink() and path.name[0] != "."]

    def _noted(self, path: Path) -> Entry | None:
        """The metadata in a note; None if it is missing or damaged: then the text is treated as a new document."""
        try:
            note = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        known = {one.name for one in fields(Entry)}
        if not isinstance(note, dict) or note.get("id") != path.stem or not _plain(note.get("file")):
            return None
        return Entry(**{name: value for name, value in note.items() if name in known})

    def _known(self, id: str) -> Entry:
        entry = self._noted(self._note_file(id))
        if entry is None or not self._path(entry).is_file():
            raise InputError("This document is no longer in the folder. Open the list of documents.")
        return entry

    def _note(self, entry: Entry) -> None:
        write_whole(self._note_file(entry.id), json.dumps(asdict(entry), ensure_ascii=False).encode("utf-8", "replace"))

    def _stamp(self, entry: Entry, path: Path) -> None:
        state = path.stat()
        entry.stamp = [state.st_size, state.st_mtime_ns]

    def _refresh(self, entry: Entry) -> bytes | None:
        """Updates the metadata of a text that another program has changed; returns its bytes if they were read."""
        path = self._path(entry)
        state = path.stat()
        if entry.stamp == [state.st_size, state.st_mtime_ns]:
            return None
        data = path.read_bytes()
        if _digest(data) != entry.digest:
            text = _decoded(data)
            entry.digest, entry.opening, entry.words = _digest(data), _opening(text), len(text.split())
            entry.changed = state.st_mtime_ns // 1_000_000
            if entry.private:  # the positions of private words are now unknown, so all of it is private
                entry.private = [[0, len(text.encode("utf-16-le", "replace")) // 2]]
        self._stamp(entry, path)
        self._note(entry)
        return data

    def _adopted(self, path: Path, missing: list[Entry]) -> Entry:
        """Creates an entry for a text file that no note names: a renamed or a new one."""
        data = path.read_bytes()
        binned = _now() if path.parent == self.bin else None
        renamed = next((entry for entry in missing if entry.digest == _digest(data)), None)
        if renamed:
            missing.remove(renamed)
            entry = renamed
            entry.title = path.stem
            entry.binned = binned if entry.binned is None else entry.binned if binned else None
        else:
            text, changed = _decoded(data), path.stat().st_mtime_ns // 1_000_000
            entry = Entry(str(uuid.uuid4()), path.stem, _opening(text), len(text.split()), created=changed)
            entry.changed, entry.digest, entry.binned = changed, _digest(data), binned
        entry.file = path.name
        self._stamp(entry, path)
        self._note(entry)
        return entry

    def _move(self, entry: Entry, binned: int | None, name: str) -> None:
        old = self._path(entry)
        entry.binned, entry.file = binned, name
        if self._path(entry).exists():
            entry.file = self._free_name(entry)
        old.replace(self._path(entry))
        self._note(entry)

    def _free_name(self, entry: Entry) -> str:
        folder = self.folder if entry.binned is None else self.bin
        taken = {path.name.casefold() for path in folder.iterdir()}
        base, ending = _file_name(entry), Path(entry.file).suffix or ENDINGS[0]
        name, number = f"{base}{ending}", 1
        while name.casefold() in taken:
            number += 1
            name = f"{base} ({number}){ending}"
        return name


def _file_name(entry: Entry) -> str:
    """A file name, without its ending, that every system can store."""
    letters = re.sub(r"[^\w ,.'’()&+-]+", " ", entry.title or entry.opening)
    name = " ".join(letters.split())[:NAME].strip(" .")
    reserved = re.fullmatch(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", name, re.IGNORECASE)
    return "Untitled" if not name or reserved else name


def _numbered(file: str, name: str) -> bool:
    return re.fullmatch(re.escape(name) + r" \(\d+\)", Path(file).stem) is not None


def _plain(name: Any) -> bool:
    """Whether a note's file name stays inside its folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and not re.search(r"[/\\\0]", name)


def _opening(text: str) -> str:
    return next((line.strip()[:OPENING] for line in text[:10_000].splitlines() if line.strip()), "")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _decoded(data: bytes) -> str:
    """Decodes text as other programs write it: UTF-8, UTF-16 with a byte order mark, or else a Western single-byte
    code."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _now() -> int:
    return time.time_ns() // 1_000_000
