"""A server with the real page and scripted drafts: tests of the page are fast and know what to expect."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles

from app.documents.folder import DocumentFolder
from app.learning.base_stores import BaseStores
from app.learning.child import Order
from app.learning.forgotten import HeldTexts
from app.learning.learner import Learner
from app.learning.personal import PersonalStores
from app.service.service import DraftService
from app.web.routes.base_stores import add_routes as add_base_routes
from app.web.routes.documents import add_routes as add_document_routes
from app.web.routes.stores import add_routes
from app.web.security import pairing
from app.web.security.access import Access
from app.web.security.connections import configured
from app.web.security.guard import Guard
from app.web.site import prepare_gradio
from app.wire.refusals import format_errors
from core.autocomplete import Autocomplete
from core.phrases import compiled, opening

MARKET = " to the market and bought some bread"
RIVER = " to the river with a lantern"
HOME = " home before the rain"
OTHERS = (" and sat down", " slowly", " again", " with a smile", " because", " in silence")
PHRASES = (MARKET, RIVER, HOME, *OTHERS)
FINISHED = ("ting a long letter", "tten in a hurry", "ter of short stories")  # after "wri"


@dataclass
class FakeDrafts:
    """What the server answers, and what it was asked. Tests change the fields while the server runs."""

    step_s: float = 0.004
    script: dict[str, tuple[str, ...]] = field(default_factory=dict)  # end of the text before -> drafts
    fail: tuple[int, str, str] | None = None  # HTTP status, message, fix
    error_line: tuple[str, str] | None = None  # message, fix, inside the stream
    notice: str | None = None
    prose: bool = True  # whether the model has an adapter to prose
    chances: dict[int, float] = field(default_factory=dict)  # place -> probability; empty: 40 %, 20 %, 13 %, …
    settles_after: int = 1  # steps before the choice is made
    held_after: int | None = None  # the steps after this one wait until it is None
    tail: str = "own"
    ends_after: int = 99  # words; a draft that shall grow goes on to its end
    gains: dict[int, float] = field(default_factory=dict)  # place -> how much its draft leads to what follows
    replaces: dict[str, int] = field(
        default_factory=dict
    )  # draft -> typed letters that it replaces, for who can delete
    first_thought: str = ""  # every row's text after the first step, where the choice replaces it
    personal: dict[str, tuple[int, int]] = field(default_factory=dict)  # draft -> what a personal store chose of it
    removed: str = "a"  # the mark of what was removed from the stores
    pays: dict[int, str] | None = None  # row -> its text up to where it saves time, best first; None: all rows do
    saved_ms: float = 1000  # of each of these
    ghost: int | None = None  # the best row
    skipped: int = 0  # characters of the text before the caret, and of its background, that the model does not read
    background_skipped: int = 0
    others: tuple[str, ...] = ("slow", "careful", "last")  # words in place of those that a request has
    foreign: bool = False  # whether the text is in another language than the model's
    requests: list[dict[str, Any]] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)  # requests whose answer was on its way
    stopped: list[int] = field(default_factory=list)  # of these, those cancelled before their end
    left: list[str] = field(default_factory=list)
    learning: list[str] = field(default_factory=list)  # stores that learn, where there are no real ones
    learned: list[str] = field(default_factory=list)  # what reached them

    def texts(self, before: str, k: int) -> tuple[str, ...]:
        for end, texts in self.script.items():
            if before.endswith(end):
                return texts[:k]
        if before.endswith("wri"):
            return FINISHED[:k]
        phrases = PHRASES[:k]
        if before.endswith((" ", "\n")):
            return tuple(text.lstrip() for text in phrases)
        word = re.search(r"(?<= )\w+$", before)
        if word:  # a word begun: finish it where a phrase starts with it
            begun = tuple(text[1:].removeprefix(word[0]) for text in phrases if text[1:].startswith(word[0]))
            if any(begun):
                return tuple(filter(None, begun))
        return phrases

    def marks(self, text: str) -> list[list[int]]:
        """Where a store decided on a draft, or on what is left of one."""
        for whole, (start, end) in self.personal.items():
            gone = len(whole) - len(text)
            if whole.endswith(text) and end > gone:
                return [[max(start - gone, 0), end - gone]]
        return []

    def rows(self, body: dict[str, Any]) -> dict[int, str]:
        """What each place of the list gets: kept rows stay, the others are filled with what is not there yet."""
        k = body["settings"]["k"]
        never, avoided = compiled(tuple(body.get("never", ()))), {opening(text) for text in body.get("avoid", [])}
        texts = self.texts(body["before"], k if not (never or avoided) else len(PHRASES))
        texts = [text for text in texts if not never.within(text) and opening(text) not in avoided][:k]
        kept = {row["id"]: row["text"] for row in body.get("kept", [])}
        for i, text in kept.items():
            longer = (whole for whole in texts if whole.startswith(text) and whole not in kept.values())
            kept[i] = text if text in texts else next(longer, text)
        fresh = [text for text in texts if text not in kept.values()]
        free = [i for i in range(k) if i not in kept]
        return kept | dict(zip(free, fresh, strict=False))

    async def lines(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        n, settings = body["n"], body["settings"]
        if self.error_line:
            yield {"type": "error", "n": n, "message": self.error_line[0], "fix": self.error_line[1]}
            return
        if self.foreign and body.get("unasked"):
            told = {"type": "drafts", "n": n, "step": 0, "done": True, "settled": False, "hidden": 0, "pays": []}
            yield told | {"removed": self.removed, "drafts": [], "foreign": True}
            return
        if "words" in body:
            while self.held_after is not None:
                await asyncio.sleep(0.01)
            words = [body["words"], *self.others] if self.others else []
            drafts = [{"id": i, "text": text, "probability": round(0.5 / (i + 1), 3)} for i, text in enumerate(words)]
            yield {"type": "drafts", "n": n, "step": 0, "done": True, "drafts": drafts, "removed": self.removed}
            return
        if body.get("removed", self.removed) != self.removed:  # as the engine does
            body = body | {"kept": []}
        rows = self.rows(body)
        kept = {row["id"]: row["text"] for row in body.get("kept", [])}
        longest = settings["length"] if body.get("grow") else min(settings["length"], self.ends_after)
        words = {i: re.findall(r"\s*\S+", text) for i, text in rows.items()}
        steps = min(longest, max([len(words[i]) for i in rows if i not in kept or body.get("grow")], default=1))
        for step in range(1, steps + 1):
            await asyncio.sleep(self.step_s)
            while self.held_after is not None and step > self.held_after:
                await asyncio.sleep(0.01)
            chance = self.chances or {i: round(0.4 / (i + 1), 3) for i in rows}
            drafts = [
                {
                    "id": i,
                    "text": max(kept.get(i, ""), "".join(words[i][:step]), key=len),
                    "probability": chance[i],
                    "whole": round(0.01 / (i + 1), 5),
                    "tail": self.tail,
                    "finished": step >= len(words[i]),
                    "personal": self.marks(text),
                }
                | ({"replace": self.replaces[text]} if text in self.replaces and body.get("corrects") else {})
                | ({"gain": self.gains[i]} if i in self.gains and body.get("after") else {})
                for i, text in sorted(rows.items())
                if chance[i] >= settings.get("min_confidence", 0)
            ]
            if step == 1 and self.first_thought and not kept:  # replaced once, when the choice is made
                drafts = [draft | {"text": self.first_thought} for draft in drafts]
            settled = step == steps or step > self.settles_after
            done = step == steps
            told = {"type": "drafts", "n": n, "step": step, "done": done, "settled": settled}
            if done and self.ghost is not None:
                told["ghost"] = self.ghost
            if done and "show" in body:
                pays = {draft["id"]: draft["text"] for draft in drafts} if self.pays is None else self.pays
                told["pays"] = [
                    {"id": i, "text": text, "chance": 0.5, "saved_ms": self.saved_ms} for i, text in pays.items()
                ]
            yield told | {"hidden": len(rows) - len(drafts), "removed": self.removed, "drafts": drafts}
        yield {
            "type": "stats",
            "n": n,
            "model": "Scripted",
            "backend": "none",
            "first_ms": 1000 * self.step_s,
            "all_ms": 1000 * self.step_s,
            "per_token_ms": 1000 * self.step_s,
            "reused": len(body["before"]),
            "fed": 1,
            "skipped": self.skipped,
            "background_skipped": self.background_skipped,
            "window": 1024,
        }


class ByteTokenizer:
    """Every byte is a token."""

    def __init__(self) -> None:
        self.name, self.fingerprint = "bytes", "b" * 64
        self.pieces = [bytes([i]) for i in range(256)]

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(ids).decode(errors="replace")


def scripted_learner(stores: PersonalStores, script: str = "pass", quiet: float = 0.2) -> Learner:
    """Trains nothing: its process runs a Python script."""

    def order(store: str) -> tuple[Order, int]:
        path, removals = stores.to_train(store)
        return Order(str(path)), removals

    def gave_up(store: str) -> None:
        with stores.at(store) as opened:
            opened.stop_relearning()

    return Learner(order, gave_up, [sys.executable, "-c", script], quiet)


def create_app(
    fake: FakeDrafts,
    stores: Path | None = None,
    documents: Path | None = None,
    learner: Learner | None = None,
    access: Access | None = None,
    gradio: bool = False,
) -> FastAPI:
    """The routes that the page knows, with `fake` behind them; `stores` and `documents` are folders of real ones. What
    guards the real routes guards these; without `access` no token is needed. `gradio`: the page has Gradio and the
    panel, which take half of the processor time that it needs to load."""
    prepare_gradio()
    from app.web import page
    from app.web.page import STATIC, STATIC_URL
    from tests import plain_page

    app, held = FastAPI(), HeldTexts()
    format_errors(app)
    pairing.add_routes(app, access)
    add_document_routes(app, DocumentFolder(documents or Path(tempfile.mkdtemp()) / "documents"))
    if stores is not None:

        def opened() -> PersonalStores:
            """One of its own for each request, as the service gives, because requests run in several threads."""
            return PersonalStores(cast(Any, ByteTokenizer()), stores)

        add_routes(app, opened, learner or scripted_learner(opened()), held=held)
        choice = stores / "base-stores.json"
        add_base_routes(app, lambda: BaseStores(ByteTokenizer().fingerprint, None, choice))
    else:

        @app.get("/api/stores/learning")
        async def learning() -> dict[str, list[str]]:
            return {"learning": fake.learning}

        @app.post("/api/stores/learn")
        async def learn(request: Request) -> dict[str, list[str]]:
            fake.learned.append((await request.json())["text"])
            return {"stores": fake.learning}

    @app.post("/api/drafts")
    async def drafts(request: Request) -> Any:
        body = await request.json()
        fake.requests.append(body)
        if learner:
            learner.typed()
        if fake.fail:
            status, message, fix = fake.fail
            return JSONResponse({"message": message, "fix": fix}, status)

        async def stream() -> AsyncIterator[bytes]:
            try:
                fake.begun.append(body["n"])  # a request that is cancelled on its way never comes this far
                async for line in fake.lines(body):
                    yield json.dumps(line).encode() + b"\n"
            except (asyncio.CancelledError, GeneratorExit):  # cancelled while it waited, or while a line was being sent
                fake.stopped.append(body["n"])
                raise

        return StreamingResponse(stream(), media_type="application/x-ndjson")

    @app.post("/api/leave")
    async def leave(request: Request) -> dict[str, bool]:
        tab = (await request.json())["tab"]
        fake.left.append(tab)
        held.leave(tab)
        return {"ok": True}

    @app.get("/api/status")
    async def status() -> dict[str, Any]:
        model = {"model": "Scripted", "backend": "none", "device": "cpu", "ready": True}
        return {**model, "notice": fake.notice, "prose": fake.prose}

    @app.get("/api/models/recommended")
    async def recommended() -> dict[str, Any]:
        return {"host": "", "recommended": [], "serving": "scripted", "bytes": 0, "ms": None, "download": None}

    @app.get("/manifest.json")
    def manifest() -> FileResponse:
        return FileResponse(STATIC / "manifest.webmanifest", media_type="application/manifest+json")

    app.mount(STATIC_URL, StaticFiles(directory=STATIC))
    mounted = (page if gradio else plain_page).mount(app)
    mounted.add_middleware(Guard, access=access)
    return mounted


class Server:
    """A uvicorn server in a thread; it can be stopped and started again on the same port."""

    def __init__(self, app: Any) -> None:
        self.app = app
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        config = configured(self.app, host="127.0.0.1", port=self.port, timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 30
        while not self.server.started:
            if time.monotonic() > deadline:
                raise TimeoutError(f"The test server did not start on {self.url} within 30 s.")
            time.sleep(0.02)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)


@contextmanager
def serving(load: Callable[..., Autocomplete], name: str = "default") -> Iterator[tuple[DraftService, Server]]:
    """The real app, over the model that `load` makes."""
    from app.web.site import create_app

    service = DraftService(load, name, pace=0)
    service.start()
    server = Server(create_app(service))
    yield service, server
    server.stop()
    service.close()


if __name__ == "__main__":  # a look at the page without a model: python -m tests.fake_drafts [STORES]
    at = Path(sys.argv[1]) if sys.argv[1:] else None
    uvicorn.run(create_app(FakeDrafts(step_s=0.03), at, gradio=True), host="127.0.0.1", port=7870)
