"""HTTP routes for personal stores. Every route calls one method of `app.learning.personal`.

    GET  /api/stores                           every store, with the origins of its text
    GET  /api/stores/learning                  the names of the stores that learn; a mark of what was removed from any
    POST /api/stores/create, delete            {"store"}
    POST /api/stores/switch, switch-learning   {"store", "on"}
    POST /api/stores/add-phrase                {"store", "text"}
    POST /api/stores/forget-document           {"store", "document", "tab", "dry"}: all documents of this origin
    POST /api/stores/forget-phrase             {"store", "phrase", "tab", "dry"}: every place of it; with "dry" the
                                               response says what would be removed
    POST /api/stores/undo-forget               {"ticket"}: of the response to a request with "tab"
    POST /api/stores/search                    {"text"}
    POST /api/stores/learn                     {"text", "finished"}: written text, for every store that learns
    GET  /api/stores/trainings                 the trainings of adapters
    POST /api/stores/train, stop-training      {"store"}: its adapter
    POST /api/stores/switch-adapter            {"store", "on"}
    POST /api/stores/strength                  {"store", "strength"}: of its adapter; null is the one found in training
    POST /api/stores/add?store=…&name=…&ticket=…   a file as the body; the response is one line of JSON per step
    POST /api/stores/stop                      {"ticket"}: of an upload; its last line shows whether it was stopped

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from app.learning.forgotten import HeldTexts
from app.learning.learner import Learner
from app.learning.personal import PersonalStores
from app.options.settings import Strict
from app.wire.bounds import FileName, Id, Line, Name
from app.wire.refusals import pieces, post
from app.wire.refused import mended
from core.errors import InputError, PolydraftError
from core.files import scratch

if TYPE_CHECKING:  # sqlite-utils takes a while to import
    from app.learning.personal import StoreRow
    from core.ngram.personal import PersonalStore
    from core.ngram.removed import Extent, Forgotten, Removed, Undone

MAX_FILE = 1 << 30  # bytes of one added file
LISTED = 200  # the number of listed origins of a store, newest first; and of listed damaged places of a file
TICKETS = 64  # remembered stops
STEP = 0.01  # share of a file between two reports of progress


class NamedStore(Strict):
    store: Name


class Switched(NamedStore):
    on: bool


class Strength(NamedStore):
    strength: float | None = Field(ge=0, le=1)


class Forget(NamedStore):
    """What is forgotten can be undone by the page of this `tab`, until that is closed."""

    tab: Name = ""
    dry: bool = False


class ForgetDocument(Forget):
    document: Line


class ForgetPhrase(Forget):
    phrase: Line


class Undo(Strict):
    ticket: Id


class Search(Strict):
    text: str = Field(min_length=1, max_length=400)


class Phrase(NamedStore):
    text: Line


class Stop(Strict):
    ticket: Id


class Learn(Strict):
    text: str = Field(min_length=1, max_length=65536)
    finished: bool


def add_routes(
    app: FastAPI,
    stores: Callable[[], PersonalStores],
    learner: Learner,
    ending: Callable[[], bool] = lambda: False,
    held: HeldTexts | None = None,
) -> None:
    """Adds these routes to the app.

    Args:
        stores: the stores, for one call; raises InputError while there are none yet.
        learner: trains adapters.
        ending: whether the server is shutting down; uploads then stop, and are rolled back.
        held: what can be undone; the caller drops what belongs to a tab that is closed. None: a new one.
    """
    held = held or HeldTexts()
    add_learning_routes(app, stores)
    stopped = deque[str](maxlen=TICKETS)  # a stop may arrive before its file has been received

    def follow(store: str) -> None:
        learner.follow([stores().state(store)])

    @app.get("/api/stores")
    def listed() -> dict[str, object]:
        states = stores().list()
        learner.follow(states)
        return {
            "stores": mended([row if "problem" in row else _by_origin(row) for row in states]),
            "trainings": learner.trainings(),
        }

    @post(app, "/api/stores/create", NamedStore)
    def create(body: NamedStore) -> None:
        stores().create(body.store)

    @post(app, "/api/stores/delete", NamedStore)
    def delete(body: NamedStore) -> None:
        learner.drop(body.store)
        stores().delete(body.store)
        held.drop_store(body.store)

    def add_switch(path: str, switched: Callable[[PersonalStore, bool], None]) -> None:
        @post(app, path, Switched)
        def switch(body: Switched) -> None:
            with stores().at(body.store) as store:
                switched(store, body.on)

    add_switch("/api/stores/switch", lambda store, on: store.switch(on))
    add_switch("/api/stores/switch-learning", lambda store, on: store.switch_learning(on))
    add_switch("/api/stores/switch-adapter", lambda store, on: store.switch_adapter(on))

    @post(app, "/api/stores/add-phrase", Phrase)
    def add_phrase(body: Phrase) -> dict[str, object]:
        from core.ngram.personal import PHRASE

        with stores().at(body.store) as store:
            return {"tokens": store.learn(body.text, PHRASE)}

    def forgotten_in(
        body: Forget,
        extent: Callable[[PersonalStore], Extent],
        forget: Callable[[PersonalStore, int], Forgotten],
    ) -> dict[str, object]:
        room = held.room if body.tab else 0
        with stores().at(body.store) as store:
            if body.dry:
                extent_of = extent(store)
                return {**_counts(extent_of), "undo": 0 < extent_of.bytes <= room}
            done = forget(store, room)
        follow(body.store)
        ticket = held.keep(body.tab, body.store, done.removed) if done.removed else ""
        return {**_counts(done), "complete": done.complete, "adapter": done.adapter, "ticket": ticket}

    @post(app, "/api/stores/forget-document", ForgetDocument)
    def forget_document(body: ForgetDocument) -> dict[str, object]:
        name = body.document
        return forgotten_in(
            body, lambda store: store.document_extent(name), lambda store, keep: store.forget_document(name, keep)
        )

    @post(app, "/api/stores/forget-phrase", ForgetPhrase)
    def forget_phrase(body: ForgetPhrase) -> dict[str, object]:
        phrase = body.phrase
        return forgotten_in(
            body, lambda store: store.phrase_extent(phrase), lambda store, keep: store.forget_phrase(phrase, keep)
        )

    @post(app, "/api/stores/undo-forget", Undo)
    def undo(body: Undo) -> dict[str, object]:
        def put_back(name: str, removed: Removed) -> Undone:
            with stores().at(name) as store:
                return store.undo(removed)

        name, restored = held.undo(body.ticket, put_back)
        if restored.adapter:
            learner.drop(name)  # it learns again from what was left
        follow(name)
        return {"store": name, "tokens": restored.tokens, "adapter": restored.adapter}

    @app.get("/api/stores/trainings")
    async def trainings() -> dict[str, object]:
        return {"trainings": learner.trainings()}

    def add_training(path: str, action: Callable[[str], None]) -> None:
        @post(app, path, NamedStore)
        def train(body: NamedStore) -> dict[str, object]:
            action(body.store)
            return {"trainings": learner.trainings()}

    add_training("/api/stores/train", learner.start)
    add_training("/api/stores/stop-training", learner.stop)

    @post(app, "/api/stores/strength", Strength)
    def strength(body: Strength) -> None:
        with stores().at(body.store) as store:
            store.set_strength(body.strength)

    @post(app, "/api/stores/search", Search)
    def search(body: Search) -> dict[str, object]:
        return {"found": stores().search(body.text)}

    @post(app, "/api/stores/stop", Stop)
    def stop(body: Stop) -> None:
        stopped.append(body.ticket)

    @app.post("/api/stores/add")
    async def add(request: Request, store: Name, name: FileName, ticket: Name = "") -> Response:
        known = await run_in_threadpool(stores)  # fail before anything is received
        ended = ExitStack()
        try:
            path = ended.enter_context(scratch()) / _file_name(name)
            await _receive(request, path, name)
        except OSError as error:
            ended.close()
            raise InputError(f"{name} could not be added: {error.strerror or error}.") from error
        except BaseException:
            ended.close()
            raise
        return StreamingResponse(
            _adding(known, store, path, name, ended, lambda: ticket in stopped, ending, follow),
            media_type="application/x-ndjson",
            headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        )


def add_learning_routes(app: FastAPI, stores: Callable[[], PersonalStores]) -> None:
    """Adds the routes by which stores learn, for the page and for editors; for the arguments see `add_routes`."""

    @app.get("/api/stores/learning")
    def learning() -> dict[str, object]:
        return {**stores().followed()}

    @post(app, "/api/stores/learn", Learn)
    def learn(body: Learn) -> dict[str, object]:
        return {"stores": stores().take_in(body.text, body.finished)}


def _counts(extent: Extent) -> dict[str, int]:
    return {name: getattr(extent, name) for name in ("documents", "passages", "occurrences", "characters")}


class OriginRow(TypedDict):
    """The documents of one origin: their number, their tokens, and when the last was added (UTC, ISO 8601)."""

    origin: str
    documents: int
    tokens: int
    added: str


def _by_origin(row: StoreRow) -> dict[str, object]:
    """A store with its documents grouped by origin, the last added first."""
    origins: OrderedDict[str, OriginRow] = OrderedDict()
    for document in row["documents"]:
        none = OriginRow(origin=document["origin"], documents=0, tokens=0, added="")
        sums = origins.setdefault(document["origin"], none)
        sums["documents"] += 1
        sums["tokens"] += document["tokens"]
        sums["added"] = document["added"]
        origins.move_to_end(document["origin"])
    newest = list(reversed(origins.values()))
    others = {key: value for key, value in row.items() if key != "documents"}
    return {**others, "origins": newest[:LISTED], "unlisted": max(len(newest) - LISTED, 0)}


# ---------------------------------------------------------------- files


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


async def _adding(
    stores: PersonalStores,
    store: str,
    path: Path,
    name: str,
    ended: ExitStack,
    stopped: Callable[[], bool],
    ending: Callable[[], bool],
    follow: Callable[[str], None],
) -> AsyncGenerator[bytes]:
    """Lines: {"type": "progress", "share"}, then {"type": "added", …}, {"type": "stopped"}, when nothing was added, or
    {"type": "error", "message"}."""
    loop, lines, left = asyncio.get_running_loop(), asyncio.Queue[dict[str, object] | None](), False
    reported = -1.0

    def post(line: dict[str, object] | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lines.put_nowait, line)

    def progress(share: float) -> None:
        nonlocal reported
        if left or stopped() or ending():
            raise _Stopped
        if share - reported >= STEP:
            reported = share
            post({"type": "progress", "share": round(share, 3)})

    def work() -> None:
        try:
            added = stores.add_file(store, path, name, progress)
            follow(store)
            damage = [{"line": place.line, "reason": place.reason} for place in added.damage[:LISTED]]
            post({"type": "added", "files": added.files, "tokens": added.tokens, "damage": damage,
                  "damaged": len(added.damage)})  # fmt: skip
        except _Stopped:
            post({"type": "stopped"})
        except (PolydraftError, OSError) as error:
            post({"type": "error", "message": str(error).replace(str(path), name)})
        finally:
            ended.close()  # removes the file
            post(None)

    working = loop.run_in_executor(None, work)
    coming = asyncio.ensure_future(lines.get())
    try:
        while True:
            arrived, _ = await asyncio.wait({coming}, timeout=0.2)
            if not arrived and ending():
                return  # the server does not wait for a long step of the reader
            if not arrived:
                continue
            line, coming = coming.result(), asyncio.ensure_future(lines.get())
            if line is None:
                break
            yield json.dumps(line).encode() + b"\n"
        await working
    finally:
        coming.cancel()
        left = True
