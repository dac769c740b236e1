"""Runs one request of another program in the draft service, beside the tabs of the page.

A program that sends a user name has a session, like a tab: a newer request replaces the older one. Each request of any
other program is independent, and continues the cached text with the longest common prefix.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Coroutine
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from app.service.jobs import Event
from app.service.requests import DraftRequest
from app.wire.refused import Refused

if TYPE_CHECKING:
    from fastapi import Request

    from app.options.settings import DraftSettings
    from app.service.service import DraftService

MAX_BODY = 4 * 1024 * 1024  # bytes; editors send parts of several files
OURS = "polydraft"  # the name of whatever model is loaded
WINDOW, STRIDE = 16_384, 8_192  # characters of a text that are processed: more than the model's context

Answer = TypeVar("Answer")
_numbers = count(1)


def draft_request(before: str, settings: DraftSettings, user: str | None = None, **more: Any) -> DraftRequest:
    """The request for drafts after a text; `more` are fields of `DraftRequest`."""
    number = next(_numbers)
    tab = f"program {number}" if not user else "user " + hashlib.sha256(user.encode()).hexdigest()[:32]
    return DraftRequest(
        tab=tab,
        n=number,
        before=cropped(before),
        settings=settings,
        tails=not settings.chooses_exact_steps,
        by_text=not user,
        detailed=True,
        **more,
    )


def cropped(text: str) -> str:
    """The end of the text. It begins at 0 or at a multiple of STRIDE, so that the beginning, and with it the cache,
    stays the same while the user types."""
    return text[max(len(text) - WINDOW + STRIDE, 0) // STRIDE * STRIDE if len(text) > WINDOW else 0 :]


async def events(service: DraftService, request: DraftRequest) -> AsyncGenerator[Event]:
    """The events of a request, up to its "stats".

    Raises: Refused for an error event, and if a newer request of the same user replaced this one.
    """
    ended = False
    stream = service.stream(request)
    try:
        async for event in stream:
            if event["type"] == "error":
                raise failure(service, event)
            ended = event["type"] == "stats"
            yield event
    finally:
        await stream.aclose()
    if not ended:
        fix = "Omit user to run several requests at once."
        raise Refused(409, "A newer request of the same user replaced this one.", fix, "user", "superseded")


def failure(service: DraftService, event: Event) -> Refused:
    """An error event as a refusal: 503 without a model, 400 for an invalid request, else 500."""
    status = 503 if service.stopping or service.loaded is None else 500 if event["fix"] else 422
    return Refused(status, event["message"], event["fix"])


async def unless_gone(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Returns the result of the work; cancels it when the client closes the connection. Raises Refused then."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Refused(499, "The connection was closed.")
    finally:
        await cancelled(working, leaving)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancels the tasks that still run, and waits for them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def answered_by(service: DraftService, name: str | None) -> str:
    """The model that a response names. Programs ask for models of other servers; the response has the name that they
    gave only if it is one of the loaded model."""
    names = model_names(service)
    return name if name in names else names[-1]


def model_names(service: DraftService) -> list[str]:
    """The names of the loaded model: ours, and its own."""
    return list(dict.fromkeys([OURS, service.status()["model"]]))


def model_headers(service: DraftService) -> dict[str, str]:
    """The header of each response with drafts: the loaded model's own name."""
    return {"X-Polydraft-Model": service.status()["model"].encode("ascii", "replace").decode()}
