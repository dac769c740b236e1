"""The adapters of personal stores, as a model computes with them.

`polydraft learn` puts an adapter beside a store's file. A model uses those of the stores that are on, if they beat the
model on held-out text, each with the strength of its result; n adapters with an n-th of it, because each was judged
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.errors import BackendUnavailable
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
        self._seen: dict[Path, FileState] = {}  # the files of the latest call
        self._read: dict[Path, tuple[FileState, Adapter | str]] = {}
        self._on: list[Adapter] = []

    def use(self, folders: Sequence[Path]) -> bool:
        """Switches to the adapters in these folders, some of which need not exist. Some microseconds if nothing has
        changed. Returns whether the model computes something else now; then sequences must be dropped."""
        found = {folder: state for folder in folders if (state := _state(folder))}
        if found == self._seen:
            return False
        self._seen, self.problems = found, {}
        self._read = {
            folder: self._read[folder]
            if folder in self._read and self._read[folder][0] == state
            else (state, _loaded(folder))
            for folder, state in found.items()
        }
        before, self._on = self._on, []
        for folder, (_, adapter) in self._read.items():
            if isinstance(adapter, str):
                self.problems[folder.stem] = adapter
            elif adapter.result.better:
                try:
                    self._model.adapt([(adapter, adapter.result.strength)])
                    self._on.append(adapter)
                except (AdapterError, BackendUnavailable) as error:
                    self.problems[folder.stem] = str(error)
        self._model.adapt([(adapter, adapter.result.strength / len(self._on)) for adapter in self._on])
        return [*map(id, before)] != [*map(id, self._on)]


def _loaded(folder: Path) -> Adapter | str:
    try:
        return load(folder)
    except AdapterError as error:
        return str(error)


def _state(folder: Path) -> FileState | None:
    try:
        found = (folder / WEIGHTS).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
