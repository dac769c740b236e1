"""Where a text can be cut so that the tokens of its pieces, one after the other, are the tokens of the text.

Cutting pays because most words of a text have occurred before: their tokens can be remembered. The rules are
conservative, and hold for two families of tokenizers; `cuts_of` returns None for any other.

**Byte-level BPE** divides a text by a regular expression and encodes each match by itself. None of the expressions that
are accepted has a match that contains a space after something else than white space, so each match ends before such a
space, and what follows is matched afresh. The same holds after a single line end between two characters that are
neither white space nor "/" (which some expressions join to line ends). Longer white space is divided by what follows,
so it stays in one piece with it.

**BPE of SentencePiece** merges across a whole text, in which "▁" replaces spaces. If no token contains "▁" after
another character, no merge crosses the place before a space.

In both, a cut must not divide an added token, which is matched before everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers

_SPACE = "\u2581"  # as SentencePiece spells it
# White space, for Python or for any version of Unicode.
_WHITE = "\\s\u180e\u200b\ufeff" + _SPACE
_BLACK = f"[^{_WHITE}]"


def _pieces(line_end: str) -> str:
    """Matches a piece: white space and what follows, up to the next space, or with the next line end if `line_end`
    matches there. White space at the end of the text belongs to the last piece."""
    other = f"(?! {f'|{line_end}' if line_end else ''})"
    joined = rf"(?:[{_WHITE}]++\Z|{other}[{_WHITE}]++{_BLACK}++)*+"
    return rf"[{_WHITE}]*+{_BLACK}++{joined}{f'(?:{line_end})?+' if line_end else ''}|[{_WHITE}]++"


_BY_SPACES = _pieces("")
_BY_SPACES_AND_LINES = _pieces(f"\n(?=[^{_WHITE}/])")
MARKS = r".,;:!?)\]}"
# SentencePiece's normalizers, as `tokenizers` writes them.
_PREPEND = {"type": "Prepend", "prepend": _SPACE}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
_DIVIDED_BY_MARKS = re.compile(f"[A-Za-z][{MARKS}]")


@dataclass(frozen=True)
class Cuts:
    """How to cut texts.

    Attributes:
        pieces: a regular expression that matches each piece, one after the other.
        prepends: the tokenizer puts a space before every text that it encodes, so a piece that begins with a space is
            encoded without it. Pieces after the first begin with a space.
        marks: pieces can be cut between an ASCII letter and those of MARKS that end the piece, too.
        verbatim: texts in which this expression matches are encoded whole; "" for none.
    """

    pieces: str
    prepends: bool
    marks: bool
    verbatim: str = ""


def cuts_of(backend: tokenizers.Tokenizer, patterns: Collection[str]) -> Cuts | None:
    """`patterns` are the expressions, besides GPT-2's, by which a byte-level tokenizer may divide."""
    stated = json.loads(backend.to_str())
    model, added = stated["model"], stated.get("added_tokens") or []
    affixes = any(model.get(key) for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    if model.get("type") != "BPE" or affixes or stated.get("truncation") or stated.get("padding"):
        return None
    names = [token["content"] for token in added]
    if any(re.search(f"[{_WHITE}]", name) or not name for name in names):
        return None
    if any(token["single_word"] or token["lstrip"] or token["rstrip"] for token in added):
        return None
    normalizer, divides = stated.get("normalizer"), stated.get("pre_tokenizer")
    if normalizer in (None, {"type": "NFC"}) and _is_byte_level(divides, patterns):
        return Cuts(_BY_SPACES_AND_LINES, prepends=False, marks=not any(map(_DIVIDED_BY_MARKS.search, names)))
    steps = normalizer["normalizers"] if normalizer and normalizer.get("type") == "Sequence" else [normalizer]
    if divides is None and steps in ([_REPLACE], [_PREPEND, _REPLACE]) and _is_apart(model["vocab"]):
        return Cuts(_BY_SPACES, prepends=_PREPEND in steps, marks=False, verbatim="|".join(map(re.escape, names)))
    return None


def _is_byte_level(divides: Mapping[str, Any] | None, patterns: Collection[str]) -> bool:
    if divides is None:
        return False
    steps: Sequence[Mapping[str, Any]] = divides["pretokenizers"] if divides["type"] == "Sequence" else [divides]
    *before, last = steps or [{"type": ""}]
    if last["type"] != "ByteLevel" or last["add_prefix_space"]:
        return False
    if before and before[0]["type"] == "Digits":
        before = before[1:]
    if not before:
        return bool(last["use_regex"])
    (split, *more) = before
    return (
        not more
        and not last["use_regex"]
        and split["type"] == "Split"
        and split["pattern"].get("Regex") in patterns
        and split["behavior"] == "Isolated"
        and not split["invert"]
    )


def _is_apart(vocab: Collection[str]) -> bool:
    """Whether no token contains SentencePiece's space after another character."""
    return _SPACE in vocab and not any(re.search(f"[^{_SPACE}]{_SPACE}", token) for token in vocab)
