"""Rules that a document of the web must meet to be prose, as published for MassiveText: Rae et al. 2021, "Scaling
Language Models: Methods, Analysis & Insights from Training Gopher", appendix A.1.1, repetition in its table A1.

A word is what stands between white space, a line what stands between line ends, a paragraph what stands between empty
lines. The paper does not define a bullet point; here it is one of _BULLETS.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from core.errors import InputError

_BULLETS = ("•", "‣", "◦", "●", "▪", "-", "*")
_ELLIPSES = ("...", "…")
_STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_PARAGRAPHS = re.compile(r"\n\s*\n")
_MOST_COMMON = {2: 0.20, 3: 0.18, 4: 0.16}  # n -> the largest share of characters in the most common n-gram
# n -> the largest share of characters in n-grams that occur more than once
_REPEATED = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text
        self.words = text.split()

    def per_word(self, number: int) -> float:
        return number / max(len(self.words), 1)

    @cached_property
    def lines(self) -> list[str]:
        return [stripped for line in self.text.splitlines() if (stripped := line.strip())]

    def ellipses(self) -> int:
        return sum(map(self.text.count, _ELLIPSES))


def _differ(parts: Sequence[str]) -> bool:
    """Whether few parts, with few of the characters, have occurred before."""
    again = [(number - 1, len(part)) for part, number in Counter(parts).items()]
    repeated, characters = sum(number for number, _ in again), sum(number * size for number, size in again)
    return repeated <= 0.3 * len(parts) and characters <= 0.2 * sum(map(len, parts))


def _phrases(text: _Text) -> bool:
    known: dict[str, int] = {}
    ids = np.array([known.setdefault(word, len(known)) for word in text.words], dtype=np.int64)
    sizes = np.array(list(map(len, text.words)), dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    groups = ids
    for n in range(2, max(_REPEATED) + 1):
        if len(ids) < n:
            return True
        # n-grams are numbered by the number of their first n - 1 words and their last word.
        pairs = groups[:-1] * (len(known) + 1) + ids[n - 1 :]
        _, first, groups, counts = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
        if n in _MOST_COMMON:
            characters = np.where(counts > 1, counts * (ends[first + n] - ends[first]), 0)
            if characters.max() > _MOST_COMMON[n] * ends[-1]:
                return False
        elif n in _REPEATED:
            changes = np.zeros(len(ids) + 1, dtype=np.int64)
            again = np.flatnonzero(counts[groups] > 1)
            np.add.at(changes, again, 1)
            np.add.at(changes, again + n, -1)
            if sizes[np.cumsum(changes[:-1]) > 0].sum() > _REPEATED[n] * ends[-1]:
                return False
    return True


def _stop_words(text: _Text) -> int:
    return len(_STOP_WORDS.intersection(map(str.lower, text.words)))


def _paragraphs(text: _Text) -> list[str]:
    return [stripped for part in _PARAGRAPHS.split(text.text) if (stripped := part.strip())]


RULES: dict[str, Callable[[_Text], bool]] = {
    "words": lambda text: 50 <= len(text.words) <= 100_000,
    "word-length": lambda text: 3 <= text.per_word(sum(map(len, text.words))) <= 10,
    "symbols": lambda text: max(text.per_word(text.text.count("#")), text.per_word(text.ellipses())) <= 0.1,
    "bullets": lambda text: sum(line.startswith(_BULLETS) for line in text.lines) <= 0.9 * len(text.lines),
    "ellipses": lambda text: sum(line.endswith(_ELLIPSES) for line in text.lines) <= 0.3 * len(text.lines),
    "alphabetic": lambda text: sum(any(map(str.isalpha, word)) for word in text.words) >= 0.8 * len(text.words),
    "stop-words": lambda text: _stop_words(text) >= 2,
    "repeated-lines": lambda text: _differ(text.lines),
    "repeated-paragraphs": lambda text: _differ(_paragraphs(text)),
    "repeated-phrases": _phrases,
}
ALL = "gopher"


def parse(wanted: Sequence[str]) -> tuple[str, ...]:
    """The rules of "gopher" (all) or of names with commas between. Raises InputError for others."""
    names = {name.strip() for text in wanted for name in text.split(",")}
    if unknown := sorted(names - {*RULES, ALL}):
        raise InputError(f"Rule {unknown[0]!r} given; {ALL} (all), or some of {', '.join(RULES)} expected.")
    return tuple(rule for rule in RULES if rule in names or ALL in names)


def broken(text: str, rules: Sequence[str]) -> str | None:
    """The first of these rules that a text breaks."""
    looked_at = _Text(text)
    return next((rule for rule in rules if not RULES[rule](looked_at)), None)
