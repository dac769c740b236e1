"""Writes segments in a process of its own, for `writers.py`.

Standard input has the arguments of `write_segment`, pickled, one call after the other; standard output gets None for
each, or the exception. The end of the input ends the process at once: the build has ended, even if it was killed.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from ngram_builder.write import write_segment


def main() -> None:
    calls: SimpleQueue[tuple[Any, ...]] = SimpleQueue()

    def read() -> None:
        with suppress(EOFError):
            while True:
                calls.put(pickle.load(sys.stdin.buffer))  # noqa: S301 the build's own
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        answer: Exception | None = None
        try:
            write_segment(*calls.get())
        except Exception as error:  # noqa: BLE001 the build raises it
            answer = error
        sys.stdout.buffer.write(pickle.dumps(answer))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
