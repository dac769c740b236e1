"""Updates a tally in a separate thread, while another thread uses the old one."""

from __future__ import annotations

import os
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path

from core.errors import PolydraftError
from core.ngram.tally import Tally


class _Stopped(Exception):
    """The tally is no longer needed."""


class Following:
    """One such thread, started at once.

    Attributes:
        tally: the new tally, or the error that prevented it: sqlite3.Error, PolydraftError or MemoryError. Cancelled
            after `stop`.
    """

    def __init__(self, path: Path, tally: Tally, vocab_size: int) -> None:
        self.tally = Future[Tally]()
        self._path, self._before, self._v = path, tally, vocab_size
        self._stopped = threading.Event()
        threading.Thread(target=self._work, name=f"counts of {path.stem}", daemon=True).start()

    def stop(self) -> None:
        """Makes it end soon, without a tally."""
        self._stopped.set()

    def _work(self) -> None:
        _lower_priority()
        try:
            # "rw" does not recreate a file that was deleted meanwhile.
            address = f"{self._path.resolve().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as file:
                self.tally.set_result(self._before.brought_up_to_date(file, self._path, self._v, self._alive))
        except _Stopped:
            pass
        except (sqlite3.Error, PolydraftError, MemoryError) as error:
            self.tally.set_exception(error)
        finally:
            self.tally.cancel()  # unless it is there

    def _alive(self) -> None:
        if self._stopped.is_set():
            raise _Stopped


def _lower_priority() -> None:
    """Lowers the thread's priority below drafting, on systems with priorities for single threads."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
