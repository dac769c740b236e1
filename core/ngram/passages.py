"""Passages of a personal store: a text as its file stores it, and searching for phrases."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.errors import InputError
from core.ngram.passage_ids import BREAK
from core.ngram.plain import plain
from core.ngram.windows import ORDER

if TYPE_CHECKING:  # its module imports torch
    from core.models.base import Tokenizer

SHORT = 400  # characters; a text up to this length is a phrase, which may also occur in the middle of a line
_ENCODED = 1 << 15  # characters tokenised at a time
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"(?<!\s)\s")
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


def occurrences(ids: bytes, wanted: Sequence[int]) -> int:
    """How often the tokens follow each other in a stored passage. A phrase's second run repeats its beginning."""
    return max(_occurrences(run, wanted) for run in runs(ids))


def whole_words(phrase: str) -> re.Pattern[str]:
    """Finds a phrase in any case and form of its letters, with any space between its words, where no longer word begins
    or ends with it."""
    forms = dict.fromkeys((phrase, plain(phrase), unicodedata.normalize("NFD", plain(phrase))))  # also of older stores
    words = [words for form in forms if (words := r"\s+".join(map(re.escape, form.split())))]
    if not words:
        raise InputError("No words given; give a phrase or a document.")
    return re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


def word_after(phrase: str) -> re.Pattern[str]:
    """Finds a phrase as `whole_words` does, and as its group 1 the word or the marks that follow it in its line."""
    return re.compile(whole_words(phrase).pattern + _NEXT, re.IGNORECASE)


def _portions(text: str) -> Iterator[str]:
    """A text in portions of some thousand characters, cut before white space, where a token also begins."""
    start = 0
    while len(text) - start > _ENCODED:
        space = _SPACE.search(text, start + _ENCODED // 2, start + _ENCODED)
        end = space.start() if space else start + _ENCODED
        yield text[start:end]
        start = end
    yield text[start:]


def _occurrences(ids: np.ndarray, wanted: Sequence[int]) -> int:
    if not 0 < len(wanted) <= len(ids):
        return 0
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(wanted))
    return int((windows == list(wanted)).all(axis=1).sum())
