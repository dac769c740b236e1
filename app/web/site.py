"""The site: the routes of the page and of other programs, and the page itself."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

from app.clients import chat, infill, llama_server, ollama
from app.clients import openai as openai_api
from app.documents.folder import DocumentFolder, documents_folder
from app.downloads.download import Downloads
from app.learning.forgotten import HeldTexts
from app.learning.learner import Learner
from app.machine.offline import stay_offline
from app.machine.private import gradio_folder
from app.service.background import learner_for
from app.service.service import DraftService, add_draft_routes
from app.web.gradio_import import import_gradio
from app.web.routes import base_stores as base_routes
from app.web.routes import documents as documents_routes
from app.web.routes import models as model_routes
from app.web.routes import sampling as sampling_routes
from app.web.routes import stores as stores_routes
from app.web.security import pairing
from app.web.security.access import Access
from app.web.security.allowed import Allowed
from app.web.security.guard import NONE_ALLOWED, Guard
from app.wire.refusals import format_errors


def create_app(
    service: DraftService, access: Access | None = None, learner: Learner | None = None, allowed: Allowed = NONE_ALLOWED
) -> FastAPI:
    """The whole site for a draft service, which the caller starts and closes.

    Args:
        access: requires the token; None gives every program of this machine access.
        learner: trains adapters, and is closed by the caller; None: a new one.
        allowed: see `Guard`.
    Raises: InputError if Gradio's folder is unusable.
    """
    prepare_gradio()
    from app.web.page import STATIC, STATIC_URL, mount

    app = FastAPI(title="Polydraft", docs_url=None, redoc_url=None, openapi_url=None)
    format_errors(app)

    held = HeldTexts()
    add_draft_routes(app, service, held.leave)
    stores_routes.add_routes(app, service.stores, learner or learner_for(service), lambda: service.stopping, held)
    base_routes.add_routes(app, service.base_stores)
    model_routes.add_routes(app, service, Downloads())
    sampling_routes.add_routes(app, service)
    documents_routes.add_routes(app, DocumentFolder(documents_folder()))

    add_program_routes(app, service)
    pairing.add_routes(app, access)

    @app.get("/manifest.json")
    async def manifest() -> Response:
        return FileResponse(STATIC / "manifest.webmanifest", media_type="application/manifest+json")

    app.mount(STATIC_URL, PageFiles(directory=STATIC))
    mounted = mount(app)
    mounted.add_middleware(Guard, access=access, allowed=allowed)
    return mounted


def add_program_routes(app: FastAPI, service: DraftService) -> None:
    """The interfaces of other servers, for programs that were written for them."""
    for interface in (openai_api, chat, infill, llama_server, ollama):
        interface.add_routes(app, service)


def create_service_app(
    service: DraftService, access: Access | None = None, elsewhere: bool = False, allowed: Allowed = NONE_ALLOWED
) -> FastAPI:
    """The routes for other programs, without the page. For `access`, `elsewhere` and `allowed` see `Guard`."""
    app = FastAPI(title="Polydraft", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    format_errors(app)

    @app.get("/")
    async def start() -> dict[str, str]:
        return {"message": "Polydraft serves programs here, without its page.", "fix": "Run `polydraft` for the page."}

    add_program_routes(app, service)
    pairing.add_routes(app, access)
    stores_routes.add_learning_routes(app, service.stores)
    app.add_middleware(Guard, access=access, page=False, elsewhere=elsewhere, allowed=allowed)
    return app


def prepare_gradio() -> None:
    """Imports Gradio without outgoing connections, with its files in a private folder.

    Raises: InputError if its folder is unusable.
    """
    stay_offline()
    os.environ["GRADIO_TEMP_DIR"] = str(gradio_folder())
    import_gradio()


class PageFiles(StaticFiles):
    """Static files that the browser revalidates every time, as after an update the page must not run old scripts."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response
