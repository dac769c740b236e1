"""HTTP routes for documents as files. Every route calls one method of `app.documents`.

    GET  /api/documents          where documents are kept ("browser" or "files"), the folder, and every document in it
    GET  /api/documents/ID       one document with its text
    POST /api/documents/keep     {"where"}: "browser" or "files"
    POST /api/documents/write    a document with its text and `base`, the revision that its writer started from
    POST /api/documents/bin      {"id", "on"}
    POST /api/documents/remove   {"id"}

A text that was changed elsewhere is not replaced: the response has status 409 and {"message", "fix", "changed": true}.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Literal, ParamSpec, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from app.documents import Changed, DocumentFolder, Entry
from app.refusals import parsed
from app.settings import Strict
from core.errors import InputError

MAX_DOCUMENT = 32 << 20  # bytes of one request; a novel is 1 MB

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class Keep(Strict):
    where: Literal["browser", "files"]


class One(Strict):
    id: str = Field(min_length=8, max_length=64)


class Bin(One):
    on: bool


class Written(One):
    title: str = Field(max_length=200)
    text: str
    base: str | None = Field(max_length=64)
    caret: list[int] = Field(min_length=2, max_length=2)
    private: list[list[int]] = Field(max_length=10_000)
    keys: dict[str, int] = Field(max_length=8)
    created: int
    changed: int
    binned: int | None


def add_routes(app: FastAPI, folder: DocumentFolder) -> None:
    """Adds these routes for one folder to the app."""

    async def call(
        method: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        """Runs disk work outside the event loop, and turns its errors into messages for the user."""
        try:
            return await run_in_threadpool(method, *arguments, **named)
        except OSError as error:
            raise InputError(f"{folder.folder} could not be used: {error.strerror or error}.") from error

    @app.get("/api/documents")
    async def listed() -> dict[str, object]:
        kept = await call(lambda: folder.kept)
        entries = await call(folder.entries) if kept else []
        where = "files" if kept else "browser"
        return {"kept": where, "folder": str(folder.folder), "documents": list(map(_shown, entries))}

    @app.get("/api/documents/{id}")
    async def read(id: str) -> dict[str, object]:
        entry, text = await call(folder.read, id)
        return {**_shown(entry), "text": text}

    @app.post("/api/documents/keep")
    async def keep(request: Request) -> dict[str, object]:
        await call(folder.keep, (await parsed(request, Keep)).where == "files")
        return {}

    @app.post("/api/documents/write")
    async def write(request: Request) -> Response:
        body = await parsed(request, Written, MAX_DOCUMENT)
        entry = Entry(**body.model_dump(exclude={"text", "base"}))
        try:
            written = await call(folder.write, entry, body.text, body.base)
        except Changed as error:
            return JSONResponse({"message": str(error), "fix": "Keep your text as a copy.", "changed": True}, 409)
        return JSONResponse(_shown(written))

    @app.post("/api/documents/bin")
    async def bin(request: Request) -> dict[str, object]:
        body = await parsed(request, Bin)
        await call(folder.put_in_bin, body.id, body.on)
        return {}

    @app.post("/api/documents/remove")
    async def remove(request: Request) -> dict[str, object]:
        await call(folder.remove, (await parsed(request, One)).id)
        return {}


def _shown(entry: Entry) -> dict[str, object]:
    shown = asdict(entry)
    del shown["stamp"]
    shown["revision"] = shown.pop("digest")
    return shown
