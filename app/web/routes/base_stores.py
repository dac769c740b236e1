"""HTTP routes for the base stores. Every route calls one method of `app.learning.base_stores`.

    GET  /api/base-stores           the chosen stores, with their descriptions; whether the choice is fixed
    POST /api/base-stores/add       {"file"}
    POST /api/base-stores/change    {"file", "on", "weight"}
    POST /api/base-stores/remove    {"file"}

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI
from pydantic import Field

from app.learning.base_stores import BaseStores
from app.options.settings import Strict
from app.wire.bounds import FilePath
from app.wire.refusals import post


class NamedFile(Strict):
    file: FilePath


class ChangedStore(NamedFile):
    on: bool
    weight: float = Field(gt=0, le=1)


def add_routes(app: FastAPI, stores: Callable[[], BaseStores]) -> None:
    """Adds these routes. `stores` returns the choice, for one call; it raises InputError while there is none yet."""

    @app.get("/api/base-stores")
    def listed() -> dict[str, object]:
        chosen = stores()
        return {"stores": chosen.list(), "fixed": chosen.fixed}

    @post(app, "/api/base-stores/add", NamedFile)
    def add(body: NamedFile) -> None:
        stores().add(body.file)

    @post(app, "/api/base-stores/change", ChangedStore)
    def change(body: ChangedStore) -> None:
        stores().change(body.file, body.on, body.weight)

    @post(app, "/api/base-stores/remove", NamedFile)
    def remove(body: NamedFile) -> None:
        stores().remove(body.file)
