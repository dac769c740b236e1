"""Converts token ids to text without broken characters or half emoji, and trims the ends of drafts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from core.models.base import Tokenizer

# Scripts without spaces between words, inside a set of a regular expression.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
TAIL = 64  # characters in which an emoji, or a row of flags, begins
# Characters without width that no script and no emoji needs; the joiners U+200C and U+200D are needed.
ZERO_WIDTH = ("\u200b", "\u2060", "\ufeff")
_NEVER_SHOWN = regex.compile(f"[\ufffd{''.join(ZERO_WIDTH)}]")
_CLUSTERS = regex.compile(r"\X")
_BREAK_OF_LINE, _BREAK_OF_TEXT = regex.compile(rb"[\n\r\x00]"), regex.compile(rb"\x00")
_JOINER = "\u200d"  # a cluster that ends in this zero-width joiner, or in an odd regional indicator, is incomplete
REMEMBERED = 32  # drafts whose text may grow


@dataclass(eq=False)
class _Grown:
    """A draft's tokens and their text.

    Attributes:
        typed: its first bytes, which the text already contains; `left` of them are not among the tokens yet.
        text: with an incomplete emoji at its end; `ends` are the characters that the first n tokens show.
        rest: the bytes of a character that is not whole yet.
        closed: whether no further token shows anything.
    """

    typed: bytes
    left: bytes
    ids: list[int] = field(default_factory=list)
    text: str = ""
    ends: list[int] = field(default_factory=lambda: [0])
    rest: bytes = b""
    closed: bool = False

    def add(self, token: int, piece: bytes, breaks: regex.Pattern[bytes]) -> None:
        """Takes the next token, with its bytes."""
        if not self.closed:
            self._read(self.rest + piece, breaks)
        self.ids.append(token)
        self.ends.append(len(self.text) - _unfinished(self.text[-TAIL:]))

    def _read(self, data: bytes, breaks: regex.Pattern[bytes]) -> None:
        typed = min(len(self.left), len(data))
        self.closed = data[:typed] != self.left[:typed]
        if self.closed:
            return
        data, self.left, self.rest = data[typed:], self.left[typed:], b""
        if end := breaks.search(data):
            data, self.closed = data[: end.start()], True
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:  # an incomplete character at the end, or a broken one
            text, self.rest = data[: error.start].decode("utf-8"), data[error.start :]
            self.closed |= error.reason != "unexpected end of data"
        if never := _NEVER_SHOWN.search(text):
            text, self.closed = text[: never.start()], True
        self.text += text


class ShownText:
    """The text that drafts add to what is typed, up to the end of their line unless they may have several `lines`, or
    to a character without width, without invalid or incomplete characters. A draft that has grown by a token costs the
    time of that token."""

    def __init__(self, tokenizer: Tokenizer, lines: bool = False) -> None:
        self._pieces = tokenizer.pieces
        self._breaks = _BREAK_OF_TEXT if lines else _BREAK_OF_LINE
        self._known = deque[_Grown](maxlen=REMEMBERED)  # the latest last

    def __call__(self, ids: list[int], typed: bytes = b"") -> tuple[str, list[int]]:
        """Returns the text, and the number of characters that the first n tokens show, for n from 0 to all of them.

        Args:
            ids: the draft's tokens.
            typed: the draft's first bytes, which the text already contains (token healing).
        """
        known = [draft for draft in self._known if draft.typed == typed and draft.ids == ids[: len(draft.ids)]]
        if known:
            self._known.remove(draft := max(known, key=lambda draft: len(draft.ids)))
        else:
            draft = _Grown(typed, typed)
        self._known.append(draft)
        for token in ids[len(draft.ids) :]:
            draft.add(token, self._pieces[token], self._breaks)
        return draft.text[: draft.ends[-1]], draft.ends[:]


# Words that need a continuation: a complete draft does not end in them.
_DANGLING_WORDS = (
    "a an the and or but nor if as than that of to in on at by for from with into onto upon over under "
    "between through during about against my your his her its our their this these those is are was were "
    "be been has have had very i we he she they who which because when while where will would can could should may "
    "might must every each"
)
_DANGLING = frozenset(_DANGLING_WORDS.split())
_LAST_WORD = regex.compile(r"(?r)(\s+)(\p{L}+)$")  # looked for from the end


def without_dangling(text: str) -> str:
    """Removes articles, prepositions and conjunctions from the end of a draft, unless it has no other words."""
    shorter = text
    while (last := _LAST_WORD.search(shorter)) and last[2].lower() in _DANGLING:
        shorter = shorter[: last.start()]
    return shorter if shorter.strip() else text


_PUNCTUATION = regex.compile(r"\s*(?:[.,;:!?…)\]}»”。、，；：！？]|[-–—]\s|\s[-–—])")


def up_to_punctuation(text: str) -> str:
    """Returns a draft up to its first punctuation; "" if it begins with it."""
    end = _PUNCTUATION.search(text)
    return text if end is None else text[: end.start()]


_SPELLINGS = (  # of one word in British and American English
    (regex.compile(r"(?<=\w{2})our(?=s?$|ed$|ing$|ite$|able$|er$)"), "or"),
    (regex.compile(r"(?<=\w{3})is(?=e[sdr]?$|ing$|ation)"), "iz"),
    (regex.compile(r"(?<=\w{3})yse(?=[sd]?$)"), "yze"),
    (regex.compile(r"(?<=\w{2}[bcht])re$"), "er"),
    (regex.compile(r"(?<=\w[aeiou])ll(?=ed$|ing$|er$)"), "l"),
    (regex.compile(r"ogue$"), "og"),
)
_PLURALS = (
    (regex.compile(r"(?<=\w{2})ies$"), "y"),
    (regex.compile(r"(?<=\w{2}(?:s|x|z|ch|sh))e?s?$"), ""),
    (regex.compile(r"(?<=\w{2}[^s\W])s$"), ""),
)
_NO_PLURALS = frozenset(("news", "does", "hers", "ours", "yours", "theirs", "means", "always"))
_ANY_WORD = regex.compile(r"\p{L}+")


@lru_cache(maxsize=256)  # every step of k drafts compares each of them with the others
def alike(text: str) -> str:
    """Returns a key that texts share if they differ only in case, in the number of a word (letter, letters) or in a
    spelling (colour, color): a writer needs only one of them. Punctuation and white space count."""
    return _ANY_WORD.sub(lambda word: _stem(word[0]), text.casefold())


SAME = 2 / 3  # of the letters of the longer text, above which two texts say the same
BEGINNING = 240  # characters of a text that are compared


def say_the_same(one: str, other: str) -> bool:
    """Whether two texts differ in nothing that `alike` counts, or have more than two thirds of their letters in words
    in which they agree, from the beginning and from the end ("cases where you want to change it", "situations where you
    want to change it"). Words agree as those of `alike`. Of long texts the beginnings are compared."""
    if min(len(one), len(other)) < SAME * max(len(one), len(other)):
        return False
    one, other = alike(one[:BEGINNING]), alike(other[:BEGINNING])
    if one == other:
        return bool(one)
    a, b = _words(one), _words(other)
    most = min(len(a), len(b))
    first = next((n for n in range(most) if a[n] != b[n]), most)
    last = next((n for n in range(most - first) if a[-n - 1] != b[-n - 1]), most - first)
    agreeing = sum(map(len, a[:first] + a[len(a) - last :]))
    return agreeing > SAME * max(sum(map(len, a)), sum(map(len, b)))


@lru_cache(maxsize=256)  # of long drafts the compared beginnings stay the same at every step
def _words(text: str) -> list[str]:
    return _ANY_WORD.findall(text)


_ONE_MARK = regex.compile(r"\s*[^\w\s]['\"”’»)\]]*\s*")  # ends a sentence, or a word of it


def says_something(draft: str, before: str) -> bool:
    """Whether a draft is more than white space, a row of marks, or words of the text before it again: those of the last
    line, or those that have just been written."""
    if not regex.search(r"\w", draft):
        return bool(draft.strip()) and _ONE_MARK.fullmatch(draft) is not None
    above, _, line = before.rpartition("\n")
    last = above.rstrip().rpartition("\n")[2]
    written, words = (line + draft).strip().casefold(), draft.strip().casefold()
    if written and written == last.strip().casefold():
        return False
    # A casefolded text has no fewer characters than the text.
    return not (" " in words and before[-1:].isspace() and before.rstrip()[-len(words) :].casefold().endswith(words))


def _stem(word: str) -> str:
    if word in _NO_PLURALS:
        return word
    for form, other in (*_SPELLINGS, *_PLURALS):
        word = form.sub(other, word)
    return word


_WORD_STARTS = regex.compile(r"(?<!\w)(?=\w)|(?=[^\w\s])|(?=\s)")
_BEFORE_A_SPACE = regex.compile(r"[^\s\p{Ps}\p{Pi}'’-]\Z")  # an end that needs a space before the next word
_AFTER_A_SPACE = regex.compile(rf"(?![{UNSPACED}])[\p{{L}}\p{{N}}\p{{Ps}}\p{{Pi}}\"]")


COMPARED = 32  # characters after the caret
_WORDS = regex.compile(r".*\S(?=\s)", regex.S)


def without_repeated(draft: str, after: str, growing: bool = False) -> str:
    """Returns the draft up to the word at which it begins to repeat the text after the caret, ignoring white space.

    It repeats that text from the first word whose remainder of the draft is a beginning of the following text, or
    begins with the whole rest of the line.

    Args:
        growing: whether the draft may grow: then its last word may also be the beginning of a following word.
    """
    following = " ".join(after.split())
    line = " ".join(after.partition("\n")[0].split())
    for match in _WORD_STARTS.finditer(draft) if following else ():
        if draft[match.start()] != following[0]:
            continue
        rest = " ".join(draft[match.start() :].split())
        if rest and (_begins(following, rest, growing) or (line and _begins(rest, line))):
            return draft[: match.start()].rstrip()
    return draft


def following(after: str) -> str:
    """Returns the first whole words after the caret on its line, with which drafts are compared; "" if there are
    none."""
    line = after.partition("\n")[0]
    words = _WORDS.match(line[: COMPARED + 1]) if len(line) > COMPARED else None
    return (words[0] if words else line[:COMPARED]) if line.strip() else ""


def spaced(draft: str, after: str) -> str:
    """Returns the draft with a space at its end, if the text after the caret would otherwise join its last word."""
    return f"{draft} " if _BEFORE_A_SPACE.search(draft) and _AFTER_A_SPACE.match(after) else draft


def _begins(text: str, beginning: str, inside_a_word: bool = False) -> bool:
    """Whether a text begins with another one, which may end inside a word only with `inside_a_word`."""
    inside = beginning[-1:].isalnum() and text[len(beginning) : len(beginning) + 1].isalnum()
    return text.startswith(beginning) and (inside_a_word or not inside)


def _unfinished(tail: str) -> int:
    """The number of characters of an incomplete emoji at the end of a text, of which this is the end."""
    left = tail
    while left.endswith(_JOINER) or any("\U0001f1e6" <= c <= "\U0001f1ff" for c in left[-8:]):
        last = _CLUSTERS.findall(left)[-1]
        flags = sum("\U0001f1e6" <= c <= "\U0001f1ff" for c in last)
        if not last.endswith(_JOINER) and flags % 2 == 0:
            break
        left = left[: -len(last)]
    return len(tail) - len(left)
