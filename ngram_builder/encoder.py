"""Encodes texts piece by piece, and remembers the tokens of pieces: most words of a text have occurred before.

This module imports little, because processes that import it are started (see `encoding`)."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

MOST = 1 << 18  # pieces that are remembered at most
PER_PIECE = 256  # bytes of memory, about
_LONGEST = 64  # characters of a piece that is remembered
_END = bytes(4)  # after each text


class Encoder(dict[str, bytes]):
    """The tokens of pieces, each as uint32: token + 1. See core.models.cuts.Cuts for the arguments."""

    def __init__(
        self,
        encode: Callable[[str], Sequence[int]],
        pieces: str,
        prepends: bool,
        words: str,
        verbatim: str,
        most: int = MOST,
    ) -> None:
        """`most`: pieces that are remembered."""
        super().__init__()
        self._most = most
        self._encode, self._prepends = encode, prepends
        self._words = re.compile(words) if words else None
        self._pieces = re.compile(pieces).findall
        self._verbatim = re.compile(verbatim) if verbatim else None

    def batch(self, texts: Sequence[str]) -> bytes:
        """The tokens of texts, with a 0 after each."""
        return joined(map(self.text, texts))

    def text(self, text: str) -> bytes:
        if self._prepends and self._verbatim and self._verbatim.search(text):
            return tokens(self._encode(text))
        pieces = self._pieces(text)
        if not self._prepends:
            return b"".join(map(self.__getitem__, pieces))
        # The space before the text is added to the first piece only.
        return tokens(self._encode("".join(pieces[:1]))) + b"".join(map(self.__getitem__, pieces[1:]))

    def __missing__(self, piece: str) -> bytes:
        words = [piece]
        if self._words and not (self._verbatim and self._verbatim.search(piece)):
            words = self._words.split(piece)
        if len(words) > 1:
            ids = b"".join(map(self.__getitem__, words))
        else:
            ids = tokens(self._encode(piece[1:] if self._prepends else piece))
        if len(piece) <= _LONGEST:
            if len(self) >= self._most:
                self.clear()
            self[piece] = ids
        return ids


def tokens(ids: Sequence[int]) -> bytes:
    """Token ids as uint32: token + 1."""
    return array("I", [i + 1 for i in ids]).tobytes()


def joined(texts: Iterable[bytes]) -> bytes:
    """The tokens of texts, with a 0 after each."""
    return b"".join(part for text in texts for part in (text, _END))


# ---------------------------------------------------------------- in a process of its own

_encoder: Encoder


def begin(model: str, encodes_special: bool, vocab_size: int, cuts: dict[str, Any]) -> None:
    """Loads the tokenizer of core.models.hf_tokenizer.HFTokenizer; see its `portable`."""
    import tokenizers

    backend: Any = tokenizers.Tokenizer.from_str(model)
    backend.encode_special_tokens = encodes_special
    surrogate = re.compile("[\ud800-\udfff]")

    def encode(text: str) -> list[int]:
        ids = backend.encode(surrogate.sub("\ufffd", text), add_special_tokens=False).ids
        return [i for i in ids if i < vocab_size]

    global _encoder
    _encoder = Encoder(encode, **cuts)


def batch(texts: Sequence[str]) -> bytes:
    """`Encoder.batch`, after `begin`."""
    return _encoder.batch(texts)
