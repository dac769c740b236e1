"""The tabs of the engine: their sessions in the model's cache, and which session makes room for another.

Texts stay in the cache while there is room. Then the least recently used text without a running request is removed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.service.schedule import PAUSE, Queued, comes_too_late
from core.errors import ContextFull, traced
from core.options import LONGEST

if TYPE_CHECKING:
    from app.service.jobs import Job
    from app.service.requests import DraftRequest
    from core.autocomplete import Autocomplete
    from core.completion import Completion
    from core.session import Session

ROOM = 64  # positions that drafts need after a text
WORTH = 64  # characters that must agree at least, unless they are half of the shorter text
KNOWN = 1024  # tabs without a session whose place in the queue is stored
RESTED = 24  # sessions used since a session's last use after which its logits are freed: about 5 MB each

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Tab:
    """One text that is being typed.

    Attributes:
        name: of the tab, as requests give it.
        prose: whether its texts are read with the adapter to prose. One who types has a `Tab` for each kind, with a
            session of its own, because the cache of one kind does not fit the other.
        job: its request, if it has one.
        running: whether the request has begun; otherwise it waits.
        since: when the tab began to wait; None if it does not wait.
        arrived, between: the time of its latest request, and the time since the one before, in seconds.
        session: with the text in the model's cache.
        read: the text that the session has read.
        shared: the text, if new tabs with `by_text` may start from the session.
        latest: the number and the drafts of the latest answered request, for queries.
    """

    name: str
    prose: bool = False
    job: Job | None = None
    running: bool = False
    since: float | None = None
    arrived: float = 0.0
    between: float = PAUSE
    session: Session | None = None
    read: str = ""
    shared: str | None = None
    latest: tuple[int, Completion] | None = None

    @property
    def waiting(self) -> bool:
        """Whether it has a request that has not begun."""
        return self.job is not None and not self.running

    def queue(self, job: Job) -> None:
        """Takes a request. The wait goes on if the tab has made one a moment ago."""
        self.between = job.arrived - self.arrived
        if self.since is None or self.between > PAUSE:
            self.since = job.arrived
        self.arrived = job.arrived
        self.job, self.running = job, False

    def waits_since(self) -> float:
        """When the tab, which has a request, began to wait."""
        assert self.job is not None
        return self.job.arrived if self.since is None else self.since

    def queued(self, now: float, seconds: float) -> Queued:
        """What the schedule knows of the tab's request, at a time, if passes take so many seconds."""
        assert self.job is not None
        unread = self.unread(self.job.request)
        since = self.waits_since()
        too_late = comes_too_late(now - self.arrived, self.between, seconds)
        return Queued(self.name, since, self.job.first, unread, too_late)

    def unread(self, request: DraftRequest) -> int:
        """The characters of a request's text that the session has not read; all of them if the text differs."""
        text = request.read
        return len(text) - (len(self.read) if text.startswith(self.read) else 0)

    def take(self) -> Job | None:
        """Removes the tab's request, and returns it."""
        job, self.job, self.running = self.job, None, False
        return job

    def close(self) -> None:
        """Closes the session."""
        session, self.session = self.session, None
        self.latest, self.shared, self.read = None, None, ""
        if session is not None:
            close_logged(session.close)


class Tabs:
    """All tabs, the least recently used first."""

    def __init__(self, autocomplete: Autocomplete) -> None:
        self._autocomplete = autocomplete
        self._tabs: OrderedDict[tuple[str, bool], Tab] = OrderedDict()

    def __iter__(self) -> Iterator[Tab]:
        return iter(list(self._tabs.values()))

    def named(self, name: str) -> list[Tab]:
        """The tabs of this name, of each kind at most one."""
        return [tab for prose in (False, True) if (tab := self._tabs.get((name, prose)))]

    def used(self, name: str, prose: bool) -> Tab:
        """The tab of this name and kind, a new one if there is none, as the most recently used."""
        tab = self._tabs.setdefault((name, prose), Tab(name, prose))
        self._tabs.move_to_end((name, prose))
        if len(self._tabs) > KNOWN:
            idle = (tab for tab in self._tabs.values() if tab.job is None and tab.session is None)
            if (oldest := next(idle, None)) is not None:
                del self._tabs[oldest.name, oldest.prose]
        return tab

    def remove(self, tab: Tab) -> None:
        """Closes the tab's session and drops the tab."""
        tab.close()
        self._tabs.pop((tab.name, tab.prose), None)

    def open(self, tab: Tab, request: DraftRequest) -> Session:
        """The tab's session. A tab without one starts from another's text, or from an empty session.

        Raises: ContextFull if the cache has no room.
        """
        tab.session = tab.session or self._inherited(tab, request)
        has_room = self._make_room(tab, request)  # also for a text that has a session, and grows
        if tab.session is None:
            tab.session = self._opened(has_room)
        later = [other.session for other in self._tabs.values() if other.session is not None]
        if len(later) > RESTED:
            later[-1 - RESTED].rest()
        if request.by_text:
            tab.shared = request.read
        return tab.session

    def evict(self, but: Tab | None = None) -> bool:
        """Closes the least recently used idle session, preferably one without a waiting request. Returns whether there
        was one."""
        idle = [tab for tab in self._tabs.values() if tab.session and not tab.running and tab is not but]
        if not idle:
            return False
        next((tab for tab in idle if not tab.waiting), idle[0]).close()
        return True

    def _opened(self, has_room: bool) -> Session:
        """An empty session. Raises ContextFull if there is no room for its text while others run."""
        if sum(tab.running for tab in self._tabs.values()) > 1 and not has_room:
            raise ContextFull("The model's cache has no room for one more text; close a tab.")
        return self._autocomplete.open()

    def _make_room(self, tab: Tab, request: DraftRequest) -> bool:
        """Closes idle sessions until the cache has room for what the request adds to its tab's text; returns whether it
        has."""
        model = self._autocomplete.model
        more = max(ROOM, ROOM - LONGEST + request.settings.length)
        size = min(tab.unread(request), self._autocomplete.window) + more  # a token has at least one character
        while not (has_room := model.has_room(size)):
            if not self.evict(but=tab):
                break
        return has_room

    def _inherited(self, tab: Tab, request: DraftRequest) -> Session | None:
        """For a tab with `by_text`, the session of another such tab of its kind whose text has the longest common
        prefix; a fork of it if that tab is busy or most of its text differs. None if too little is common."""
        if not request.by_text:
            return None
        others = {other.name: other for other in self if other.shared is not None and other.prose == tab.prose}
        texts = {name: other.shared or "" for name, other in others.items()}
        nearest = closest(request.read, texts, busy={name for name in texts if others[name].running})
        if nearest is None:
            return None
        name, common = nearest
        other = others[name]
        if other.session is None:
            return None
        if not other.running and 2 * common >= len(texts[name]):
            session, other.session = other.session, None
            other.close()
            return session
        try:
            return other.session.fork() if self._autocomplete.model.has_room(common + ROOM) else None
        except ContextFull:
            return None  # there may be room for an empty one


def close_logged(close: Callable[[], None]) -> bool:
    """Calls a close method and logs its error; returns whether it succeeded."""
    try:
        close()
    except Exception as error:  # noqa: BLE001 an error in one session must not end the engine
        log.warning("A session could not be closed:\n%s", traced(error))
        return False
    return True


def closest(text: str, cached: Mapping[str, str], busy: Container[str] = ()) -> tuple[str, int] | None:
    """The name of the cached text with the longest common prefix, and the prefix's length in characters; among equal
    ones, one that is idle. None if the prefix is too short."""
    agreements = [(agreement(text, other), name not in busy, name) for name, other in cached.items()]
    common, _, name = max(agreements, default=(0, True, ""))
    shorter = min(len(text), len(cached.get(name, "")))
    return (name, common) if common and (common >= WORTH or 2 * common >= shorter) else None


def agreement(a: str, b: str) -> int:
    """The length of the common prefix of two texts."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
