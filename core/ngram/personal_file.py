"""The SQLite file of a personal store: opening it, its settings, and transactions.

Durable: write-ahead log, every commit synced to the disk. Private: only its owner can read it, deleted content is
overwritten with zeros (secure_delete), and the log is truncated after a removal.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from sqlite_utils import Database

from core.files import check_database
from core.ngram.errors import StoreError

VERSION = 1  # PRAGMA user_version
PATIENCE = 10.0  # seconds to wait for another program's write

Types = tuple[type, ...]  # of the columns of a query
Row = tuple[Any, ...]  # of SQLite, whose columns have the types of their values


Switch = Literal["0", "1"]
Number = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,15}$")]
Line = Annotated[str, StringConstraints(max_length=1000)]


class _Settings(BaseModel):
    """The table `about`: every value is a text. Fields of other versions are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    fingerprint: Line
    tokenizer: Line
    vocab_size: Number
    enabled: Switch = "1"
    learning: Switch = "0"
    removals: Number
    identity: Line
    scrub: Switch = "0"
    relearn: Switch = "0"
    adapter: Switch = "1"
    strength: Line = ""
    senders: Annotated[str, StringConstraints(max_length=100_000)] = ""


class PersonalFile:
    """One connection. Use it from one thread at a time.

    Attributes:
        path: the file.
        settings: the values of the table `about` by key, as of the last `read_settings`.
        db: its database; changes belong into `writing`.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Use `PersonalFile.open`."""
        self.path, self.db = path, Database(connection)
        self.settings: dict[str, str] = {}
        self._identity, self._written = _identity(path), 0

    @classmethod
    def open(cls, path: Path, first: dict[str, str] | None) -> PersonalFile:
        """Opens a file.

        Args:
            first: creates the file if it does not exist, with these settings; None does not.
        Raises: StoreError if it does not exist, or is not a personal store of this version.
        """
        new = False
        try:
            check_database(path)
            if first is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with suppress(FileExistsError):
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                    new = True
            elif not path.exists():
                raise StoreError(f"There is no personal store at {path}.")
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror or error}.") from error
        _give_mode_to_log(path)
        with reported(path):
            connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        file = cls(path, connection)
        try:
            file._prepare(first)
        except BaseException as error:
            connection.close()
            if new and isinstance(error, DiskFull):
                for part in file.files():
                    part.unlink(missing_ok=True)
            raise
        return file

    def close(self) -> None:
        self.db.close()

    def in_place(self) -> bool:
        """Whether the file still exists and is the same one; another program may have deleted or replaced it."""
        return self._identity is not None and _identity(self.path) == self._identity

    def files(self) -> list[Path]:
        """The file and, if it exists, its log, which holds the latest commits."""
        log = self.path.with_name(self.path.name + "-wal")
        return [self.path, log] if log.exists() else [self.path]

    def changed(self) -> float:
        """When the file or its log last changed, seconds since 1970. Opening the file creates an empty log."""
        states = [file.stat() for file in self.files()]
        return max(state.st_mtime for state in states if state.st_size)

    # ---------------------------------------------------------------- reading

    def state(self) -> tuple[int, int]:
        """A value that differs after every commit, of this connection or another; some microseconds."""
        return self.version(), self._written

    def version(self) -> int:
        """A number that differs after every commit of another connection."""
        with reported(self.path):
            return self.db.execute("PRAGMA data_version").fetchone()[0]

    def query(self, sql: str, values: Sequence[object] = (), types: Types = ()) -> list[Row]:
        """All rows. Raises StoreError if their values have other `types`: SQLite accepts any in a damaged file."""
        with reported(self.path):
            return [self._typed(row, types) for row in self.db.execute(sql, values)]

    def rows(self, sql: str, types: Types = (), values: Sequence[object] = ()) -> Iterator[Row]:
        """Rows one by one, so that not all texts are in memory."""
        with reported(self.path):
            for row in self.db.execute(sql, values):
                yield self._typed(row, types)

    def _typed(self, row: Row, types: Types) -> Row:
        if types and not all(map(isinstance, row, types)):
            raise StoreError(f"{self.path} is damaged: {str(row)[:80]} is no entry of a personal store.")
        return row

    def read_settings(self) -> dict[str, str]:
        """Reads `settings` again, and returns them. Raises StoreError if they are not what this program wrote."""
        settings = dict(self.query("SELECT key, value FROM about"))
        try:
            _Settings.model_validate(settings)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field, given = first["loc"][0], "nothing" if first["type"] == "missing" else f"{first['input']!r:.40}"
            raise StoreError(f"{self.path} is damaged: its {field} is {given}.") from None
        self.settings = settings
        return settings

    def setting(self, key: str) -> str:
        """One setting as it is now."""
        return self.query("SELECT value FROM about WHERE key = ?", [key])[0][0]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One state of the file for several queries."""
        with reported(self.path):
            self.db.execute("BEGIN")
            try:
                yield
            finally:
                self.db.execute("COMMIT")

    def check(self) -> list[str]:
        """The errors that SQLite's own check of the whole file finds; [] if there are none."""
        problems = [row[0] for row in self.query("PRAGMA integrity_check")]
        return [] if problems == ["ok"] else problems

    # ---------------------------------------------------------------- writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One durable transaction; waits for other writers up to PATIENCE."""
        with reported(self.path):
            self.db.execute("BEGIN IMMEDIATE")  # not deferred: a read that becomes a write cannot wait
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.conn.in_transaction:
                    self.db.execute("ROLLBACK")
                raise
            finally:
                self._written += 1  # data_version changes only for commits of others

    def set(self, key: str, value: str) -> None:
        """Stores a setting, within `writing`."""
        self.db.table("about").upsert({"key": key, "value": value}, pk="key")

    def scrub(self) -> bool:
        """Truncates the log, which still contains deleted text. False while another program keeps it open, or the disk
        is full."""
        try:
            with reported(self.path):
                busy = self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            if busy:
                return False
            with self.writing():
                self.set("scrub", "0")
        except DiskFull:
            return False
        return True

    def _prepare(self, first: dict[str, str] | None) -> None:
        with reported(self.path):
            version = self.db.execute("PRAGMA user_version").fetchone()[0]
            exists = bool(self.db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone())
            if version > VERSION:
                raise StoreError(
                    f"{self.path} has format version {version}; this program reads version {VERSION}. Update it."
                )
            if version == 0 and (exists or first is None):
                raise StoreError(f"{self.path} is not a personal store.")
            self.db.execute("PRAGMA secure_delete = ON")
            self.db.execute("PRAGMA synchronous = FULL")
            self.db.execute("PRAGMA foreign_keys = ON")
            # Not every file system supports a write-ahead log, which needs memory shared between programs.
            mode = self.db.execute("PRAGMA journal_mode").fetchone()[0]
            if mode != "wal":  # read first: setting it takes a lock
                mode = self.db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreError(
                    f"{self.path.parent} does not support personal stores: SQLite has no write-ahead log there, only "
                    f"{mode!r}. A network drive is the usual reason. Put your data folder on a disk of this machine "
                    "(on Linux: set XDG_DATA_HOME)."
                )
            if version == 0 and first is not None:
                self._create(first)
        self.read_settings()

    def _create(self, settings: dict[str, str]) -> None:
        with self.writing():
            if self.db.execute("PRAGMA user_version").fetchone()[0]:
                return  # another program was first
            self.db.create_table("about", {"key": str, "value": str}, pk="key")
            # AUTOINCREMENT: a number is never reused, so "larger than the last one read" means new.
            self.db.execute(
                "CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, "
                "added TEXT NOT NULL, times INTEGER NOT NULL)"
            )
            self.db.execute(
                "CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES "
                "documents(id) ON DELETE CASCADE, text TEXT NOT NULL, tokens INTEGER NOT NULL, ids BLOB NOT NULL)"
            )
            self.db.table("documents").create_index(["origin"])
            # The index alone gives the number of tokens of a document, without reading the texts.
            self.db.execute("CREATE INDEX passages_tokens ON passages(document, tokens)")
            for key, value in settings.items():
                self.set(key, value)
            self.db.execute(f"PRAGMA user_version = {VERSION}")


def _give_mode_to_log(path: Path) -> None:
    """Gives the file's own mode to the log and its index beside it. SQLite makes them with that mode, so they stay
    read-only after the file was, and no later change would be possible."""
    for ending in ("-wal", "-shm"):
        beside = path.with_name(path.name + ending)
        with suppress(OSError):  # there is none, or it is another user's
            mode = path.stat().st_mode
            if mode & ~beside.stat().st_mode & stat.S_IWUSR:
                beside.chmod(stat.S_IMODE(mode))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


# SQLite's names of what a full disk, or a quota, causes.
_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHMSIZE")


class DiskFull(StoreError):
    """The file could not be written; it is as it was before."""


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into StoreError, with a remedy."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise StoreError(f"{path} is being written by another program; try again in a moment.") from error
        if error.sqlite_errorname in _NO_ROOM:
            reason = "the disk is full. Nothing was changed. Free some room, and try again."
            raise DiskFull(f"{path} cannot be written: {reason}") from error
        raise StoreError(f"{path} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is damaged or not a personal store: {error}.") from error
