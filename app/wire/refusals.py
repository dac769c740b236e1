"""Validates the bodies of requests, and formats errors as responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.wire.refused import Refused, in_words, without_surrogates
from core.errors import PolydraftError

Body = TypeVar("Body", bound=BaseModel)

BODIES = WeakKeyDictionary[Callable[..., Any], type[BaseModel]]()  # by route

# Addresses of other servers' interfaces, beside OpenAI's below /v1/
LLAMA_SERVER = (
    "/infill", "/completion", "/completions", "/health", "/models", "/props", "/slots", "/tokenize", "/detokenize",
)  # fmt: skip
OLLAMA = (
    "/api/generate", "/api/tags", "/api/version", "/api/show",
    # not served, and asked for by its programs
    "/api/chat", "/api/ps", "/api/embed", "/api/embeddings", "/api/pull", "/api/push", "/api/create", "/api/copy",
    "/api/delete",
)  # fmt: skip

NAMED = 8  # errors of one request that a response names
MOST_VALUES = 80_000  # of one body, at any depth: a document may have 10,000 private ranges, a list 65,536 tokens
BODY_S = 10.0  # seconds until the next piece of a body has to come
MAX_BODY = 256 * 1024  # bytes; the page sends at most 8,192 characters of text before the caret


def format_errors(app: FastAPI) -> None:
    """Makes our errors responses with a sentence."""
    app.add_exception_handler(Refused, _refuse)
    app.add_exception_handler(PolydraftError, _conflict)
    app.add_exception_handler(RequestValidationError, _refuse_parameters)
    app.add_exception_handler(HTTPException, _refuse_address)


async def _refuse_parameters(request: Request, error: Exception) -> Response:
    """Refuses parts of the address: parameters, and names in the path."""
    assert isinstance(error, RequestValidationError)
    return await _refuse(request, _invalid(request, error.errors()))


async def _refuse_address(request: Request, error: Exception) -> Response:
    """Refuses an address without a route, and a method that its route does not take."""
    assert isinstance(error, HTTPException)
    return no_route(request.url.path, request.method, error.status_code)


def no_route(path: str, method: str, status: int = 404) -> Response:
    """The response at an address without a route (404), or with one for other methods (405)."""
    shown = path[:80]
    if status == 405:
        error = Refused(405, f"{shown} does not take {method[:20]}.", "docs/clients.md names the addresses.")
    else:
        nearer = shown.rstrip("/") != shown and of_programs(shown.rstrip("/"))
        fix = f"Use {shown.rstrip('/')}." if nearer else "docs/clients.md names the addresses."
        error = Refused(404, f"Polydraft serves nothing at {shown}.", fix)
    # The page has no other addresses below /api/ than those that it asks for.
    return refusal(OLLAMA[0] if status == 404 and path.startswith("/api/") else path, error)


async def _conflict(request: Request, error: Exception) -> Response:
    if of_programs(request.url.path):
        return refusal(request.url.path, Refused(409, str(error)))
    return JSONResponse(without_surrogates({"message": str(error), "fix": ""}), 409)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # The unread body must not be parsed as the next request on this connection.
    headers = {"Connection": "close"} if error.status in (408, 413) else {}
    return refusal(request.url.path, error, headers)


def refusal(path: str, error: Refused, headers: Mapping[str, str] | None = None) -> Response:
    """The response to a refused request, in the form of the interface that the path belongs to."""
    if not of_programs(path):
        return JSONResponse(
            without_surrogates({"message": error.message, "fix": error.fix}), error.status, dict(headers or {})
        )
    # An official client repeats a request after some errors; the repetition would be refused too.
    headers = {"x-should-retry": "false", **(headers or {})}
    shown = error_of(error)
    if path in OLLAMA:
        shown = {"error": shown["error"]["message"]}
    return JSONResponse(shown, 400 if error.status == 422 else error.status, headers)


def error_of(error: Refused) -> dict[str, Any]:
    """The error in the form of OpenAI's interface."""
    kind = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}.get(error.status)
    kind = kind or ("server_error" if error.status >= 500 else "invalid_request_error")
    message = f"{error.message} {error.fix}".strip()
    return {"error": {"message": message, "type": kind, "param": error.param, "code": error.code or None}}


def of_programs(path: str) -> bool:
    """Whether the path belongs to the interfaces for other programs, whose errors have the form of their servers."""
    return path.startswith("/v1/") or path in LLAMA_SERVER or path in OLLAMA


def taking(
    kind: type[Body], limit: int = MAX_BODY
) -> Callable[[Callable[[Request, Body], Awaitable[object]]], Callable[[Request], Awaitable[Any]]]:
    """Decorator: a route that calls a coroutine function with the request and its body as `kind`, of at most `limit`
    bytes. The only way in which routes read bodies, so that `BODIES` knows them all."""

    def decorate(respond: Callable[[Request, Body], Awaitable[object]]) -> Callable[[Request], Awaitable[Any]]:
        async def route(request: Request) -> Any:
            return await respond(request, await parsed(request, kind, limit))

        BODIES[route] = kind
        return route

    return decorate


def post(
    app: FastAPI, path: str, kind: type[Body], limit: int = MAX_BODY
) -> Callable[[Callable[[Body], object]], None]:
    """Decorator: adds a POST route that calls a function with the body as `kind`, in a thread. The result is the
    response; None is an empty object."""

    def add(respond: Callable[[Body], object]) -> None:
        @app.post(path)
        @taking(kind, limit)
        async def route(_: Request, body: Body) -> object:
            result = await run_in_threadpool(respond, body)
            return {} if result is None else result

    return add


async def parsed(request: Request, kind: type[Body], limit: int = MAX_BODY) -> Body:
    """The request's body, of at most `limit` bytes, as `kind`. Raises Refused with the reason if it is invalid."""
    body = await body_of(request, limit)
    if has_more_values(body, MOST_VALUES):
        raise Refused(422, f"The request has more than {MOST_VALUES:,} values.", "Send fewer at once.")
    try:
        data = without_surrogates(json.loads(body.decode("utf-8-sig", "surrogatepass")))
    except (ValueError, RecursionError):
        raise Refused(422, "The request is not JSON.", "Send one JSON object.") from None
    try:
        return kind.model_validate(data, strict=True)
    except ValidationError as error:
        raise _invalid(request, error.errors(include_url=False)) from None


def has_more_values(body: bytes, most: int) -> bool:
    """Whether a body of JSON has more than about `most` values. Large texts may be read on the event loop, but not
    millions of values, each of which costs a hundred times more than a character."""
    marks = b",[{"  # as many as values, but for one
    if sum(map(body.count, marks)) <= most:
        return False
    outside = body.replace(rb"\\", b"").replace(rb"\"", b"")  # without the escapes that hide the ends of texts
    if outside.count(b'"') > 4 * (most + 1):  # a name and a text for each value
        return True
    outside = b"".join(outside.split(b'"')[::2])
    return sum(map(outside.count, marks)) > most


def _invalid(request: Request, errors: Sequence[Any]) -> Refused:
    """Pydantic's errors as a refusal, which names the first ones."""
    details: list[dict[str, Any]] = [dict(detail) for detail in errors[:NAMED]]
    fix = "Reload the page, so that it and the server have the same options."
    if of_programs(request.url.path):
        fix = "docs/clients.md names the fields."
    param = ".".join(map(str, details[0]["loc"])) or None
    return Refused(422, " ".join(map(in_words, details)), fix, param)


async def pieces(request: Request) -> AsyncGenerator[bytes]:
    """The pieces of a request's body. Raises Refused if the next one does not come within BODY_S."""
    coming = request.stream()
    while True:
        try:
            async with asyncio.timeout(BODY_S):
                piece = await anext(coming)
        except StopAsyncIteration:
            return
        except TimeoutError:
            message = f"The request has no end: nothing came for {BODY_S:g} s."
            raise Refused(408, message, "Send its length, or the last chunk of its body.") from None
        yield piece


async def body_of(request: Request, limit: int) -> bytes:
    body = bytearray()
    try:
        async for chunk in pieces(request):
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
