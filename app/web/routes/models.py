"""The models that the page offers: the default one, the files and folders in the models folder, and those of other
programs; and the HTTP routes that list them and load another one.

    GET  /api/models   the models folder, the models to choose from, those in the folders of other programs, and the one
                       that is being loaded, if any
    POST /api/model    {"model", "precision"}: a file, a folder or a name, and a precision of `load_model` (by default
                       that of the start). Loads it while the present one, if any, continues to draft; the response is
                       the new status.

Errors are returned as {"message", "fix"}, with status 409.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request

from app.service.service import DraftService
from app.service.settings import Strict
from app.web.bounds import FilePath
from app.web.refusals import taking
from app.web.refused import mended
from core.files import answered
from core.options import Precision

DEFAULT = "default"


def models_folder() -> Path:
    from core.models import on_machine  # imports torch

    return on_machine.models_folder()


def offered(serving: str, folder: Path | None = None) -> list[dict[str, object]]:
    """One entry per model: the name or path that loads it, a name to show, bytes (0 if unknown), and whether it is the
    one that drafts.

    Args:
        serving: the name or path of the model that drafts; "" for none. It is listed wherever its file lies.
        folder: None is the one in the user's data folder.
    """
    found = [(DEFAULT, "Default model", 0)]
    folder = folder or models_folder()
    paths: list[Path] = []
    try:
        paths = answered(folder, lambda: sorted(folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        found.append((str(folder), folder.name, 0))  # whoever chooses it sees the reason
    for path in paths:
        try:
            about = answered(path, lambda path=path: _model_at(path))
        except OSError:
            about = (path.stem, 0)  # whoever chooses it sees the reason
        if about is not None:
            found.append((str(path), about[0], about[1]))
    if serving and serving not in [model for model, _, _ in found]:
        found.append((serving, Path(serving).stem if serving.endswith(".gguf") else serving, 0))
    return [{"model": model, "name": name, "bytes": size, "serving": model == serving} for model, name, size in found]


def offered_elsewhere(serving: str) -> list[dict[str, object]]:
    """The same for the models of other programs, without the one that drafts, and with the program's name."""
    from core.models.on_machine import elsewhere  # imports torch

    return [
        {"model": str(each.path), "name": each.name, "bytes": each.bytes, "serving": False, "program": each.source}
        for each in elsewhere()
        if str(each.path) != serving
    ]


def _model_at(path: Path) -> tuple[str, int] | None:
    """The name and the bytes of a model file or folder; None for anything else."""
    if path.suffix.lower() == ".gguf" and path.is_file():
        return path.stem, path.stat().st_size
    if (path / "config.json").is_file():
        return path.name, sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return None


class ModelRequest(Strict):
    model: FilePath
    precision: Precision | None = None


def add_routes(app: FastAPI, service: DraftService) -> None:
    @app.get("/api/models")
    def models() -> dict[str, object]:
        serving, loading = service.names()
        others = offered_elsewhere(serving)
        found = {"folder": str(models_folder()), "models": offered(serving), "elsewhere": others, "loading": loading}
        return mended(found)

    @app.post("/api/model")
    @taking(ModelRequest)
    async def model(_: Request, body: ModelRequest) -> dict[str, object]:
        return await service.change(body.model.strip(), body.precision)
