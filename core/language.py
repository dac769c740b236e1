"""Whether a text is in another language than those that its model writes, and the languages of a store's texts.

A model that was trained on English alone drafts English, or nonsense, in any other text. Most English words of a text
show at once that it is English; only where they are missing, py3langid decides. It takes a second to load, so a thread
loads it at the first such text.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable

import regex

LEAST, READ = 40, 400  # characters of the text's end: fewest that tell the language, and most that are read
SURE = 1e-3  # probability of the model's languages below which the text is in another one
LETTERS = 0.75  # of the characters of prose
ENGLISH = "en"

# Frequent English words that are rare in other languages that are written with these letters.
_FREQUENT = (
    "the and of to is that with was for you my have this are not be they he she we it from your our at but what which "
    "there been would could should their when who how i'm it's don't"
)
_COMMON = frozenset(_FREQUENT.split())
_ENOUGH = 1 / 12  # share of such words in English text; others have nearly none
_WORD = regex.compile(r"[\p{L}'’]+")

Ranked = Callable[[str], list[tuple[str, float]]]  # languages by probability


class OtherLanguage:
    """Tells whether texts are in a language that a model does not write."""

    def __init__(self, languages: Collection[str], load: Callable[[], Ranked] | None = None) -> None:
        """Args:
        languages: ISO 639-1 codes of those that the model's file states; without any, no text is in another one.
        load: loads what ranks languages; by default py3langid.
        """
        self._languages, self._load = frozenset(languages), load or _langid
        self._rank: Ranked | None = None
        self._loading: threading.Thread | None = None

    def __call__(self, text: str) -> bool:
        """Whether the end of the text is in another language. False while that is not yet known."""
        text = text[-READ:].strip()
        if not self._languages or len(text) < LEAST or not _is_prose(text):
            return False
        if ENGLISH in self._languages and _is_english(text):
            return False
        if self._rank is None:
            if self._loading is None:
                self._loading = threading.Thread(target=self._ready, name="polydraft-language", daemon=True)
                self._loading.start()
            return False
        ranked = dict(self._rank(text))
        return sum(ranked.get(language, 0.0) for language in self._languages) < SURE

    def wait(self) -> None:
        """Waits until languages can be told apart, if that has begun."""
        if self._loading is not None:
            self._loading.join()

    def _ready(self) -> None:
        self._rank = self._load()


def shares(texts: Iterable[str]) -> dict[str, float]:
    """The languages of texts, as ISO 639-1 codes, with their shares of the characters that were read: the first `READ`
    of each text. Texts that are short or no prose do not count."""
    rank: Ranked | None = None
    read = Counter[str]()
    for text in texts:
        text = text[:READ].strip()
        if len(text) < LEAST or not _is_prose(text):
            continue
        if _is_english(text):
            language = ENGLISH
        else:
            rank = rank or _langid()
            language = rank(text)[0][0]
        read[language] += len(text)
    return {language: characters / read.total() for language, characters in read.most_common()}


def _is_prose(text: str) -> bool:
    """Whether a text consists of words, not of numbers, names of columns or the like."""
    return sum(map(str.isalpha, text)) > LETTERS * sum(not letter.isspace() for letter in text)


def _is_english(text: str) -> bool:
    words = [word.casefold().replace("’", "'") for word in _WORD.findall(text)]
    return sum(word in _COMMON for word in words) > _ENOUGH * len(words)


def _langid() -> Ranked:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True).rank
