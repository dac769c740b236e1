"""The models that the page offers: the default one, those on this machine, and the one that drafts, wherever it lies;
and the HTTP routes that list them and load another one.

    GET  /api/models           the models folder, the models to choose from, those in the folders of other programs, and
                               the one that is being loaded, if any: what is known without reading a file
    GET  /api/models/details   one line of JSON for each of them, once its file is read: type, family, whether it runs
                               in compiled code, why not, and the estimated ms of a key
    POST /api/model            {"model", "precision"}: a file, a folder or a name, and a precision of `load_model` (by
                               default that of the start). Loads it while the present one, if any, continues to draft;
                               the response is the new status.

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from app.service.service import DraftService
from app.service.settings import Strict
from app.web.bounds import FilePath
from app.web.refusals import taking
from app.web.refused import mended
from app.web.streaming import Streamed, as_line
from core.options import Precision

if TYPE_CHECKING:
    from core.models.estimate import Speed
    from core.models.on_machine import ModelFile

DEFAULT = "default"


def offered(serving: str, own: Path | None = None) -> dict[str, ModelFile]:
    """The models by the name or path that loads them.

    Args:
        serving: the name or path of the model that drafts; "" for none.
        own: Polydraft's models folder; None is the one in the user's data folder.
    """
    from core.models.on_machine import named, on_machine  # imports torch

    models = {DEFAULT: named(DEFAULT, "Default model")} | {str(each.path): each for each in on_machine(own)}
    if serving and serving not in models:
        models[serving] = named(serving, Path(serving).stem if serving.endswith(".gguf") else serving)
    return models


async def described(service: DraftService) -> AsyncGenerator[dict[str, object]]:
    """An entry of `polydraft models` for each model, one after the other."""
    models, speed = await run_in_threadpool(_with_speed, service)
    for model, each in models.items():
        yield mended(await run_in_threadpool(_stated, each, speed) | {"model": model})


def _with_speed(service: DraftService) -> tuple[dict[str, ModelFile], Speed | None]:
    """The models, and the speed of the one that drafts, if its rows were timed."""
    from core.models.estimate import Speed

    (serving, _), loaded = service.names(), service.loaded
    models = offered(serving)
    costs, weights = loaded and loaded.row_costs, models[serving].bytes if serving else 0
    return models, Speed.of(costs, weights) if costs and weights else None


def _stated(file: ModelFile, speed: Speed | None) -> dict[str, object]:
    from core.models.listed import listed

    return listed(file, speed).stated()


class ModelRequest(Strict):
    model: FilePath
    precision: Precision | None = None


def add_routes(app: FastAPI, service: DraftService) -> None:
    @app.get("/api/models")
    def models() -> dict[str, object]:
        from core.models import on_machine

        serving, loading = service.names()
        own: list[dict[str, object]] = []
        elsewhere: list[dict[str, object]] = []
        for model, each in offered(serving).items():
            entry: dict[str, object] = {
                "model": model,
                "name": each.name,
                "bytes": each.bytes,
                "serving": model == serving,
            }
            if each.source in ("", on_machine.POLYDRAFT):
                own.append(entry)
            else:
                elsewhere.append(entry | {"program": each.source})
        folder = str(on_machine.models_folder())
        return mended({"folder": folder, "models": own, "elsewhere": elsewhere, "loading": loading})

    @app.get("/api/models/details")
    async def details() -> Response:
        return Streamed(described(service), as_line, "application/x-ndjson")

    @app.post("/api/model")
    @taking(ModelRequest)
    async def model(_: Request, body: ModelRequest) -> dict[str, object]:
        return await service.change(body.model.strip(), body.precision)
