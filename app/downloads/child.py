"""The process that downloads a model for the page: the code of `polydraft models get`, with its progress as lines of
JSON. It is the only one that connects to another machine; the server itself is offline.

    python -m app.downloads.child NAME FOLDER

It ends when its input does: the server has ended, even if it was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.errors import PolydraftError
from core.hub.download import DownloadStep, download

INPUT = 0  # descriptor
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


def _end_with_input() -> None:
    while os.read(INPUT, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # what has come is in the part


def _main(name: str, folder: str) -> None:
    threading.Thread(target=_end_with_input, daemon=True).start()
    with suppress(BrokenPipeError):
        for line in lines(download(name, Path(folder))):
            print(json.dumps(line), flush=True)  # noqa: T201


if __name__ == "__main__":
    _main(*sys.argv[1:])
