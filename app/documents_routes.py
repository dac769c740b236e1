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

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Literal

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.documents import Changed, DocumentFolder, Entry
from app.refusals import post
from app.settings import Strict
from core.errors import InputError

MAX_DOCUMENT = 32 << 20  # bytes of one request; a novel is 1 MB


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

    @contextmanager
    def usable() -> Iterator[None]:
        """Turns errors of the disk into messages for the user."""
        try:
            yield
        except OSError as error:
            raise InputError(f"{folder.folder} could not be used: {error.strerror or error}.") from error

    @app.get("/api/documents")
    @usable()
    def listed() -> dict[str, object]:
        kept = folder.kept
        entries = folder.entries() if kept else []
        where = "files" if kept else "browser"
        return {"kept": where, "folder": str(folder.folder), "documents": list(map(_shown, entries))}

    @app.get("/api/documents/{id}")
    @usable()
    def read(id: str) -> dict[str, object]:
        entry, text = folder.read(id)
        return {**_shown(entry), "text": text}

    @post(app, "/api/documents/keep", Keep)
    @usable()
    def keep(body: Keep) -> None:
        folder.keep(body.where == "files")

    @post(app, "/api/documents/write", Written, MAX_DOCUMENT)
    @usable()
    def write(body: Written) -> dict[str, object] | Response:
        entry = Entry(**body.model_dump(exclude={"text", "base"}))
        try:
            return _shown(folder.write(entry, body.text, body.base))
        except Changed as error:
            return JSONResponse({"message": str(error), "fix": "Keep your text as a copy.", "changed": True}, 409)

    @post(app, "/api/documents/bin", Bin)
    @usable()
    def bin(body: Bin) -> None:
        folder.put_in_bin(body.id, body.on)

    @post(app, "/api/documents/remove", One)
    @usable()
    def remove(body: One) -> None:
        folder.remove(body.id)


def _shown(entry: Entry) -> dict[str, object]:
    shown = asdict(entry)
    del shown["stamp"]
    shown["revision"] = shown.pop("digest")
    return shown
