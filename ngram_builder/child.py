"""Processes that call functions of this package for a build, where Python's lock would let threads use one core.

A call is pickled to the standard input of `python -m ngram_builder.child`, its answer to the standard output. The end
of its input ends a process at once: the build has ended, even if it was killed.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from core.errors import PolydraftError

COMMAND = (sys.executable, "-P", "-m", f"{__package__}.child")  # -P: not a package of the working folder
Answer = TypeVar("Answer")


class Children:
    """Such processes, started when they are needed. Threads may call at once: each call has a process of its own."""

    def __init__(self, begin: Callable[..., object] | None = None, *arguments: object) -> None:
        """`begin`: what each process calls first, with these arguments."""
        self._begin = (begin, arguments) if begin else None
        self._idle = queue.SimpleQueue[subprocess.Popen[bytes]]()
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.communicate()

    def call(self, function: Callable[..., Answer], *arguments: object) -> Answer:
        """Calls a function of a module in a process. Raises what it raises; PolydraftError when the process ends."""
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = self._new()
        answer = _called(process, function, arguments)
        self._idle.put(process)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _new(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TOKENIZERS_PARALLELISM": "false"}
        process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._started.append(process)
        if self._begin:
            _called(process, *self._begin)
        return process


def _called(process: subprocess.Popen[bytes], function: Callable[..., object], arguments: tuple[object, ...]) -> Any:
    assert process.stdin and process.stdout
    try:
        process.stdin.write(pickle.dumps((function, arguments)))
        process.stdin.flush()
        return pickle.load(process.stdout)  # noqa: S301 our own child's
    except (EOFError, BrokenPipeError) as error:
        raise PolydraftError(
            f"A process of the build ended with status {process.wait()}, usually for lack of memory: give a smaller "
            "--memory or fewer --workers. What is done so far is kept, and the same command goes on from there."
        ) from error


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the build, and then this process
    calls = queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]]()

    def read() -> None:
        with suppress(EOFError):
            while True:
                calls.put(pickle.load(sys.stdin.buffer))  # noqa: S301 the build's own
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        function, arguments = calls.get()
        try:
            answer = function(*arguments)
        except Exception as error:  # noqa: BLE001 the build raises it
            answer = error
        sys.stdout.buffer.write(pickle.dumps(answer))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
