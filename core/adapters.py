"""The adapters of personal stores, as a model computes with them.

`polydraft learn` puts an adapter beside a store's file. A model uses those of the stores that are on, if they beat the
model on held-out text, each with the strength of its result or of the user's choice; n adapters with an n-th of it,
because each was judged alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.errors import BackendUnavailable, ContextFull
from core.models import LanguageModel
from core.models.adapter import WEIGHTS, Adapter, AdapterError, load

FileState = tuple[int, int, int]


class Adapters:
    """The adapters that one model uses.

    Attributes:
        problems: by store, the reason why its adapter is unusable.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.problems: dict[str, str] = {}
        self._model = model
        self._seen: dict[Path, tuple[FileState, float | None]] = {}  # files and choices of the latest call
        self._read: dict[Path, tuple[FileState, Adapter | str]] = {}
        self._on: list[tuple[Adapter, float]] = []  # in use, with the strength

    @property
    def on(self) -> bool:
        """Whether the model uses any adapter."""
        return bool(self._on)

    def use(self, wanted: Sequence[tuple[Path, float | None]]) -> bool:
        """Switches to the adapters in these folders, of which some may not exist, each with this strength, or None for
        that of its result. Takes some microseconds if nothing has changed. Returns whether the model's results change;
        then the caller must drop all sequences."""
        seen = {folder: (state, strength) for folder, strength in wanted if (state := _state(folder))}
        if seen == self._seen:
            return False
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
            elif adapter.result.better:
                strength = seen[folder][1]
                strength = adapter.result.strength if strength is None else strength
                if self._adapted([(adapter, strength)]) and strength:
                    self._on += [(adapter, strength)]
        if not self._adapted([(adapter, strength / len(self._on)) for adapter, strength in self._on]):
            self._on = []
            self._model.adapt([])
        return [(id(adapter), strength) for adapter, strength in before] != [
            (id(adapter), strength) for adapter, strength in self._on
        ]

    def _adapted(self, adapters: Sequence[tuple[Adapter, float]]) -> bool:
        """Whether the model now computes with these adapters; else their stores have a problem."""
        try:
            self._model.adapt(adapters)
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
