"""C++ code compiled for exactly this processor, cached in the user's folder and loaded from there.

Loaded code has all permissions of this process, so only the user may access the folder. The library's bytes are
compared with a digest beside it before the system maps them, because a truncated file would end the process
with SIGBUS; if they differ, it is compiled again, once. The name encodes source (with the headers beside it), options
and processor, but not the compiler, so cached code runs without a compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs

from core.files import scratch
from core.models.processor import cpu

COMPILERS = ("c++", "g++", "clang++")
COMPILE_SECONDS = 600  # it takes twenty, but other programs may have most of the processor
PRIVATE = 0o700

_compilers: set[subprocess.Popen[str]] = set()  # that run, in any thread


class CannotCompile(Exception):
    """A clause that names the missing part."""


@dataclass(frozen=True)
class CppSource:
    """A C++ file and how it is compiled.

    Attributes:
        path: the file; headers beside it are part of it.
        options: of the compiler.
        threads: options for OpenMP; the first of them with which it compiles are used.
    """

    path: Path
    options: tuple[str, ...]
    threads: tuple[tuple[str, ...], ...] = ((),)


def load(source: CppSource) -> ctypes.CDLL:
    """The code of a source file, compiled unless cached.

    A failure is cached for the life of the process, because a compiler may take minutes to fail. Raises CannotCompile.
    """
    tried = _tried(source)
    if isinstance(tried, str):
        raise CannotCompile(tried)
    return tried


@cache
def _tried(source: CppSource) -> ctypes.CDLL | str:
    """The library, or the reason why there is none."""
    path = path_of(source)
    folder = path.parent
    try:
        _make_private(folder)
        if not _intact(path):
            _build(source, path)
        return ctypes.CDLL(str(path))
    except CannotCompile as error:
        return str(error)
    except OSError as error:
        return f"its compiled code cannot be stored in {folder} or loaded from it ({error})"


def path_of(source: CppSource) -> Path:
    """Where the library of a source file is cached."""
    return platformdirs.user_cache_path("polydraft") / "native" / f"{_key(source)}.so"


def forget() -> None:
    """Clears cached failures, so that the next call tries again; loaded libraries stay."""
    _tried.cache_clear()


def _key(source: CppSource) -> str:
    machine = [sys.platform, platform.machine(), *platform.libc_ver(), cpu()]
    parts = [path.read_text(encoding="utf-8") for path in (source.path, *sorted(source.path.parent.glob("*.h")))]
    return hashlib.sha256("\n".join([*parts, *source.options, str(source.threads), *machine]).encode()).hexdigest()[:16]


def _make_private(folder: Path) -> None:
    """Creates the folder, or closes it to others if it is ours. Raises CannotCompile if it is another user's."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=PRIVATE, exist_ok=True)
    state = folder.stat()
    if not _ours(state):
        raise CannotCompile(
            f"its compiled code is kept in {folder}, which belongs to another user (uid {state.st_uid}); remove that "
            "folder, or set XDG_CACHE_HOME to a folder of yours"
        )
    if stat.S_IMODE(state.st_mode) != PRIVATE:
        folder.chmod(PRIVATE)


def _ours(state: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or state.st_uid == os.getuid()


def _digest_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _intact(path: Path) -> bool:
    """Whether this is a complete library of this user that others cannot change."""
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            digest = hashlib.sha256(file.read()).hexdigest()
        return _ours(about) and not about.st_mode & 0o022 and _digest_of(path).read_text(encoding="utf-8") == digest
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _build(source: CppSource, path: Path) -> None:
    """Compiles into `path`. Other processes see the old file or the complete new one."""
    try:
        given = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        why = str(error).lower()
        raise CannotCompile(f"CXX is {os.environ['CXX']!r}, which no shell could read ({why}); correct it") from error
    compiler = given or list(filter(None, map(shutil.which, COMPILERS)))[:1]
    if not compiler:
        raise CannotCompile("no C++ compiler was found (Debian, Ubuntu: apt-get install g++)")
    with scratch() as folder:
        library, digest = folder / "library", folder / "digest"
        _compile(compiler, source, library)
        digest.write_text(hashlib.sha256(library.read_bytes()).hexdigest(), encoding="utf-8")
        library.chmod(PRIVATE)
        for file, target in ((library, path), (digest, _digest_of(path))):
            _to_disk(file)
            file.replace(target)
    _to_disk(path.parent)


def _compile(compiler: list[str], source: CppSource, library: Path) -> None:
    first = None
    for threads in source.threads:
        try:
            return _run(*compiler, *source.options, *threads, str(source.path), "-o", str(library))
        except CannotCompile as error:
            first = first or error
    raise first or CannotCompile("no options were given")


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _run(*command: str) -> None:
    group = 0 if hasattr(os, "killpg") else None  # its own, because a compiler starts others
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", process_group=group
        )
    except OSError as error:
        raise CannotCompile(f"the C++ compiler does not work ({error})") from error
    _compilers.add(process)
    try:
        _, said = process.communicate(timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise CannotCompile(f"the C++ compiler does not work ({error})") from error
    finally:
        _end(process)
        _compilers.discard(process)
    if process.returncode:
        lines = said.strip().splitlines() or ["no message"]
        message = next((line for line in lines if "error" in line), lines[0])
        raise CannotCompile(f"{command[0]} cannot compile it ({message})")


def end_compilers() -> None:
    """Ends those of this process, for a process that ends without waiting for its threads."""
    for process in list(_compilers):
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()
