"""Where a text can be cut so that the tokens of its pieces, one after the other, are the tokens of the text.

Cutting pays because most words of a text have occurred before: their tokens can be remembered. The rules are
conservative, and hold for two families of tokenizers; `cuts_of` returns None for any other.

**Byte-level BPE** divides a text by a regular expression and encodes each match by itself. None of the expressions that
are accepted has a match that contains a space after something else than white space, so each match ends before such a
space, and what follows is matched afresh. The same holds after a single line end between two characters that are
neither white space nor "/" (which some expressions join to line ends). Longer white space is divided by what follows,
so it stays in one piece with it. A piece can be divided further after an ASCII letter that no other letter follows
(but not before an apostrophe, where an expression joins contractions to words), and between the signs after a space at
its beginning and a letter.

**BPE of SentencePiece** merges across a whole text, in which "▁" replaces spaces: by a normalizer (Llama 2, Gemma), or
by the pre-tokenizer Metaspace (Mistral). A merge crosses the place before a space only where the text around it spells
a token that contains "▁" after another character. Most vocabularies have no such token; where one has a few, texts are
not cut at the places that spell them.

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


def _pieces(line_end: str = "", whole: str = "") -> str:
    """Matches a piece: white space and what follows, up to the next space at which `whole` does not match, or with the
    next line end if `line_end` matches there. White space at the end of the text belongs to the last piece."""
    other = f"(?! {f'|{line_end}' if line_end else ''})"
    if whole:
        other = f"(?:{other}|{whole})"
    joined = rf"(?:[{_WHITE}]++\Z|{other}[{_WHITE}]++{_BLACK}++)*+"
    return rf"[{_WHITE}]*+{_BLACK}++{joined}{f'(?:{line_end})?+' if line_end else ''}|[{_WHITE}]++"


_BY_SPACES_AND_LINES = _pieces(f"\n(?=[^{_WHITE}/])")
_SIGN, _OTHER_SIGN = r"[!-/:-@\[-`{-~]", r"[!-&(-/:-@\[-`{-~]"  # of ASCII, the latter without the apostrophe
_OPENED = "|".join(rf"(?<=^ {_SIGN}{{{number}}})(?=[A-Za-z])" for number in (1, 2, 3))
_WORDS = rf"(?<=[A-Za-z])(?=[0-9]|{_SIGN})|{_OPENED}"
_WORDS_WITH_CONTRACTIONS = rf"(?<=[A-Za-z])(?=[0-9]|{_OTHER_SIGN})|{_OPENED}"
_JOINS_CONTRACTIONS = "|'d)?"  # as GPT-4o's expression does
# SentencePiece's normalizers, as `tokenizers` writes them.
_PREPEND = {"type": "Prepend", "prepend": _SPACE}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
# Gemma's pre-tokenizer, which divides nothing: its normalizer has replaced all spaces.
_AT_NO_SPACE = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
_FEW = 16  # tokens that contain "▁" after another character: each one makes cutting a little slower


@dataclass(frozen=True)
class Cuts:
    """How to cut texts.

    Attributes:
        pieces: a regular expression that matches each piece, one after the other.
        prepends: the tokenizer puts a space before every text that it encodes, so a piece that begins with a space is
            encoded without it. Pieces after the first begin with a space.
        words: an expression that matches where a piece can be divided further; "" for nowhere.
        verbatim: matches added tokens. A piece that contains one is not divided further; with `prepends`, a text that
            contains one is not cut at all. "" for none, and where neither matters.
    """

    pieces: str
    prepends: bool
    words: str
    verbatim: str


def cuts_of(backend: tokenizers.Tokenizer, patterns: Collection[str]) -> Cuts | None:
    """`patterns` are the expressions, besides GPT-2's, by which a byte-level tokenizer may divide."""
    stated = json.loads(backend.to_str())
    model, added = stated["model"], stated.get("added_tokens") or []
    affixes = any(model.get(key) for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    if model.get("type") != "BPE" or affixes or stated.get("truncation") or stated.get("padding"):
        return None
    if any(not token["content"] or token["single_word"] or token["lstrip"] or token["rstrip"] for token in added):
        return None
    verbatim = "|".join(re.escape(token["content"]) for token in added)
    normalizer, divides = stated.get("normalizer"), stated.get("pre_tokenizer")
    if normalizer in (None, {"type": "NFC"}) and (pattern := _divided_by(divides, patterns)) is not None:
        if any(re.search(f"[{_WHITE}]", token["content"]) for token in added):
            return None
        words = _WORDS_WITH_CONTRACTIONS if _JOINS_CONTRACTIONS in pattern else _WORDS
        return Cuts(_BY_SPACES_AND_LINES, prepends=False, words=words, verbatim=verbatim)
    steps = normalizer["normalizers"] if normalizer and normalizer.get("type") == "Sequence" else [normalizer]
    if not _replaces_spaces(steps, divides) or any(map(_has_inner_space, added)):
        return None
    if (whole := _joined(model)) is None:
        return None
    prepends = _PREPEND in steps
    return Cuts(_pieces(whole=whole), prepends, words="", verbatim=verbatim if prepends else "")


def _divided_by(divides: Mapping[str, Any] | None, patterns: Collection[str]) -> str | None:
    """The expression by which a byte-level tokenizer divides, "" for GPT-2's; None if it is not one of those known."""
    if divides is None:
        return None
    steps: Sequence[Mapping[str, Any]] = divides["pretokenizers"] if divides["type"] == "Sequence" else [divides]
    *before, last = steps or [{"type": ""}]
    if last["type"] != "ByteLevel" or last["add_prefix_space"]:
        return None
    if before and before[0]["type"] == "Digits":
        before = before[1:]
    if not before:
        return "" if last["use_regex"] else None
    split, *more = before
    if more or last["use_regex"] or split["type"] != "Split" or split["behavior"] != "Isolated" or split["invert"]:
        return None
    pattern = split["pattern"].get("Regex")
    return pattern if pattern in patterns else None


def _replaces_spaces(steps: Sequence[Mapping[str, Any] | None], divides: Mapping[str, Any] | None) -> bool:
    """Whether a tokenizer with these normalizers and this pre-tokenizer is SentencePiece's.

    Metaspace prepends "▁" only to what does not begin with it. So a piece after the first, which begins with a space,
    is encoded as it is in the text, whatever the scheme of prepending."""
    if divides and divides["type"] == "Metaspace":
        schemes = ("always", "first", "never")
        return steps == [None] and divides["replacement"] == _SPACE and divides["prepend_scheme"] in schemes
    return divides in (None, _AT_NO_SPACE) and steps in ([_REPLACE], [_PREPEND, _REPLACE])


def _has_inner_space(token: Mapping[str, Any]) -> bool:
    """Whether an added token may contain a place at which texts are cut. It is matched in the text itself, or, if it is
    normalized, where "▁" replaces spaces."""
    return bool(re.search(f"[{_WHITE}]" if token["normalized"] else f"{_BLACK} ", token["content"]))


def _joined(model: Mapping[str, Any]) -> str | None:
    """An expression that matches before a space across which SentencePiece's BPE may merge, "" if there is none; None
    if that is not certain."""
    across = [token for token in model["vocab"] if re.search(f"[^{_SPACE}]{_SPACE}", token)]
    if _SPACE not in model["vocab"] or model.get("ignore_merges") or len(across) > _FEW:
        return None
    # The text spells these in other ways: as what cannot be encoded, as bytes, as half a surrogate pair.
    unclear = [re.escape(name) for name in (model.get("unk_token"), "\ufffd") if name]
    if any(re.search("|".join([*unclear, "<0x[0-9A-F]{2}>"]), token) for token in across):
        return None
    places = set[str]()
    for token in across:
        for space in re.finditer(f"(?<=[^{_SPACE}]){_SPACE}", token):
            # A "▁" at the beginning may have been prepended.
            before, after = token[: space.start()].lstrip(_SPACE), token[space.end() :]
            before, after = (re.escape(part).replace(_SPACE, f"[ {_SPACE}]") for part in (before, after))
            places.add(f"(?<={before})(?= {after})")
    return "|".join(sorted(places))
