"""From token ids to text that can be shown and inserted as it stands: no broken characters, no half emoji."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from core.models.base import Tokenizer

_CLUSTERS = regex.compile(r"\X")
# A cluster that ends in one of these is waiting for more: zero-width joiner, or an odd regional indicator.
_JOINER = "\u200d"


def shown(tokenizer: Tokenizer, ids: list[int], typed: bytes = b"") -> str:
    """The characters that a draft adds to the text.

    Args:
        ids: the draft's tokens.
        typed: leading bytes of it that already stand in the text (token healing).

    Returns: the text up to the end of its line, without invalid or unfinished characters.
    """
    data = b"".join(tokenizer.pieces[i] for i in ids)
    if not data.startswith(typed):
        return ""
    data = data[len(typed) :]
    for end in (b"\n", b"\r", b"\x00"):
        data = data.split(end, 1)[0]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:  # an unfinished character at the end, or a broken one: cut before it
        text = data[: error.start].decode("utf-8")
    text = text.split("\ufffd", 1)[0]
    return _whole(text)


def whole_words(text: Callable[[int], str], tokens: int, most: int) -> int:
    """How many of a draft's tokens to show, `most` at most, so that the last word is a whole one.

    Args:
        text: returns the characters that the draft's first n tokens add.
        tokens: how many it has; one more than `most` shows whether the last word goes on.

    Returns: the number; `most` where no word ends before it.
    """
    for n in range(min(most, tokens), 0, -1):
        shown = text(n)
        following = text(n + 1)[len(shown) :] if n < tokens else ""
        if shown and not (_in_word(shown[-1]) and following and _in_word(following[0])):
            return n
    return min(most, tokens)


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter in "'’"


# Words after which a reader waits for the rest: a draft that can be shorter does not end in one.
_ASKING = (
    "a an the and or but nor if as than that of to in on at by for from with into onto upon over under "
    "between through during about against my your his her its our their this these those is are was were "
    "be been has have had very "
)
_DANGLING = frozenset(_ASKING.split())
_LAST_WORD = regex.compile(r"(\s+)(\p{L}+)$")


def without_dangling(text: str) -> str:
    """A draft without articles, prepositions and conjunctions at its end; as it is where it has nothing else."""
    shorter = text
    while (last := _LAST_WORD.search(shorter)) and last[2].lower() in _DANGLING:
        shorter = shorter[: last.start()]
    return shorter if shorter.strip() else text


_WORD_STARTS = regex.compile(r"(?<!\w)(?=\w)|(?=[^\w\s])|(?=\s)")
_BEFORE_A_SPACE = regex.compile(r"[^\s\p{Ps}\p{Pi}'’-]$")  # an end that a space separates from the next word
_AFTER_A_SPACE = regex.compile(
    r"(?![\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])[\p{L}\p{N}\p{Ps}\p{Pi}\"]"
)


COMPARED = 32  # characters after the caret
_WORDS = regex.compile(r".*\S(?=\s)", regex.S)


def without_repeated(draft: str, after: str, growing: bool = False) -> str:
    """The draft up to where it begins to repeat the text after the caret, white space aside; it ends at a word then.

    From some word on, the rest of it begins what follows, or contains all that follows on the line.

    Args:
        growing: the draft's last word may still be the beginning of one that follows; then it is left out too.
    """
    following = " ".join(after.split())
    line = " ".join(after.partition("\n")[0].split())
    for match in _WORD_STARTS.finditer(draft) if following else ():
        rest = " ".join(draft[match.start() :].split())
        if rest and (_begins(following, rest, growing) or (line and _begins(rest, line))):
            return draft[: match.start()].rstrip()
    return draft


def following(after: str) -> str:
    """What drafts are compared with: the first whole words after the caret on its line; "" if none stand there."""
    line = after.partition("\n")[0]
    words = _WORDS.match(line[: COMPARED + 1]) if len(line) > COMPARED else None
    return (words[0] if words else line[:COMPARED]) if line.strip() else ""


def spaced(draft: str, after: str) -> str:
    """The draft with a space at its end where the text after the caret would otherwise join its last word."""
    return f"{draft} " if _BEFORE_A_SPACE.search(draft) and _AFTER_A_SPACE.match(after) else draft


def _begins(text: str, beginning: str, inside_a_word: bool = False) -> bool:
    """Whether a text begins with another one, which ends inside a word of it only if that is allowed."""
    inside = beginning[-1:].isalnum() and text[len(beginning) : len(beginning) + 1].isalnum()
    return text.startswith(beginning) and (inside_a_word or not inside)


def _whole(text: str) -> str:
    """Without a last emoji that is still being put together."""
    while text:
        last = _CLUSTERS.findall(text)[-1]
        flags = sum("\U0001f1e6" <= c <= "\U0001f1ff" for c in last)
        if not last.endswith(_JOINER) and flags % 2 == 0:
            return text
        text = text[: -len(last)]
    return text
