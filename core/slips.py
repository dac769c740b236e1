"""Slips of the finger: the words that a half-typed one may have been meant to be, by a noisy channel.

A slip is one of four (Damerau's kinds, as fingers make them): a neighbouring key, a letter too many because it was
doubled, a letter left out, two letters swapped. `meant` lists what one slip turns into the typed letters, each with
P(typed | meant) / P(typed | typed); the model says how probable each is here (Kernighan, Church and Gale 1990).
"""

from __future__ import annotations

import re
from functools import lru_cache

# One key in this many is a slip, of these kinds.
SLIPS = 0.03
NEIGHBOUR, DOUBLED, DROPPED, SWAPPED = 0.5 * SLIPS, 0.1 * SLIPS, 0.2 * SLIPS, 0.2 * SLIPS
FIRST = 0.5  # of a slip's probability, where it changes the first letter, which is right more often than others
LEAST, MOST = 3, 16  # letters of a word that is looked at

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LAYOUTS = (("qwertyuiop", "asdfghjkl", "zxcvbnm"), ("qwertzuiop", "asdfghjkl", "yxcvbnm"))  # QWERTY, QWERTZ
# A word of small letters after a space or at the beginning of a line, and the space after it if it is finished.
_WORD = re.compile(r"(?:^|(?<=[ \n“\"(]))[a-z]+ ?\Z")
CODE = re.compile(r"[{}=;<>_\\|`@#$~^/]|\(\)|::|\w\.\w|\w\[")  # signs of code, or of an address, in a line


def _neighbours() -> dict[str, str]:
    """The keys beside each letter, on either layout: in its row, and one row above and below, half a key aside."""
    beside: dict[str, set[str]] = {letter: set() for letter in _LETTERS}
    for rows in _LAYOUTS:
        place = {letter: (r, c) for r, row in enumerate(rows) for c, letter in enumerate(row)}
        for letter, (r, c) in place.items():
            near = {(r, c - 1), (r, c + 1), (r - 1, c), (r - 1, c + 1), (r + 1, c - 1), (r + 1, c)}
            beside[letter] |= {other for other, at in place.items() if at in near}
    return {letter: "".join(sorted(others)) for letter, others in beside.items()}


NEIGHBOURS = _neighbours()


def correctable(text: str) -> str:
    """The word that ends a text, with the space after it if there is one, as far as a slip is looked for there; "" in
    code, in names, and in words that are too short or too long."""
    line = text[-400:].rpartition("\n")[2]
    match = _WORD.search(text[-64:])
    if match is None or not LEAST <= len(match[0].rstrip()) <= MOST or CODE.search(line):
        return ""
    return match[0]


@lru_cache(maxsize=64)
def meant(typed: str) -> dict[str, float]:
    """What may have been meant by typed letters that contain exactly one slip, and how much more or less probable the
    typed letters are if it was, than if they were meant themselves."""
    words: dict[str, float] = {}

    def add(word: str, probability: float) -> None:
        if word != typed:
            words[word] = words.get(word, 0.0) + probability * (1.0 if word[:1] == typed[:1] else FIRST)

    for i in range(len(typed) + 1):
        before, after = typed[:i], typed[i:]
        for letter in _LETTERS:
            if after:  # a letter left out at the end is not yet typed
                add(before + letter + after, DROPPED)
        if not after:
            break
        for letter in NEIGHBOURS[after[0]]:
            add(before + letter + after[1:], NEIGHBOUR / len(NEIGHBOURS[letter]))
        if before.endswith(after[0]):
            add(before + after[1:], DOUBLED)
        if len(after) > 1:
            add(before + after[1] + after[0] + after[2:], SWAPPED)
    return {word: probability / (1 - SLIPS) for word, probability in words.items()}
