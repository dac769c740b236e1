"""A personal store: one person's text, in one SQLite file, looked up like any other store.

The file contains texts and their token ids. The counts are computed from them in memory (`tally.py`, `counts.py`) and
updated after every commit, of this process or another. So an added phrase takes effect at the next look-up, and
forgetting a text also removes its counts. If a store is opened `beside`, a thread counts larger changes, and look-ups
use the previous counts meanwhile (`following.py`).

Durable: write-ahead log, every commit synced to the disk. Private: only its owner can read it, deleted content is
overwritten with zeros (secure_delete), and the log is truncated after forgetting.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlite_utils import Database

from core.errors import InputError
from core.ngram import learned
from core.ngram.counts import Counts
from core.ngram.errors import StoreError
from core.ngram.following import Following
from core.ngram.store import CandidateIds, Contexts, Evidence
from core.ngram.tally import BREAK, Tally
from core.ngram.windows import ORDER

if TYPE_CHECKING:  # its module imports torch
    from core.models.base import Tokenizer

VERSION = 1  # PRAGMA user_version
TYPED = "typed"  # origin of text learned from writing
PATIENCE = 10.0  # seconds to wait for another program's write
FRESH = 8192  # tokens counted individually before they are merged into the sorted counts
LARGEST = 10_000_000  # tokens of a store
LONGEST = 8 * LARGEST  # characters added at a time
MOST_TIMES = 1000  # the maximum multiplicity of a text

_NEW = (
    "SELECT passages.id, times, ids FROM passages JOIN documents ON document = documents.id "
    "WHERE passages.id > ? ORDER BY passages.id"
)
# The index alone gives the number of tokens of a document, without reading the texts.
_INDEX = "CREATE INDEX IF NOT EXISTS passages_tokens ON passages(document, tokens)"
_SIZE = "SELECT coalesce(sum(tokens), 0) FROM passages"
_TEXTS = "SELECT origin, text FROM passages JOIN documents ON document = documents.id"
_ENCODED = 1 << 15  # characters tokenised at a time
_MOMENT = 0.02  # seconds that a look-up waits for counts that a thread is updating
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"(?<!\s)\s")
_SHORT = 400  # characters; a text up to this length is a phrase, which may also occur in the middle of a line
_NEXT = r"[^\S\n]*(\w[\w'’-]*|[^\w\s]+)"  # the word after a phrase, or the marks
# The multiplicity of a phrase that was added on purpose, and of a paragraph that was just written. Of the sequences
# that a long text contains once, one in five occurs again (measured, docs/evaluation.md); an added phrase is certainly
# wanted.
PHRASE, PARAGRAPH = 4, 2


@dataclass(frozen=True)
class LearnedText:
    """One addition: a file's document, or all typed text.

    Attributes:
        number: its own in this store.
        origin: where it came from; several documents may share one.
        added: UTC, ISO 8601.
    """

    number: int
    origin: str
    added: str
    passages: int
    characters: int
    tokens: int


@dataclass(frozen=True)
class StoredText:
    """A document with its words: `passages` are its parts, between which text may have been forgotten."""

    origin: str
    added: str
    times: int
    passages: tuple[str, ...]


@dataclass(frozen=True)
class Forgotten:
    """The result of forgetting. `complete` is False while another program keeps the old state of the file open; the
    log is then truncated the next time the store is opened. `adapter`: an adapter had learned the text, and was removed
    with it."""

    documents: int
    passages: int
    places: int
    complete: bool
    adapter: bool = False


@dataclass(frozen=True)
class _Ready:
    """A passage as stored. `tokens` are those of the text; `ids` may contain more (`PersonalStore._ready`)."""

    text: str
    tokens: int
    ids: bytes


class PersonalStore:
    """One personal store. Use it from one thread at a time; each thread or process may open its own.

    Attributes:
        path: the SQLite file.
        orders: orders that give probabilities.
        fingerprint: of the tokenizer whose ids these are.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, tokenizer: Tokenizer | None, beside: bool = False
    ) -> None:
        """Use `PersonalStore.open`."""
        self.path = path
        self._db, self._tokenizer = Database(connection), tokenizer
        self.orders = tuple(range(2, ORDER + 1))
        self._about: dict[str, str] = {}
        self._strength: float | None = None
        self._counts: Counts | None = None
        self._seen: int | None = None  # data_version of the state that was read
        self._last = 0  # number of the last counted passage
        self._tally = Tally.empty()
        self._beside, self._following = beside, None
        self._file = _identity(path)

    @classmethod
    def open(
        cls, path: str | Path, tokenizer: Tokenizer | None = None, create: bool = False, beside: bool = False
    ) -> PersonalStore:
        """Opens a store, or creates an empty one.

        Args:
            path: the file.
            tokenizer: whose ids will be looked up; needed to add text and to forget phrases.
            create: create the file if it does not exist.
            beside: a look-up never waits for the counting of more than a few new tokens: a thread updates the counts,
                and the look-up uses the previous ones.

        Raises: StoreError if it does not exist, or is not a personal store of this version and tokenizer.
        """
        path = Path(path)
        if create and tokenizer is None:
            raise InputError("A new personal store needs a tokenizer.")
        try:
            if create:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            elif not path.is_file():
                raise StoreError(f"There is no personal store at {path}.")
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror or error}.") from error
        with _sentences(path):
            connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        store = cls(path, connection, tokenizer, beside)
        try:
            store._prepare(create)
        except BaseException:
            connection.close()
            raise
        return store

    def close(self) -> None:
        if self._following:
            self._following.stop()
        self._db.close()

    def __enter__(self) -> PersonalStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PersonalStore({str(self.path)!r})"

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def learned(self) -> Path:
        """The folder of the adapter that was trained on this store's text; it need not exist. Removing text deletes
        it."""
        return learned.folder_of(self.path)

    def in_place(self) -> bool:
        """Whether the file still exists and is the same one; another program may have deleted or replaced it."""
        return self._file is not None and _identity(self.path) == self._file

    @property
    def fingerprint(self) -> str:
        return self._about["fingerprint"]

    # ---------------------------------------------------------------- looking things up

    def evidence(self, contexts: Contexts, candidates: CandidateIds, orders: Sequence[int] | None = None) -> Evidence:
        """The counts for each candidate, as committed at this moment; see `NgramStore.evidence`."""
        self.refresh()
        return self._loaded().evidence(contexts, candidates, orders)

    def count(self, ids: Sequence[int]) -> int:
        """The number of occurrences of this n-gram, as of the last `evidence` or `refresh`."""
        return self._loaded().count(ids)

    def total(self, ids: Sequence[int]) -> int:
        """The number of tokens that followed this context, as of the last `evidence` or `refresh`."""
        return self._loaded().total(ids)

    def continuations(self, context: Sequence[int], limit: int | None = None) -> list[tuple[int, int]]:
        """The tokens that followed this context: (id, count), most frequent first; as of the last `evidence` or
        `refresh`."""
        return self._loaded().continuations(context, limit)

    def prepare(self) -> None:
        """Counts the contents, or starts a thread that does, so that later look-ups are fast."""
        self._loaded()

    def refresh(self) -> bool:
        """Reads changes committed since, by any process; some microseconds if there are none. Returns whether there
        were any.

        Raises: StoreError when the file has become unreadable.
        """
        with _sentences(self.path):
            version = self._db.execute("PRAGMA data_version").fetchone()[0]
            done = self._following and self._following.done.is_set()
            if version == self._seen and not done:
                return False
            try:
                if done:
                    self._follow()
                self._read()
            except InputError as error:
                raise StoreError(f"{self.path} is damaged: {error}") from error
            self._seen = version
            return True

    # ---------------------------------------------------------------- what is in it

    @property
    def enabled(self) -> bool:
        """Whether drafts use it; as of the last look-up or `refresh`."""
        return self._about.get("enabled", "1") == "1"

    @property
    def learning(self) -> bool:
        """Whether it learns written and picked text; as of the last look-up or `refresh`. Off in a new store."""
        return self._about.get("learning", "0") == "1"

    @property
    def removals(self) -> int:
        """How often text was removed; as of the last look-up or `refresh`."""
        return int(self._about.get("removals", "0"))

    @property
    def relearning(self) -> bool:
        """Whether an adapter was removed together with text, and is to be trained again from the remaining text; as of
        the last look-up or `refresh`."""
        return self._about.get("relearn", "0") == "1"

    @property
    def adapting(self) -> bool:
        """Whether drafts use its adapter, if there is one that helps; as of the last look-up or `refresh`."""
        return self._about.get("adapter", "1") == "1"

    @property
    def strength(self) -> float | None:
        """The share of its adapter's change that drafts use, 0 to 1; None: that of the adapter's own result."""
        return self._strength

    def summary(self) -> dict[str, Any]:
        """Name, size in bytes, last change, switches and documents, for lists of stores."""
        self.refresh()
        documents = self.documents()
        return {
            "store": self.name,
            "enabled": self.enabled,
            "learning": self.learning,
            "bytes": sum(file.stat().st_size for file in self._files()),
            "changed": datetime.fromtimestamp(self._changed(), UTC).isoformat(timespec="seconds"),
            "tokens": sum(document.tokens for document in documents),
            "documents": [asdict(document) for document in documents],
        }

    def documents(self) -> list[LearnedText]:
        """Everything that was added, oldest first."""
        rows = self._query(
            "SELECT documents.id, origin, added, count(passages.id), coalesce(sum(length(text)), 0), "
            "coalesce(sum(passages.tokens), 0) FROM documents LEFT JOIN passages ON document = documents.id "
            "GROUP BY documents.id ORDER BY documents.id"
        )
        return [LearnedText(*row) for row in rows]

    def texts(self) -> Iterator[StoredText]:
        """Every document with its words, oldest first."""
        for number, origin, added, times in self._query("SELECT id, origin, added, times FROM documents ORDER BY id"):
            found = self._query("SELECT text FROM passages WHERE document = ? ORDER BY id", [number])
            yield StoredText(origin, added, times, tuple(text for (text,) in found))

    def token_ids(self) -> tuple[int, list[list[int]]]:
        """The ids of every document, oldest first, and the number of removals so far: see `unless_removed`."""
        with _sentences(self.path):
            self._db.execute("BEGIN")  # one state of the file
            try:
                removals = int(self._read_about()["removals"])
                rows = self._db.execute("SELECT document, ids FROM passages ORDER BY document, id").fetchall()
            finally:
                self._db.execute("COMMIT")
        documents: dict[int, list[int]] = {}
        for number, blob in rows:
            documents.setdefault(number, []).extend(_parts(blob)[0].tolist())
        return removals, list(documents.values())

    @contextmanager
    def unless_removed(self, removals: int, learned: bool = False) -> Iterator[None]:
        """A context for writing an adapter that was trained on the store's text. It locks the store against writing.

        Args:
            learned: the training is complete, so `relearning` ends.
        Raises: StoreError if text was removed since `removals` was read, because the adapter was trained on it.
        """
        with self._writing():
            if int(self._read_about()["removals"]) != removals:
                raise StoreError(
                    f"Text of {self.name} was forgotten or replaced meanwhile, so the training on it is discarded; "
                    f"run `polydraft learn {self.name}` again."
                )
            yield
            if learned:
                self._set("relearn", "0")

    def where(self, ids: Sequence[int]) -> dict[str, int]:
        """The number of occurrences of these tokens, by origin."""
        found: dict[str, int] = {}
        for origin, blob in self._rows("SELECT origin, ids FROM passages JOIN documents ON document = documents.id"):
            # A phrase's second part repeats its beginning.
            if times := max(_occurrences(part, ids) for part in _parts(blob)):
                found[origin] = found.get(origin, 0) + times
        return found

    def places(self, phrase: str) -> dict[str, int]:
        """The number of places of a phrase, by origin: those that `forget` would remove."""
        pattern, found = _whole_words(phrase), dict[str, int]()
        for origin, text in self._rows(_TEXTS):
            if times := len(pattern.findall(text)):
                found[origin] = found.get(origin, 0) + times
        return found

    def following(self, phrase: str) -> dict[str, dict[str, int]]:
        """The text after a phrase, up to the end of its line: each next word, or mark, with its number of occurrences
        by origin. Words are found as in `places`."""
        pattern = re.compile(_whole_words(phrase).pattern + _NEXT, re.IGNORECASE)
        found: dict[str, dict[str, int]] = {}
        for origin, text in self._rows(_TEXTS):
            for match in pattern.finditer(text):
                origins = found.setdefault(match[1], {})
                origins[origin] = origins.get(origin, 0) + 1
        return found

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest entries of a trie store, for merging and compiling."""
        documents = self.documents()
        tokens = sum(document.tokens for document in documents)
        source = {"name": self.name, "files": 1, "bytes": self.path.stat().st_size}
        return {
            "tokenizer": {
                "fingerprint": self.fingerprint,
                "name": self._about["tokenizer"],
                "vocab_size": int(self._about["vocab_size"]),
            },
            "orders": list(self.orders),
            "documents": len(documents),
            "tokens": tokens,
            "min_count": {str(n): 1 for n in self.orders},
            "closed": True,
            "sources": [source | {"documents": len(documents), "tokens": tokens}],
        }

    def ngrams(self) -> Iterator[tuple[tuple[int, ...], int, int]]:
        """All n-grams with count and total, in no particular order."""
        self.refresh()
        yield from self._loaded().ngrams()

    def check(self) -> list[str]:
        """The errors that SQLite's own check of the whole file finds; [] if there are none."""
        found = [row[0] for row in self._query("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found

    # ---------------------------------------------------------------- writing; every method is one transaction

    def add(self, origin: str, documents: Iterable[str], going: Callable[[], None] = lambda: None) -> int:
        """Adds documents in place of all documents of the same origin, unless they are the same. Returns their tokens.

        All or nothing: if the program ends half-way, the store is unchanged. Other programs may write to it while the
        documents are read.

        Args:
            going: called every few thousand characters; if it raises, nothing is added.
        Raises: InputError when the store would become too large.
        """
        stays = self._query(f"{_SIZE} JOIN documents ON document = documents.id WHERE origin <> ?", [origin])[0][0]
        held = list(self._prepared(documents, stays, going))
        with self._writing():
            rows = self._db.execute(
                "SELECT documents.id, text FROM documents JOIN passages ON document = documents.id WHERE origin = ? "
                "ORDER BY passages.id",
                [origin],
            ).fetchall()
            if [text for _, text in rows] == [one.text for one in held]:
                return sum(one.tokens for one in held)  # the store has exactly this already
            before = list(dict.fromkeys(number for number, _ in rows))
            self._remove(before)
            tokens = sum(self._insert(origin, [one], PHRASE if len(one.text) <= _SHORT else 1) for one in held)
            self._check_size()
        if before:
            self._scrub()
        return tokens

    def learn(self, text: str, times: int = PARAGRAPH, origin: str = TYPED) -> int:
        """Adds one phrase or paragraph with multiplicity `times`, and commits it. Returns its tokens."""
        if not 1 <= times <= MOST_TIMES:
            raise InputError(f"{times} times given; 1 to {MOST_TIMES} expected.")
        if not text.strip():
            return 0
        ready = self._ready(text)
        with self._writing():
            self._insert(origin, [ready], times)
            self._check_size()
        return ready.tokens

    def restore(self, documents: Iterable[StoredText]) -> int:
        """Adds documents as returned by `texts`, except those that the store already has. Returns their tokens.

        Raises: InputError when the store would become too large.
        """
        here, held, held_tokens = {_mark(text) for text in self.texts()}, list[tuple[StoredText, list[_Ready]]](), 0
        before = self._tokens()
        for text in documents:
            if _mark(text) not in here:
                held.append((text, list(self._prepared(text.passages, before + held_tokens))))
                held_tokens += sum(passage.tokens for passage in held[-1][1])
        with self._writing():
            here = {_mark(text) for text in self.texts()}  # another program may have added them meanwhile
            tokens = sum(
                self._insert(text.origin, passages, text.times, text.added)
                for text, passages in held
                if _mark(text) not in here
            )
            self._check_size()
        return tokens

    def forget(self, what: str) -> Forgotten:
        """Removes everything of the origin `what`, or, if there is no such origin, every place at
        which the phrase `what` occurs: whole words, in any case, with any space between them.

        The adapter that was trained on the store's text is removed too. No n-gram is counted across the gap of a
        removed phrase. When this returns with `complete`, neither the file nor its log contains the removed text.
        """
        with self._writing():
            learned_from = self.learned.exists()
            rows = self._db.execute("SELECT id FROM documents WHERE origin = ?", [what]).fetchall()
            if rows:
                numbers = [row[0] for row in rows]
                passages, places = self._remove(numbers), 0
            else:
                numbers, passages, places = [], *self._cut(what)
        complete = self._scrub() if passages or numbers else True
        adapter = learned_from and bool(passages or numbers)
        return Forgotten(len(numbers), passages, places, complete, adapter)

    def delete(self) -> None:
        """Removes the whole store: its texts as `forget` does, then its files. The store is closed. Others open on the
        same file should be closed too; those of a `Shelf` close at its next look-up."""
        with self._writing():
            self._remove([row[0] for row in self._db.execute("SELECT id FROM documents").fetchall()])
        self._scrub()
        self.close()
        remove_files(self.path)

    def switch(self, on: bool) -> None:
        """Switches the use of this store in drafts, everywhere it is open."""
        with self._writing():
            self._set("enabled", str(int(on)))

    def switch_learning(self, on: bool) -> None:
        """Switches learning of written and picked text."""
        with self._writing():
            self._set("learning", str(int(on)))

    def switch_adapter(self, on: bool) -> None:
        """Switches the use of its adapter in drafts."""
        with self._writing():
            self._set("adapter", str(int(on)))

    def set_strength(self, strength: float | None) -> None:
        """Sets `strength`. Raises InputError unless it is None or 0 to 1."""
        if strength is not None and not 0 <= strength <= 1:
            raise InputError(f"The strength {strength:g} was given; 0 to 1 expected.")
        with self._writing():
            self._set("strength", "" if strength is None else repr(float(strength)))

    def stop_relearning(self) -> None:
        """Its adapter stays removed until it is trained on request."""
        with self._writing():
            self._set("relearn", "0")

    # ---------------------------------------------------------------- SQLite

    def _prepare(self, create: bool) -> None:
        with _sentences(self.path):
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            made = bool(self._db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone())
            if version > VERSION:
                raise StoreError(
                    f"{self.path} has format version {version}; this program reads version {VERSION}. Update it."
                )
            if version == 0 and (made or not create):
                raise StoreError(f"{self.path} is not a personal store.")
            self._db.execute("PRAGMA secure_delete = ON")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            # Not every file system supports a write-ahead log, which needs memory shared between programs.
            mode = self._db.execute("PRAGMA journal_mode").fetchone()[0]
            if mode != "wal":  # read first: setting it takes a lock
                mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreError(
                    f"{self.path.parent} does not support personal stores: SQLite has no write-ahead log there, only "
                    f"{mode!r}. A network drive is the usual reason. Put your data folder on a disk of this machine "
                    "(on Linux: set XDG_DATA_HOME)."
                )
            if version == 0:
                self._create()
            elif not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'passages_tokens'").fetchone():
                self._db.execute(_INDEX)
        self._read_settings()
        if self._tokenizer is not None and self._about.get("fingerprint") != self._tokenizer.fingerprint:
            name = self._about.get("tokenizer", "another model")
            raise StoreError(
                f"{self.path} was made with the tokenizer of {name}, and its ids stand for other tokens here. "
                "Export it with `polydraft ngram export` and import it into a new store."
            )
        if self._about.get("scrub") == "1":
            self._scrub()

    def _create(self) -> None:
        assert self._tokenizer is not None
        with self._writing(read=False):
            if self._db.execute("PRAGMA user_version").fetchone()[0]:
                return  # another program was first
            self._db.create_table("about", {"key": str, "value": str}, pk="key")
            # AUTOINCREMENT: a number is never reused, so "larger than the last one read" means new.
            self._db.execute(
                "CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, origin TEXT NOT NULL, "
                "added TEXT NOT NULL, times INTEGER NOT NULL)"
            )
            self._db.execute(
                "CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES "
                "documents(id) ON DELETE CASCADE, text TEXT NOT NULL, tokens INTEGER NOT NULL, ids BLOB NOT NULL)"
            )
            self._db.table("documents").create_index(["origin"])
            self._db.execute(_INDEX)
            for key, value in {
                "fingerprint": self._tokenizer.fingerprint,
                "tokenizer": getattr(self._tokenizer, "name", "") or "the model it was made with",
                "vocab_size": str(len(self._tokenizer.pieces)),
                "enabled": "1",
                "learning": "0",
                "removals": "0",
                "scrub": "0",
            }.items():
                self._set(key, value)
            self._db.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _writing(self, read: bool = True) -> Iterator[None]:
        """One durable transaction; waits for other writers up to PATIENCE."""
        if read:
            self.refresh()  # errors show before anything is written
        with _sentences(self.path):
            self._db.execute("BEGIN IMMEDIATE")  # not deferred: a read that becomes a write cannot wait
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.conn.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._seen = None  # data_version changes only for commits of others

    def _changed(self) -> float:
        """When the file or its log last changed, seconds since 1970."""
        return max(file.stat().st_mtime for file in self._files())

    def _files(self) -> list[Path]:
        """The file and, if it exists, its log, which holds the latest commits."""
        log = self.path.with_name(self.path.name + "-wal")
        return [self.path, log] if log.exists() else [self.path]

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with _sentences(self.path):
            return self._db.execute(sql, values).fetchall()

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, so that not all texts are in memory."""
        with _sentences(self.path):
            yield from self._db.execute(sql)

    def _set(self, key: str, value: str) -> None:
        self._db.table("about").upsert({"key": key, "value": value}, pk="key")

    def _read_about(self) -> dict[str, str]:
        return dict(self._query("SELECT key, value FROM about"))

    def _read_settings(self) -> None:
        self._about = self._read_about()
        strength = self._about.get("strength") or None
        try:
            self._strength = None if strength is None else float(strength)
        except ValueError:
            self._strength = math.nan
        if self._strength is not None and not 0 <= self._strength <= 1:
            raise StoreError(f"{self.path} is damaged: its strength is {strength!r:.40}; 0 to 1 expected.")

    def _read(self) -> None:
        """Reads the state of the file."""
        self._read_settings()
        if self._counts is None or self._counted_at_once():
            return
        if not self._beside:
            self._take(self._tally.brought_up_to_date(self._db.conn, self._vocab_size))
        elif self._following is None:
            self._following = Following(self.path, self._tally, self._vocab_size)
            if self._following.done.wait(_MOMENT):
                self._follow()

    def _counted_at_once(self) -> bool:
        """Counts new passages, or all of them after a removal, if they are few; returns whether the counts are
        complete."""
        assert self._counts is not None
        tally, counts, last = self._tally, self._counts, self._last
        removals = int(self._about["removals"])
        if removals != tally.removals:
            tally, last = replace(Tally.empty(), removals=removals), 0
            counts = Counts(self._vocab_size, tally.windows)
        new, tokens = [], counts.fresh
        for row in self._db.execute(_NEW, [last]):
            tokens += len(row[2]) // 4
            if tokens > FRESH:
                return False
            new.append(row)
        for number, times, blob in new:
            for ids in _parts(blob):
                counts.add(ids.tolist(), times)
            last = number
        self._tally, self._counts, self._last = tally, counts, last
        return True

    def _follow(self) -> None:
        """Takes over the thread's counts, and counts the changes since."""
        assert self._following is not None
        following, self._following = self._following, None
        try:
            self._take(following.tally())
        except MemoryError as error:
            raise StoreError(f"{self.path} needs more memory for its counts than is free. Switch it off.") from error

    def _take(self, tally: Tally) -> None:
        self._tally, self._last = tally, tally.last
        self._counts = Counts(self._vocab_size, tally.windows)

    def _loaded(self) -> Counts:
        """The counts, computed at the first look-up; commands that only list documents need none."""
        if self._counts is None:
            self._counts = Counts(self._vocab_size, self._tally.windows)
            self._seen = None
            self.refresh()
        return self._counts

    @property
    def _vocab_size(self) -> int:
        return int(self._about["vocab_size"])

    def _insert(self, origin: str, passages: Sequence[_Ready], times: int, added: str | None = None) -> int:
        added = added or datetime.now(UTC).isoformat(timespec="seconds")
        number = self._db.table("documents").insert({"origin": origin, "added": added, "times": times}).last_pk
        return sum(self._insert_passage(number, passage) for passage in passages)

    def _insert_passage(self, document: Any, passage: _Ready) -> int:
        self._db.table("passages").insert({"document": document, **asdict(passage)})
        return passage.tokens

    def _ready(self, text: str, going: Callable[[], None] = lambda: None) -> _Ready:
        """A passage to insert."""
        if self._tokenizer is None:
            raise InputError(f"{self.path} was opened without a tokenizer, so no text can be added.")
        text = _sound(text)
        ids: list[int] = []
        for part in _portions(text):
            going()
            ids += self._tokenizer.encode(part)
        parts = ids
        if len(text) <= _SHORT and not text[0].isspace():
            # A phrase may also occur within a line, where its first token begins with the space before it. So its
            # beginning is stored once more in that form, as far as n-grams that contain the first token reach.
            parts = [*ids, BREAK, *self._tokenizer.encode(" " + text)[:ORDER]]
        return _Ready(text, len(ids), np.array(parts, dtype="<u4").tobytes())

    def _prepared(
        self, texts: Iterable[str], tokens: int, going: Callable[[], None] = lambda: None
    ) -> Iterator[_Ready]:
        """Passages to insert, in addition to `tokens` that remain. Raises InputError as soon as they are too many."""
        characters = 0
        for text in texts:
            if not text.strip():
                continue
            characters += len(text)
            if characters > LONGEST:
                raise InputError(f"More than {LONGEST:,} characters at once. Nothing was added; add them in parts.")
            ready = self._ready(text, going)
            tokens += ready.tokens
            self._check_size(tokens)
            yield ready

    def _tokens(self) -> int:
        return self._query(_SIZE)[0][0]

    def _check_size(self, tokens: int | None = None) -> None:
        """Raises InputError when the store, or a store with this many tokens, is too large."""
        if (tokens := self._tokens() if tokens is None else tokens) > LARGEST:
            raise InputError(
                f"The store {self.name} would have {tokens:,} tokens or more; at most {LARGEST:,} are possible. "
                "Nothing was added. Forget some text first, or add this to another store: several may be on at once."
            )

    def _remove(self, documents: Sequence[int]) -> int:
        """Deletes documents with their passages; returns the number of passages."""
        passages = 0
        for number in documents:
            passages += self._db.execute("SELECT count(*) FROM passages WHERE document = ?", [number]).fetchone()[0]
            self._db.table("documents").delete(number)
        if documents:
            self._removed()
        return passages

    def _cut(self, phrase: str) -> tuple[int, int]:
        """Cuts a phrase out of every passage; returns the number of passages and places."""
        pattern = _whole_words(phrase)
        passages = places = 0
        for (number,) in self._db.execute("SELECT id FROM passages").fetchall():
            document, text = self._db.execute("SELECT document, text FROM passages WHERE id = ?", [number]).fetchone()
            pieces = pattern.split(text)
            if len(pieces) == 1:
                continue
            passages, places = passages + 1, places + len(pieces) - 1
            self._db.table("passages").delete(number)
            for piece in pieces:
                if piece.strip():
                    self._insert_passage(document, self._ready(piece))
        if passages:
            self._db.execute("DELETE FROM documents WHERE id NOT IN (SELECT document FROM passages)")
            self._removed()
        return passages, places

    def _removed(self) -> None:
        if learned.remove(self.learned):  # before the commit: it must not outlive the text
            self._set("relearn", "1")
        self._set("removals", str(int(self._read_about()["removals"]) + 1))
        self._set("scrub", "1")

    def _scrub(self) -> bool:
        """Truncates the log, which still contains deleted text. False while another program keeps it open."""
        with _sentences(self.path):
            busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            return False
        with self._writing():
            self._set("scrub", "0")
        return True


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remove_files(path: Path) -> None:
    """Removes a store's file, its log and its adapter, without opening them. Raises StoreError when the system
    refuses."""
    learned.remove(learned.folder_of(path))
    try:
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be removed: {error.strerror or error}.") from error


def _whole_words(phrase: str) -> re.Pattern[str]:
    """Finds a phrase in any case, with any space between its words, where no longer word begins or ends with it."""
    words = phrase.split()
    if not words:
        raise InputError("No words given; give a phrase or a document.")
    return re.compile(r"(?<!\w)" + r"\s+".join(map(re.escape, words)) + r"(?!\w)", re.IGNORECASE)


def _mark(text: StoredText) -> tuple[str, str, tuple[str, ...]]:
    return text.origin, text.added, text.passages


def _sound(text: str) -> str:
    """The text with halves of surrogate pairs, which no file can hold, as U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def _portions(text: str) -> Iterator[str]:
    """A text in portions of some thousand characters, cut before white space, where a token also begins."""
    start = 0
    while len(text) - start > _ENCODED:
        found = _SPACE.search(text, start + _ENCODED // 2, start + _ENCODED)
        end = found.start() if found else start + _ENCODED
        yield text[start:end]
        start = end
    yield text[start:]


def _parts(blob: bytes) -> list[np.ndarray]:
    """The runs of ids in a stored passage."""
    ids = np.frombuffer(blob, dtype="<u4").astype(np.int64)
    breaks = np.flatnonzero(ids == BREAK)
    return [part[part != BREAK] for part in np.split(ids, breaks)]


def _occurrences(ids: np.ndarray, wanted: Sequence[int]) -> int:
    if not 0 < len(wanted) <= len(ids):
        return 0
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(wanted))
    return int((windows == list(wanted)).all(axis=1).sum())


@contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into ours, with a remedy."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise StoreError(f"{path} is being written by another program; try again in a moment.") from error
        raise StoreError(f"{path} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is damaged or not a personal store: {error}.") from error
