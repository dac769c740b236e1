"""Texts that the page has forgotten, held in memory so that it can undo that.

Only memory: "forgotten" promises that no file contains the text any more, also after the server is killed. A mark in
the store's file would keep the text there, in every copy and backup of it. The texts are dropped when their page
closes, after HOLD seconds, when there is too little room, and when the server ends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from secrets import token_hex

from core.errors import InputError
from core.ngram.removed import Removed, Undone

HOLD = 3600.0  # seconds
ROOM = 256 << 20  # bytes, all pages together; a removal that needs more cannot be undone
MOST = 100  # removals


@dataclass(frozen=True)
class _Held:
    tab: str
    store: str
    removed: Removed
    timer: threading.Timer


class HeldTexts:
    """The removals that can be undone, by ticket. Any thread may call its methods."""

    def __init__(self, hold: float = HOLD, room: int = ROOM) -> None:
        self.room = room
        self._hold = hold
        self._changed = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()  # oldest first

    def keep(self, tab: str, store: str, removed: Removed) -> str:
        """Holds a removal for a tab of the page. Returns its ticket, for `undo`."""
        ticket = token_hex(16)
        timer = threading.Timer(self._hold, self._drop, [ticket])
        timer.daemon = True
        with self._changed:
            self._held[ticket] = _Held(tab, store, removed, timer)
            while len(self._held) > MOST or sum(held.removed.bytes for held in self._held.values()) > self.room:
                self._held.popitem(last=False)[1].timer.cancel()
        timer.start()
        return ticket

    def undo(self, ticket: str, put_back: Callable[[str, Removed], Undone]) -> tuple[str, Undone]:
        """Undoes a removal by `put_back`, given the store's name. Returns the name and the result. The removal before
        it in the same store can be undone next.

        Raises: InputError if the text is no longer held; and the exceptions of `put_back`, after which it still is.
        """
        with self._changed:
            held = self._held.get(ticket)
        if held is None:
            raise InputError(
                "This can no longer be undone: the text is kept only while the page is open, and for an hour at most. "
                "Add the text again."
            )
        restored = put_back(held.store, held.removed)
        self._drop(ticket)
        with self._changed:
            for other, earlier in self._held.items():
                before = earlier.removed
                if (before.store, before.after) == (held.removed.store, held.removed.before):
                    self._held[other] = replace(earlier, removed=replace(before, after=restored.removals))
        return held.store, restored

    def leave(self, tab: str) -> None:
        """Drops what is held for a tab that was closed."""
        self._drop_all(lambda held: held.tab == tab)

    def drop_store(self, store: str) -> None:
        """Drops what is held of a store that was deleted."""
        self._drop_all(lambda held: held.store == store)

    def _drop_all(self, chosen: Callable[[_Held], bool]) -> None:
        with self._changed:
            tickets = [ticket for ticket, held in self._held.items() if chosen(held)]
        for ticket in tickets:
            self._drop(ticket)

    def _drop(self, ticket: str) -> None:
        with self._changed:
            held = self._held.pop(ticket, None)
        if held is not None:
            held.timer.cancel()
