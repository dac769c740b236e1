"""Updates a tally in a separate thread, while another thread uses the old one."""

from __future__ import annotations

import os
import sqlite3
import threading
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from pathlib import Path

from core.files import in_thread
from core.ngram.tally import Tally


class Following:
    """One such thread, started at once.

    Attributes:
        tally: the new tally, or the error that prevented it; after `stop` CancelledError.
    """

    def __init__(self, path: Path, tally: Tally, vocab_size: int) -> None:
        self._path, self._before, self._v = path, tally, vocab_size
        self._stopped = threading.Event()
        self.tally: Future[Tally] = in_thread(self._work)

    def stop(self) -> None:
        """Makes it end soon, without a tally."""
        self._stopped.set()

    def _work(self) -> Tally:
        _lower_priority()
        # "rw" does not recreate a file that was deleted meanwhile.
        address = f"{self._path.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as file:
            return self._before.brought_up_to_date(file, self._path, self._v, self._check_stopped)

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise CancelledError


def _lower_priority() -> None:
    """Lowers the thread's priority below drafting, on systems with priorities for single threads."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
