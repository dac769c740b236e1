"""Downloads a GGUF file from the Hub, when the user asks for one: the only way by which a model comes over the network.

What has come is kept in `FILE.KEY.part` beside the file, so a download that was interrupted continues where it stopped.
The part becomes the file once its bytes and its digest are those that the Hub states. Only one program at a time writes
a part.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import count, filterfalse, takewhile
from pathlib import Path
from typing import IO, Literal

import httpx

from core.errors import InputError, ModelFileError, NoConnection, PolydraftError
from core.files import claim, sync_folder
from core.hub.connection import PORTAL, check, connected
from core.hub.listing import Remote, find

SPARE = 200_000_000  # bytes that stay free on the disk
PAUSES = (1.0, 2.0, 4.0)  # seconds until another try after an interruption; one more than these ends the download
ENOUGH = 1_000_000  # bytes after which an interruption is the first one again
RETRIED = (408, 429, 500, 502, 503, 504)  # statuses of a server that may answer otherwise in a moment
MAGIC = b"GGUF"
_KEPT = "what has come is kept, and the next try goes on from there"
_PART = re.compile(r"(.+)\.[0-9a-f]{16}\.part")
_READ = 1 << 20


@dataclass(frozen=True)
class DownloadStep:
    """How far a download is.

    Attributes:
        stage: asks the Hub for its list; receives bytes; waits after an interruption; compares the digest; has ended.
        file: its name in the repository; "" until it is known.
        come, bytes: of the file.
        path: the file, at the end.
    """

    stage: Literal["asking", "coming", "waiting", "checking", "done"]
    file: str = ""
    come: int = 0
    bytes: int = 0
    path: Path | None = None


def download(given: str, folder: Path) -> Generator[DownloadStep]:
    """Downloads the file that a name means into a folder, unless it is there. It can be stopped at any time.

    Args:
        given: see `names.wanted`.
    Raises: InputError for what is no name, and without room on the disk; ModelNotFound; NoConnection, which keeps what
        has come; ModelFileError for bytes that are not the file, which are removed.
    """
    yield DownloadStep("asking")
    yield from get(find(given), folder)


def get(remote: Remote, folder: Path) -> Generator[DownloadStep]:
    """The same for a file that is known. No file that was there before is changed."""
    at = DownloadStep("checking", remote.file, remote.bytes, remote.bytes)
    for path in takewhile(os.path.lexists, _names(remote, folder)):
        if path.is_file() and path.stat().st_size == remote.bytes:
            yield at
            if remote.sha256 in (None, _digest(path)):
                yield replace(at, stage="done", path=path)
                return
    part = folder / f"{Path(remote.file).name}.{_key(remote)}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("a+b") as file:
            try:
                claim(file)
            except BlockingIOError:
                raise InputError(f"Another program is downloading {remote.file} already; wait until it ends.") from None
            try:
                yield from _receive(remote, file, folder)
                yield at
                _check(remote, part)
            except PolydraftError as error:
                if isinstance(error, ModelFileError) or not part.stat().st_size:
                    part.unlink()
                raise
            path = next(filterfalse(os.path.lexists, _names(remote, folder)))
            part.rename(path)
        sync_folder(folder)
    except OSError as error:
        raise InputError(f"{remote.file} cannot be written to {folder}: {error.strerror or error}; {_KEPT}.") from error
    yield replace(at, stage="done", path=path)


def parts(folder: Path) -> dict[str, int]:
    """The bytes that have come of each file, by its name, whose download did not end. Raises OSError."""
    found = ((_PART.fullmatch(path.name), path.stat().st_size) for path in folder.glob("*.part"))
    return {match[1]: size for match, size in found if match and size}


def check_room(remote: Remote, folder: Path, come: int = 0) -> None:
    """Raises InputError if the disk has no room for what is missing of the file, of which `come` bytes are there."""
    free = shutil.disk_usage(folder).free
    if remote.bytes - come + SPARE > free:
        raise InputError(
            f"{remote.file} has {remote.bytes / 1e9:.1f} GB, and the disk of {folder} has {free / 1e9:.1f} GB free, "
            f"of which {SPARE / 1e9:.1f} GB should stay free; free some, or choose a smaller type."
        )


def _receive(remote: Remote, file: IO[bytes], folder: Path) -> Iterator[DownloadStep]:
    """Appends what is missing of the file, over as many connections as it takes."""
    come = file.seek(0, os.SEEK_END)
    if come > remote.bytes:  # it is no part of this file
        come = file.truncate(0)
    check_room(remote, folder, come)
    failures, counted = 0, come
    while come < remote.bytes:
        try:
            with connected() as client:
                for there in _stream(client, remote, file, come):
                    come = there
                    yield DownloadStep("coming", remote.file, come, remote.bytes)
            if come < remote.bytes:
                raise NoConnection(f"The connection ended after {come:,} of {remote.bytes:,} bytes.")
        except NoConnection as error:
            come = file.seek(0, os.SEEK_END)
            failures, counted = (failures, counted) if come - counted < ENOUGH else (0, come)
            if failures == len(PAUSES):
                raise NoConnection(
                    f"{remote.file} did not come completely: {str(error).rstrip('.')}; {_KEPT}."
                ) from error
            yield DownloadStep("waiting", remote.file, come, remote.bytes)
            time.sleep(PAUSES[failures])
            failures += 1
    file.flush()
    os.fsync(file.fileno())


def _stream(client: httpx.Client, remote: Remote, file: IO[bytes], come: int) -> Iterator[int]:
    """Appends the bytes of one answer. Yields how many there are then.

    Raises: NoConnection, after which another try may succeed; ModelNotFound if it would not; ModelFileError for what
        does not belong to the file.
    """
    headers = {"Range": f"bytes={come}-"} if come else {}
    with client.stream("GET", remote.url, headers=headers) as response:
        server, status = response.url.host, response.status_code
        if status in RETRIED:
            raise NoConnection(f"{server} answered with status {status}.")
        if status == 416:  # what has come is no part of the file that the server has
            file.truncate(0)
            raise NoConnection(f"{server} has no byte {come:,} of the file.")
        check(response, remote.repo)
        if "html" in response.headers.get("Content-Type", ""):
            raise NoConnection(f"{server} sent a web page; {PORTAL}.")
        if come and not (status == 206 and _begins_at(response, come)):
            come = file.truncate(0)
            if status == 206:
                raise NoConnection(f"{server} sent another part of the file.")
        checked = False
        for some in response.iter_raw():
            if come + len(some) > remote.bytes:
                raise ModelFileError(
                    f"{server} sent more than the {remote.bytes:,} bytes that the Hub states for "
                    f"{remote.file}; what came was removed. Try again later, or choose another repository."
                )
            file.write(some)
            come += len(some)
            if not checked and come >= len(MAGIC):
                _check_magic(remote, file, server)
                checked = True
            yield come


def _begins_at(response: httpx.Response, first: int) -> bool:
    return response.headers.get("Content-Range", "").startswith(f"bytes {first}-")


def _check_magic(remote: Remote, file: IO[bytes], server: str) -> None:
    file.seek(0)
    if (magic := file.read(len(MAGIC))) != MAGIC:
        raise ModelFileError(
            f"{server} sent bytes that begin with {magic!r} for {remote.file}, and a GGUF file begins with {MAGIC!r}; "
            "what came was removed. Choose another file or repository."
        )


def _check(remote: Remote, part: Path) -> None:
    if remote.sha256 and (digest := _digest(part)) != remote.sha256:
        raise ModelFileError(
            f"What came of {remote.file} has the SHA-256 {digest}, and {remote.repo} states {remote.sha256}; it was "
            "removed, get it again."
        )


def _names(remote: Remote, folder: Path) -> Iterator[Path]:
    """The names that the file may have: its own, or if another file has that, one with its repository."""
    name, repo = Path(remote.file).name, remote.repo.replace("/", "--")
    yield folder / name
    yield folder / f"{repo}--{name}"
    yield from (folder / f"{repo}--{n}--{name}" for n in count(2))


def _key(remote: Remote) -> str:
    """Tells files of one name apart."""
    return (remote.sha256 or hashlib.sha256(remote.url.encode()).hexdigest())[:16]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while some := file.read(_READ):
            digest.update(some)
    return digest.hexdigest()
