"""After an error: which requests end, and which wait for room in the model's cache.

An error in a request ends only that request, with a message and a log line without any text of the request, and closes
its tab's session, so that the tab's next request begins with an empty one. A request for which the cache has no room
begins again when another session was closed, or waits until another request ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from app.service.jobs import Job, Result
from app.service.tabs import Tab, Tabs, close_logged
from core.errors import ContextFull, PolydraftError, traced

PATIENCE = 10.0  # seconds that a request waits for room in the cache

log = logging.getLogger(__name__)


class Recovery:
    """Runs the parts of requests, and keeps their errors apart.

    Attributes:
        full: whether a request found no room in the cache, and no other has ended since.
    """

    def __init__(self, tabs: Tabs) -> None:
        self.full = False
        self._tabs = tabs

    def attempt(self, tab: Tab, action: Callable[[Tab], Result]) -> Result | None:
        """Runs one part of a tab's request. After an error returns None: it ends only that request."""
        try:
            return action(tab)
        except Exception as error:  # noqa: BLE001 an error in one request must not end the engine
            self.recover(tab, error)
            return None

    def recover(self, tab: Tab, error: Exception) -> None:
        """After an error: if the cache had no room, queues the request again; otherwise ends it with a message."""
        if not isinstance(error, PolydraftError):
            log.warning("A request failed:\n%s", traced(error))
        job = tab.take()
        if job is None:  # it had ended already
            tab.close()
        elif isinstance(error, ContextFull) and self._may_try_again(tab, job):
            tab.job = job
        else:
            self.full = False
            job.fail(*request_failure(error), getattr(error, "setting", ""))
            close_drafting(job)
            self._tabs.remove(tab)  # its cache may be in an undefined state; the next request opens a new session

    def _may_try_again(self, tab: Tab, job: Job) -> bool:
        """After the cache had no room for a request: whether there is some now, or may be when another request ends."""
        if not close_drafting(job):
            return False
        if self._tabs.evict(but=tab):
            return True
        running = any(other.running for other in self._tabs)
        self.full = running and time.perf_counter() - job.arrived < PATIENCE
        return self.full


def close_drafting(job: Job) -> bool:
    """Closes the request's generator of drafts, if it has begun; returns whether that succeeded."""
    drafting, job.drafting, job.rows = job.drafting, None, None
    return drafting is None or close_logged(drafting.close)


def request_failure(error: Exception) -> tuple[str, str]:
    """The message and the remedy for a request that failed."""
    if isinstance(error, PolydraftError):
        return str(error), ""
    return (
        f"An error ended these drafts: {named_line(error)}",
        "Type on to try again; if that fails too, restart Polydraft.",
    )


def load_failure(error: Exception) -> tuple[str, str]:
    """The message and the remedy for a model that could not be loaded."""
    if isinstance(error, PolydraftError):
        return str(error), ""
    return f"The model could not be loaded: {named_line(error)}", "Run `polydraft doctor` for the cause and a remedy."


def named_line(error: Exception) -> str:
    """The error in one line, with its type unless the text suffices."""
    text = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, RuntimeError | OSError | ValueError | MemoryError | ImportError) and text:
        return text
    return f"{type(error).__name__}{': ' if text else ''}{text}"
