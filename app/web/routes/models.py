"""The models that the page offers: the default one, those on this machine, the one that drafts, wherever it lies, and
those worth a download; and the HTTP routes that list them, load another one and download one.

    GET  /api/models           the models folder, the models to choose from, those in the folders of other programs, and
                               the one that is being loaded, if any: what is known without reading a file
    GET  /api/models/details   one line of JSON for each of them, once its file is read: type, family, whether it runs
                               in compiled code, why not, and the estimated ms of a key
    POST /api/model            {"model", "precision"}: a file, a folder or a name, and a precision of `load_model` (by
                               default that of the start). Loads it while the present one, if any, continues to draft;
                               the response is the new status.
    GET  /api/models/recommended    those worth a download, each with whether it suits this machine, the estimated ms of
                               a key, its file if it is here, and the bytes that have come of it; the model that
                               drafts, its bytes and ms of a key; the latest download; whether
                               the speed of this machine is being measured, so that a later request has the times
    GET  /api/models/download       how far the latest download is, or null
    POST /api/models/download       {"name"}: of a recommended one; begins its download, or goes on with it. The only
                               route after which something connects to another machine: a process, to the Hub
    POST /api/models/stop-download  {}: what has come stays on the disk

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from app.downloads.download import Downloads
from app.options.settings import Strict
from app.service.service import DraftService
from app.wire.bounds import FilePath, Label
from app.wire.refusals import post, taking
from app.wire.refused import Refused, without_surrogates
from app.wire.streaming import Streamed, as_line
from core.files import check_answers, named_path, with_timeout
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
        yield without_surrogates(await run_in_threadpool(_stated, each, speed) | {"model": model})


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


def recommended(service: DraftService, downloads: Downloads) -> dict[str, object]:
    """The models worth a download, as `GET /api/models/recommended` returns them."""
    from core.hub.connection import host
    from core.hub.download import parts
    from core.models.memory import total_bytes
    from core.models.on_machine import models_folder
    from core.models.recommended import advice

    models, speed = _with_speed(service)
    serving, _ = service.names()
    try:
        begun = with_timeout(models_folder(), lambda: parts(models_folder()))
    except OSError:
        begun = {}
    listed: list[dict[str, object]] = []
    for each in advice(speed, total_bytes()):
        path = next((model for model, file in models.items() if each.model.names(file.name)), "")
        come = next((size for name, size in begun.items() if each.model.names(name)), 0)
        listed.append(each.stated() | {"path": path, "come": come})
    return {
        "host": host(),
        "recommended": listed,
        "serving": serving,
        "bytes": models[serving].bytes if serving else 0,
        "ms": round(speed.ms(models[serving].bytes)) if speed and serving else None,
        "measuring": service.time_rows(),
        "download": downloads.state(),
    }


class ModelRequest(Strict):
    model: FilePath
    precision: Precision | None = None


class DownloadRequest(Strict):
    name: Label


class StopRequest(Strict):
    pass


def add_routes(app: FastAPI, service: DraftService, downloads: Downloads) -> None:
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
        return without_surrogates({"folder": folder, "models": own, "elsewhere": elsewhere, "loading": loading})

    @app.get("/api/models/details")
    async def details() -> Response:
        return Streamed(described(service), as_line, "application/x-ndjson")

    @app.post("/api/model")
    @taking(ModelRequest)
    async def model(_: Request, body: ModelRequest) -> dict[str, object]:
        name = body.model.strip()
        await run_in_threadpool(check_answers, named_path(name))
        return await service.change(name, body.precision)

    @app.get("/api/models/recommended")
    def worth_a_download() -> dict[str, object]:
        return without_surrogates(recommended(service, downloads))

    @app.get("/api/models/download")
    def download() -> dict[str, object] | None:
        return without_surrogates(downloads.state())

    @post(app, "/api/models/download", DownloadRequest)
    def begin(body: DownloadRequest) -> object:
        from core.models.on_machine import models_folder
        from core.models.recommended import RECOMMENDED

        if body.name not in {each.name for each in RECOMMENDED}:
            raise Refused(
                422,
                "The page downloads only the models that Polydraft recommends.",
                "Type `polydraft models get NAME` for another one.",
            )
        downloads.begin(body.name, models_folder())
        return without_surrogates(downloads.state())

    @post(app, "/api/models/stop-download", StopRequest)
    def stop(_: StopRequest) -> object:
        downloads.stop()
        return without_surrogates(downloads.state())
