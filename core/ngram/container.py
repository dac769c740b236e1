"""The file around a store: magic, version, a JSON manifest, and named sections of bytes.

This module handles no n-grams. All integers are little-endian.

    offset 0   8 bytes   magic "NGRAMS\\r\\n" (reveals a transfer that rewrites line ends)
           8   u32       format version
          12   u32       length of the manifest in bytes
          16   32 bytes  SHA-256 of the manifest
          48             the manifest, UTF-8 JSON; its "sections" lists name, offset, bytes and sha256 of each
                         section, offsets counted from `start`
       start             = 48 + manifest length rounded up to 64; sections begin at multiples of 64

The file ends at the end of the last section.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from core.files import open_regular, parsed_json, replacing
from core.ngram.errors import StoreError

MAGIC = b"NGRAMS\r\n"
VERSION = 2  # of the files that are written
READ = (1, 2)  # versions of the files that are read; version 1 has one segment, which its manifest does not list
ALIGNMENT = 64
_HEAD = struct.Struct("<8sII32s")
_CHUNK = 1 << 20


def _aligned(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Stored:
    """A section of another file, which is copied in pieces: memory does not depend on its size."""

    path: Path
    name: str
    offset: int
    length: int
    sha256: str

    def __len__(self) -> int:
        return self.length

    def pieces(self) -> Iterator[bytes]:
        """Its bytes. Raises StoreError at the end if they do not match the checksum; OSError."""
        digest = hashlib.sha256()
        with open_regular(self.path) as file:
            file.seek(self.offset)
            left = self.length
            while left and (piece := file.read(min(left, _CHUNK))):
                digest.update(piece)
                left -= len(piece)
                yield piece
        if digest.hexdigest() != self.sha256:
            raise StoreError(f"{self.path} is damaged: section {self.name} does not match its checksum.")


Section = bytes | memoryview | Stored


def write_container(path: Path, manifest: Mapping[str, Any], sections: Mapping[str, Section]) -> None:
    """Writes the file, whole or not at all. The same arguments give the same bytes. Raises OSError; StoreError for a
    damaged section of another file."""
    listed, offset = [], 0
    for name, data in sections.items():
        offset = _aligned(offset)
        digest = data.sha256 if isinstance(data, Stored) else hashlib.sha256(data).hexdigest()
        listed.append({"name": name, "offset": offset, "bytes": len(data), "sha256": digest})
        offset += len(data)
    text = json.dumps({**manifest, "sections": listed}, ensure_ascii=False, sort_keys=True).encode()
    start = _aligned(_HEAD.size + len(text))

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, private=False) as file:
        file.write(_HEAD.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest()))
        file.write(text)
        for entry, data in zip(listed, sections.values(), strict=True):
            file.write(bytes(start + entry["offset"] - file.tell()))
            for piece in data.pieces() if isinstance(data, Stored) else (data,):
                file.write(piece)


class Container:
    """A mapped file; sections are views into it and nothing is copied.

    Attributes:
        path: of the file.
        version: of the format.
        manifest: the parsed JSON.
        size: of the file in bytes.
    """

    def __init__(self, path: str | Path, verify: bool = False) -> None:
        """Maps `path` and checks magic, version, the manifest's checksum and all sizes; with `verify` every
        section's checksum too, which reads the whole file. Raises StoreError."""
        self.path = Path(path)
        try:
            with ExitStack() as opened:
                file = opened.enter_context(open_regular(self.path))
                self._state = _state(file)
                self.size = self._state[0]
                head = file.read(_HEAD.size)
                if len(head) < _HEAD.size or not head.startswith(MAGIC):
                    raise StoreError(f"{self.path} is not an n-gram store: its first bytes are different.")
                _, self.version, length, digest = _HEAD.unpack(head)
                if self.version not in READ:
                    raise StoreError(
                        f"{self.path} has format version {self.version}; this program reads versions "
                        f"{' and '.join(map(str, READ))}. Update the program, or build the store again."
                    )
                text = file.read(length) if length <= self.size else b""
                if hashlib.sha256(text).digest() != digest:
                    raise StoreError(f"{self.path} is damaged: its manifest does not match its checksum.")
                self._start = _aligned(_HEAD.size + length)
                self.manifest: dict[str, Any] = _parse(self.path, text)
                self._sections = self._check_sections()
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._file = file
                opened.pop_all()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        self._view = memoryview(self._map)
        if verify:
            self.verify()

    def check_unchanged(self) -> None:
        """Raises StoreError if another program has written into the mapped file: its bytes mean something else now, or
        are gone. A new file of the same name, as `write_container` makes it, leaves this one as it is."""
        if _state(self._file) != self._state:
            raise StoreError(
                f"{self.path} was overwritten while it is in use; restart the program, and next time move the new file "
                "to this name instead of copying it over the old one."
            )

    def _check_sections(self) -> dict[str, Stored]:
        sections: dict[str, Stored] = {}
        end = self._start
        listed = self.manifest.get("sections", [])
        if not isinstance(listed, list):
            raise StoreError(f"{self.path} is damaged: its sections are not a list.")
        for entry in listed:
            try:
                name, offset = str(entry["name"]), self._start + int(entry["offset"])
                length, digest = int(entry["bytes"]), str(entry["sha256"])
            except (TypeError, KeyError, ValueError, OverflowError) as error:
                raise StoreError(f"{self.path} is damaged: a section is described wrongly.") from error
            if offset < end or offset % ALIGNMENT or length < 0:
                raise StoreError(f"{self.path} is damaged: section {name} overlaps the one before it.")
            sections[name] = Stored(self.path, name, offset, length, digest)
            end = offset + length
        if self.size != end:
            what = "truncated" if self.size < end else "longer than its manifest states"
            raise StoreError(f"{self.path} is {what}: {self.size} bytes, {end} expected.")
        return sections

    def section(self, name: str) -> memoryview:
        """The bytes of one section. Raises StoreError if it does not exist."""
        if name not in self._sections:
            raise StoreError(f"{self.path} is damaged: it has no section {name}.")
        section = self._sections[name]
        return self._view[section.offset : section.offset + section.length]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of every section."""
        return {name: section.length for name, section in self._sections.items()}

    def stored(self) -> dict[str, Stored]:
        """Every section, to be copied into another file."""
        return dict(self._sections)

    def release_pages(self) -> None:
        """Gives the memory of the pages that were read back to the system, which reads them again when needed."""
        if hasattr(self._map, "madvise"):  # not on Windows
            self._map.madvise(mmap.MADV_DONTNEED)

    def verify(self) -> None:
        """Compares every section with its checksum. Raises StoreError naming the first that differs."""
        # Reads the file, not the map, so that a check does not leave it in this process's resident memory.
        for section in self._sections.values():
            for _ in section.pieces():
                pass

    def close(self) -> None:
        """Unmaps the file once no view of it is in use."""
        self._view.release()
        self._file.close()
        try:
            self._map.close()
        except BufferError:
            return  # a reader still holds a section; the map is released with it


def _state(file: BufferedReader) -> tuple[int, int]:
    state = os.fstat(file.fileno())
    return state.st_size, state.st_mtime_ns


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        manifest = parsed_json(text)
    except ValueError as error:
        raise StoreError(f"{path} is damaged: its manifest is not JSON.") from error
    if not isinstance(manifest, dict):
        raise StoreError(f"{path} is damaged: its manifest is not a JSON object.")
    return manifest
