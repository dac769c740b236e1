"""Files that are written whole or not at all, private folders for a moment, files that others named, and small caches.

A temporary file or folder is named `.NAME.HEX.tmp` and locked while its process lives, so `sweep` can tell what a
killed process has left. Some network file systems have no such locks; there `sweep` removes nothing. On Windows it
removes files that no program has open.

Whoever names a file may name a pipe, which blocks its reader: such files are opened with `open_regular`. The file may
also be on a drive that no longer answers, so what serves the page looks at it `with_timeout` first.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from glob import escape
from io import BufferedReader
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, TypeVar

import platformdirs

from core.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PATIENCE = 3.0  # seconds that a drive has to answer
MOMENT = 0.5  # seconds that it has to answer the engine, which then goes on without the file
MOST_CACHE = 8 << 20  # bytes of a cache file
LOCK_SECONDS = 10.0  # to wait for another program that changes the same file

Answer = TypeVar("Answer")

_unanswered: dict[Path, Future[Any]] = {}  # looks that have exceeded their time, each in a thread that still waits
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp", re.DOTALL)


@contextmanager
def replacing(path: Path, private: bool = True, new: bool = False) -> Iterator[IO[bytes]]:
    """Yields a file that takes the place of `path` at the end of the block. After an error, a crash or a power cut the
    path has its old contents or the new ones.

    Args:
        private: only its owner can read the file; otherwise the process's umask decides.
        new: raise FileExistsError if the path exists by then.
    Raises: OSError when the system refuses.
    """
    temporary, lock = _claimed(path, lambda temporary: temporary.touch(0o600 if private else 0o666, exist_ok=False))
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if new:
            path.hardlink_to(temporary)
            temporary.unlink()
        else:
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        _release(lock)
    sync_folder(path.parent)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yields an empty folder in the user's cache folder that only its owner can enter, and removes it at the end. If
    the process is killed, `sweep` removes it.

    Raises: OSError when the system refuses.
    """
    parent = platformdirs.user_cache_path("polydraft") / "scratch"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder, lock = _claimed(parent / "folder", lambda folder: folder.mkdir(mode=0o700))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _release(lock)


def sweep(folder: Path) -> list[Path]:
    """Removes the temporary files and folders that killed processes left in a folder and in the folders inside it, and
    returns their paths. What a living process uses stays. Links are not followed."""
    removed: list[Path] = []
    for where, folders, files in os.walk(folder):
        temporary = [Path(where, name) for name in (*folders, *files) if _TEMPORARY.fullmatch(name)]
        removed += filter(_removed, temporary)
        folders[:] = [name for name in folders if not _TEMPORARY.fullmatch(name)]
    return removed


def _claimed(path: Path, create: Callable[[Path], None]) -> tuple[Path, int | None]:
    """Creates something temporary beside `path`, and locks it against `sweep` until `_release`."""
    while True:
        temporary = path.with_name(f"{_beginning(path)}{token_hex(4)}.tmp")
        create(temporary)
        if fcntl is None:
            return temporary, None
        try:
            lock = os.open(temporary, os.O_RDONLY)
        except FileNotFoundError:
            continue  # it was swept before it was locked
        with suppress(OSError):  # a file system without locks; there, `sweep` leaves everything
            fcntl.flock(lock, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, lock
        os.close(lock)


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _removed(path: Path) -> bool:
    """Removes something temporary of this user that no living process has locked; returns whether it did."""
    if fcntl is None:
        with suppress(OSError):  # some program has it open; a folder
            path.unlink()
            return True
        return False
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False  # a link, or it is gone
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            return False
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            path.unlink()
        return not path.exists()
    except OSError:
        return False  # its process lives, or there are no locks here
    finally:
        os.close(handle)


def unfinished(path: Path) -> list[Path]:
    """The files that killed processes left while they wrote `path`."""
    return list(path.parent.glob(f"{escape(_beginning(path))}*.tmp"))


def _beginning(path: Path) -> str:
    """How the temporary name begins: a name may have 255 bytes, and a character of it up to four."""
    return f".{path.name[:40]}."


def write_whole(path: Path, data: bytes, private: bool = True, new: bool = False) -> None:
    """Writes a file as `replacing` does."""
    with replacing(path, private, new) as file:
        file.write(data)


def claim(file: IO[bytes]) -> None:
    """Locks an open file against other programs until it is closed. Some network file systems, and Windows, have no
    such locks. Raises BlockingIOError if another program has it."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable. Windows has no such operation and needs none."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Locks a file that is read, changed and written again, against other threads and other programs.

    Raises: OSError when another program keeps it locked, or the system refuses.
    """
    import filelock  # imports asyncio, which most commands do not need

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(path.with_name(f".{path.name}.lock"), timeout=LOCK_SECONDS, mode=0o600):
            yield
    except filelock.Timeout:
        why = "another program is changing it; try again in a moment"
        raise OSError(errno.EBUSY, why, str(path)) from None


# ---------------------------------------------------------------- files that others named


def in_thread(work: Callable[[], Answer]) -> Future[Answer]:
    """Runs a function in a thread of its own, which does not keep the process alive."""
    done: Future[Answer] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 whoever waits for the result gets it
            done.set_exception(error)

    threading.Thread(target=run, name="polydraft-look", daemon=True).start()
    return done


def with_timeout(path: Path, look: Callable[[], Answer], seconds: float | None = None) -> Answer:
    """Returns what `look` finds out about a file or a folder, in a thread that has so many seconds, by default
    PATIENCE: a drive that was removed may never answer.

    Raises: TimeoutError when there is no answer, and at once while an earlier look at this path still waits; the
        exceptions of `look`.
    """
    earlier = _unanswered.get(path)
    if earlier is None or earlier.done():
        looking = in_thread(look)
        wait([looking], PATIENCE if seconds is None else seconds)
        if looking.done():
            _unanswered.pop(path, None)
            return looking.result()
        _unanswered[path] = looking
    raise TimeoutError(errno.ETIMEDOUT, "it does not answer; is its drive connected?", str(path))


def check_answers(path: Path) -> None:
    """Raises InputError if a drive does not answer. Any other error is one of whoever uses the path."""
    try:
        with_timeout(path, path.stat)
    except TimeoutError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except (OSError, ValueError):
        return


def named_path(text: str) -> Path:
    """The path that a user gave, with `~` expanded. Raises InputError for a name that no file can have."""
    try:
        os.fsencode(text)
        if "\0" in text:
            raise ValueError
        return Path(text).expanduser()
    except (ValueError, RuntimeError):  # no such user
        raise InputError(f"{text[:200]!r} given as a file; a whole path expected.") from None


def status(path: Path) -> os.stat_result | None:
    """The status of a file or a folder; None if there is none. Raises OSError when the system refuses."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:  # a zero character, or half a surrogate pair
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None


def is_regular(state: os.stat_result | None) -> bool:
    return state is not None and stat.S_ISREG(state.st_mode)


def is_folder(state: os.stat_result | None) -> bool:
    return state is not None and stat.S_ISDIR(state.st_mode)


def open_regular(path: Path) -> BufferedReader:
    """Opens a file for reading, and never waits for a pipe.

    Raises: OSError when the system refuses, and for a pipe, a device or a folder.
    """
    check_regular(path)
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 the caller closes it
    if not is_regular(os.fstat(file.fileno())):  # it was replaced meanwhile
        file.close()
        raise _not_regular(path)
    return file


def check_regular(path: Path, missing: bool = False) -> None:
    """Raises OSError unless this is a regular file, or, if it may be `missing`, nothing."""
    state = status(path)
    if state is None:
        if not missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    elif is_folder(state):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    elif not is_regular(state):
        raise _not_regular(path)


def check_database(path: Path) -> None:
    """Raises OSError if SQLite would wait for one of the files of a database, which need not exist."""
    for ending in ("", "-journal", "-wal", "-shm"):
        check_regular(path.with_name(path.name + ending), missing=True)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _not_regular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a file, of at most `most`. Raises OSError as `open_regular` does, and for a larger file."""
    with open_regular(path) as file:
        large = os.fstat(file.fileno()).st_size > most  # then it is not worth reading
        data = b"" if large else file.read(most + 1)
    if large or len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", str(path))
    return data


def read_json(path: Path, most: int = MOST_CACHE) -> Any:
    """The value in a file of JSON. Raises OSError as `read_regular` does; ValueError if it is not JSON."""
    return parsed_json(read_regular(path, most))


def parsed_json(data: bytes | str) -> Any:
    """The value of a text in JSON. Raises ValueError."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its parts are nested too deeply") from None


# ---------------------------------------------------------------- caches


def recall(cache: Path) -> dict[str, Any]:
    """The entries of a cache file; {} if it is missing or damaged."""
    try:
        known = read_json(cache)
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def remember(cache: Path, entries: Mapping[str, Any], most: int) -> None:
    """Adds entries to a cache file, which keeps the `most` newest ones, and none of another type. Raises OSError when
    the system refuses."""
    types = {type(value) for value in entries.values()}
    with locked(cache):
        old = {key: value for key, value in recall(cache).items() if key not in entries and type(value) in types}
        known = old | dict(entries)
        write_whole(cache, json.dumps(dict(list(known.items())[-most:])).encode())
