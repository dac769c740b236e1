"""The entries of the list of models that `polydraft models` and the page show: what a model's file says, and how long
a key takes with it.

Reading the header of a file with a large vocabulary takes a good part of a second. So the page shows what `on_machine`
finds first, and requests these entries afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from core.files import is_regular, status
from core.models.estimate import Speed
from core.models.on_machine import About, ModelFile, read_about

REMEMBERED = 2048  # files whose headers are not read again until they change


@dataclass(frozen=True)
class Listed:
    """A model of the list.

    Attributes:
        ms: of a key, estimated; None if unknown.
    """

    file: ModelFile
    about: About
    ms: float | None

    def stated(self) -> dict[str, object]:
        """For JSON."""
        return {
            "path": str(self.file.path),
            "name": self.file.name,
            "program": self.file.source,
            "bytes": self.file.bytes,
            "type": self.about.type,
            "family": self.about.family,
            "compiled": self.about.compiled,
            "reason": self.about.reason,
            "ms": None if self.ms is None else round(self.ms, 1),
        }


def listed(file: ModelFile, speed: Speed | None) -> Listed:
    """Reads what the model's file says, unless it is known.

    Args:
        speed: of compiled code on this machine; None if unknown.
    """
    about = _about(file.path)
    known = speed is not None and about.type and not about.unusable
    return Listed(file, about, speed.ms(file.bytes, compiled=about.compiled) if speed and known else None)


def _about(path: Path) -> About:
    try:
        state = status(path)
        if state is None:
            return About()  # the id of a model on the hub
        if is_regular(state):
            return _of_file(path, state.st_size, state.st_mtime_ns)
        return read_about(path)
    except OSError as error:
        return About(unusable=f"It cannot be read: {error.strerror or error}.")


@lru_cache(REMEMBERED)
def _of_file(path: Path, *_changed: int) -> About:
    return read_about(path)
