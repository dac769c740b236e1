"""The adapters that a model computes with: the one to general prose, and on top of it those of personal stores.

`polydraft learn` puts an adapter beside a store's file. A model uses those of the stores that are on, if they beat the
model on held-out text, each with the strength of its result or of the user's choice; n adapters with an n-th of it,
because each was measured alone. The adapter to prose has its full strength. An adapter that was trained with it is not
used without it, and the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.errors import BackendUnavailable, ContextFull
from core.models import LanguageModel
from core.models.adapter import WEIGHTS, Adapter, AdapterError, load
from core.models.base import same_adapters

FileState = tuple[int, int, int]


class Adapters:
    """The adapters that one model uses.

    Attributes:
        prose: the adapter to general prose; None if there is none for this model.
        problems: by store, or for "prose", the reason why its adapter is unusable.
    """

    def __init__(self, model: LanguageModel, prose: Adapter | None = None) -> None:
        self.prose, self.problems = prose, dict[str, str]()
        self._model = model
        self._with_prose = False
        self._seen: dict[Path, tuple[FileState, float | None]] = {}  # files and choices of the latest call
        self._read: dict[Path, tuple[FileState, Adapter | str]] = {}
        self._on: list[tuple[Adapter, float]] = []  # in use, with the strength, without prose

    @property
    def on(self) -> bool:
        """Whether the model uses the adapter of any store."""
        return bool(self._on)

    @property
    def with_prose(self) -> bool:
        """Whether the model uses the adapter to prose."""
        return self._with_prose

    def use(self, wanted: Sequence[tuple[Path, float | None]], prose: bool = False) -> bool:
        """Switches to the adapters in these folders, of which some may not exist, each with this strength, or None for
        that of its result; with `prose`, on top of the adapter to prose, if there is one. Takes some microseconds if
        nothing has changed. Returns whether the model's results change; then the caller must drop all sequences."""
        seen = {folder: (state, strength) for folder, strength in wanted if (state := _state(folder))}
        prose = prose and self.prose is not None
        if seen == self._seen and prose == self._with_prose:
            return False
        changed, self._with_prose = prose != self._with_prose, prose
        self._seen, self.problems = seen, {}
        states = {folder: state for folder, (state, _) in seen.items()}
        self._read = {
            folder: self._read[folder]
            if folder in self._read and self._read[folder][0] == state
            else (state, _loaded(folder))
            for folder, state in states.items()
        }
        before, self._on = self._on, []
        for folder, (_, adapter) in self._read.items():
            if isinstance(adapter, str):
                self.problems[folder.stem] = adapter
            elif why := self._trained_otherwise(adapter):
                self.problems[folder.stem] = why
            elif adapter.result.better:
                strength = seen[folder][1]
                strength = adapter.result.strength if strength is None else strength
                if self._adapted([(adapter, strength)]) and strength:
                    self._on += [(adapter, strength)]
        if not self._adapted([(adapter, strength / len(self._on)) for adapter, strength in self._on]):
            self._on = []
            self._use_prose_alone()
        return changed or not same_adapters(before, self._on)

    @property
    def _below(self) -> list[tuple[Adapter, float]]:
        return [(self.prose, 1.0)] if self.prose and self._with_prose else []

    def _trained_otherwise(self, adapter: Adapter) -> str:
        """The reason if the adapter was trained with prose and drafts are made without it, or the reverse."""
        if self.prose and self._with_prose and adapter.model == self._model.fingerprint:
            return "It was trained with Prose off; train it anew with `polydraft learn`, or switch Prose off."
        if self.prose and not self._with_prose and adapter.model == self.prose.identity:
            return "It was trained with Prose on, and Prose is off."
        return ""

    def _use_prose_alone(self) -> None:
        """Computes without the adapters of stores; without any if the one to prose is unusable."""
        try:
            self._model.adapt(self._below)
        except ContextFull:
            self._seen = {}  # the model computes as before; the next call tries again
        except (AdapterError, BackendUnavailable) as error:
            self.problems["prose"] = str(error)
            self.prose, self._with_prose = None, False
            self._model.adapt([])

    def _adapted(self, adapters: Sequence[tuple[Adapter, float]]) -> bool:
        """Whether the model now computes with these adapters; else their stores have a problem."""
        try:
            self._model.adapt([*self._below, *adapters])
            return True
        except (AdapterError, BackendUnavailable, ContextFull) as error:
            self.problems |= {adapter.store: str(error) for adapter, _ in adapters}
            if isinstance(error, ContextFull):
                self._seen = {}  # the next call tries again
            return False


def _loaded(folder: Path) -> Adapter | str:
    try:
        return replace(load(folder), store=folder.stem)
    except AdapterError as error:
        return str(error)


def _state(folder: Path) -> FileState | None:
    try:
        status = (folder / WEIGHTS).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
