"""Passages of a personal store: a text as its file stores it, and searching for phrases."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import regex

from core.errors import InputError
from core.ngram.passage_ids import BREAK
from core.ngram.plain import plain
from core.ngram.windows import ORDER

if TYPE_CHECKING:  # its module imports torch
    from core.models.base import Tokenizer

SHORT = 400  # characters; a text up to this length is a phrase, which may also occur in the middle of a line
_ENCODED = 1 << 15  # characters tokenised at a time
_JOINED = 1 << 16  # passages searched at a time
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"(?<!\s)\s")
_LIKE = 100  # characters of a word that SQLite looks for
_WILD = re.compile("[^!-~]|[%_iksIKS]")  # LIKE's own marks, and letters with other forms beyond ASCII, such as ſ
_NEXT = r"[^\S\n]*(\w[\w'’-]*|[^\w\s]+)"  # the word after a phrase, or the marks


@dataclass(frozen=True)
class StoredPassage:
    """A text as stored. `tokens` are those of the text; `ids` may contain more (`encoded`)."""

    text: str
    tokens: int
    ids: bytes


def encoded(text: str, tokenizer: Tokenizer, check_cancelled: Callable[[], None] = lambda: None) -> StoredPassage:
    """The passage of a text that has words. `check_cancelled` is called every few thousand characters."""
    text = plain(_SURROGATE.sub("\ufffd", text))  # halves of pairs, which no file can hold
    ids = array("I")  # an id as a number of Python would take nine times the memory
    for portion in _portions(text):
        check_cancelled()
        ids.extend(tokenizer.encode(portion))
    stored: Sequence[int] = ids
    if 0 < len(text) <= SHORT and not text[0].isspace():
        # A phrase may also occur within a line, where its first token begins with the space before it. So its
        # beginning is stored once more in that form, as far as n-grams that contain the first token reach.
        stored = [*ids, BREAK, *tokenizer.encode(" " + text)[:ORDER]]
    return StoredPassage(text, len(ids), np.array(stored, dtype="<u4").tobytes())


def runs(ids: bytes) -> list[np.ndarray]:
    """The runs of ids in a stored passage."""
    tokens = np.frombuffer(ids, dtype="<u4").astype(np.int64)
    return [run[run != BREAK] for run in np.split(tokens, np.flatnonzero(tokens == BREAK))]


def occurrences(passages: Iterable[tuple[str, bytes]], ngrams: Sequence[Sequence[int]]) -> list[dict[str, int]]:
    """Counts n-grams in passages, given by their origins and ids. Returns the occurrences of each by origin. A phrase's
    second run repeats its beginning, so of a passage's runs the one with more of them counts."""
    found = [dict[str, int]() for _ in ngrams]
    for origins, ends, ids in _joined(passages):
        run_ends = np.flatnonzero(ids == BREAK)
        places: dict[int, np.ndarray] = {}
        for ngram, by_origin in zip(ngrams, found, strict=True):
            of_run = np.bincount(np.searchsorted(run_ends, _places(ids, ngram, places)), minlength=len(run_ends))
            times = np.zeros(len(origins), dtype=np.int64)
            np.maximum.at(times, np.searchsorted(ends, run_ends), of_run)
            for passage in np.flatnonzero(times):
                by_origin[origins[passage]] = by_origin.get(origins[passage], 0) + int(times[passage])
    return found


def whole_words(phrase: str, following: str = "") -> regex.Pattern[str]:
    """Finds a phrase in any case and form of its letters, with any space between its words, where no longer word begins
    or ends with it, and `following` after it. (The module `re` takes twelve times as long.)"""
    words = [r"\s+".join(map(re.escape, form)) for form in _forms(phrase)]
    return regex.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w){following}", regex.IGNORECASE)


def word_after(phrase: str) -> regex.Pattern[str]:
    """Finds a phrase as `whole_words` does, and as its group 1 the word or the marks that follow it in its line."""
    return whole_words(phrase, _NEXT)


def likely(phrase: str) -> list[str]:
    """Patterns for SQLite's LIKE. Every text in which `whole_words` finds the phrase fits one of them, and few others
    do, so that few are read. LIKE ignores the case of letters of ASCII alone."""
    return [f"%{_WILD.sub('_', max(form, key=len)[:_LIKE])}%" for form in _forms(phrase)]


def _forms(phrase: str) -> list[list[str]]:
    """The words of a phrase in the forms that a store may have, also an older one. Raises InputError without words."""
    texts = dict.fromkeys((phrase, plain(phrase), unicodedata.normalize("NFD", plain(phrase))))
    if forms := [words for text in texts if (words := text.split())]:
        return forms
    raise InputError("No words given; give a phrase or a document.")


def _portions(text: str) -> Iterator[str]:
    """A text in portions of some thousand characters, cut before white space, where a token also begins."""
    start = 0
    while len(text) - start > _ENCODED:
        space = _SPACE.search(text, start + _ENCODED // 2, start + _ENCODED)
        end = space.start() if space else start + _ENCODED
        yield text[start:end]
        start = end
    yield text[start:]


def _joined(passages: Iterable[tuple[str, bytes]]) -> Iterator[tuple[list[str], np.ndarray, np.ndarray]]:
    """Passages, many at a time: their origins, the places of the breaks at their ends, and their ids."""
    origins, ends, held = list[str](), list[int](), bytearray()

    def ready() -> tuple[list[str], np.ndarray, np.ndarray]:
        return origins, np.array(ends), np.frombuffer(held, dtype="<u4")

    for origin, ids in passages:
        held += ids[: len(ids) // 4 * 4]
        origins.append(origin)
        ends.append(len(held) // 4)
        held += BREAK.to_bytes(4, "little")
        if len(ends) >= _JOINED or len(held) >= _JOINED * 64:
            yield ready()
            origins, ends, held = [], [], bytearray()
    if origins:
        yield ready()


def _places(ids: np.ndarray, ngram: Sequence[int], known: dict[int, np.ndarray]) -> np.ndarray:
    """Where an n-gram begins. `known` are the places of single tokens, so that those after one context share them."""
    if not ngram:
        return np.zeros(0, dtype=np.int64)
    at = max(len(ngram) - 2, 0)
    if ngram[at] not in known:
        known[ngram[at]] = np.flatnonzero(ids == ngram[at])
    begins = known[ngram[at]] - at
    begins = begins[(begins >= 0) & (begins + len(ngram) <= len(ids))]
    for place, token in enumerate(ngram):
        begins = begins[ids[begins + place] == token]
    return begins
