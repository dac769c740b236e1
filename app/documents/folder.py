"""Documents as plain text files in one folder, for writers who chose this on the page.

    documents/                  0700
        The lighthouse.txt      0600, UTF-8: the text and nothing else; other programs may read and change it
        bin/                    the same for documents in the bin
        .polydraft/             metadata
            kept                exists while documents are kept as files
            ID.json             a note: one document's name, title, caret, private ranges, and the digest of its text
            aside/              damaged notes that the writer has removed
            lock                locked by the server that works in the folder

A file is written under a temporary name, flushed to the disk and renamed, so a crash leaves the old text or the new
one. A text is replaced only if it is still the one that its writer started from; otherwise `Changed` is raised, and
both texts are kept.

**Private text stays private.** Other programs move, copy, rename and change the files, and know nothing of private
ranges. So the folder distrusts a text that Polydraft did not write itself (`_Known`):

- If its document had private text, all of it is private.
- Otherwise, if it is byte for byte the text of another note, it has the ranges of that note: the file was copied or
  moved.
- Otherwise, if any document has private text, all of it is private.

`Entry.unsure` is true for a text that is private as a whole for such a reason. That lasts, also for what is added on
the page, until the writer says there that the text is not private.

A document of which the file is missing counts: its text may be in another file. So does a damaged note. The note of a
missing file is kept for `KEPT` days, without the opening of its text and what the writer added, and with a digest for
the file's name, which may repeat that text.

A text has at most `MOST_TEXT` bytes. A larger file is listed as a problem, and not read.

Lines of a text end with "\\n", as in the page's field. A file keeps its line ends and its byte order mark, and all of
its bytes while its text stays the same.

**A note that cannot be read** hides no other document. It is listed as a problem, which the writer can set aside.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

import filelock
import platformdirs

from app.documents.notes import ID, VERSION, Damaged, Entry, as_note, joined, read_note, units
from app.documents.texts import decoded, digest_of, encoded, file_name, folded, in_lines, is_numbered, opening_of
from core.errors import InputError
from core.files import read_regular, write_whole

ENDINGS = (".txt", ".md")
WAIT = 10  # s to wait for another server that works in the folder
DAY = 86_400_000  # ms
KEPT = 90  # days for which the note of a missing file is kept
MOST_TEXT = 32 << 20  # bytes of one text; a novel has a million


def documents_folder() -> Path:
    """The folder for documents kept as files, in the user's data folder."""
    return platformdirs.user_data_path("polydraft", appauthor=False) / "documents"


class Changed(InputError):
    """The text on the disk is not the one that the writer started from."""


class Missing(InputError):
    """No document has this id."""


@dataclass(frozen=True)
class Problem:
    """Something in the folder that cannot be used, or is missing.

    Attributes:
        message: for the writer.
        note: the name of the note that `DocumentFolder.set_aside` removes; "" if there is none.
    """

    message: str
    note: str = ""


@dataclass(frozen=True)
class Listing:
    """The documents, the last changed first, and the problems."""

    entries: list[Entry]
    problems: list[Problem]


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
            if on and not self.kept:
                write_whole(self.notes / "kept", b"")
            elif not on:
                (self.notes / "kept").unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """Lists every document, the last changed first; see `listing`."""
        return self.listing().entries

    def listing(self) -> Listing:
        """Lists every document, and what is wrong. Text files that other programs have added become documents."""
        if not self.notes.exists():
            return Listing([], [])
        with self._alone():
            entries, problems = self._all_notes()
            known = _Known(entries, problems)
            present, others = self._present(entries)
            missing = {entry.id: entry for entry in entries if entry.id not in present}
            new: list[Path] = []
            for path in others:
                with self._reported(path.name, problems):
                    if entry := self._recognized(path, missing):
                        present[entry.id] = entry
                    else:
                        new.append(path)
            for entry in present.values():
                with self._reported(entry.file, problems):
                    self._refresh(entry, known)
                if entry.version > VERSION:
                    problems.append(Problem(_newer(entry)))
            for entry in missing.values():
                with self._reported(entry.title, problems):
                    problems += self._missed(entry)
            for path in new:
                with self._reported(path.name, problems):
                    entry = self._adopted(path, known)
                    present[entry.id] = entry
            return Listing(sorted(present.values(), key=lambda entry: -entry.changed), problems)

    def set_aside(self, note: str) -> None:
        """Removes a note that `listing` reports as a problem. A damaged one goes into `.polydraft/aside`, the one of a
        missing file is deleted. No text is touched.

        Raises: InputError when there is no such note, or it is sound.
        """
        with self._alone():
            path = self.notes / note
            if path.parent != self.notes or path.suffix != ".json" or not os.path.lexists(path):
                raise InputError("This note is no longer in the folder. Open the list of documents.")
            try:
                entry = read_note(path)
            except Damaged:
                aside = self.notes / "aside"
                aside.mkdir(mode=0o700, exist_ok=True)
                path.rename(aside / f"{note}.{token_hex(4)}")
                return
            if entry is not None and self._path(entry).is_file():
                raise InputError("This note belongs to a document. Delete the document in the list of documents.")
            path.unlink(missing_ok=True)

    def read(self, id: str) -> tuple[Entry, str]:
        """A document and its text.

        Raises: Missing.
        """
        with self._alone():
            entry = self._known(id)
            return entry, decoded(self._read(entry))

    def write(self, entry: Entry, text: str, base: str | None) -> Entry:
        """Writes a document's text and metadata.

        Args:
            entry: `file`, `digest`, `stamp`, `opening` and `words` are filled in here. A text that is `unsure`, here or
                in its note, is private as a whole; an entry that is not, and has no private ranges, ends that.
            base: the digest of the text that the writer started from; None for a new document.
        Raises: Changed when the file has another text by now, is gone, or exists although it should be new; InputError
            when a field of the entry is out of range.
        """
        with self._alone():
            try:
                noted = read_note(self._note_file(entry.id))
            except Damaged as error:
                raise Changed(f"The note of “{entry.title or opening_of(text) or 'Untitled'}” is damaged.") from error
            as_note(entry)  # checks the fields
            text, entry.private = in_lines(text, joined(entry.private))
            if entry.unsure or (noted and noted.unsure and entry.private):
                entry.private, entry.unsure = [[0, units(text)]], True
            if noted and not self._path(noted).is_file():
                noted = None
            old = self._read(noted) if noted else b""
            if (noted.digest if noted else None) != base:
                state = "has been changed elsewhere" if noted else "is no longer there"
                raise Changed(f"The file of “{entry.title or opening_of(text) or 'Untitled'}” {state}.")
            data = encoded(text, old)
            if len(data) > MOST_TEXT:
                raise InputError(f"The text has {len(data):,} bytes; a document has at most {MOST_TEXT:,}.")
            entry.opening, entry.words, entry.digest = opening_of(text), len(text.split()), digest_of(data)
            if noted:
                entry.version, entry.unknown = noted.version, noted.unknown
            entry.binned = noted.binned if noted else entry.binned
            entry.file = noted.file if noted else self._free_name(entry)
            path = self._path(entry)
            if not noted or noted.digest != entry.digest:
                with self._announced(noted, entry):
                    write_whole(path, data)
            self._stamp(entry, path)
            self._note(entry)
            # The name follows the title. It changes last, so that after a crash in between the note still points to the
            # text. A name that another program gave is the title, and stays.
            stem = Path(entry.file).stem
            if noted and stem not in (name := file_name(entry), entry.title) and not is_numbered(stem, name):
                self._move(entry, entry.binned, self._free_name(entry, path))
            return entry

    def put_in_bin(self, id: str, on: bool) -> None:
        """Moves a document into the bin, or out of it.

        Raises: Missing.
        """
        with self._alone():
            entry = self._known(id)
            if (entry.binned is not None) == on:
                return
            self._move(entry, _now() if on else None, entry.file)

    def remove(self, id: str) -> None:
        """Deletes a document permanently.

        Raises: Missing.
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
            lock = self.notes / "lock"
            if os.path.lexists(lock) and not stat.S_ISREG(lock.lstat().st_mode):
                raise InputError(f"{lock} is not a plain file, so the folder cannot be locked. Remove it.")
            try:
                with filelock.FileLock(lock, timeout=WAIT, mode=0o600):
                    yield
            except filelock.Timeout:
                raise InputError(f"{self.folder} is in use by another program. Try again in a moment.") from None

    @contextmanager
    def _announced(self, noted: Entry | None, entry: Entry) -> Iterator[None]:
        """Notes the private ranges of a text that is being written. If the server is killed before it has noted the
        rest, they are known."""
        if not entry.private:
            yield
        elif noted:
            self._note(replace(noted, coming=(entry.digest, entry.private)))
            yield
        else:
            self._note(entry)
            try:
                yield
            except OSError:
                self._note_file(entry.id).unlink()
                raise

    def _path(self, entry: Entry) -> Path:
        return (self.folder if entry.binned is None else self.bin) / entry.file

    def _note_file(self, id: str) -> Path:
        if not ID.fullmatch(id):
            raise InputError(f"{id[:40]!r} given as a document's id; a UUID is expected.")
        return self.notes / f"{id}.json"

    def _text_files(self) -> list[Path]:
        paths: list[Path] = []
        for folder in (self.folder, self.bin):
            with suppress(FileNotFoundError):
                paths += [path for path in sorted(folder.iterdir()) if path.suffix.lower() in ENDINGS]
        return [path for path in paths if path.is_file() and not path.is_symlink() and path.name[0] != "."]

    def _all_notes(self) -> tuple[list[Entry], list[Problem]]:
        """Every note, and the damaged ones as problems. Notes of files that are missing for too long are deleted."""
        entries: list[Entry] = []
        problems: list[Problem] = []
        for path in sorted(self.notes.glob("*.json")):
            try:
                entry = read_note(path)
            except Damaged as error:
                message = f"{error} Until you remove it, texts from other programs count as private. No text is lost."
                problems.append(Problem(message, path.name))
                continue
            if entry and entry.missing is not None and _now() - entry.missing > KEPT * DAY:
                path.unlink(missing_ok=True)
            elif entry:
                entries.append(entry)
        return entries, problems

    def _known(self, id: str) -> Entry:
        entry = None
        with suppress(Damaged):  # the list of documents reports it
            entry = read_note(self._note_file(id))
        if entry is None or not self._path(entry).is_file():
            raise Missing("This document is no longer in the folder. Open the list of documents.")
        return entry

    def _present(self, entries: list[Entry]) -> tuple[dict[str, Entry], list[Path]]:
        """The documents whose files are there, by id, and the text files of no document. A missing file is found again
        under its old name."""
        present = {entry.id: entry for entry in entries if entry.missing is None and self._path(entry).is_file()}
        files = self._text_files()
        claimed = {self._path(entry): entry for entry in present.values()}
        others = [path for path in files if path not in claimed]
        # Another program changed the case of a name, where the file system ignores case.
        unlisted = {(path.parent, folded(path.name)): path for path in claimed.keys() - set(files)}
        for path in [*others] if unlisted else []:
            old = unlisted.get((path.parent, folded(path.name)))
            if old and old.samefile(path):
                entry = claimed[old]
                entry.title, entry.file, entry.stamp = path.stem, path.name, []
                others.remove(path)
        away = {(entry.binned is None, entry.file): entry for entry in entries if entry.missing is not None}
        for path in [*others] if away else []:
            if entry := away.get((path.parent == self.folder, _hidden(path.name))):
                entry.file, entry.missing, entry.stamp = path.name, None, []
                present[entry.id] = entry
                others.remove(path)
        return present, others

    @contextmanager
    def _reported(self, name: str, problems: list[Problem]) -> Iterator[None]:
        """Turns an error of the disk into a problem, so that one file affects no other document."""
        try:
            yield
        except OSError as error:
            problems.append(Problem(f"“{name}” or its note could not be used: {error.strerror or error}."))

    def _missed(self, entry: Entry) -> list[Problem]:
        """Notes that a document's file is missing; a problem if it had private text."""
        if entry.missing is None:
            entry.missing, entry.opening, entry.file, entry.stamp = _now(), "", _hidden(entry.file), []
            entry.background, entry.never, entry.unknown = "", "", {}  # they may repeat the text
            self._note(entry)
        if not entry.hides:
            return []
        name = f"“{entry.title}”" if entry.title else "A document without a title"
        day = time.strftime("%d %B %Y", time.localtime(entry.missing / 1000))
        reason = "A text from another program may contain its private text, and counts as private"
        return [Problem(f"{name} with private text is missing since {day}. {reason}.", f"{entry.id}.json")]

    def _note(self, entry: Entry) -> None:
        write_whole(self._note_file(entry.id), as_note(entry))

    def _stamp(self, entry: Entry, path: Path) -> None:
        state = path.stat()
        entry.stamp = [state.st_size, state.st_mtime_ns]

    def _read(self, entry: Entry) -> bytes:
        """The bytes of a document's text, with which its metadata agrees afterwards."""
        data = self._refresh(entry)
        return read_regular(self._path(entry), MOST_TEXT) if data is None else data

    def _refresh(self, entry: Entry, known: _Known | None = None) -> bytes | None:
        """Updates the metadata of a text that another program has changed; returns its bytes if they were read."""
        path = self._path(entry)
        state = path.stat()
        if entry.stamp == [state.st_size, state.st_mtime_ns]:
            return None
        data = read_regular(path, MOST_TEXT)
        text, digest = decoded(data), digest_of(data)
        if entry.coming and entry.coming[0] == digest:  # our own, noted before it was written
            entry.digest, entry.private = entry.coming
        if digest != entry.digest:
            entry.changed = state.st_mtime_ns // 1_000_000
            self._take_in(entry, data, text, known or _Known(*self._all_notes()))
        entry.opening, entry.words, entry.coming = opening_of(text), len(text.split()), None
        self._stamp(entry, path)
        self._note(entry)
        return data

    def _take_in(self, entry: Entry, data: bytes, text: str, known: _Known) -> None:
        """Fills in what follows from a text that another program has written."""
        entry.digest, entry.opening, entry.words = digest_of(data), opening_of(text), len(text.split())
        entry.private, entry.unsure = known.ranges(entry, text)

    def _recognized(self, path: Path, missing: dict[str, Entry]) -> Entry | None:
        """The document of a file that was renamed, or moved into the bin or out of it, and not changed."""
        digest = digest_of(read_regular(path, MOST_TEXT)) if missing else ""
        same = [entry for entry in missing.values() if entry.digest == digest]
        if not same:
            return None
        entry = missing.pop(same[0].id)
        entry.private = joined([range for twin in same for range in twin.private])  # which of several it is, is unknown
        entry.unsure = any(twin.unsure for twin in same)
        entry.title, entry.file, entry.missing, entry.stamp = path.stem, path.name, None, []
        entry.binned = (entry.binned or _now()) if path.parent == self.bin else None
        return entry

    def _adopted(self, path: Path, known: _Known) -> Entry:
        """Creates an entry for a text file that no note names."""
        data = read_regular(path, MOST_TEXT)
        text, changed = decoded(data), path.stat().st_mtime_ns // 1_000_000
        entry = Entry(str(uuid.uuid4()), path.stem, created=changed, changed=changed, file=path.name)
        entry.binned = _now() if path.parent == self.bin else None
        self._take_in(entry, data, text, known)
        self._stamp(entry, path)
        self._note(entry)
        return entry

    def _move(self, entry: Entry, binned: int | None, name: str) -> None:
        old = self._path(entry)
        entry.binned, entry.file = binned, name
        if self._path(entry).exists():
            # On a file system that ignores case, the new name may be the file's own, and a file that is renamed to it
            # may keep the old one. It goes there by a name that is free.
            own = self._path(entry).samefile(old)
            entry.file = self._free_name(entry)
            old.replace(self._path(entry))
            self._note(entry)
            if not own:
                return
            old, entry.file = self._path(entry), name
        old.replace(self._path(entry))
        self._note(entry)

    def _free_name(self, entry: Entry, own: Path | None = None) -> str:
        """A name for a document's file that no file of its folder has, but for `own`, whatever its case."""
        folder = self.folder if entry.binned is None else self.bin
        taken = {folded(path.name) for path in folder.iterdir() if path != own}
        base, ending = file_name(entry), Path(entry.file).suffix or ENDINGS[0]
        name, number = f"{base}{ending}", 1
        while folded(name) in taken:
            number += 1
            name = f"{base} ({number}){ending}"
        return name


class _Known:
    """What the notes know about private text, before `DocumentFolder.listing` changes them."""

    def __init__(self, entries: list[Entry], problems: list[Problem]) -> None:
        self._in_doubt = bool(problems) or any(entry.hides for entry in entries)
        self._texts = [(entry.digest, entry.id, entry.private, entry.unsure) for entry in entries]

    def ranges(self, entry: Entry, text: str) -> tuple[list[list[int]], bool]:
        """The private ranges of a text that another program has written, and whether that is in doubt.

        Args:
            entry: with the digest of this text, and with what was private in the text before.
        """
        same = [twin for twin in self._texts if twin[0] == entry.digest and twin[1] != entry.id]
        if same and not entry.hides:
            return joined(range for *_, private, _ in same for range in private), any(unsure for *_, unsure in same)
        return ([[0, units(text)]], True) if self._in_doubt else ([], False)


def _hidden(name: str) -> str:
    """What the note of a missing file has in place of the file's name."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()


def _newer(entry: Entry) -> str:
    name = entry.title or entry.opening or "Untitled"
    return f"“{name}” was saved by a newer Polydraft. What this one does not know stays in its note; update to use it."


def _now() -> int:
    return time.time_ns() // 1_000_000
