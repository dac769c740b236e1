"""The user's choice of base stores: by --base-store at the start, or on the page, which lists, adds, weighs and removes
them.

The page's choice is a small file in the user's data folder. The engine reads it again when it changes, so a change
applies to the next drafts. Calls may come from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from core.errors import InputError
from core.files import check_answers, check_regular, locked, named_path, write_whole
from core.ngram.errors import StoreError

if TYPE_CHECKING:
    from core.ngram.base import BadEntry, BaseShelf, ChosenStore, StoreChoice

MOST = 8  # chosen stores


def in_full(options: Sequence[str] | None) -> list[str] | None:
    """The options with whole paths and weights, to compare them with those of a running app. Raises StoreError as
    `shelf_of` does."""
    from core.ngram.base import chosen_stores

    return [f"{store.path}={store.weight:g}" for store in chosen_stores(options)] if options else None


def shelf_of(options: Sequence[str] | None) -> Callable[[str], BaseShelf]:
    """A function of a tokenizer's fingerprint that opens the chosen base stores.

    Args:
        options: of --base-store; None or none given is the choice on the page.
    Raises: StoreError for a file that is no store.
    """
    from core.ngram.base import BaseShelf, chosen_stores

    fixed = chosen_stores(options) if options else None
    return lambda fingerprint: BaseShelf(fingerprint, fixed)


class ChosenRow(TypedDict, total=False):
    """A chosen base store: its file and name, whether it comes with Polydraft and is on, its weight, why it cannot be
    used, and whether it is a damaged entry of the choice, which can only be removed. The other fields are what its file
    says, if it can be read; `orders` are the least and the greatest."""

    file: str
    name: str
    own: bool
    on: bool
    weight: float
    problem: str
    damaged: bool
    bytes: int
    fingerprint: str
    tokenizer: str
    tokens: int
    documents: int
    ngrams: int
    orders: list[int]
    sources: list[str]


class BaseStores:
    """The page's operations on the choice.

    Args:
        fingerprint: of the model's tokenizer.
        shelf: of the running drafts; None if there is no choice.
        file: of the choice; None is the one in the user's data folder.
    Raises: InputError if the drive of the choice's file does not answer.
    """

    def __init__(self, fingerprint: str, shelf: BaseShelf | None = None, file: Path | None = None) -> None:
        from core.ngram.base import choice_file

        self._fingerprint, self._shelf, self._file = fingerprint, shelf, file or choice_file()
        check_answers(self._file)

    @property
    def fixed(self) -> bool:
        """Whether --base-store made the choice, which the page then cannot change."""
        return self._shelf is not None and self._shelf.fixed

    def list(self) -> list[ChosenRow]:
        """One entry per chosen store, and one per damaged entry of the choice."""
        choice = self._choice()
        return [*map(self._about, choice.stores), *map(_about_bad, choice.bad)]

    def add(self, file: str) -> None:
        """Adds a store. Raises StoreError for a file that is no store, or for another tokenizer."""
        from core.ngram import NgramStore
        from core.ngram.base import ChosenStore, resolved

        check_answers(named_path(file.strip()))
        path = resolved(file.strip())
        NgramStore.open(path, self._fingerprint)
        with self._changing() as (stores, _):
            if any(store.path == path for store in stores):
                raise InputError(f"{path} is among the stores already.")
            if len(stores) >= MOST:
                raise InputError(f"There are {MOST} stores; remove one first, or join some: `polydraft ngram merge`.")
            stores.append(ChosenStore(path))

    def change(self, file: str, on: bool, weight: float) -> None:
        """Switches a store on or off and sets its weight. Raises InputError for an unknown store."""
        with self._changing() as (stores, _):
            at = self._place(stores, file)
            stores[at] = replace(stores[at], on=on, weight=weight)

    def remove(self, file: str) -> None:
        """Removes a store from the choice; its file stays. The app's own store can only be switched off. Removes also a
        damaged entry, or, if the whole choice cannot be read, all of it."""
        from core.ngram.base import BASE_STORE

        with self._changing(mending=True) as (stores, bad):
            if damaged := [entry for entry in bad if entry.shown == file]:
                bad.remove(damaged[0])
                return
            at = self._place(stores, file)
            if stores[at].path == BASE_STORE:
                raise InputError("The common phrases that come with Polydraft cannot be removed; switch them off.")
            del stores[at]

    def _choice(self) -> StoreChoice:
        from core.ngram.base import StoreChoice, read_choice

        return StoreChoice(self._shelf.choice()) if self.fixed and self._shelf is not None else read_choice(self._file)

    @contextmanager
    def _changing(self, mending: bool = False) -> Iterator[tuple[list[ChosenStore], list[BadEntry]]]:
        """Yields the chosen stores and the damaged entries as lists, and writes them when the block ends without an
        error. A choice that cannot be read is written only if its reader is `mending` it."""
        from core.ngram.base import StoreChoice, choice_as_json, read_choice

        if self.fixed:
            raise InputError("--base-store chose the stores at the start; start Polydraft without it to choose here.")
        try:
            with locked(self._file):
                choice = read_choice(self._file)
                if not (choice.readable or mending):
                    raise InputError(f"{choice.bad[0].problem} Remove it first.")
                stores, bad = [*choice.stores], [*choice.bad]
                yield stores, bad
                write_whole(self._file, choice_as_json(StoreChoice(tuple(stores), tuple(bad))).encode())
        except OSError as error:
            raise InputError(f"The choice cannot be saved in {self._file}: {error.strerror or error}.") from error

    @staticmethod
    def _place(choice: Sequence[ChosenStore], file: str) -> int:
        for at, store in enumerate(choice):
            if str(store.path) == file:
                return at
        raise InputError(f"{file} is not among the stores; reload the page.")

    def _about(self, store: ChosenStore) -> ChosenRow:
        from core.ngram import NgramStore
        from core.ngram.base import BASE_STORE

        about = ChosenRow(
            file=str(store.path), name=store.path.stem, own=store.path == BASE_STORE, on=store.on, weight=store.weight
        )
        try:
            check_answers(store.path)
            check_regular(store.path)
            state = store.path.stat()
            about |= _described(store.path, state.st_mtime_ns, state.st_size)
            if about.get("fingerprint") != self._fingerprint:
                NgramStore.open(store.path, self._fingerprint)  # raises the reason
        except OSError as error:
            about["problem"] = f"{store.path} cannot be read: {error.strerror or error}."
        except (InputError, StoreError) as error:
            about["problem"] = str(error)
        return about


def _about_bad(entry: BadEntry) -> ChosenRow:
    return ChosenRow(
        file=entry.shown, name="Damaged entry", own=False, on=False, weight=1.0, problem=entry.problem, damaged=True
    )


@lru_cache(maxsize=2 * MOST)
def _described(path: Path, changed: int, size: int) -> ChosenRow:
    """The description of a store in its file, which has this time of change and size."""
    from core.ngram import NgramStore

    manifest = NgramStore.open(path).manifest
    return {
        "bytes": size,
        "fingerprint": manifest["tokenizer"]["fingerprint"],
        "tokenizer": manifest["tokenizer"].get("name", "another model"),
        "tokens": manifest["tokens"],
        "documents": manifest["documents"],
        "ngrams": sum(manifest["ngrams"].values()),
        "orders": [min(manifest["orders"]), max(manifest["orders"])],
        "sources": [source["name"] for source in manifest["sources"]],
    }
