"""The HTTP routes that list models and load another one.

    GET  /api/models   the models folder, the models to choose from, and the one that is being loaded, if any
    POST /api/model    {"model"}: a file, a folder or a name. Loads it while the present one, if any, continues to
                       draft; the response is the new status.

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from app import models as known
from app.refusals import parsed
from app.service import DraftService
from app.settings import Strict


class ModelRequest(Strict):
    model: str = Field(min_length=1, max_length=4096)


def add_routes(app: FastAPI, service: DraftService) -> None:
    @app.get("/api/models")
    async def models() -> dict[str, object]:
        serving, loading = service.names()
        found = await run_in_threadpool(known.offered, serving)
        return {"folder": str(known.models_folder()), "models": found, "loading": loading}

    @app.post("/api/model")
    async def model(request: Request) -> dict[str, object]:
        return await service.change((await parsed(request, ModelRequest)).model.strip())
