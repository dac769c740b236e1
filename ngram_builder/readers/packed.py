"""Unpacks the bytes of a file, and divides them into lines. Only a few pieces are held in memory at a time."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import zstandard

from ngram_builder.readers import base
from ngram_builder.readers.base import Source

Consumed = Callable[[int], None]

# The maximum number of bytes decompressed at once. The library unpacks all it is given, and four bytes of .zst may
# contain 128 KiB: this limit makes 16 MiB at most.
_SIP = 512


class CutOff(Exception):
    """The bytes end before the file's contents do; this has been reported."""


@dataclass
class Unpacked:
    """Bytes of a packed file so far: read from it, and unpacked. A reader that holds more in memory than the text of
    its documents adds that to `given`."""

    taken: int = 0
    given: int = 0

    @property
    def too_much(self) -> bool:
        return self.given > max(base.FREE, base.RATIO * self.taken)


def too_much() -> str:
    return f"unpacks to more than {base.RATIO} times its size"


def unpacked(
    file: BinaryIO, packing: str, source: Source, consumed: Consumed, so_far: Unpacked | None = None
) -> Iterator[bytes]:
    """Yields the file's bytes, decompressed. Raises CutOff, after a report, where the compressed stream is damaged, or
    unpacks to more than text can."""
    frames = _Frames(packing) if packing else None
    so_far = so_far or Unpacked()
    try:
        while piece := file.read(base.PIECE >> 4 if packing else base.PIECE):
            consumed(len(piece))
            so_far.taken += len(piece)
            for data in frames.unpacked(piece) if frames else [piece]:
                source.check_cancelled()
                so_far.given += len(data)
                if frames and so_far.too_much:
                    source.damaged(f"{too_much()}; the part before was read")
                    raise CutOff
                if data:
                    yield data
    except (zstandard.ZstdError, zlib.error) as error:
        source.damaged(f"not an intact {packing[1:]} stream: {error}")
        raise CutOff from error
    if frames and frames.begun:
        source.damaged(f"the {packing[1:]} stream is truncated; the part before the end was read")
        raise CutOff


class _Frames:
    """The frames of a packed file; a shard often consists of several.

    Attributes:
        begun: whether a frame has begun and not ended.
    """

    def __init__(self, packing: str) -> None:
        self._steps = self._zst if packing == ".zst" else self._gz
        self._stream: Any = None

    @property
    def begun(self) -> bool:
        return self._stream is not None

    def unpacked(self, piece: bytes) -> Iterator[bytes]:
        """Yields the contents of a piece of the file."""
        held, size = list[bytes](), 0
        for data in self._steps(piece):
            held.append(data)
            size += len(data)
            if size >= base.PIECE:
                yield b"".join(held)
                held, size = [], 0
        yield b"".join(held)

    def _zst(self, piece: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(piece):
            self._stream = self._stream or zstandard.ZstdDecompressor().decompressobj()
            sip = piece[at : at + _SIP]
            yield self._stream.decompress(sip)
            at += len(sip)
            if self._stream.eof:
                at -= len(self._stream.unused_data)
                self._stream = None

    def _gz(self, piece: bytes) -> Iterator[bytes]:
        while piece:
            self._stream = stream = self._stream or zlib.decompressobj(wbits=31)
            while data := stream.decompress(piece, base.PIECE):
                yield data
                piece = stream.unconsumed_tail
            piece = stream.unused_data
            if stream.eof:
                self._stream = None


def until_cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the pieces up to the truncation, for files that are useful in part."""
    with contextlib.suppress(CutOff):
        yield from pieces


def lines(pieces: Iterable[bytes], source: Source) -> Iterator[tuple[int, bytes]]:
    """Yields (line number, line without its end). A line longer than LONGEST is reported and skipped; a truncated line
    is skipped."""
    number, held, skipping = 1, bytearray(), False
    try:
        for piece in pieces:
            source.check_cancelled()
            start = 0
            while (end := piece.find(b"\n", start)) >= 0:
                if skipping or len(held) + end - start > base.LONGEST:
                    source.damaged(f"longer than {base.LONGEST >> 20} MiB", number)
                else:
                    held += piece[start:end]
                    yield number, bytes(held)
                number, skipping, start = number + 1, False, end + 1
                held.clear()
            if skipping or len(held) + len(piece) - start > base.LONGEST:
                skipping = True
                held.clear()
            else:
                held += piece[start:]
    except CutOff:
        return
    if skipping:
        source.damaged(f"longer than {base.LONGEST >> 20} MiB", number)
    elif held:
        yield number, bytes(held)


def whole(pieces: Iterable[bytes], source: Source) -> bytes | None:
    """Returns all bytes of a file that is one document; None, with a report, when it is longer than LONGEST."""
    held = bytearray()
    for piece in until_cut(pieces):
        held += piece
        if len(held) > base.LONGEST:
            source.damaged(f"longer than {base.LONGEST >> 20} MiB")
            return None
    return bytes(held)
