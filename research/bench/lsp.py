"""`bench lsp`: how long the language server takes to follow a document of 4 MB, by changes and by whole texts.

Drafts are on demand here, so a request that nobody made by hand ends as soon as the document is up to date.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import perf_counter
from typing import IO, Any

from core.errors import PolydraftError
from research.bench.child import COMMAND
from research.options import Rounds
from research.report import Progress, Report, counted

LINE = "A line of some words.\n"
LINES = 190_000  # 4 MB
EDITS = 20


class Client:
    """An editor that has the messages ready before the clock starts: its own work is the writing alone."""

    def __init__(self, pipe_in: IO[bytes], pipe_out: IO[bytes]) -> None:
        self._in, self._out, self._ids = pipe_in, pipe_out, count(1)

    def message(self, method: str, params: object, number: int | None = None) -> bytes:
        content = {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": number} if number else {})
        body = json.dumps(content).encode()
        return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)

    def notify(self, method: str, params: object) -> None:
        self._in.write(self.message(method, params))
        self._in.flush()

    def seconds(self, method: str, params: object, before: bytes = b"") -> float:
        """The time from the first byte of `before` and of a request to the response. Raises PolydraftError."""
        number = next(self._ids)
        sent = before + self.message(method, params, number)
        began = perf_counter()
        self._in.write(sent)
        self._in.flush()
        while (answer := self._read()).get("id") != number:
            pass
        if "error" in answer:
            raise PolydraftError(f"The language server refuses {method}: {answer['error']['message']}")
        return perf_counter() - began

    def _read(self) -> dict[str, Any]:
        length = 0
        while (line := self._out.readline()) != b"\r\n":
            if not line:
                raise PolydraftError("The language server ended.")
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(self._out.read(length))


@contextmanager
def _server() -> Iterator[Client]:
    command = [sys.executable, "-P", "-m", COMMAND, "lsp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        client = Client(process.stdin, process.stdout)
        settings = {"show": "demand", "start": False}
        client.seconds(
            "initialize", {"processId": None, "rootUri": None, "capabilities": {}, "initializationOptions": settings}
        )
        client.notify("initialized", {})
        yield client
        client.seconds("shutdown", None)
        client.notify("exit", None)


def _changed(line: int) -> dict[str, object]:
    """One letter before the third of a line."""
    place = {"line": line, "character": 3}
    return {"range": {"start": place, "end": place}, "text": "x"}


@dataclass(frozen=True)
class LspOptions:
    repetitions: Rounds = 5


def measure(options: LspOptions, progress: Progress) -> Report:
    lines = [100 + edit * (LINES - 200) // EDITS for edit in range(EDITS)]
    opened: list[float] = []
    followed: dict[str, list[float]] = {"changes": [], "whole texts": []}
    sizes: dict[str, int] = {}
    with _server() as client:
        for turn in counted(range(options.repetitions), "round", progress):
            for way in followed:
                uri = f"file:///{turn} {way}.txt"
                item = {"uri": uri, "languageId": "plaintext", "version": 1, "text": LINE * LINES}
                here = {
                    "textDocument": {"uri": uri},
                    "position": {"line": LINES - 1, "character": 3},
                    "context": {"triggerKind": 2},
                }
                method = "textDocument/inlineCompletion"
                opened.append(
                    client.seconds(method, here, client.message("textDocument/didOpen", {"textDocument": item}))
                )
                sent = b"".join(_edits(client, uri, lines, changes=way == "changes"))
                followed[way].append(client.seconds(method, here, sent))
                sizes[way] = len(sent)
                client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    report = Report("lsp", [{"what": "opened: the first request", "s": median(opened)}])
    for way, seconds in followed.items():
        row = {"what": f"{EDITS} edits as {way}, and a request", "s": median(seconds), "MB": sizes[way] / 1e6}
        report.rows.append({**row, "min_s": min(seconds), "max_s": max(seconds)})
    report.target("the first request of a document of 4 MB, s", median(opened), "<= 0.1")
    report.target(f"the request after {EDITS} edits, s", median(followed["changes"]), "<= 0.1")
    report.target(
        "of the time that whole texts take", median(followed["changes"]) / median(followed["whole texts"]), "<= 0.1"
    )
    return report


def _edits(client: Client, uri: str, lines: list[int], changes: bool) -> Iterator[bytes]:
    text = [LINE] * LINES
    for version, line in enumerate(lines, start=2):
        text[line] = text[line][:3] + "x" + text[line][3:]
        change: dict[str, object] = _changed(line) if changes else {"text": "".join(text)}
        about = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]}
        yield client.message("textDocument/didChange", about)
