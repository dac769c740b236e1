"""Brings a tally up to date in a thread of its own, beside the one that looks things up."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

from core.errors import PolydraftError
from core.ngram.tally import Tally


class _Stopped(Exception):
    """Nobody needs the tally any more."""


class Following:
    """One such thread, at work from the start.

    Attributes:
        done: set when it has ended.
    """

    def __init__(self, path: Path, tally: Tally, vocab_size: int) -> None:
        self.done = threading.Event()
        self._path, self._before, self._v = path, tally, vocab_size
        self._stopped = threading.Event()
        self._after: Tally | None = None
        self._failure: Exception | None = None
        threading.Thread(target=self._work, name=f"counts of {path.stem}", daemon=True).start()

    def stop(self) -> None:
        """Let it end soon, without a tally."""
        self._stopped.set()

    def tally(self) -> Tally:
        """What it made. Raises what kept it from making it: sqlite3.Error, PolydraftError or MemoryError."""
        if self._failure:
            raise self._failure
        assert self._after is not None, "not done yet, or stopped"
        return self._after

    def _work(self) -> None:
        _lower_priority()
        try:
            # "rw": a file that was deleted meanwhile is not made anew.
            address = f"{self._path.resolve().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as file:
                self._after = self._before.brought_up_to_date(file, self._v, self._alive)
        except _Stopped:
            pass
        except (sqlite3.Error, PolydraftError, MemoryError) as error:
            self._failure = error
        finally:
            self.done.set()

    def _alive(self) -> None:
        if self._stopped.is_set():
            raise _Stopped


def _lower_priority() -> None:
    """Let drafts go first, where the system knows priorities of single threads."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
