"""Validates the bodies of requests, and formats errors as responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from app.refused import Refused, in_words
from core.errors import PolydraftError

Body = TypeVar("Body", bound=BaseModel)

MAX_BODY = 256 * 1024  # bytes; the page sends at most 8,192 characters of text before the caret


def format_errors(app: FastAPI) -> None:
    """Makes our errors responses with a sentence."""
    app.add_exception_handler(Refused, _refuse)
    app.add_exception_handler(PolydraftError, _conflict)


async def _conflict(_: Request, error: Exception) -> Response:
    return JSONResponse({"message": str(error), "fix": ""}, 409)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # The unread body must not be parsed as the next request on this connection.
    headers = {"Connection": "close"} if error.status == 413 else {}
    return refusal(request.url.path, error, headers)


def refusal(path: str, error: Refused, headers: Mapping[str, str] | None = None) -> Response:
    """The response to a refused request, in the form of the interface that the path belongs to."""
    if not of_programs(path):
        return JSONResponse({"message": error.message, "fix": error.fix}, error.status, dict(headers or {}))
    # An official client repeats a request after some errors; the repetition would be refused too.
    headers = {"x-should-retry": "false", **(headers or {})}
    return JSONResponse(error_of(error), 400 if error.status == 422 else error.status, headers)


def error_of(error: Refused) -> dict[str, Any]:
    """The error in the form of OpenAI's interface."""
    kind = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}.get(error.status)
    kind = kind or ("server_error" if error.status >= 500 else "invalid_request_error")
    message = f"{error.message} {error.fix}".strip()
    return {"error": {"message": message, "type": kind, "param": error.param, "code": error.code or None}}


def of_programs(path: str) -> bool:
    """Whether the path belongs to the interfaces for other programs, whose errors have OpenAI's form."""
    return path.startswith("/v1/") or path in ("/infill", "/health")


def post(
    app: FastAPI, path: str, kind: type[Body], limit: int = MAX_BODY
) -> Callable[[Callable[[Body], object]], None]:
    """Decorator: adds a POST route that calls a function with the body as `kind`, in a thread. The result is the
    response; None is an empty object."""

    def add(respond: Callable[[Body], object]) -> None:
        @app.post(path, response_model=None)
        async def route(request: Request) -> object:
            body = await parsed(request, kind, limit)
            result = await run_in_threadpool(respond, body)
            return {} if result is None else result

    return add


async def parsed(request: Request, kind: type[Body], limit: int = MAX_BODY) -> Body:
    """The request's body, of at most `limit` bytes, as `kind`. Raises Refused with the reason if it is invalid."""
    try:
        data = _mended(json.loads(await body_of(request, limit)))
    except (ValueError, RecursionError):
        raise Refused(422, "The request is not JSON.", "Send one JSON object.") from None
    try:
        return kind.model_validate(data, strict=True)
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(detail) for detail in error.errors(include_url=False)]
        fix = "Reload the page, so that it and the server have the same options."
        if of_programs(request.url.path):
            fix = "docs/clients.md names the fields."
        param = ".".join(map(str, details[0]["loc"])) or None
        raise Refused(422, " ".join(map(in_words, details)), fix, param) from None


def _mended(data: Any) -> Any:
    """The same data without halves of surrogate pairs, which JSON can contain and which have no UTF-8 form."""
    if isinstance(data, str):
        return data.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(data, list):
        return [_mended(one) for one in data]
    return {name: _mended(one) for name, one in data.items()} if isinstance(data, dict) else data


async def body_of(request: Request, limit: int) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                break
    except ClientDisconnect:
        raise Refused(499, "The connection was closed.") from None
    if len(body) > limit:
        raise Refused(
            413,
            f"The request is larger than {limit // 1024:,} kB.",
            "Send less at once; for drafts, only the end of the text before the caret.",
        )
    return bytes(body)
