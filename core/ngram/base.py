"""The base stores: n-grams of general text or a domain's, which are mixed into all drafts. The user chooses them.

The app comes with one for the default model's tokenizer. `polydraft ngram build` builds others, from a domain's text or
for another tokenizer. The choice is a list of files with weights: fixed at the start by --base-store, or kept in a file
that the page writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, field_validator

from core.errors import InputError, Mention, OptionError
from core.files import MOMENT, check_answers, in_thread, named_path, read_json, with_timeout
from core.ngram.store import NgramStore, StoreError

BASE_STORE = Path(__file__).resolve().parents[2] / "assets" / "base.ngram"  # for the default model
NONE, OWN = "none", "default"  # options for no store, and for the app's own
VERSION = 1  # of the file of the choice
MOST_BYTES, MOST_ENTRIES = 1 << 20, 64  # of this file


@dataclass(frozen=True)
class ChosenStore:
    """One base store in the user's choice.

    Attributes:
        path: of its file.
        weight: factor of the weight of common phrases, above 0 to 1.
        on: whether drafts use it in every document; otherwise only where it is named.
    """

    path: Path
    weight: float = 1.0
    on: bool = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and 0 < self.weight <= 1):
            raise StoreError(f"weight {self.weight:g} given for {self.path}; above 0 to 1 expected.")


DEFAULT_CHOICE = (ChosenStore(BASE_STORE),)


def chosen(option: str | None) -> Path | None:
    """The path of the base store for the user's option: a file; None for "none"; without an option, the app's own
    store.

    Raises: StoreError for a file that is not an intact store.
    """
    if option in (None, OWN):
        return BASE_STORE
    if option == NONE:
        return None
    path = resolved(option)
    NgramStore.open(path)
    return path


def resolved(option: str) -> Path:
    """The whole path of a file that the user named. Raises InputError for a name that no file can have; StoreError if
    the system refuses."""
    path = named_path(option)
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a circle of links
        why = error.strerror if isinstance(error, OSError) else "its links lead in a circle"
        raise StoreError(f"{path} cannot be read: {why}.") from error


def chosen_stores(options: Iterable[str]) -> tuple[ChosenStore, ...]:
    """The base stores for the user's options: each is FILE, FILE=WEIGHT or the word "default" in place of a file; or
    "none" alone.

    Raises: StoreError for a file that is not an intact store, a weight out of range, and a file given twice;
        OptionError for "none" with others.
    """
    listed = list(options)
    if NONE in listed and len(listed) > 1:
        raise OptionError("{0} given with other base stores; give one or the other.", Mention("base-store", NONE))
    stores = []
    for option in listed:
        name, _, weight = option.rpartition("=") if _is_number(option.rpartition("=")[2]) else (option, "", "1")
        if (path := chosen(name)) is not None:
            stores.append(ChosenStore(path, float(weight)))
    if twice := [str(store.path) for store in stores if [other.path for other in stores].count(store.path) > 1]:
        raise StoreError(f"{twice[0]} given twice as a base store; give it once, with one weight.")
    return tuple(stores)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def base_store(fingerprint: str, path: Path | None = BASE_STORE) -> tuple[NgramStore | None, str]:
    """Opens a base store for the tokenizer with this fingerprint. Returns also the reason why there is none, or "".

    Raises: StoreError for a user's store that cannot be used with this tokenizer. The app's own store is omitted for
        other models.
    """
    if path is None:
        return None, ""
    try:
        return NgramStore.open(path, fingerprint), ""
    except StoreError as error:
        if path != BASE_STORE:
            raise
        return None, f"No n-grams: {error}"


# ---------------------------------------------------------------- the choice that the page keeps


def choice_file() -> Path:
    """The file of the page's choice, in the user's data folder."""
    return platformdirs.user_data_path("polydraft", appauthor=False) / "base-stores.json"


@dataclass(frozen=True)
class BadEntry:
    """What the file of the choice contains in place of a store.

    Attributes:
        shown: on one line; the page names it so.
        problem: a sentence.
        content: as JSON, to be kept until it is removed.
    """

    shown: str
    problem: str
    content: Any = None


@dataclass(frozen=True)
class StoreChoice:
    """The file of the choice.

    Attributes:
        stores: the chosen ones.
        bad: the entries that are none.
        readable: whether the file is one of this version; otherwise `stores` are the app's own, and `bad` says why.
    """

    stores: tuple[ChosenStore, ...] = DEFAULT_CHOICE
    bad: tuple[BadEntry, ...] = ()
    readable: bool = True


class _Entry(BaseModel):
    """An entry of the file of the choice."""

    model_config = ConfigDict(extra="forbid", strict=True)

    file: str = Field(min_length=1, max_length=4096)
    weight: float = Field(gt=0, le=1)
    on: bool

    @field_validator("file")
    @classmethod
    def _can_be_a_files_name(cls, file: str) -> str:
        if "\0" in file:
            raise ValueError("a zero character")
        return file

    def store(self) -> ChosenStore:
        return ChosenStore(BASE_STORE if self.file == OWN else Path(self.file), self.weight, self.on)


class _Listed(BaseModel):
    """The file of the choice."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    stores: list[Any] = Field(max_length=MOST_ENTRIES)


def read_choice(file: Path) -> StoreChoice:
    """The contents of the file of the choice; the app's own store where there is no file."""
    try:
        listed = _Listed.model_validate(read_json(file, MOST_BYTES))
    except FileNotFoundError:
        return StoreChoice()
    except OSError as error:
        return _unreadable(file, error.strerror or str(error))
    except ValueError:  # also pydantic's
        return _unreadable(file, f"it is no list of stores in version {VERSION}")
    stores: list[ChosenStore] = []
    bad: list[BadEntry] = []
    for stated in listed.stores:
        try:
            entry = _Entry.model_validate(stated).store()
            if any(entry.path == store.path for store in stores):
                raise ValueError
            stores.append(entry)
        except ValueError:
            shown = json.dumps(stated)[:200]
            bad.append(
                BadEntry(
                    shown,
                    f"{shown} is no base store: a file that is listed once, its weight and whether it is on expected.",
                    stated,
                )
            )
    return StoreChoice(tuple(stores) if stores or not bad else DEFAULT_CHOICE, tuple(bad))


def _unreadable(file: Path, why: str) -> StoreChoice:
    return StoreChoice(
        bad=(BadEntry(str(file), f"The choice of base stores in {file} cannot be read: {why}."),), readable=False
    )


def choice_as_json(choice: StoreChoice) -> str:
    """The text of the file that `read_choice` reads."""
    listed: list[Any] = [
        {"file": OWN if entry.path == BASE_STORE else str(entry.path), "weight": entry.weight, "on": entry.on}
        for entry in choice.stores
    ]
    listed += [entry.content for entry in choice.bad]
    return json.dumps({"version": VERSION, "stores": listed}, indent=1)


@dataclass(frozen=True)
class _Opened:
    """The choice with its stores opened, and the reasons why some are not."""

    choice: tuple[ChosenStore, ...]
    stores: dict[Path, NgramStore]
    problems: dict[Path, str]


class BaseShelf:
    """The chosen base stores, opened for one tokenizer. Use it from one thread at a time.

    Attributes:
        fixed: whether the choice was made at the start; then the file of the choice is not read.
        problems: by path, the reason why a chosen store is not used; by the choice's file, what is wrong in it.
    """

    def __init__(self, fingerprint: str, fixed: Sequence[ChosenStore] | None = None, file: Path | None = None) -> None:
        """
        Args:
            fixed: the choice made at the start; None reads `file`, and reads it again when it changes.
            file: None is the one in the user's data folder.
        Raises: StoreError for a store of a fixed choice that cannot be used with this tokenizer, except for the app's
            own.
        """
        self._fingerprint, self._file = fingerprint, file or choice_file()
        self.fixed = fixed is not None
        self._state: tuple[int, int] | None = None  # of the file when it was read
        self._reading: Future[_Opened] | None = None
        self._named: set[Path] = set()  # stores that are not on, and that a document has named
        if fixed is not None:
            self._opened = self._open(tuple(fixed), {})
            for path, problem in self.problems.items():
                if path != BASE_STORE:
                    raise StoreError(problem)
        else:
            self._state = self._state_of_file()
            self._opened = self._read({})

    @property
    def problems(self) -> dict[Path, str]:
        return self._opened.problems

    def active(self, named: Iterable[str] = ()) -> list[tuple[NgramStore, float]]:
        """The stores that are on, and those of the choice that are named, as far as they are usable: with their
        weights, in the user's order. `named` has files, or the word "default" for the app's own; what is not in the
        choice is never opened."""
        also = {BASE_STORE if name == OWN else Path(name) for name in named}
        if not self.fixed:
            self._named |= also & {entry.path for entry in self._opened.choice}
            self._follow()
        stores, choice = self._opened.stores, self._opened.choice
        return [
            (stores[entry.path], entry.weight)
            for entry in choice
            if (entry.on or entry.path in also) and entry.path in stores
        ]

    @property
    def notice(self) -> str:
        """A sentence on each chosen store that is not used; "" if all are."""
        return " ".join(f"No n-grams: {why}" if path == BASE_STORE else why for path, why in self.problems.items())

    def choice(self) -> tuple[ChosenStore, ...]:
        """The chosen stores, on or off."""
        self.active()
        return self._opened.choice

    def _follow(self) -> None:
        """Takes over a changed choice. Another thread reads it and opens the stores: checking a large one takes
        seconds, and a drive may not answer. Until then the earlier ones are used."""
        state, tried = self._state_of_file(), self._opened.stores.keys() | self._opened.problems.keys()
        if self._reading is None and (state != self._state or not self._named <= tried):
            self._state = state
            self._reading = in_thread(partial(self._read, self._opened.stores))
            wait([self._reading], MOMENT)
        if self._reading is not None and self._reading.done():
            read, self._reading = self._reading, None
            self._opened = read.result()

    def _read(self, known: dict[Path, NgramStore]) -> _Opened:
        choice = read_choice(self._file)
        opened = self._open(choice.stores, known)
        if choice.bad:
            opened.problems[self._file] = " ".join(entry.problem for entry in choice.bad[:3])
        return opened

    def _open(self, choice: tuple[ChosenStore, ...], known: dict[Path, NgramStore]) -> _Opened:
        opened: dict[Path, NgramStore] = {}
        problems: dict[Path, str] = {}
        for entry in choice:
            if not (entry.on or entry.path in self._named):
                continue
            try:
                check_answers(entry.path)
                opened[entry.path] = known.get(entry.path) or NgramStore.open(entry.path, self._fingerprint)
            except (InputError, StoreError) as error:
                problems[entry.path] = str(error)
        return _Opened(choice, opened, problems)

    def _state_of_file(self) -> tuple[int, int]:
        try:
            status = with_timeout(self._file, self._file.stat, MOMENT)
        except TimeoutError:
            return self._state or (0, 0)
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino
