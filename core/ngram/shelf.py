"""The personal stores of this user: lists them, and opens those that drafts use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from core.errors import InputError
from core.files import MOMENT, status, with_timeout
from core.ngram.errors import StoreError
from core.ngram.interpolation import WHOLE, Interpolation, Linear, Mixed, Store
from core.options import LIBRARY

if TYPE_CHECKING:
    from core.models.base import Tokenizer
    from core.ngram.personal import PersonalStore

ENDING = ".sqlite"
ALPHA: float = LIBRARY.alpha  # the base store's largest weight of any one order
PERSONAL_WEIGHT: float = LIBRARY.personal_weight  # the same for personal stores

MOST_NAME = 240  # bytes: file systems accept 255, and an ending follows
_NAME = re.compile(r"\w(?:[\w .-]{0,62}\w)?")


def stores_folder() -> Path:
    """The folder of personal stores, in the user's data folder."""
    return platformdirs.user_data_path("polydraft", appauthor=False) / "stores"


def interpolation(
    base: Store | Sequence[tuple[Store, float]] | None,
    personal: Sequence[Store] = (),
    alpha: float = ALPHA,
    personal_weight: float = PERSONAL_WEIGHT,
) -> Interpolation | None:
    """The base stores and personal ones in one rule; None if no store has weight.

    Args:
        base: a pruned store of general text, or several with factors for `alpha`, mixed in one after the other.
        personal: stores of one person's text, mixed in after it in this order.
        alpha, personal_weight: the largest weight of any one order, 0 to 1: of the base, and of each personal store.
    Raises: InputError for a weight out of range.
    """
    several = base if isinstance(base, Sequence) else [] if base is None else [(base, 1.0)]
    mixed = [Mixed(store, alpha * weight) for store, weight in several if alpha and weight]
    if personal_weight:
        mixed += [Mixed(store, personal_weight, WHOLE, personal=True) for store in personal]
    return Linear(mixed) if mixed else None


class Shelf:
    """The stores in a folder, opened for one tokenizer. Use it from one thread at a time.

    Attributes:
        folder: of the stores; it need not exist.
        problems: by name, the reason why a store is unusable.
        notice: a sentence for the user if the folder does not answer, else "".
    """

    def __init__(self, tokenizer: Tokenizer, folder: Path | None = None, in_background: bool = False) -> None:
        """With `in_background`, a look-up never waits for counting much text; see `PersonalStore.open`."""
        self.folder = folder or stores_folder()
        self.problems: dict[str, str] = {}
        self.notice = ""
        self._tokenizer, self._in_background = tokenizer, in_background
        self._opened: dict[str, PersonalStore] = {}
        self._failed: dict[str, tuple[int, int, int]] = {}  # the file state in which each was unusable
        self._looked: int | None = None  # the folder's modification time when it was last listed

    def names(self) -> list[str]:
        """The names of all stores, on or off, sorted."""
        try:
            return sorted(path.stem for path in self.folder.iterdir() if path.suffix == ENDING)
        except OSError:
            return []  # no folder: no stores

    @staticmethod
    def path_in(folder: Path, name: str) -> Path:
        """The path for a store of this name. Raises InputError for an invalid name."""
        if not _NAME.fullmatch(name) or len(name.encode("utf-8", "replace")) > MOST_NAME:
            raise InputError(f"{name!r} given as the name of a store; letters, digits, spaces, - and . expected.")
        return folder / (name + ENDING)

    @staticmethod
    def existing(folder: Path, name: str) -> Path:
        """The path of a store. Raises InputError for an invalid name; StoreError if there is no such store."""
        path = Shelf.path_in(folder, name)
        try:
            state = status(path)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror or error}.") from error
        if state is None:
            known = ", ".join(sorted(path.stem for path in folder.glob("*" + ENDING))) or "none yet"
            raise StoreError(f"There is no personal store called {name!r}; there are: {known}.")
        return path

    def open(self, name: str, create: bool = False) -> PersonalStore:
        """Opens a store by name, for the caller to close. Raises StoreError if it does not exist or is unusable."""
        from core.ngram.personal import PersonalStore  # sqlite-utils takes a while to import

        path = (self.path_in if create else self.existing)(self.folder, name)
        return PersonalStore.open(path, self._tokenizer, create=create, in_background=self._in_background)

    def active(self) -> list[PersonalStore]:
        """The stores that are on, sorted by name; takes account of stores added, removed or switched since. None while
        the folder does not answer: the `notice` says so, and nothing waits for it longer than `MOMENT` seconds."""
        self.notice = ""
        try:
            changed = with_timeout(self.folder, self.folder.stat, MOMENT).st_mtime_ns
        except TimeoutError as error:
            self.notice = f"Personal stores are not used: {self.folder}: {error.strerror}"
            return []
        except OSError:
            changed = None
        if changed != self._looked:
            self._looked = changed
            self._look_through()
        on = []
        for name, store in list(self._opened.items()):
            try:
                store.refresh()
                if self._in_background and store.enabled:
                    store.prepare()  # before the first look-up, so that errors appear here
            except StoreError as error:
                self._drop(name, str(error))
                continue
            if store.enabled:
                on.append(store)
        return on

    @property
    def removed(self) -> str:
        """A mark that differs after text was removed from any usable store, on or off, or a whole store; as of the last
        `active`. It is the same in every process."""
        known = [(name, store.identity, store.removals) for name, store in self._opened.items()]
        return sha256(repr(known).encode()).hexdigest()[:16]

    def named(self, names: Sequence[str]) -> list[PersonalStore]:
        """The stores of these names, on or off. Raises StoreError for one that does not exist or is unusable."""
        self.active()
        for name in names:
            if name not in self._opened:
                self._opened[name] = self.open(name)  # raises the reason if it is unusable
        return [self._opened[name] for name in names]

    def close(self) -> None:
        for name in list(self._opened):
            self._drop(name)
        self._looked = None  # the next `active` opens them again

    def _look_through(self) -> None:
        names = self.names()
        for name, store in list(self._opened.items()):
            if not store.in_place():
                self._drop(name)
        self.problems = {name: why for name, why in self.problems.items() if name in names}
        for name in names:
            if name not in self._opened and self._failed.get(name) != self._state(name):
                try:
                    self._opened[name] = self.open(name)
                    self.problems.pop(name, None)
                except (StoreError, InputError) as error:
                    self.problems[name] = str(error)
        self._opened = dict(sorted(self._opened.items()))

    def _drop(self, name: str, why: str | None = None) -> None:
        self._opened.pop(name).close()
        if why:
            self.problems[name] = why
            self._failed[name] = self._state(name)

    def _state(self, name: str) -> tuple[int, int, int]:
        try:
            state = status(self.folder / (name + ENDING))
        except OSError:
            state = None
        if state is None:
            return 0, 0, 0
        return state.st_ino, state.st_size, state.st_mtime_ns
