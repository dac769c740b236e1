"""Encodes texts piece by piece, and remembers the tokens of pieces: most words of a text have occurred before.

A program, too: `encoding` starts one per core. It does not import this project, whose imports take a second.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import IO, Any

MOST = 1 << 18  # pieces that are remembered at most
PER_PIECE = 256  # bytes of memory, about
_LONGEST = 64  # characters of a piece that is remembered
_END = bytes(4)  # after each text
_HEAD = 8  # bytes of a message's length


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
        parts = list[bytes]()
        for text in texts:
            parts += (self.text(text), _END)
        return b"".join(parts)

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


def packed(texts: Sequence[str]) -> bytes:
    """Texts as one message."""
    written = [text.encode("utf-8", "surrogatepass") for text in texts]
    return array("Q", [len(written), *map(len, written)]).tobytes() + b"".join(written)


def unpacked(message: bytes) -> list[str]:
    size = array("Q").itemsize
    start = size * (1 + int.from_bytes(message[:size], sys.byteorder))
    texts = list[str]()
    for length in array("Q", message[size:start]):
        texts.append(message[start : start + length].decode("utf-8", "surrogatepass"))
        start += length
    return texts


def send(file: IO[bytes], message: bytes) -> None:
    file.write(len(message).to_bytes(_HEAD, "little"))
    file.write(message)
    file.flush()


def receive(file: IO[bytes]) -> bytes | None:
    """The next message; None when the other process has ended."""
    head = file.read(_HEAD)
    size = int.from_bytes(head, "little")
    message = file.read(size)
    return message if len(head) == _HEAD and len(message) == size else None


def _backend(model: str, encodes_special: bool, vocab_size: int) -> Callable[[str], list[int]]:
    """The `encode` of core.models.hf_tokenizer.HFTokenizer."""
    import tokenizers

    backend: Any = tokenizers.Tokenizer.from_str(model)
    backend.encode_special_tokens = encodes_special
    surrogate = re.compile("[\ud800-\udfff]")

    def encode(text: str) -> list[int]:
        ids = backend.encode(surrogate.sub("\ufffd", text), add_special_tokens=False).ids
        return [i for i in ids if i < vocab_size]

    return encode


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answers each list of texts by their tokens. The first message is what to encode with."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the build, and then this process
    if (first := receive(requests)) is None:
        return
    model, encodes_special, vocab_size, cuts = json.loads(first)
    encoder = Encoder(_backend(model, encodes_special, vocab_size), **cuts)
    while (texts := receive(requests)) is not None:
        send(answers, encoder.batch(unpacked(texts)))


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
