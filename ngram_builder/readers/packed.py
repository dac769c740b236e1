"""Bytes of a file, unpacked, and lines of bytes."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import zstandard

from ngram_builder.readers import base
from ngram_builder.readers.base import Damage, Report

Consumed = Callable[[int], None]


class CutOff(Exception):
    """The bytes end before the file's contents do; that was reported."""


def unpacked(file: BinaryIO, packing: str, path: str, report: Report, consumed: Consumed) -> Iterator[bytes]:
    """The file's bytes, decompressed. Raises CutOff, after a report, where the compressed stream is damaged."""

    def fresh() -> zstandard.ZstdDecompressionObj | zlib._Decompress:
        return zstandard.ZstdDecompressor().decompressobj() if packing == ".zst" else zlib.decompressobj(wbits=31)

    name = packing[1:]
    stream, started = (fresh() if packing else None), False
    try:
        while piece := file.read(base.PIECE >> 4 if packing else base.PIECE):
            consumed(len(piece))
            if stream is None:
                yield piece
                continue
            while piece:
                started = True
                if data := stream.decompress(piece):
                    yield data
                if not stream.eof:
                    break
                piece = stream.unused_data  # shards are often several frames, one after the other
                stream, started = fresh(), False
    except (zstandard.ZstdError, zlib.error) as error:
        report(Damage(path, 0, f"no intact {name} stream: {error}"))
        raise CutOff from error
    if started:
        report(Damage(path, 0, f"the {name} stream is cut off; what came before the cut was read"))
        raise CutOff


def until_cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces up to where they are cut off, for files of which a part is worth reading too."""
    with contextlib.suppress(CutOff):
        yield from pieces


def lines(pieces: Iterable[bytes], path: str, report: Report) -> Iterator[tuple[int, bytes]]:
    """(line number, line without its end); a line longer than LONGEST is reported and passed over, one that is cut off
    is passed over."""
    number, held, size, skipping = 1, [], 0, False
    for piece in _marked(pieces):
        if piece is None:
            return
        *whole, rest = piece.split(b"\n")
        for end in whole:
            if skipping or size + len(end) > base.LONGEST:
                report(Damage(path, number, f"longer than {base.LONGEST >> 20} MiB"))
            else:
                yield number, b"".join([*held, end])
            number, held, size, skipping = number + 1, [], 0, False
        size += len(rest)
        skipping = skipping or size > base.LONGEST
        held = [] if skipping else [*held, rest] if rest else held
    if skipping:
        report(Damage(path, number, f"longer than {base.LONGEST >> 20} MiB"))
    elif held:
        yield number, b"".join(held)


def _marked(pieces: Iterable[bytes]) -> Iterator[bytes | None]:
    try:
        yield from pieces
    except CutOff:
        yield None


def whole(pieces: Iterable[bytes], path: str, report: Report) -> bytes | None:
    """All bytes of a file that is one document; None, with a report, when it is longer than LONGEST."""
    held, size = [], 0
    for piece in until_cut(pieces):
        held.append(piece)
        size += len(piece)
        if size > base.LONGEST:
            report(Damage(path, 0, f"longer than {base.LONGEST >> 20} MiB"))
            return None
    return b"".join(held)
