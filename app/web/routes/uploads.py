"""Files that the page adds to a personal store: a route that receives one as its body and reports progress, and one
that stops it. `app.web.routes.stores` describes both."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from app.options.settings import Strict
from app.wire.bounds import FileName, Id, Name
from app.wire.refusals import pieces
from app.wire.streaming import Streamed, as_line
from core.errors import InputError, PolydraftError
from core.files import scratch

if TYPE_CHECKING:
    from app.learning.personal import PersonalStores

MAX_FILE = 1 << 30  # bytes of one added file
LISTED = 200  # the number of listed damaged places of a file
TICKETS = 64  # remembered stops
STEP = 0.01  # share of a file between two reports of progress


class Stop(Strict):
    ticket: Id


class Uploads:
    """The two routes.

    Args:
        stores: the stores, for one call; raises InputError while there are none yet.
        follow: called with the name of the store to which a file was added.
        ending: whether the server is shutting down; uploads then stop, and are rolled back.
    """

    def __init__(
        self, stores: Callable[[], PersonalStores], follow: Callable[[str], None], ending: Callable[[], bool]
    ) -> None:
        self._stores, self._follow, self._ending = stores, follow, ending
        self._stopped = deque[str](maxlen=TICKETS)  # a stop may arrive before its file has been received

    async def add(self, request: Request, store: Name, name: FileName, ticket: Name = "") -> Response:
        known = await run_in_threadpool(self._stores)  # fail before anything is received
        with ExitStack() as opened:
            try:
                path = opened.enter_context(scratch()) / _file_name(name)
                await _receive(request, path, name)
            except OSError as error:
                raise InputError(f"{name} could not be added: {error.strerror or error}.") from error
            ended = opened.pop_all()
        return Streamed(self._adding(known, store, path, name, ticket, ended), as_line, "application/x-ndjson")

    def stop(self, body: Stop) -> None:
        self._stopped.append(body.ticket)

    async def _adding(
        self, stores: PersonalStores, store: str, path: Path, name: str, ticket: str, ended: ExitStack
    ) -> AsyncGenerator[dict[str, object]]:
        """Lines: {"type": "progress", "share"}, then {"type": "added", …}, {"type": "stopped"}, when nothing was added,
        or {"type": "error", "message"}."""
        loop, lines, left = asyncio.get_running_loop(), asyncio.Queue[dict[str, object] | None](), False
        reported = -1.0

        def post(line: dict[str, object] | None) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lines.put_nowait, line)

        def progress(share: float) -> None:
            nonlocal reported
            if left or ticket in self._stopped or self._ending():
                raise _Stopped
            if share - reported >= STEP:
                reported = share
                post({"type": "progress", "share": round(share, 3)})

        def work() -> None:
            try:
                added = stores.add_file(store, path, name, progress)
                self._follow(store)
                listed = [*added.damage, *added.notes]
                damage = [{"line": place.line, "reason": place.reason} for place in listed[:LISTED]]
                post({"type": "added", "files": added.files, "tokens": added.tokens, "damage": damage,
                      "damaged": len(listed)})  # fmt: skip
            except _Stopped:
                post({"type": "stopped"})
            except (PolydraftError, OSError) as error:
                post({"type": "error", "message": str(error).replace(str(path), name)})
            finally:
                ended.close()  # removes the file
                post(None)

        working = loop.run_in_executor(None, work)
        try:
            while True:
                try:
                    async with asyncio.timeout(0.2):
                        line = await lines.get()
                except TimeoutError:
                    if self._ending():
                        return  # the server does not wait for a long step of the reader
                    continue
                if line is None:
                    break
                yield line
            await working
        finally:
            left = True


def _file_name(name: str) -> str:
    """A file name with the same endings as the last part of the page's name for it; they select the reader."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1].replace("\0", "")
    if last in ("", ".", ".."):
        raise InputError(f"{name!r} given as a file's name.")
    return "file" + "".join(Path(last).suffixes)[-40:]  # the rest may be longer than a file system allows


async def _receive(request: Request, path: Path, name: str) -> None:
    size = 0
    with path.open("wb") as file:
        async for chunk in pieces(request):
            size += len(chunk)
            if size > MAX_FILE:
                raise InputError(
                    f"{name} is larger than {MAX_FILE >> 30} GiB; use `polydraft ngram add` or `ngram build`."
                )
            file.write(chunk)


class _Stopped(Exception):
    """The upload was stopped; raised where progress is reported, it rolls the upload back."""
