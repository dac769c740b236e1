"""The process that downloads a model for the page: the code of `polydraft models get`, with its progress as lines of
JSON. It is the only one that connects to another machine; the server itself is offline.

    python -m app.downloads.child NAME FOLDER

It ends when its input does: the server has ended, even if it was killed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.machine.ending import end_with_input
from core.errors import PolydraftError
from core.hub.download import DownloadStep, download

EVERY = 0.2  # seconds between two lines of one stage


def lines(steps: Iterable[DownloadStep]) -> Generator[dict[str, Any]]:
    """The lines of a download, whose last one has its path or the reason why there is none."""
    stage, told = "", 0.0
    try:
        for step in steps:
            now = time.monotonic()
            if step.stage != stage or now - told > EVERY:
                stage, told = step.stage, now
                yield asdict(step) | {"path": str(step.path or "")}
    except (PolydraftError, OSError) as error:
        yield {"refused": str(error)}


def _main(name: str, folder: str) -> None:
    end_with_input()  # what has come is in the part
    with suppress(BrokenPipeError):
        for line in lines(download(name, Path(folder))):
            print(json.dumps(line), flush=True)  # noqa: T201


if __name__ == "__main__":
    _main(*sys.argv[1:])
