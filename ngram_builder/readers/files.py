"""Resolves sources to files: local ones by path, others by any URL that fsspec supports. If a connection breaks,
reading a remote file resumes at the same position."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

import fsspec

from core.errors import InputError
from ngram_builder.readers.base import PIECE, spelled
from ngram_builder.readers.mbox import FIRST, kind_of_mail

PACKED = (".gz", ".zst")
KINDS = {
    ".jsonl": "json",
    ".json": "json",
    ".ndjson": "json",
    ".txt": "text",
    ".md": "text",
    ".markdown": "text",
    ".rst": "text",
    ".text": "text",
    ".org": "text",
    ".parquet": "parquet",
    ".eml": "eml",
    ".emlx": "emlx",
    ".mbox": "mbox",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".docx": "docx",
    ".odt": "odt",
    ".rtf": "rtf",
    ".zip": "zip",
}
_SEEKING = ("parquet", "docx", "odt", "zip")  # packed formats that are read from their end
# RedPajama-V2 keeps these beside documents, by a part of the name or in folders of these names.
_SIDECARS = (".signals", ".duplicates", ".minhash")
_SIDECAR_FOLDERS = ("quality_signals", "duplicates", "minhash")
# Folders of deleted files, and of files that programs brought along.
_NOT_WRITTEN = {
    "trash", "deleted items", "deleted messages", "$recycle.bin", "recycler", "lost+found", "__macosx",
    "system volume information", "node_modules", "site-packages", "__pycache__",
}  # fmt: skip
_MAILDIR = ("cur", "new")  # the folders of mails in each folder of a Maildir
_ATTEMPTS = 4
_PAUSE = 0.5  # seconds before the second attempt, doubled before each further one
# Keys that identify the version of a remote file in the various file systems.
_STAMPS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "sha256", "blob_id", "commit_hash", "created")


def kind_of(name: str) -> tuple[str, str] | None:
    """(kind, packing or "") for a file name; None for files that are not read."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in PACKED else ""
    kind = KINDS.get(suffixes[-1]) if suffixes else None
    if kind is None or (packing and kind in _SEEKING) or (suffixes[-2:-1] and suffixes[-2] in _SIDECARS):
        return None
    return kind, packing


def mail_at(path: Path) -> str:
    """The kind of mail in a local file, by its first bytes: many programs give their mailboxes no ending. "" if it is
    none, or if its Maildir says that it is in the trash."""
    if re.search(r":2,[A-Z]*T", path.name):
        return ""
    with suppress(OSError):
        status = path.stat()
        return _mail_in(path, status.st_size, status.st_mtime_ns)
    return ""


@lru_cache(1 << 16)  # a folder that is watched is listed again and again
def _mail_in(path: Path, size: int, stamp: int) -> str:
    with path.open("rb") as file:
        return kind_of_mail(file.read(FIRST))


@dataclass(frozen=True)
class File:
    """A file to read.

    Attributes:
        address: its path or URL.
        size: in bytes, 0 where the server does not say.
        stamp: changes when the file does.
    """

    address: str
    size: int
    stamp: str

    @classmethod
    def at(cls, path: str | Path) -> File:
        """A local file. Raises OSError when it does not exist."""
        status = Path(path).stat()
        return cls(str(path), status.st_size, str(status.st_mtime_ns))

    @property
    def remote(self) -> bool:
        return "://" in self.address

    @cached_property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.address).path).name if self.remote else Path(self.address).name

    def __str__(self) -> str:
        return spelled(self.address)

    def open(self) -> BinaryIO:
        """The bytes of the file; raises OSError there and while reading."""
        if not self.remote:
            return Path(self.address).open("rb")
        return cast(BinaryIO, io.BufferedReader(_Resuming(self.address, self.size), PIECE))


def expand(sources: Iterable[str | Path | File]) -> list[File]:
    """Lists the files of files, folders, glob patterns and URLs: in the given order, each folder's sorted by name, each
    once.

    A folder or a pattern yields every file of a supported kind that a person keeps there: no hidden files and folders,
    no trash, no locks of programs. Raises InputError when a source does not exist, or none contains such a file.
    """
    sources = list(sources)
    files: dict[str, File] = {}
    for source in sources:
        if isinstance(source, File):
            matching = [source]
        else:
            matching = _remote(source) if isinstance(source, str) and "://" in source else _local(Path(source))
        for file in matching:
            files.setdefault(file.address, file)
    if not files and sources:
        where = ", ".join(spelled(str(source)) for source in sources)
        raise InputError(f"Nothing to read in {where}: no file of a supported kind.")
    return list(files.values())


def _local(path: Path) -> list[File]:
    if path.is_dir():
        return [File.at(f) for f in sorted(files_below(path)) if is_of_a_kind(f)]
    if path.is_file():
        if _is_lock(path.name):
            return []
        if not mail_at(path):
            _check_kind(str(path), path.name)
        return [File.at(path)]
    if has_magic(str(path)):
        plain = next(i for i, part in enumerate(path.parts) if has_magic(part))
        root, pattern = Path(*path.parts[:plain]), Path(*path.parts[plain:])
        hidden = any(part.startswith(".") for part in pattern.parts)  # the pattern asks for hidden files
        return [File.at(f) for f in sorted(root.glob(str(pattern))) if _is_kept(f, root, hidden) and is_of_a_kind(f)]
    raise InputError(f"{spelled(str(path))} does not exist.")


def files_below(
    root: Path,
    enters: Callable[[Path], bool] = lambda _: True,
    failed: Callable[[OSError], None] | None = None,
) -> Iterator[Path]:
    """The files that a person keeps in a folder, of any kind: no hidden files and folders, no trash, no locks of
    programs.

    Args:
        enters: whether to look into a folder inside.
        failed: called for a folder that cannot be listed.
    """
    for name, folders, files in os.walk(root, onerror=failed):
        folder = Path(name)
        folders[:] = sorted(each for each in folders if not _is_closed(folder / each) and enters(folder / each))
        yield from (folder / each for each in files if _is_kept(folder / each, root))


def _is_closed(folder: Path) -> bool:
    """Whether all files in a folder are left out, so that nobody needs to look there."""
    if folder.name.lstrip(".").casefold() in _NOT_WRITTEN:
        return True
    return folder.name.startswith(".") and not any((folder / each).is_dir() for each in _MAILDIR)


def _is_kept(path: Path, root: Path, hidden: bool = False) -> bool:
    below = path.relative_to(root).parts
    return not (_is_left_out(below, hidden) or _is_sidecar(below, root)) and path.is_file()


def is_of_a_kind(path: Path) -> bool:
    """Whether a local file is read: by its ending, or as a mailbox by its first bytes."""
    return kind_of(path.name) is not None or bool(mail_at(path))


def _is_sidecar(parts: tuple[str, ...], root: Path) -> bool:
    """Whether a file, by its path below a folder that was given, is one that RedPajama-V2 keeps beside documents."""
    folders = [at for at, part in enumerate(parts[:-1]) if part in _SIDECAR_FOLDERS]
    return any((root.joinpath(*parts[:at]) / "documents").is_dir() for at in folders)


def _is_left_out(parts: tuple[str, ...], hidden: bool = False) -> bool:
    """Whether a file, by its path below a folder that was given, is hidden, in the trash, or a lock. The folders of a
    Maildir begin with a dot, and are not hidden: `.Sent/cur/17.host:2,S`."""
    of_mail = len(parts) - 3 if parts[-2:-1] and parts[-2] in _MAILDIR and kind_of(parts[-1]) is None else None
    return _is_lock(parts[-1]) or any(
        (part.startswith(".") and not hidden and at != of_mail) or part.lstrip(".").casefold() in _NOT_WRITTEN
        for at, part in enumerate(parts)
    )


def _is_lock(name: str) -> bool:
    """Whether a program keeps a file while another is open: Word, LibreOffice, Emacs."""
    return name.startswith(("~$", ".~lock.", ".#")) or (name.startswith("#") and name.endswith("#"))


def _check_kind(source: str, name: str) -> None:
    if kind_of(name) is None:
        raise InputError(
            f"{spelled(source)} is not of a supported kind. Known: {', '.join(KINDS)}; all but .parquet, .docx, "
            ".odt and .zip also with .gz or .zst appended."
        )


def _remote(url: str) -> list[File]:
    try:
        system, path = fsspec.url_to_fs(url)
        if has_magic(path):
            entries = [(p, info) for p, info in system.glob(path, detail=True).items() if info["type"] == "file"]
        elif kind_of(PurePosixPath(urlsplit(url).path).name):  # listing a folder of a web server would fetch the file
            entries = [(path, system.info(path))]
        elif system.isdir(path):
            entries = list(system.find(path, detail=True).items())
        else:
            _check_kind(url, PurePosixPath(urlsplit(url).path).name)
            entries = []
    except ImportError as error:
        raise InputError(
            f"{url} needs a package that is not installed ({error}): pip install 'polydraft[remote]'."
        ) from error
    except (ValueError, LookupError, TypeError, *_failures()) as error:
        raise InputError(f"{url} cannot be read: {_said(error)}.") from error
    listed = sorted(
        (str(system.unstrip_protocol(p)), info)
        for p, info in entries
        if kind_of(PurePosixPath(urlsplit(p).path).name) and not _is_left_out(_below(p, path))
    )
    return [File(address, int(info.get("size") or 0), _stamp(info)) for address, info in listed]


def _below(path: str, root: str) -> tuple[str, ...]:
    """The parts of a remote file's path below a folder or a pattern; its name if it is the source itself."""
    fixed = PurePosixPath(root.split("*")[0].split("?")[0].split("[")[0]).parts
    parts = PurePosixPath(urlsplit(path).path).parts
    return parts[len(fixed) :] if parts[: len(fixed)] == fixed and len(parts) > len(fixed) else parts[-1:]


def _stamp(info: dict[str, Any]) -> str:
    return " ".join(str(info[key]) for key in _STAMPS if info.get(key))


def _failures() -> tuple[type[BaseException], ...]:
    """The exceptions of file systems when a connection fails: OSError, and those of the packages in use."""
    names = {
        "aiohttp": ("ClientError",),
        "httpx": ("HTTPError", "InvalidURL"),
        "httpx2": ("HTTPError", "InvalidURL"),  # of huggingface_hub
        "botocore.exceptions": ("BotoCoreError", "ClientError"),
    }
    loaded = [
        getattr(sys.modules[module], name)
        for module, classes in names.items()
        if module in sys.modules
        for name in classes
    ]
    return (OSError, EOFError, TimeoutError, *loaded)


def _said(error: BaseException) -> str:
    if isinstance(error, json.JSONDecodeError | LookupError | TypeError):  # of a file system that read a page
        return "the server sent something else than its list of files (does this network ask for a login?)"
    return str(error).strip().rstrip(".") or type(error).__name__


class _Resuming(io.RawIOBase):
    """A remote file that is reopened at the same position when reading fails, a few times per position."""

    def __init__(self, url: str, size: int) -> None:
        self._url, self._size, self._at = url, size, 0
        self._file: Any = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._size > 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if target != self._at:
            self._drop()
            self._at = target
        return target

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        for attempt in range(_ATTEMPTS):
            try:
                if self._file is None:
                    self._file = self._open()
                data = self._file.read(len(buffer))
                if not data and self._at < self._size:
                    raise EOFError(f"the connection ended after {self._at} of {self._size} bytes")
            except _failures() as error:
                self._drop()
                if attempt == _ATTEMPTS - 1 or isinstance(error, FileNotFoundError | PermissionError):
                    raise OSError(
                        f"gave up after {self._at} of {self._size or 'unknown'} bytes: {_said(error)}"
                    ) from error
                time.sleep(_PAUSE * 2**attempt)
            else:
                buffer[: len(data)] = data
                self._at += len(data)
                return len(data)
        return 0

    def close(self) -> None:
        self._drop()
        super().close()

    def _open(self) -> Any:
        system, path = fsspec.url_to_fs(self._url)
        file = system.open(path, "rb", cache_type="readahead")
        if self._at:
            if file.seekable():
                file.seek(self._at)
            else:  # a server without ranges: read the part again and skip it
                left = self._at
                while left:
                    if not (data := file.read(min(left, PIECE))):
                        raise EOFError("the connection ended before the position it had reached")
                    left -= len(data)
        return file

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except _failures():
                pass  # it was broken already; it only has to be dropped
