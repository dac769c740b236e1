"""Gives other people's `gr.Blocks` with a `DraftEditor` a server of drafts: docs/embedding.md.

    the Blocks' own server ── /              Gradio's page and queue
                           └─ /polydraft/    page/: the editor's scripts
                                             api/: drafts, for whoever has the key

The key is random. Gradio sends it to whoever may load its page, so its `auth` protects the drafts, too.
"""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import gradio as gr
from fastapi import FastAPI
from gradio.context import Context
from gradio.events import api
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.routing import Mount

from app.clients.requests import draft_request, events
from app.learning.base_stores import shelf_of
from app.machine.offline import stay_offline
from app.machine.token import token as users_token
from app.options.catalogue import catalogue
from app.service.service import DraftService, add_draft_routes
from app.web.draft_editor import PATH, DraftEditor, settings_from
from app.web.markup import STATIC
from app.web.security.access import Access
from app.web.security.allowed import Allowed, allowed
from app.web.security.guard import Guard
from app.web.site import PageFiles
from app.wire.refusals import format_errors
from app.wire.refused import Refused
from core.errors import InputError
from core.options import Backend, Precision, Value

if TYPE_CHECKING:
    from core.autocomplete import Autocomplete

ENDPOINT = "drafts"  # for gradio_client
GRACE = 0.5  # seconds for each of the service's threads when Python ends


def attach(
    blocks: gr.Blocks,
    model: str = "default",
    backend: Backend = "auto",
    *,
    precision: Precision = "auto",
    base_store: list[str] | None = None,
    allow_host: Sequence[str] = (),
) -> Starlette:
    """Lets the `DraftEditor` in some Blocks get drafts, from a model that this process begins to load.

    `blocks.launch` serves them from then on; the Blocks also get the endpoint `/drafts` for `gradio_client`. Polydraft
    stays offline, and switches off the analytics of these Blocks.

    Args:
        model: as of `core.models.load_model`: "default", the path of a GGUF file or a folder, or a name of Hugging
            Face's Hub that was downloaded before.
        backend, precision: as of `core.models.load_model`.
        base_store: the base stores, as `polydraft --base-store` takes them; None: those that Polydraft's page has on.
        allow_host: names, beside 127.0.0.1 and localhost, under which browsers open the page, as "example.org" or
            "192.168.1.5:7860". Only these get drafts.
    Returns: the server of drafts. Whoever calls `gr.mount_gradio_app` instead of `launch` mounts it at /polydraft below
        the path of the Blocks, first.
    Raises: InputError if the Blocks have no editor, or more than one, are attached already, or have an endpoint
        `/drafts`; if `allow_host` names no host, or the user's token cannot be read; StoreError for a file that is no
        n-gram store; ModelNotFound, ModelFileError for a model that does not exist or cannot be read. If it fails
        later, the page says so.
    """
    editor = _editor_of(blocks)
    names = [allow_host] if isinstance(allow_host, str) else allow_host
    hosts, access = replace(allowed(hosts=names), pages=True), Access(users_token())
    stay_offline()
    blocks.analytics_enabled = False
    service = service_for(model, backend, precision, base_store)
    key = editor.props["access"] = secrets.token_urlsafe(32)
    server = server_of_drafts(service, Access(key), hosts)
    with blocks:
        api(_endpoint(service, access, editor.options), api_name=ENDPOINT, concurrency_limit=None)
    _launch_with(blocks, server)
    return server


_services: dict[tuple[str, str, str, str], DraftService] = {}


def service_for(
    model: str, backend: Backend, precision: Precision, base_store: list[str] | None = None
) -> DraftService:
    """The service for a model, which runs until Python ends. Blocks with the same model share it, because a notebook
    makes its Blocks anew each time a cell runs. Raises as `attach`."""
    same = (model, backend, precision, str(base_store))
    known = _services.get(same)
    if known is not None and known.status()["backend"] != "unavailable":
        return known
    bases = shelf_of(base_store)
    if model != "default":
        from core.models.load import find_model  # imports torch

        find_model(model)

    def load(name: str) -> Autocomplete:
        from core.autocomplete import load_autocomplete

        return load_autocomplete(name, backend, precision=precision, in_background=True, bases=bases, prose=True)

    service = _services[same] = DraftService(load, model)
    service.start()
    atexit.register(service.close, GRACE)
    return service


def server_of_drafts(service: DraftService, access: Access, hosts: Allowed) -> Starlette:
    """The routes of the embedded editor. Its scripts are no secret: a browser loads them without the key."""
    routes = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    format_errors(routes)
    add_draft_routes(routes, service)

    @routes.get("/api/catalogue")
    async def options() -> dict[str, object]:
        return catalogue()

    routes.add_middleware(Guard, access=access, page=False, allowed=hosts)
    files = Guard(PageFiles(directory=STATIC), None, page=False, allowed=hosts)
    return Starlette(routes=[Mount("/page", files), Mount("/", routes)])


def _editor_of(blocks: gr.Blocks) -> DraftEditor:
    """The editor in the Blocks. Raises InputError if they cannot be attached."""
    if not isinstance(blocks, gr.Blocks):
        raise InputError(f"A {type(blocks).__name__} given; gr.Blocks expected.")
    if Context.root_block is not None:
        raise InputError("The Blocks are not complete; call attach after the `with gr.Blocks()` block.")
    editors = [block for block in blocks.blocks.values() if isinstance(block, DraftEditor)]
    if len(editors) != 1:
        found = f"{len(editors)} DraftEditors" if editors else "no DraftEditor"
        raise InputError(f"The Blocks have {found}; one expected.")
    if editors[0].props["access"]:
        raise InputError("These Blocks are attached already; call attach once.")
    if any(event.api_name == ENDPOINT for event in blocks.fns.values()):
        raise InputError(
            f"An event of the Blocks has the api_name {ENDPOINT!r}, which attach adds; give it another one."
        )
    return editors[0]


def _launch_with(blocks: gr.Blocks, server: Starlette) -> None:
    """Lets `blocks.launch` serve the drafts, too. Gradio's history of runs, which keeps texts in the browser, is off
    unless the caller wants it."""
    launch: Callable[..., Any] = blocks.launch

    @wraps(launch)
    def launch_with_drafts(*arguments: Any, app_kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        given = app_kwargs or {}
        routes = [Mount(f"/{PATH}", server), *given.get("routes", [])]
        return launch(*arguments, app_kwargs={**given, "routes": routes}, **({"run_history": False} | options))

    blocks.launch = launch_with_drafts


def _endpoint(service: DraftService, access: Access, options: Mapping[str, Value]) -> Callable[..., Any]:
    async def drafts(text: str, k: int, token: str) -> list[dict[str, Any]]:
        """Drafts that continue a text, best first, each with its `text` and its `probability`.

        Args:
            k: their number.
            token: the output of `polydraft token`.
        """
        if not access.is_token(token):
            fix = "Send the output of `polydraft token`, run by the user who launched these Blocks."
            raise gr.Error(f"The token is wrong. {fix}", print_exception=False)
        try:
            request = draft_request(text, settings_from({**options, "k": k}))
            found: list[dict[str, Any]] = []
            async with aclosing(events(service, request)) as arriving:
                async for event in arriving:
                    found = event.get("drafts", found)
        except (InputError, Refused, ValidationError) as error:
            raise gr.Error(str(error), print_exception=False) from error
        best_first = sorted(found, key=lambda draft: -draft["probability"])
        return [{"text": draft["text"], "probability": draft["probability"]} for draft in best_first]

    return drafts
