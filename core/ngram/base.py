"""The base stores: n-grams of general text or a domain's, which are mixed into all drafts. The user chooses them.

The app comes with one for the default model's tokenizer. `polydraft ngram build` builds others, from a domain's text or
for another tokenizer. The choice is a list of files with weights: fixed at the start by --base-store, or kept in a file
that the page writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from core.ngram.store import NgramStore, StoreError

BASE_STORE = Path(__file__).resolve().parents[2] / "assets" / "base.ngram"  # for the default model
NONE, OWN = "none", "default"  # options for no store, and for the app's own
VERSION = 1  # of the file of the choice


@dataclass(frozen=True)
class ChosenStore:
    """One base store in the user's choice.

    Attributes:
        path: of its file.
        weight: factor of the weight of common phrases, above 0 to 1.
        on: whether drafts use it.
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
    path = Path(option).expanduser().resolve()
    NgramStore.open(path)
    return path


def chosen_stores(options: Iterable[str]) -> tuple[ChosenStore, ...]:
    """The base stores for the user's options: each is FILE, FILE=WEIGHT or the word "default" in place of a file; or
    "none" alone.

    Raises: StoreError for a file that is not an intact store, a weight out of range, and a file given twice.
    """
    listed = list(options)
    if NONE in listed and len(listed) > 1:
        raise StoreError("--base-store none given with other base stores; give one or the other.")
    found = []
    for option in listed:
        name, _, weight = option.rpartition("=") if _is_number(option.rpartition("=")[2]) else (option, "", "1")
        if (path := chosen(name)) is not None:
            found.append(ChosenStore(path, float(weight)))
    if twice := [str(one.path) for one in found if [other.path for other in found].count(one.path) > 1]:
        raise StoreError(f"{twice[0]} given twice as a base store; give it once, with one weight.")
    return tuple(found)


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


def read_choice(file: Path) -> tuple[ChosenStore, ...]:
    """The stores in the file of the choice; the app's own where there is no file. Raises StoreError for a damaged
    file."""
    try:
        content: Any = json.loads(file.read_bytes())
    except FileNotFoundError:
        return DEFAULT_CHOICE
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"The choice of base stores in {file} cannot be read: {error}. Delete the file.") from None
    try:
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']!r}")
        found = [(one["file"], float(one["weight"]), one["on"] is True) for one in content["stores"]]
        return tuple(ChosenStore(BASE_STORE if name == OWN else Path(name), weight, on) for name, weight, on in found)
    except (KeyError, TypeError, ValueError, StoreError) as error:
        raise StoreError(f"The choice of base stores in {file} is damaged: {error!r}. Delete the file.") from None


def choice_as_json(stores: Sequence[ChosenStore]) -> str:
    """The text of the file that `read_choice` reads."""
    listed = [
        {"file": OWN if one.path == BASE_STORE else str(one.path), "weight": one.weight, "on": one.on} for one in stores
    ]
    return json.dumps({"version": VERSION, "stores": listed}, ensure_ascii=False, indent=1)


class BaseShelf:
    """The chosen base stores, opened for one tokenizer. Use it from one thread at a time.

    Attributes:
        fixed: whether the choice was made at the start; then the file of the choice is not read.
        problems: by path, the reason why a chosen store is not used; by the choice's file, why that cannot be read.
    """

    def __init__(self, fingerprint: str, fixed: Sequence[ChosenStore] | None = None, file: Path | None = None) -> None:
        """
        Args:
            fixed: the choice made at the start; None reads `file`, and reads it again when it changes.
            file: None is the one in the user's data folder.
        Raises: StoreError for a store of a fixed choice that cannot be used with this tokenizer, except for the app's
            own.
        """
        self.problems: dict[Path, str] = {}
        self._fingerprint, self._file = fingerprint, file or choice_file()
        self.fixed = fixed is not None
        self._choice: tuple[ChosenStore, ...] = ()
        self._opened: dict[Path, NgramStore] = {}
        self._state: tuple[int, int] | None = None  # of the file when it was read
        if fixed is not None:
            self._choice = tuple(fixed)
            self._open()
            for path, problem in self.problems.items():
                if path != BASE_STORE:
                    raise StoreError(problem)
        else:
            self._read(self._state_of_file())

    def active(self) -> list[tuple[NgramStore, float]]:
        """The stores that are on and usable, with their weights, in the user's order."""
        if not self.fixed and (state := self._state_of_file()) != self._state:
            self._read(state)
        return [(self._opened[one.path], one.weight) for one in self._choice if one.on and one.path in self._opened]

    @property
    def notice(self) -> str:
        """A sentence on each chosen store that is not used; "" if all are."""
        return " ".join(f"No n-grams: {why}" if path == BASE_STORE else why for path, why in self.problems.items())

    def choice(self) -> tuple[ChosenStore, ...]:
        """The chosen stores, on or off."""
        self.active()
        return self._choice

    def _read(self, state: tuple[int, int]) -> None:
        self._state = state
        try:
            self._choice, self.problems = read_choice(self._file), {}
        except StoreError as error:
            self._choice, self.problems = DEFAULT_CHOICE, {self._file: str(error)}
        self._open()

    def _open(self) -> None:
        opened = {}
        for one in self._choice:
            if not one.on:
                continue
            try:
                opened[one.path] = self._opened.get(one.path) or NgramStore.open(one.path, self._fingerprint)
            except StoreError as error:
                self.problems[one.path] = str(error)
        self._opened = opened

    def _state_of_file(self) -> tuple[int, int]:
        try:
            found = self._file.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino
