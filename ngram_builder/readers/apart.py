"""Reads files in a process of its own. Files come from outside, and parsers are many: one that crashes, loops or takes
all memory ends that process, and its file is damaged; the caller and its other files go on.

    ReaderProcess.read(file) ── one line of JSON ──► python -m ngram_builder.readers.apart
            ▲                                              │ limits of memory, no files to write, no core dump
            └── documents, damage, notes, progress ◄───────┘ as lines of JSON

The process ends with its caller, whose end closes its input.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, astuple
from typing import Any, TextIO

from ngram_builder.readers.base import PIECE, Damage, Document, spelled
from ngram_builder.readers.files import File
from ngram_builder.readers.read import Reading, read_file
from ngram_builder.readers.senders import Senders

MEMORY = 4 << 30  # bytes of address space: what the libraries of all kinds map, and a document of every limit
STALL = 60.0  # seconds without a line until a reader is said to loop
_BEAT = 0.2  # seconds between two lines that say that it reads on


class ReaderProcess:
    """Reads files one after the other, in a process that begins with the first. Use it from one thread.

    Args:
        memory, stall: the limits: bytes, and seconds without progress.
    """

    def __init__(self, memory: int = MEMORY, stall: float = STALL) -> None:
        self._memory, self._stall = memory, stall
        self._process: subprocess.Popen[bytes] | None = None
        self._held = bytearray()  # read of its output, and not yet a line

    def __enter__(self) -> ReaderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    assert pipe
                    pipe.close()

    def read(self, file: File, reading: Reading) -> Iterator[Document]:
        """Yields the documents of a file as `read_file` does, and calls `reading`. Where the process ends or loops, the
        rest of the file is damaged. What a URL names is read here: the process connects to nowhere."""
        if file.remote:
            yield from read_file(file, reading)
            return
        process = self._begun()
        senders = {"wanted": sorted(reading.senders.wanted), "found": {}, "others": 0}
        ended = False
        try:
            try:
                assert process.stdin
                process.stdin.write(json.dumps({"file": asdict(file), "senders": senders}).encode() + b"\n")
                process.stdin.flush()
            except OSError:
                pass  # it ended; the answers say so
            for kind, value in self._answers(process, reading):
                if kind == "document":
                    yield Document(*value)
                elif kind == "damage":
                    reading.report(Damage(*value))
                elif kind == "note":
                    reading.note(Damage(*value))
                elif kind == "consumed":
                    reading.consumed(value)
                elif kind == "end":
                    reading.senders.found.update(value["found"])
                    reading.senders.others += value["others"]
                    ended = True
                    return
            reading.report(Damage(spelled(file.address), 0, self._reason(process)))
        finally:
            if not ended:
                self.close()  # it is in the middle of the file

    def _begun(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._held.clear()
            self._process = subprocess.Popen(  # -P: no module of the folder that the caller happens to be in
                [sys.executable, "-P", "-m", __name__, str(self._memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _answers(self, process: subprocess.Popen[bytes], reading: Reading) -> Iterator[tuple[str, Any]]:
        """The lines of the process, until it ends or is silent for too long."""
        assert process.stdout
        output, heard = process.stdout.fileno(), time.monotonic()
        while True:
            while (end := self._held.find(b"\n")) < 0:
                if select.select([output], [], [], _BEAT)[0]:
                    if not (piece := os.read(output, PIECE)):
                        return
                    self._held += piece
                    heard = time.monotonic()
                else:
                    reading.consumed(0)  # may raise: the caller has cancelled
                    if time.monotonic() - heard > self._stall:
                        return
            line = bytes(self._held[:end])
            del self._held[: end + 1]
            yield from json.loads(line).items()
            heard = time.monotonic()  # the caller may have taken long

    def _reason(self, process: subprocess.Popen[bytes]) -> str:
        """Why the process gave no more."""
        try:
            status = process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            return f"its reader made no progress for {self._stall:.0f} seconds; what was read before is kept"
        if status < 0:
            return f"its reader crashed ({signal.Signals(-status).name}); what was read before is kept"
        return "its reader had no memory left; what was read before is kept"


# ---------------------------------------------------------------- the process


def _serve(lines: TextIO, answers: TextIO) -> None:
    """Reads the files that are asked for, one line each."""

    def say(kind: str, value: Any) -> None:
        print(json.dumps({kind: value}), file=answers, flush=True)

    for line in lines:
        asked = json.loads(line)
        senders = Senders(frozenset(asked["senders"]["wanted"]))
        said, held = time.monotonic(), 0

        def consumed(size: int = 0) -> None:
            nonlocal said, held
            held += size
            if time.monotonic() - said > _BEAT:
                say("consumed", held)
                said, held = time.monotonic(), 0

        reading = Reading(
            lambda damage: say("damage", astuple(damage)),
            consumed,
            note=lambda damage: say("note", astuple(damage)),
            senders=senders,
        )
        for document in read_file(File(**asked["file"]), reading):
            say("document", astuple(document))
        say("consumed", held)
        say("end", {"found": senders.found, "others": senders.others})


def _limit(memory: int) -> None:
    """Limits this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a lower limit is there already
            resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    _limit(int(sys.argv[1]))
    try:
        _serve(sys.stdin, sys.stdout)  # JSON, and so ASCII: in every locale the same
    except MemoryError:
        sys.exit(1)
    except BrokenPipeError:
        os._exit(0)  # the caller is gone
