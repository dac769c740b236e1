"""GGUF files: their metadata and tensors, checked against the file's own size before anything is read or allocated.

A file may come from any source, so this parser validates every number in it. Every count, length and offset is compared
with the bytes that are there; an inconsistent file gives one ModelFileError. The parser reads and does not map: a file
that is truncated during reading gives an error too, where a mapped one would end the process with SIGBUS.

    magic "GGUF", u32 version, u64 tensors, u64 fields          numbers are little-endian
    fields: text key, u32 type, value                           a text is a u64 length and UTF-8
    tensors: text name, u32 dimensions, u64 each, u32 type, u64 offset from `start`
    start: the next multiple of the alignment; the tensors' data, none over another

A sound file that holds something else than a whole model, or that is newer than this parser, is refused as what it is.
`gguf_check` compares the tensors with the metadata.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from core.errors import ModelFileError
from core.files import check_regular, open_regular

MAGIC = b"GGUF"
VERSIONS = (2, 3)
LATER = 255  # types of tensors and values, and versions, up to here may exist one day; a larger number is damage
HEADER = 64 << 20  # bytes before the tensors' data; the largest vocabularies of today take 20 MB
DIMENSIONS = 4
ALIGNMENT = 32  # if a file states none
NESTED = 8  # lists within lists
EXACT = "tokenizer.ggml."  # fields whose texts must be UTF-8; others describe, and may be in an old encoding
_FIRST = 4 << 20  # bytes of the header that are read at once
_OTHER_TYPE = "choose another file of the model, such as one in Q4_K_M or Q8_0"
_NAME = 80  # characters of a name in an error message
_SENTENCE = 200  # characters of an error message; a name in the file may be as long as the file

# Types of a field's value: their struct formats, and the two that have a length.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")  # of a text
# The minimum size of each in a file, so that a count can be refused before a loop over it.
_LEAST_TEXT, _LEAST_LIST, _LEAST_FIELD, _LEAST_TENSOR = 8, 4 + 8, 8 + 4 + 1, 8 + 4 + 8 + 4 + 8

# Types of tensors that llama.cpp once wrote and no longer reads, by number.
_REMOVED = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8"}
_REMOVED |= {36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8"}
# What a file says that it holds instead of a model: by general.type, and for older files by the architecture.
_OTHERS = {
    "adapter": "a LoRA adapter, which changes a model; choose the model's own file",
    "mmproj": "a projector, which reads images for a model; choose the model's own file",
    "imatrix": "an importance matrix, made to quantise a model; choose the model's own file",
}
_PROJECTOR = "clip"

_PLAIN: dict[GGMLQuantizationType, type[np.generic]] = {
    GGMLQuantizationType.F16: np.float16,
    GGMLQuantizationType.F32: np.float32,
    GGMLQuantizationType.F64: np.float64,
    GGMLQuantizationType.I8: np.int8,
    GGMLQuantizationType.I16: np.int16,
    GGMLQuantizationType.I32: np.int32,
    GGMLQuantizationType.I64: np.int64,
}


@dataclass(frozen=True)
class GGUFTensor:
    """One tensor of a file; its data is read on demand.

    Attributes:
        kind: its type: plain numbers, or blocks of a few bits each.
        shape: outermost first, (out, in) of a matrix.
        offset, bytes: the position of its data, which is inside the file.
    """

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    bytes: int
    _file: BufferedReader = field(repr=False)

    def data(self, memory: np.ndarray | None = None) -> np.ndarray:
        """A copy, in `memory` if these bytes are given: numbers of this shape, or for coded kinds bytes (…, bytes of a
        row). Raises ModelFileError."""
        data = np.empty(self.bytes, np.uint8) if memory is None else memory
        self._file.seek(self.offset)
        if self._file.readinto(data.data) != self.bytes:
            raise ModelFileError(f"{self._file.name} was truncated while it was read; download it again.")
        return data.view(_PLAIN.get(self.kind, np.uint8)).reshape(*self.shape[:-1], -1)

    def unpacked(self, data: np.ndarray | None = None) -> np.ndarray:
        """The decoded data, or rows of it, float32 of this shape. Raises ModelFileError."""
        try:
            with np.errstate(all="ignore"):  # a scale may be NaN; loading the model then reports it
                return np.ascontiguousarray(
                    dequantize(self.data() if data is None else data, self.kind), dtype=np.float32
                )
        except NotImplementedError:
            raise ModelFileError(
                f"{self._file.name} has {self.name} in the type {self.kind.name}, which cannot be unpacked here; "
                "choose another model file."
            ) from None


@dataclass(frozen=True)
class GGUFFile:
    """The contents of a file's header.

    Attributes:
        fields: metadata by key: numbers, texts, booleans, and lists of these.
        tensors: by name.
    """

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, GGUFTensor]

    @property
    def architecture(self) -> Any:
        return self.fields.get("general.architecture")

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes of the model's languages; () if the file states none."""
        stated = self.fields.get("general.languages")
        return tuple(each for each in stated if isinstance(each, str)) if isinstance(stated, list) else ()

    def stated(self, key: str, default: Any = None) -> Any:
        """A metadata field of the file's architecture."""
        return self.fields.get(f"{self.architecture}.{key}", default)


def read(path: Path) -> GGUFFile:
    """The file's metadata and tensors. The last file is cached, because the check and the backend share it.

    Raises: ModelFileError for anything but a complete GGUF file.
    """
    try:
        check_regular(path)
        stat = path.stat()
        return _read(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror or error}); check the file.") from error


@lru_cache(maxsize=1)
def _read(path: Path, size: int, *_changed: int) -> GGUFFile:
    return _Parser(path, open_regular(path), size).file()


def forget() -> None:
    """Closes the cached file, once its model is loaded."""
    _read.cache_clear()


class _Parser:
    """Reads the header from its beginning to its end; `_at` is the current byte."""

    def __init__(self, path: Path, file: BufferedReader, size: int) -> None:
        self._path, self._file, self._size = path, file, size
        self._bytes, self._at = file.read(_FIRST), len(MAGIC)

    def file(self) -> GGUFFile:
        magic = self._bytes[: len(MAGIC)]
        if magic != MAGIC:
            letters = magic.isascii() and magic.decode("ascii").isprintable()
            begins = f'begins with "{magic.decode()}"' if letters else f"begins with the bytes {magic.hex(' ')}"
            raise ModelFileError(
                f"{self._path} is not a GGUF file (it {begins if magic else 'is empty'}); "
                "give a .gguf file or a model directory."
            )
        (version,) = self._unpack("<I", "its version")
        if version not in VERSIONS:
            self._refuse_version(version)
        tensors, fields = self._unpack("<QQ", "its counts")
        self._expect(fields, _LEAST_FIELD, "fields of metadata")
        stored: dict[str, Any] = {}
        for _ in range(fields):
            key = self._text("a field's name")
            if key in stored:
                self._damaged(f"the field {key!r} twice")
            (kind,) = self._unpack("<I", key)
            stored[key] = self._value(kind, key)
        self._expect(tensors, _LEAST_TENSOR, "tensors")
        self._refuse_others(stored, tensors)
        stated = [self._tensor() for _ in range(tensors)]
        return GGUFFile(self._path, stored, self._placed(stated, stored.get("general.alignment", ALIGNMENT)))

    def _refuse_version(self, version: int) -> NoReturn:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if 1 <= swapped <= LATER:
            self._refuse("is a GGUF file for big-endian machines; choose another file of the model")
        if 1 <= version <= LATER:
            self._refuse(
                f"is of version {version} of GGUF, and 2 and 3 are read here; choose another file of the model"
            )
        self._damaged(f"version {version}, where {VERSIONS[0]} or {VERSIONS[1]} is expected")

    def _refuse_others(self, fields: dict[str, Any], tensors: int) -> None:
        """Refuses a file that is sound and no whole model."""
        held = fields.get("general.type", "")
        held = "mmproj" if fields.get("general.architecture") == _PROJECTOR else held if isinstance(held, str) else ""
        if held in _OTHERS:
            self._refuse(f"is {_OTHERS[held]}")
        parts, part = fields.get("split.count"), fields.get("split.no")
        if type(parts) is int and type(part) is int and parts > 1:
            whole = "join them with `llama-gguf-split --merge`, or choose a file in one part"
            self._refuse(f"is part {part + 1} of {parts} of a model; {whole}")
        if not tensors:
            self._refuse("has a model's vocabulary or description and no weights; choose the model's own file")

    def _value(self, kind: int, key: str, within: int = 0) -> Any:
        """A field's value; `within` so many lists."""
        if kind in _NUMBERS:
            return self._unpack(f"<{_NUMBERS[kind]}", key)[0]
        if kind == _TEXT:
            return self._text(key, exact=key.startswith(EXACT))
        if kind != _ARRAY:
            self._unknown(kind, key)
        of, count = self._unpack("<IQ", key)
        if of in _NUMBERS:
            self._expect(count, struct.calcsize(_NUMBERS[of]), f"numbers of {key!r}")
            return list(self._unpack(f"<{count}{_NUMBERS[of]}", key))
        if of == _TEXT:
            self._expect(count, _LEAST_TEXT, f"texts of {key!r}")
            return self._texts(count, key, exact=key.startswith(EXACT))
        if of != _ARRAY:
            self._unknown(of, key)
        self._expect(count, _LEAST_LIST, f"lists of {key!r}")
        if within == NESTED:
            self._damaged(f"lists in {NESTED + 1} lists for {key!r}")
        return [self._value(of, key, within + 1) for _ in range(count)]

    def _tensor(self) -> tuple[str, GGMLQuantizationType, tuple[int, ...], int]:
        name = self._text("a tensor's name")
        (dimensions,) = self._unpack("<I", name)
        if not 1 <= dimensions <= DIMENSIONS:
            self._damaged(f"{dimensions} dimensions for {name!r}, where 1 to {DIMENSIONS} are expected")
        shape = self._unpack(f"<{dimensions}Q", name)[::-1]
        if 0 in shape:
            self._damaged(f"the empty shape {shape} for {name!r}")
        number, offset = self._unpack("<IQ", name)
        try:
            kind = GGMLQuantizationType(number)
        except ValueError:
            self._unknown(number, name, _REMOVED.get(number))
        return name, kind, shape, offset

    def _placed(
        self, stated: list[tuple[str, GGMLQuantizationType, tuple[int, ...], int]], alignment: Any
    ) -> dict[str, GGUFTensor]:
        """The tensors with the positions of their data in the file."""
        if type(alignment) is not int or not 0 < alignment <= HEADER or alignment & (alignment - 1):
            self._damaged(f"an alignment of {alignment!r}, where a power of two is expected")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, GGUFTensor] = {}
        end, before = 0, ""  # of the tensors so far, in the order of their places
        for name, kind, shape, offset in sorted(stated, key=lambda each: each[3]):
            block, size = GGML_QUANT_SIZES[kind]
            if shape[-1] % block:
                self._damaged(f"rows of {shape[-1]} numbers for {name!r}, which has blocks of {block}")
            length = prod(shape) // block * size
            if offset % alignment:
                self._damaged(f"the offset {offset} for {name!r}, which is not a multiple of {alignment}")
            if start + offset + length > self._size:
                self._damaged(f"{name!r} up to byte {start + offset + length}, but only {self._size} bytes")
            if offset < end:
                self._damaged(f"{name!r} over {before!r}")
            if name in tensors:
                self._damaged(f"the tensor {name!r} twice")
            tensors[name] = GGUFTensor(name, kind, shape, start + offset, length, self._file)
            end, before = offset + length, name
        return tensors

    # --- bytes

    def _take(self, count: int, what: str) -> int:
        """The position of the next `count` bytes, which are then in memory; advances behind them."""
        start = self._at
        self._at = end = start + count
        if end > len(self._bytes):
            if end > min(self._size, HEADER):
                limit = f"only {self._size} bytes" if end > self._size else f"at most {HEADER} may be metadata"
                self._damaged(f"{what!r} up to byte {end}, but {limit}")
            self._bytes += self._file.read(max(len(self._bytes), end - len(self._bytes)))
            if end > len(self._bytes):
                self._damaged(f"only {len(self._bytes)} bytes")
        return start

    def _unpack(self, form: str, what: str) -> tuple[Any, ...]:
        start = self._take(struct.calcsize(form), what)  # before `_bytes`, which grows
        return struct.unpack_from(form, self._bytes, start)

    def _text(self, what: str, exact: bool = True) -> str:
        (length,) = self._unpack("<Q", what)
        start = self._take(length, what)
        try:
            return self._bytes[start : start + length].decode(errors="strict" if exact else "replace")
        except UnicodeDecodeError:
            self._damaged(f"a text that is not UTF-8 for {what!r}")

    def _texts(self, count: int, what: str, exact: bool = True) -> list[str]:
        """As many texts, as `_text` reads them; a vocabulary has hundreds of thousands."""
        texts = list[str]()
        while len(texts) < count:
            texts.append(self._text(what, exact))  # reads on in the file, or reports the fault
            held, at = self._bytes, self._at
            last = len(held) - _LENGTH.size
            with suppress(UnicodeDecodeError):
                while len(texts) < count and at <= last:
                    begin = at + _LENGTH.size
                    end = begin + _LENGTH.unpack_from(held, at)[0]
                    if end > len(held):
                        break
                    texts.append(held[begin:end].decode())
                    at = end
            self._at = at
        return texts

    def _expect(self, count: int, each: int, what: str) -> None:
        """Refuses a count for which the rest of the file has no room."""
        if count * each > self._size - self._at:
            self._damaged(f"{count} {what} announced, but only {self._size} bytes")

    def _unknown(self, kind: int, what: str, removed: str | None = None) -> NoReturn:
        """Refuses a type without a size that is known, so that nothing behind it can be found."""
        if removed:
            self._refuse(f"has {_short(what)} in the type {removed}, which llama.cpp gave up; {_OTHER_TYPE}")
        if kind > LATER:
            self._damaged(f"the unknown type {kind} for {_short(what)}")
        reason = "this version of Polydraft does not know (the file is newer, or damaged)"
        self._refuse(f"has {_short(what)} in the type {kind}, which {reason}; {_OTHER_TYPE}")

    def _damaged(self, fault: str) -> NoReturn:
        fault = fault if len(fault) <= _SENTENCE else fault[: _SENTENCE - 1] + "…"
        self._refuse(f"is a damaged or truncated GGUF file (it has {fault}); download it again")

    def _refuse(self, reason: str) -> NoReturn:
        raise ModelFileError(f"{self._path} {reason}.")


def _short(name: str) -> str:
    return repr(name if len(name) <= _NAME else name[: _NAME - 1] + "…")
