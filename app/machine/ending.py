"""How a process of ours ends: a first signal ends it in order, a second one at once.

SIGTERM and SIGHUP unwind the program as Ctrl+C does, so that what it registered and began is removed. Threads that load
a model cannot be interrupted, and waiting for them takes as long as loading; so the process leaves without them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

PATIENCE = 5  # seconds for an orderly end after that of the input

_came: list[int] = []  # the signals so far


def end_on_signals() -> None:
    """Lets signals end this process; those that its parent ignores stay ignored. Only the main thread may call it."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)


def end(number: int, frame: FrameType | None = None) -> None:
    """The handler of a signal. Raises KeyboardInterrupt for Ctrl+C, otherwise SystemExit; a second signal ends the
    process at once."""
    if _came:
        leave(128 + number)
    _came.append(number)
    raise_again()


def raise_again() -> None:
    """Raises the exception of a signal that has come. Python drops one that is raised while it calls back from C, so
    long programs look again."""
    if _came and _came[0] == signal.SIGINT:
        raise KeyboardInterrupt
    if _came:
        raise SystemExit(128 + _came[0])


def end_with_input() -> None:
    """Lets the end of its standard input end this process. So a child whose input is a pipe that its parent keeps open
    ends with the parent, even if that is killed."""

    def follow() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def noted(stop: Callable[[], None]) -> Iterator[None]:
    """Context manager: a signal calls `stop` instead of raising an exception, which is raised after the block. For a
    loop that ends in order; its own handlers may replace ours meanwhile, and send it again when they are done."""

    def note(number: int, frame: FrameType | None) -> None:
        _came.append(number)
        stop()

    ours = [number for number in SIGNALS if signal.getsignal(number) == end]
    raise_again()
    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, end)
    raise_again()


def leave(code: int) -> NoReturn:
    """Ends the process at once, with its compilers and without its threads."""
    for name, module in list(sys.modules.items()):  # an import would take too long now
        if name.endswith("core.models.native_library"):
            module.end_compilers()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


@contextmanager
def without_threads(running: Callable[[], bool]) -> Iterator[None]:
    """Context manager: leaves after the block, if threads are still running that the end of Python would wait for or
    crash with."""
    code = 0
    try:
        yield
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        raise
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
        raise
    finally:
        if running():
            leave(code)
