"""HTTP routes for the base stores. Every route calls one method of `app.base_stores`.

    GET  /api/base-stores           the chosen stores, with their descriptions; whether the choice is fixed
    POST /api/base-stores/add       {"file"}
    POST /api/base-stores/change    {"file", "on", "weight"}
    POST /api/base-stores/remove    {"file"}

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from app.base_stores import BaseStores
from app.refusals import parsed
from app.settings import Strict


class NamedFile(Strict):
    file: str = Field(min_length=1, max_length=4096)


class ChangedStore(NamedFile):
    on: bool
    weight: float = Field(gt=0, le=1)


def add_routes(app: FastAPI, stores: Callable[[], BaseStores]) -> None:
    """Adds these routes. `stores` returns the choice, for one call; it raises InputError while there is none yet."""

    @app.get("/api/base-stores")
    async def listed() -> dict[str, object]:
        found = stores()
        return {"stores": await run_in_threadpool(found.list), "fixed": found.fixed}

    @app.post("/api/base-stores/add")
    async def add(request: Request) -> dict[str, object]:
        await run_in_threadpool(stores().add, (await parsed(request, NamedFile)).file)
        return {}

    @app.post("/api/base-stores/change")
    async def change(request: Request) -> dict[str, object]:
        body = await parsed(request, ChangedStore)
        await run_in_threadpool(stores().change, body.file, body.on, body.weight)
        return {}

    @app.post("/api/base-stores/remove")
    async def remove(request: Request) -> dict[str, object]:
        await run_in_threadpool(stores().remove, (await parsed(request, NamedFile)).file)
        return {}
