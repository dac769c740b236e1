"""The folders that a personal store stays in step with, and what was read of each file: two tables in its file.

A file is known by its size and its time of change. What a person forgot is not learned again with its folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.ngram.personal_file import PersonalFile
from core.ngram.summaries import FolderSummary

_TABLES = (
    "CREATE TABLE IF NOT EXISTS folders (root TEXT PRIMARY KEY, excluded TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS files (origin TEXT PRIMARY KEY, root TEXT NOT NULL REFERENCES folders(root) ON DELETE "
    "CASCADE, size INTEGER NOT NULL, stamp TEXT NOT NULL, problem TEXT NOT NULL, forgotten INTEGER NOT NULL)",
)


@dataclass(frozen=True)
class Folder:
    """A folder that was added: its path, and the patterns of files in it that are left out."""

    root: str
    excluded: tuple[str, ...]


@dataclass(frozen=True)
class ReadFile:
    """A file of a folder, as it was when the store read it.

    Attributes:
        origin: the origin of its documents.
        size, stamp: change with the file: bytes, and its time of change.
        problem: why some of it could not be read; "" if all of it was.
        forgotten: whether a person forgot it since.
    """

    origin: str
    size: int
    stamp: str
    problem: str = ""
    forgotten: bool = False


class Folders:
    """The folders of one store, in transactions of their own."""

    def __init__(self, file: PersonalFile) -> None:
        self._file = file

    def all(self) -> list[Folder]:
        if not self._exist():
            return []
        rows = self._file.query("SELECT root, excluded FROM folders ORDER BY root", types=(str, str))
        return [Folder(root, _patterns(excluded)) for root, excluded in rows]

    def files(self, root: str) -> dict[str, ReadFile]:
        """What was read of a folder, by origin."""
        if not self._exist():
            return {}
        rows = self._file.query(
            "SELECT origin, size, stamp, problem, forgotten FROM files WHERE root = ? ORDER BY origin",
            [root],
            (str, int, str, str, int),
        )
        return {row[0]: ReadFile(*row[:4], forgotten=bool(row[4])) for row in rows}

    def summary(self, folder: Folder) -> FolderSummary:
        """The folder in lists of stores."""
        files = self.files(folder.root)
        return FolderSummary(
            path=folder.root,
            excluded=[*folder.excluded],
            files=len(files),
            forgotten=sum(file.forgotten for file in files.values()),
            problems={origin: file.problem for origin, file in files.items() if file.problem},
        )

    def remember(self, root: str, excluded: Sequence[str]) -> None:
        """From now on the store is in step with this folder."""
        with self._file.writing():
            for table in _TABLES:
                self._file.db.execute(table)
            self._file.db.table("folders").upsert({"root": root, "excluded": json.dumps(list(excluded))}, pk="root")

    def read(self, root: str, file: ReadFile) -> None:
        """A file was read; `remember` comes first."""
        row = {"origin": file.origin, "root": root, "size": file.size, "stamp": file.stamp, "problem": file.problem}
        with self._file.writing():
            self._file.db.table("files").upsert(row | {"forgotten": int(file.forgotten)}, pk="origin")

    def move(self, root: str, to: str) -> None:
        """A folder has another path now: its documents, and what is remembered of its files, get it."""
        end = len(root) + 1  # SQLite counts characters from 1: the slash, with which the rest of a path begins
        with self._file.writing():
            self._file.db.execute(
                "UPDATE documents SET origin = ? || substr(origin, ?) WHERE substr(origin, 1, ?) = ?",
                [to, end, end, f"{root}/"],
            )
            if self._exist():
                copied = "INSERT OR IGNORE INTO folders SELECT ?, excluded FROM folders WHERE root = ?"
                self._file.db.execute(copied, [to, root])
                renamed = "UPDATE OR REPLACE files SET origin = ? || substr(origin, ?), root = ? WHERE root = ?"
                self._file.db.execute(renamed, [to, end, to, root])
                self._file.db.execute("DELETE FROM folders WHERE root = ?", [root])

    def drop(self, origins: Iterable[str]) -> None:
        """These files are gone."""
        with self._file.writing():
            for origin in origins:
                self._file.db.execute("DELETE FROM files WHERE origin = ?", [origin])

    def mark(self, origins: Iterable[str], forgotten: bool) -> None:
        """A person forgot these documents, or put them back; within a transaction."""
        if self._exist():
            for origin in origins:
                self._file.db.execute("UPDATE files SET forgotten = ? WHERE origin = ?", [int(forgotten), origin])

    def _exist(self) -> bool:
        return bool(self._file.query("SELECT 1 FROM sqlite_master WHERE name = 'files'"))


def _patterns(stored: str) -> tuple[str, ...]:
    """The patterns in a column that another program may have written."""
    try:
        patterns = json.loads(stored)
    except ValueError:
        return ()
    return tuple(map(str, patterns)) if isinstance(patterns, list) else ()
