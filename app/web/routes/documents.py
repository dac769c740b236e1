"""HTTP routes for documents as files. Every route calls one method of `app.documents.folder`.

    GET  /api/documents          where documents are kept ("browser" or "files"), the folder, every document in it, and
                                 what is wrong there: {"message", "note"}
    GET  /api/documents/ID       one document with its text
    POST /api/documents/keep     {"where"}: "browser" or "files"
    POST /api/documents/write    a document with its text and `base`, the revision that its writer started from
    POST /api/documents/bin      {"id", "on"}
    POST /api/documents/remove   {"id"}
    POST /api/documents/set-aside   {"note"}: of a problem

A text that was changed elsewhere is not replaced: the response has status 409 and {"message", "fix", "changed": true}.
If no document has an id, the response has status 404.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, Field

from app.documents.folder import Changed, DocumentFolder, Entry, Listing, Missing
from app.documents.notes import MOST_BACKGROUND, MOST_NEVER, MOST_TITLE, short_background
from app.options.settings import Strict
from app.wire.bounds import Counts, Document, Files, Name, Range, Ranges, Whole
from app.wire.refusals import post
from app.wire.refused import Refused
from core.errors import InputError
from core.files import check_answers

MAX_DOCUMENT = 32 << 20  # bytes of one request; a novel is 1 MB


class Keep(Strict):
    where: Literal["browser", "files"]


class Named(Strict):
    id: str = Field(min_length=8, max_length=64)


class Bin(Named):
    on: bool


class Note(Strict):
    note: str = Field(min_length=1, max_length=255)


class Written(Named):
    title: Annotated[str, Field(max_length=MOST_TITLE)]
    text: Document
    base: Name | None
    caret: Range
    private: Ranges
    unsure: bool = False
    keys: Counts
    stores: Files = Field(default_factory=list)
    background: Annotated[str, Field(max_length=MOST_BACKGROUND), AfterValidator(short_background)] = ""
    never: Annotated[str, Field(max_length=MOST_NEVER)] = ""
    created: Whole
    changed: Whole
    binned: Whole | None


def add_routes(app: FastAPI, folder: DocumentFolder) -> None:
    """Adds these routes for one folder to the app."""

    @contextmanager
    def usable() -> Iterator[None]:
        """Turns errors of the disk into messages for the user. A folder on a drive that does not answer keeps no thread
        of the server, which has a limited number of them."""
        check_answers(folder.folder)
        try:
            yield
        except OSError as error:
            raise InputError(f"{folder.folder} could not be used: {error.strerror or error}.") from error

    @app.get("/api/documents")
    @usable()
    def listed() -> dict[str, object]:
        kept = folder.kept
        listing = folder.listing() if kept else Listing([], [])
        where = "files" if kept else "browser"
        documents, problems = list(map(_shown, listing.entries)), list(map(asdict, listing.problems))
        for document in documents:
            del document["background"], document["never"]  # as its text
        return {"kept": where, "folder": str(folder.folder), "documents": documents, "problems": problems}

    @app.get("/api/documents/{id}")
    @usable()
    def read(id: Name) -> dict[str, object]:
        try:
            entry, text = folder.read(id)
        except Missing as error:
            raise Refused(404, str(error)) from None
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

    @post(app, "/api/documents/remove", Named)
    @usable()
    def remove(body: Named) -> None:
        folder.remove(body.id)

    @post(app, "/api/documents/set-aside", Note)
    @usable()
    def set_aside(body: Note) -> None:
        folder.set_aside(body.note)


def _shown(entry: Entry) -> dict[str, object]:
    shown = asdict(entry)
    for field in ("stamp", "coming", "missing", "version", "unknown"):
        del shown[field]
    shown["revision"] = shown.pop("digest")
    return shown
