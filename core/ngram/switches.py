"""The switches and other settings of a personal store, which its file contains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

from core.errors import InputError
from core.ngram.errors import StoreError
from core.ngram.personal_file import PersonalFile


class Switches:
    """What is read of a store here is its state as of the last look-up or `refresh`. What is switched takes effect
    everywhere the store is open."""

    _file: PersonalFile
    _strength: float | None = None

    def _writing(self) -> AbstractContextManager[None]:
        """One durable transaction."""
        raise NotImplementedError

    @property
    def enabled(self) -> bool:
        """Whether drafts use it."""
        return self._file.settings.get("enabled", "1") == "1"

    @property
    def learning(self) -> bool:
        """Whether it learns written and picked text. Off in a new store."""
        return self._file.settings.get("learning", "0") == "1"

    @property
    def identity(self) -> str:
        """Differs from that of every other store, also of one with the same name that replaces this one."""
        return self._file.settings["identity"]

    @property
    def removals(self) -> int:
        """How often text was removed."""
        return int(self._file.settings.get("removals", "0"))

    @property
    def relearning(self) -> bool:
        """Whether an adapter was removed together with text, and is to be trained again from the remaining text."""
        return self._file.settings.get("relearn", "0") == "1"

    @property
    def adapting(self) -> bool:
        """Whether drafts use its adapter, if there is one that helps."""
        return self._file.settings.get("adapter", "1") == "1"

    @property
    def strength(self) -> float | None:
        """The share of its adapter's change that drafts use, 0 to 1; None: that of the adapter's own result."""
        return self._strength

    @property
    def senders(self) -> list[str]:
        """The names and addresses of those whose mails and messages it learns; []: of all."""
        return [name for name in self._file.settings.get("senders", "").split("\n") if name]

    def remember_senders(self, names: Sequence[str]) -> None:
        """Sets `senders`."""
        self._set("senders", "\n".join(" ".join(name.split()) for name in names))

    def switch(self, on: bool) -> None:
        """Switches the use of this store in drafts."""
        self._set("enabled", str(int(on)))

    def switch_learning(self, on: bool) -> None:
        """Switches learning of written and picked text."""
        self._set("learning", str(int(on)))

    def switch_adapter(self, on: bool) -> None:
        """Switches the use of its adapter in drafts."""
        self._set("adapter", str(int(on)))

    def set_strength(self, strength: float | None) -> None:
        """Sets `strength`. Raises InputError unless it is None or 0 to 1."""
        if strength is not None and not 0 <= strength <= 1:
            raise InputError(f"The strength {strength:g} was given; 0 to 1 expected.")
        self._set("strength", "" if strength is None else repr(float(strength)))

    def stop_relearning(self) -> None:
        """Its adapter stays removed until it is trained on request."""
        self._set("relearn", "0")

    def _set(self, key: str, value: str) -> None:
        with self._writing():
            self._file.set(key, value)

    def read_settings(self) -> None:
        """Reads them from the file. Raises StoreError for a strength that is none."""
        given = self._file.read_settings().get("strength") or None
        try:
            self._strength = None if given is None else float(given)
        except ValueError:
            self._strength = math.nan
        if self._strength is not None and not 0 <= self._strength <= 1:
            raise StoreError(f"{self._file.path} is damaged: its strength is {given!r:.40}; 0 to 1 expected.")
