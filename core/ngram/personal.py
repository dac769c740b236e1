"""A personal store: one person's text, in one SQLite file, looked up like any other store.

The file (`personal_file.py`) contains texts and their token ids (`passages.py`). The counts are computed from them, in
memory or for older text of a large store in a second file (`counts_file.py`), and updated after every commit, of this
process or another (`personal_counts.py`). So an added phrase takes effect at the next look-up, and forgetting a text
also removes its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import numpy as np

from core.errors import InputError
from core.ngram import counts_file, learned
from core.ngram.counts import Counts
from core.ngram.errors import StoreError
from core.ngram.folders import Folders
from core.ngram.held_passages import HeldPassages
from core.ngram.passages import SHORT, StoredPassage, occurrences, runs, whole_words, word_after
from core.ngram.personal_counts import PersonalCounts
from core.ngram.personal_file import PersonalFile
from core.ngram.plain import plain
from core.ngram.removed import Extent, Forgotten, Removed, Undone
from core.ngram.store import CandidateIds, Contexts, TypedEvidence
from core.ngram.stored_texts import TYPED, StoredTexts
from core.ngram.summaries import LearnedText, StoreSummary
from core.ngram.switches import Switches
from core.ngram.windows import ORDER

if TYPE_CHECKING:  # its module imports torch
    from core.models.base import Tokenizer

MOST_TIMES = 1000  # the maximum multiplicity of a text

# The multiplicity of a phrase that was added on purpose, and of a paragraph that was just written. Of the sequences
# that a long text contains once, one in five occurs again; an added phrase is certainly
# wanted.
PHRASE, PARAGRAPH = 4, 2
AT_ONCE = 1 << 23  # tokens that are added in one transaction; others wait for it a few seconds


@dataclass(frozen=True)
class StoredText:
    """A document with its words: `passages` are its parts, between which text may have been forgotten."""

    origin: str
    added: str
    times: int
    passages: tuple[str, ...]


class PersonalStore(Switches):
    """One personal store. Use it from one thread at a time; each thread or process may open its own.

    Attributes:
        path: the SQLite file.
        orders: orders that give probabilities.
        folders: those that it stays in step with.
        fingerprint: of the tokenizer whose ids these are.
    """

    def __init__(self, file: PersonalFile, tokenizer: Tokenizer | None, in_background: bool = False) -> None:
        """Use `PersonalStore.open`."""
        self.path, self.orders = file.path, tuple(range(2, ORDER + 1))
        self._file = file
        self._texts = StoredTexts(file, tokenizer)
        self.folders = Folders(file)
        self._counts = PersonalCounts(file, in_background)
        self._seen: tuple[int, int] | None = None  # the state of the file that was read
        self._aside = False  # whether the running transaction removes the adapter

    @classmethod
    def open(
        cls, path: str | Path, tokenizer: Tokenizer | None = None, create: bool = False, in_background: bool = False
    ) -> PersonalStore:
        """Opens a store, or creates an empty one.

        Args:
            path: the file.
            tokenizer: whose ids will be looked up; needed to add text and to forget phrases.
            create: create the file if it does not exist.
            in_background: a look-up never waits for the counting of more than a few new tokens: a thread updates
                the counts, and the look-up uses the previous ones.

        Raises: StoreError if it does not exist, or is not a personal store of this version and tokenizer.
        """
        first = None
        if create:
            if tokenizer is None:
                raise InputError("A new personal store needs a tokenizer.")
            first = {
                "fingerprint": tokenizer.fingerprint,
                "tokenizer": getattr(tokenizer, "name", "") or "the model it was made with",
                "vocab_size": str(len(tokenizer.pieces)),
                "enabled": "1",
                "learning": "0",
                "removals": "0",
                "scrub": "0",
                "identity": token_hex(8),
            }
        file = PersonalFile.open(Path(path), first)
        try:
            store = cls(file, tokenizer, in_background)
            store.read_settings()
            if tokenizer is not None and file.settings.get("fingerprint") != tokenizer.fingerprint:
                name = file.settings.get("tokenizer", "another model")
                raise StoreError(
                    f"{path} was made with the tokenizer of {name}, and its ids stand for other tokens here. "
                    "Export it with `polydraft ngram export` and import it into a new store."
                )
            if file.settings.get("scrub") == "1":
                file.scrub()
            if learned.aside_of(store.path).exists():
                store._finish_removal()
        except BaseException:
            file.close()
            raise
        return store

    def close(self) -> None:
        self._counts.stop()
        self._file.close()

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
        return self._file.in_place()

    @property
    def fingerprint(self) -> str:
        return self._file.settings["fingerprint"]

    # ---------------------------------------------------------------- looking things up

    def evidence(
        self, contexts: Contexts, candidates: CandidateIds, orders: Sequence[int] | None = None
    ) -> TypedEvidence:
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

    def quick_continuations(self, context: Sequence[int], limit: int) -> list[tuple[int, int]]:
        """`continuations`, which are cached until the counts change."""
        return self._loaded().quick_continuations(context, limit)

    def prepare(self) -> None:
        """Counts the contents, or starts a thread that does, so that later look-ups are fast."""
        self._loaded()

    def settle(self, alive: Callable[[], None] = lambda: None) -> None:
        """Writes the counts of a large store to its file, so that no look-up waits for them, and takes out what was
        removed. Cheap for a small store, and where nothing is to be done.

        Args:
            alive: called repeatedly; if it raises, the file stays as it was.
        Raises: StoreError when the file cannot be written, or the store is damaged.
        """
        self._counts.settle(alive)

    def refresh(self) -> bool:
        """Reads changes committed since, by any process; some microseconds if there are none. Returns whether there
        were any.

        Raises: StoreError when the file has become unreadable.
        """
        state = self._file.state()
        if state == self._seen and not self._counts.arrived:
            return False
        self.read_settings()
        self._counts.update()
        self._seen = state
        return True

    # ---------------------------------------------------------------- what is in it

    def summary(self) -> StoreSummary:
        """The entry of this store in lists of stores."""
        self.refresh()
        documents = self.documents()
        return {
            "store": self.name,
            "enabled": self.enabled,
            "learning": self.learning,
            "bytes": sum(file.stat().st_size for file in self._file.files()),
            "changed": datetime.fromtimestamp(self._file.changed(), UTC).isoformat(timespec="seconds"),
            "tokens": sum(document["tokens"] for document in documents),
            "documents": documents,
            "folders": [self.folders.summary(folder) for folder in self.folders.all()],
            "senders": self.senders,
        }

    def words(self) -> int:
        """How many words it contains: a walk over all texts."""
        return sum(len(text.split()) for (text,) in self._file.rows("SELECT text FROM passages", (str,)))

    def sample(self, most: int) -> Iterator[str]:
        """At most so many of its texts, evenly spread."""
        numbers = [number for (number,) in self._file.rows("SELECT id FROM passages ORDER BY id", (int,))]
        for i in range(min(most, len(numbers))):
            number = numbers[i * len(numbers) // min(most, len(numbers))]
            yield from (text for (text,) in self._file.rows("SELECT text FROM passages WHERE id = ?", (str,), [number]))

    def is_full(self, without: str) -> bool:
        """Whether there is hardly room for documents that take the place of those of an origin."""
        return self._texts.is_full(without)

    def documents(self) -> list[LearnedText]:
        """Everything that was added, oldest first."""
        rows = self._file.query(
            "SELECT documents.id, origin, added, count(passages.id), coalesce(sum(length(text)), 0), "
            "coalesce(sum(passages.tokens), 0) FROM documents LEFT JOIN passages ON document = documents.id "
            "GROUP BY documents.id ORDER BY documents.id",
            types=(int, str, str, int, int, int),
        )
        return [
            LearnedText(number=n, origin=origin, added=added, passages=passages, characters=characters, tokens=tokens)
            for n, origin, added, passages, characters, tokens in rows
        ]

    def texts(self) -> Iterator[StoredText]:
        """Every document with its words, oldest first."""
        for number, origin, added, times in self._file.query(
            "SELECT id, origin, added, times FROM documents ORDER BY id", types=(int, str, str, int)
        ):
            passages = self._file.query("SELECT text FROM passages WHERE document = ? ORDER BY id", [number], (str,))
            yield StoredText(origin, added, times, tuple(text for (text,) in passages))

    def token_ids(self) -> tuple[int, list[np.ndarray]]:
        """The ids (uint32) of every document, oldest first, and the number of removals so far: see
        `unless_removed`."""
        documents: dict[int, list[np.ndarray]] = {}
        with self._file.reading():
            removals = int(self._file.setting("removals"))
            rows = self._file.rows("SELECT document, ids FROM passages ORDER BY document, id", (int, bytes))
            for number, blob in rows:
                documents.setdefault(number, []).append(runs(blob)[0].astype(np.uint32))
        return removals, [np.concatenate(parts) for parts in documents.values()]

    @property
    def mark(self) -> object:
        """A value that differs after every commit, as of the last `refresh`."""
        return self.path, self.identity, self.removals, self._seen

    def newest_ids(self, most: int) -> list[list[int]]:
        """The runs of tokens that were added last, oldest first: all, or from `most` to 1.5 times as many. The
        beginning moves once for every `most` / 2 tokens, so that what was computed from it stays useful."""
        block = max(most // 2, 1)
        with self._file.reading():
            ((tokens,),) = self._file.query("SELECT coalesce(sum(tokens), 0) FROM passages", types=(int,))
            left_out = max(tokens - most, 0) // block * block
            first = self._file.query(
                "SELECT id, upto - tokens FROM (SELECT id, tokens, sum(tokens) OVER (ORDER BY id) AS upto "
                "FROM passages) WHERE upto > ? ORDER BY id LIMIT 1",
                [left_out],
                (int, int),
            )
            passages: list[list[int]] = []
            for number, before in first:
                for (blob,) in self._file.query(
                    "SELECT ids FROM passages WHERE id >= ? ORDER BY id", [number], (bytes,)
                ):
                    passages += [run.tolist() for run in runs(blob)]
                passages[0] = passages[0][max(left_out - before, 0) :]
        return passages

    @contextmanager
    def unless_removed(self, removals: int, learned: bool = False) -> Iterator[None]:
        """A context for writing an adapter that was trained on the store's text. It locks the store against writing.

        Args:
            learned: the training is complete, so `relearning` ends.
        Raises: StoreError if text was removed since `removals` was read, because the adapter was trained on it.
        """
        with self._writing():
            if int(self._file.setting("removals")) != removals:
                raise StoreError(
                    f"Text of {self.name} was forgotten or replaced meanwhile, so the training on it is discarded; "
                    f"run `polydraft learn {self.name}` again."
                )
            yield
            if learned:
                self._file.set("relearn", "0")

    def where(self, ngrams: Sequence[Sequence[int]]) -> list[dict[str, int]]:
        """The number of occurrences of each n-gram, by origin: one walk over all passages."""
        query = "SELECT origin, ids FROM passages JOIN documents ON document = documents.id"
        return occurrences(self._file.rows(query, (str, bytes)), ngrams)

    def occurrences(self, phrase: str) -> dict[str, int]:
        """The number of occurrences of a phrase, by origin: those that `forget_phrase` would remove."""
        pattern, by_origin = whole_words(phrase), dict[str, int]()
        for _, _, origin, text in self._texts.candidates(phrase):
            if times := len(pattern.findall(text)):
                by_origin[origin] = by_origin.get(origin, 0) + times
        return by_origin

    def following(self, phrase: str) -> dict[str, dict[str, int]]:
        """The text after a phrase, up to the end of its line: each next word, or mark, with its number of occurrences
        by origin. Words are found as in `occurrences`."""
        pattern = word_after(phrase)
        by_word: dict[str, dict[str, int]] = {}
        for _, _, origin, text in self._texts.candidates(phrase):
            for match in pattern.finditer(text):
                origins = by_word.setdefault(match[1], {})
                origins[origin] = origins.get(origin, 0) + 1
        return by_word

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest entries of a trie store, for merging and compiling."""
        documents = self.documents()
        tokens = sum(document["tokens"] for document in documents)
        source = {"name": self.name, "files": 1, "bytes": self.path.stat().st_size}
        return {
            "tokenizer": {
                "fingerprint": self.fingerprint,
                "name": self._file.settings["tokenizer"],
                "vocab_size": int(self._file.settings["vocab_size"]),
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
        return self._file.check()

    # ---------------------------------------------------------------- writing; every method is one transaction

    def add(
        self,
        origin: str,
        documents: Iterable[str],
        check_cancelled: Callable[[], None] = lambda: None,
        leave_out: Callable[[StoredPassage], None] | None = None,
    ) -> int:
        """Adds documents in place of all documents of the same origin; those that are the same stay. Returns their
        tokens.

        All or nothing, up to `AT_ONCE` tokens: if the program ends half-way, the store is unchanged. Of more, a program
        that is killed leaves a part, and adding them again adds the rest. Other programs may write to the store while
        the documents are read, and between two parts.

        Args:
            check_cancelled: called every few thousand characters; if it raises, nothing is added.
            leave_out: called for each document that has no room; the last ones are added. None: raises InputError.
        Raises: InputError when the store would become too large.
        """
        stays = self._texts.tokens(without=origin)
        held = HeldPassages()
        self._texts.prepare(held, documents, stays, check_cancelled, leave_out)
        version, missing = None, len(held)
        gone, left = list[int](), iter(held)
        while missing or version is None:
            with self._writing():
                if (now := self._file.version()) != version:  # first, or another program has written since
                    gone, new = self._texts.differing(origin, held)
                    version, missing = now, len(new)
                    left = _chosen(held, new)
                for passage in _first(left, AT_ONCE):
                    self._texts.insert(origin, [passage], PHRASE if len(passage.text) <= SHORT else 1)
                    missing -= 1
                if not missing:
                    self._remove(gone)
                    self._texts.check_size()
        if gone:
            self._file.scrub()
        return held.tokens

    def learn(self, text: str, times: int = PARAGRAPH, origin: str = TYPED) -> int:
        """Adds one phrase or paragraph with multiplicity `times`, and commits it. Returns its tokens."""
        if not 1 <= times <= MOST_TIMES:
            raise InputError(f"{times} times given; 1 to {MOST_TIMES} expected.")
        if not plain(text).strip():
            return 0
        ready = self._texts.passage(text)
        with self._writing():
            self._texts.insert(origin, [ready], times)
            self._texts.check_size()
        return ready.tokens

    def restore(self, documents: Iterable[StoredText]) -> int:
        """Adds documents as returned by `texts`, except those that the store already has. Returns their tokens.

        Raises: InputError when the store would become too large.
        """
        here, size = {_mark(text) for text in self.texts()}, self._texts.tokens()
        held = HeldPassages()
        new: list[tuple[bytes, StoredText, int]] = []  # the texts without their words, and the number of their passages
        for text in documents:
            if (mark := _mark(text)) not in here:
                before = len(held)
                self._texts.prepare(held, text.passages, size)
                new.append((mark, replace(text, passages=()), len(held) - before))
        with self._writing():
            here = {_mark(text) for text in self.texts()}  # another program may have added them meanwhile
            passages, tokens = iter(held), 0
            for mark, text, count in new:
                parts = [*islice(passages, count)]
                if mark not in here:
                    tokens += self._texts.insert(text.origin, parts, text.times, text.added)
            self._texts.check_size()
        return tokens

    def document_extent(self, *origins: str) -> Extent:
        """What `forget_document` would remove."""
        return self._texts.extent(self._texts.numbers(*origins))

    def phrase_extent(self, phrase: str) -> Extent:
        """What `forget_phrase` would remove."""
        return self._texts.found(phrase)[1]

    def forget_document(self, *origins: str, keep: int = 0) -> Forgotten:
        """Removes all documents of these origins; with their folder they are not learned again.

        The adapter that was trained on the store's text is removed too. When this returns with `complete`, neither the
        file nor its log contains the removed text.

        Args:
            keep: the bytes that the result may contain to undo this, in memory.
        """
        with self._writing():
            numbers = self._texts.numbers(*origins)
            extent, removed = self._texts.extent(numbers), self._kept(numbers, keep)
            self._remove(numbers)
            self.folders.mark(origins, forgotten=True)
            adapter = self._aside
        return self._forgotten(extent, adapter, removed)

    def forget_phrase(self, phrase: str, keep: int = 0) -> Forgotten:
        """Removes every place at which the phrase occurs: whole words, in any case, with any space between them.

        As `forget_document`. No n-gram is counted across the gap.
        """
        with self._writing():
            occurrences, extent = self._texts.found(phrase)
            removed = self._kept(sorted(set(occurrences.values())), keep)
            if occurrences:
                self._texts.cut(phrase, occurrences)
                self._removed()
            adapter = self._aside
        return self._forgotten(extent, adapter, removed)

    def undo(self, removed: Removed) -> Undone:
        """Puts text back that was just forgotten, and the adapter that was removed with it.

        The adapter had learned no other text than what is in the store afterwards, because nothing else was removed
        meanwhile. If it cannot be written, it is to be trained again.

        Raises: StoreError if more text was removed since, because the text to put back may contain it; or if the
            document was added again; or for another store.
        """
        with self._writing():
            if (self.identity, self.removals) != (removed.store, removed.after):
                raise StoreError(
                    f"This can no longer be undone: other text of {self.name} was removed or replaced since. "
                    "Add the text again."
                )
            for document in removed.documents:
                self._texts.put_back(document, removed.last)
            self.folders.mark({document.origin for document in removed.documents}, forgotten=False)
            self._texts.check_size()
            # A training of what was left must neither go on nor write over the adapter.
            self._file.set("removals", str(removed.after + 1))
            if removed.adapter:
                self._file.set("relearn", "1")
        tokens = sum(passage.tokens for document in removed.documents for passage in document.passages)
        adapter = bool(removed.adapter)
        if adapter:
            try:
                with self.unless_removed(removed.after + 1, learned=True):  # after the text: it must not be there alone
                    learned.restore(self.path, removed.adapter)
            except StoreError:
                adapter = False  # `relearning` says so
        return Undone(tokens, removed.after + 1, adapter)

    def delete(self) -> None:
        """Removes the whole store: its texts as `forget_document` does, then its files. The store is closed. Others
        open on the same file should be closed too; those of a `Shelf` close at its next look-up."""
        with self._writing():
            self._remove([row[0] for row in self._file.query("SELECT id FROM documents")])
        self._file.scrub()
        self.close()
        remove_files(self.path)

    def remove_unfinished(self) -> None:
        """Removes what a training that was killed left beside its adapter."""
        if learned.unfinished(self.learned):
            with self._writing():  # so no training is writing
                learned.remove_unfinished(self.learned)

    # ---------------------------------------------------------------- the state of the file

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One durable transaction. The adapter that it removes is back if it fails."""
        self.refresh()  # errors show before anything is written
        self._aside = False
        try:
            with self._file.writing():
                self._file.read_settings()
                yield
        except BaseException:
            if self._aside:
                learned.put_back(self.path)
            raise
        if self._aside:
            learned.remove(learned.aside_of(self.path))

    def _finish_removal(self) -> None:
        """After a process was killed while it removed text: removes the adapter that it had put aside. It is not known
        whether the text is gone."""
        with self._file.writing():
            if learned.remove(learned.aside_of(self.path)):
                self._file.set("relearn", "1")

    def _loaded(self) -> Counts:
        """The counts, computed at the first look-up."""
        if not self._counts.started():
            self._seen = None
            self.refresh()
        return self._counts.latest

    # ---------------------------------------------------------------- removals, within a transaction

    def _remove(self, documents: Sequence[int]) -> None:
        if documents:
            self._texts.remove(documents)
            self._removed()

    def _removed(self) -> None:
        if learned.put_aside(self.path):  # before the commit: it must not outlive the text
            self._aside = True
            self._file.set("relearn", "1")
        self._file.set("removals", str(self.removals + 1))
        self._file.set("scrub", "1")

    def _kept(self, documents: Sequence[int], most: int) -> Removed | None:
        """What undoes the removal of these documents, or of parts of them; None without any, or of more than `most`
        bytes."""
        size = self._texts.extent(documents).bytes
        if not documents or size > most:
            return None
        return Removed(
            self.identity,
            self.removals,
            self.removals + 1,
            self._file.query("SELECT max(id) FROM documents")[0][0],
            tuple(self._texts.document(number) for number in documents),
            learned.contents(self.learned, most - size),
        )

    def _forgotten(self, extent: Extent, adapter: bool, removed: Removed | None) -> Forgotten:
        complete = True
        if extent.documents or extent.passages:
            self._counts.forget()
            complete = self._file.scrub()
        return Forgotten(**asdict(extent), complete=complete, adapter=adapter, removed=removed)


def remove_files(path: Path) -> None:
    """Removes a store's file, its log, its counts and its adapter, without opening them. Raises StoreError when the
    system refuses."""
    for folder in (learned.folder_of(path), learned.aside_of(path)):
        learned.remove(folder)
    try:
        counts_file.remove(path)
        counts_file.lock_of(path).unlink(missing_ok=True)
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be removed: {error.strerror or error}.") from error


def _chosen(passages: Iterable[StoredPassage], places: set[int]) -> Iterator[StoredPassage]:
    return (passage for place, passage in enumerate(passages) if place in places)


def _first(passages: Iterable[StoredPassage], tokens: int) -> Iterator[StoredPassage]:
    """The first passages with at least so many tokens together, or all."""
    for passage in passages:
        yield passage
        tokens -= passage.tokens
        if tokens <= 0:
            return


def _mark(text: StoredText) -> bytes:
    """A digest by which a document is found again: one for each of a hundred thousand mails stays in memory."""
    digest = blake2b(digest_size=16)
    for part in (text.origin, text.added, *map(plain, text.passages)):
        digest.update(f"{len(part)} {part}".encode(errors="surrogatepass"))
    return digest.digest()
