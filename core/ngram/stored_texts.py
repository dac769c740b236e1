"""The documents of a personal store: their rows in its file, within a transaction of the caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from core.ngram.errors import StoreError
from core.ngram.held_passages import HeldPassages
from core.ngram.passages import StoredPassage, encoded, likely, whole_words
from core.ngram.personal_file import PersonalFile
from core.ngram.plain import plain
from core.ngram.removed import Extent, RemovedDocument

if TYPE_CHECKING:  # its module imports torch
    from core.models.base import Tokenizer

TYPED = "typed"  # origin of text learned from writing
LARGEST = 100_000_000  # tokens of a store
LONGEST = 8 * LARGEST  # characters added at a time

_SIZE = "SELECT coalesce(sum(tokens), 0) FROM passages"
# Of a document: its passages, their characters, and the bytes of their rows.
_SIZES = (
    "SELECT count(*), coalesce(sum(length(text)), 0), coalesce(sum(length(CAST(text AS BLOB)) + length(ids)), 0) "
    "FROM passages WHERE document = ?"
)


class StoredTexts:
    """Inserts, counts and removes documents with their passages."""

    def __init__(self, file: PersonalFile, tokenizer: Tokenizer | None) -> None:
        """`tokenizer` is needed to add text and to cut phrases out."""
        self._file, self._tokenizer = file, tokenizer

    # ---------------------------------------------------------------- what is there

    def tokens(self, without: str | None = None) -> int:
        """The number of tokens, without the documents of one origin."""
        tokens = self._file.query(_SIZE)[0][0]
        if without is not None:
            tokens -= self._file.query(
                f"{_SIZE} WHERE document IN (SELECT id FROM documents WHERE origin = ?)", [without]
            )[0][0]
        return tokens

    def is_full(self, without: str) -> bool:
        """Whether hardly any text has room besides the documents of other origins."""
        return self.tokens(without) >= LARGEST - LARGEST // 1000

    def numbers(self, *origins: str) -> list[int]:
        """The numbers of the documents of these origins, oldest first."""
        query = "SELECT id FROM documents WHERE origin = ?"
        return sorted(number for origin in set(origins) for (number,) in self._file.query(query, [origin]))

    def extent(self, documents: Sequence[int]) -> Extent:
        """Of whole documents."""
        rows = [self._file.query(_SIZES, [number])[0] for number in documents]
        passages, characters, size = (sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0, 0)
        return Extent(len(documents), passages, 0, characters, size)

    def candidates(self, phrase: str) -> Iterator[tuple[int, int, str, str]]:
        """The passages that may contain a phrase: number, document, origin, and text."""
        patterns = likely(phrase)
        yield from self._file.rows(
            "SELECT passages.id, document, origin, text FROM passages JOIN documents ON document = documents.id "
            f"WHERE {' OR '.join(['text LIKE ?'] * len(patterns))} ORDER BY passages.id",
            (int, int, str, str),
            patterns,
        )

    def found(self, phrase: str) -> tuple[dict[int, int], Extent]:
        """The passages that contain a phrase, with their documents; and what cutting it out removes."""
        pattern, documents, occurrences, characters = whole_words(phrase), dict[int, int](), 0, 0
        for number, document, _, text in self.candidates(phrase):
            if lengths := [match.end() - match.start() for match in pattern.finditer(text)]:
                documents[number] = document
                occurrences, characters = occurrences + len(lengths), characters + sum(lengths)
        touched = self.extent(sorted(set(documents.values())))
        return documents, Extent(0, len(documents), occurrences, characters, touched.bytes)

    def document(self, number: int) -> RemovedDocument:
        """A whole document, to be put back later."""
        ((origin, added, times),) = self._file.query(
            "SELECT origin, added, times FROM documents WHERE id = ?", [number]
        )
        rows = self._file.query("SELECT text, tokens, ids FROM passages WHERE document = ? ORDER BY id", [number])
        return RemovedDocument(number, origin, added, times, tuple(StoredPassage(*row) for row in rows))

    # ---------------------------------------------------------------- changes

    def insert(self, origin: str, passages: Sequence[StoredPassage], times: int, added: str | None = None) -> int:
        """Adds a document; returns its tokens."""
        added = added or datetime.now(UTC).isoformat(timespec="seconds")
        row = self._file.db.execute(
            "INSERT INTO documents (origin, added, times) VALUES (?, ?, ?)", [origin, added, times]
        )
        return sum(self._insert_passage(row.lastrowid, passage) for passage in passages)

    def _insert_passage(self, document: Any, passage: StoredPassage) -> int:
        self._file.db.execute(
            "INSERT INTO passages (document, text, tokens, ids) VALUES (?, ?, ?, ?)",
            [document, passage.text, passage.tokens, passage.ids],
        )
        return passage.tokens

    def passage(self, text: str, check_cancelled: Callable[[], None] = lambda: None) -> StoredPassage:
        """A text as a passage of this store."""
        if self._tokenizer is None:
            raise InputError(f"{self._file.path} was opened without a tokenizer, so no text can be added.")
        return encoded(text, self._tokenizer, check_cancelled)

    def prepare(
        self,
        held: HeldPassages,
        texts: Iterable[str],
        tokens: int,
        check_cancelled: Callable[[], None] = lambda: None,
        leave_out: Callable[[StoredPassage], None] | None = None,
    ) -> None:
        """Appends texts as passages to insert, in addition to `tokens` that remain.

        Args:
            leave_out: called for each passage that has no room; the last ones are kept. None: raises InputError as soon
                as they are too many.
        """
        for text in texts:
            if not plain(text).strip():
                continue
            held.append(self.passage(text, check_cancelled))
            while leave_out and len(held) and (tokens + held.tokens > LARGEST or held.characters > LONGEST):
                leave_out(held.popleft())
            check_length(held.characters)
            self.check_size(tokens + held.tokens)

    def check_size(self, tokens: int | None = None) -> None:
        """Raises InputError when the store, or a store with this many tokens, is too large."""
        tokens = self.tokens() if tokens is None else tokens
        if tokens > LARGEST:
            raise InputError(
                f"The store {self._file.path.stem} would have {tokens:,} tokens or more; at most {LARGEST:,} are "
                "possible. Nothing was added. Forget some text first, or add this to another store: several may be on."
            )

    def differing(self, origin: str, passages: HeldPassages) -> tuple[list[int], set[int]]:
        """What differs between the documents of an origin and others that are to take their place: the numbers of those
        to remove, and the places of those to add."""
        rows = self._file.rows(
            "SELECT documents.id, count(passages.id), text FROM documents JOIN passages ON document = documents.id "
            "WHERE origin = ? GROUP BY documents.id ORDER BY documents.id",
            (int, int, str),
            [origin],
        )
        places: dict[bytes, deque[int]] = {}
        gone: list[int] = []
        left = set(range(len(passages)))
        for number, parts, text in rows:
            if not places:  # only where there is something to compare with
                for place, passage in enumerate(passages):
                    places.setdefault(_digest(passage.text), deque()).append(place)
            if parts == 1 and (same := places.get(_digest(text))):
                left.discard(same.popleft())
            else:
                gone.append(number)
        return gone, left

    def remove(self, documents: Sequence[int]) -> None:
        """Deletes documents with their passages."""
        self._file.db.conn.executemany("DELETE FROM documents WHERE id = ?", [[number] for number in documents])

    def cut(self, phrase: str, passages: Mapping[int, int]) -> None:
        """Cuts a phrase out of these passages, given with their documents."""
        pattern = whole_words(phrase)
        for number, document in passages.items():
            ((text,),) = self._file.query("SELECT text FROM passages WHERE id = ?", [number], (str,))
            self._file.db.table("passages").delete(number)
            for piece in pattern.split(text):
                if piece.strip():
                    self._insert_passage(document, self.passage(piece))
        self._file.db.execute("DELETE FROM documents WHERE id NOT IN (SELECT document FROM passages)")

    def put_back(self, document: RemovedDocument, last: int) -> None:
        """Restores a document under its own number, so that the order of the texts is the same; its passages get new
        numbers, by which readers recognise new text."""
        origin = document.origin
        if origin != TYPED and self._file.query(
            "SELECT 1 FROM documents WHERE origin = ? AND id > ? LIMIT 1", [origin, last]
        ):
            raise StoreError(f"This can no longer be undone: {origin} was added to {self._file.path.stem} again since.")
        row = {"id": document.number, "origin": origin, "added": document.added, "times": document.times}
        self._file.db.table("documents").insert(row, ignore=True)  # it is there if only parts were removed
        self._file.db.execute("DELETE FROM passages WHERE document = ?", [document.number])
        for passage in document.passages:
            self._insert_passage(document.number, passage)


def check_length(characters: int) -> None:
    """Raises InputError for more than `LONGEST` characters at once."""
    if characters > LONGEST:
        raise InputError(f"More than {LONGEST:,} characters at once. Nothing was added; add them in parts.")


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()
