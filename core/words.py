"""What a word is: in a text, and in a vocabulary of tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import regex

from core.errors import InputError
from core.models.tokenizer import Tokenizer
from core.text import UNSPACED

MOST_WORDS = 8  # that can be replaced at once

_LETTER = r"[\p{L}\p{M}\p{N}]"
WORD = regex.compile(rf"{_LETTER}+(?:['’]{_LETTER}+)*")
WORDS = regex.compile(rf"{WORD.pattern}(?: {WORD.pattern})*")
BEGINS = regex.compile(_LETTER)
UNSPACED_LETTER = regex.compile(f"[{UNSPACED}]")
# In a script without spaces between words, a token is a word.
_GOES_ON = regex.compile(rf"(?![{UNSPACED}])(?:['’]?{_LETTER}|['’]\Z)")


class WordPieces:
    """Which tokens of a vocabulary begin a word, and which go on with one.

    Attributes:
        begins: (n,) ids of the tokens that begin with a letter or a digit.
        spaced: (n,) ids of those that have a space before it.
        goes_on: (n,) ids of the tokens before which no word ends.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = {i: piece.decode("utf-8", "replace") for i, piece in enumerate(tokenizer.pieces) if piece}
        texts = {i: text for i, text in texts.items() if i not in tokenizer.special_ids}
        rests = {i for i in texts if tokenizer.pieces[i][0] & 0xC0 == 0x80}  # of a character
        self.begins = _array(i for i, text in texts.items() if BEGINS.match(text))
        self.spaced = _array(i for i, text in texts.items() if text[0] == " " and BEGINS.match(text, 1))
        self.goes_on = _array(i for i, text in texts.items() if i in rests or _GOES_ON.match(text))


def count_words(text: str) -> int:
    """The number of words in a text. Raises InputError for none, and for more than `MOST_WORDS`."""
    count = len(WORD.findall(text))
    if not count:
        raise InputError("There is no word to replace; give one to eight words.")
    if count > MOST_WORDS:
        raise InputError(f"{count} words given; at most {MOST_WORDS} can be replaced at once.")
    return count


def _array(ids: Iterable[int]) -> np.ndarray:
    return np.array(list(ids), dtype=np.int64)
