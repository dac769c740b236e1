"""Four addresses of Ollama's interface, for programs that know no other.

POST /api/generate   drafts, as lines of JSON; the body is translated to the one of `/v1/completions`
GET  /api/tags       the names of the loaded model
POST /api/show       {"model"}: what is known of it
GET  /api/version
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.clients.harmless import translated
from app.clients.openai import TOKENS, Answer, CompletionRequest
from app.clients.options import ClientOptions
from app.clients.requests import MAX_BODY, answered_by, model_headers, model_names, unless_gone
from app.options.settings import Strict
from app.wire.bounds import WHOLE, Label, LongText, Stops
from app.wire.refusals import taking
from app.wire.streaming import Streamed, as_line

if TYPE_CHECKING:
    from app.service.service import DraftService

NANOSECONDS = 1_000_000_000
# What Ollama shows of a model: programs look for .Suffix to learn whether it may be asked about the middle of a text.
TEMPLATE = "{{ .Prompt }}{{ .Suffix }}"


class OllamaOptions(ClientOptions):
    """The options of a request: those of a completion, with Ollama's name for the number of tokens; -1 and -2 are the
    maximum."""

    num_predict: int | None = Field(TOKENS, ge=-2, le=WHOLE)
    stop: Stops | None = None


class GenerateRequest(Strict):
    """The body of a request. An empty prompt asks for the model to be loaded."""

    model: Label | None = None
    prompt: LongText = ""
    suffix: LongText | None = None
    stream: bool = True
    raw: bool = False  # ignored: no template is applied
    options: OllamaOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _translated(cls, body: Any) -> Any:
        return translated(body, cls.model_fields.keys())

    def completion(self) -> CompletionRequest:
        given = self.options.model_dump(exclude_unset=True) if self.options else {}
        if (tokens := given.pop("num_predict", None)) is not None:
            given["max_tokens"] = max(tokens, -1)
        own = {"model": self.model, "prompt": self.prompt, "suffix": self.suffix or None, "stream": True}
        return CompletionRequest.model_validate(
            {**given, **own, "stream_options": {"include_usage": True}}, strict=True
        )


class ShowRequest(BaseModel):
    """Names a model; any name shows the loaded one."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: Label | None = None
    name: Label | None = None


def add_routes(app: FastAPI, service: DraftService) -> None:
    started = _now()

    @app.post("/api/generate")
    @taking(GenerateRequest, MAX_BODY)
    async def generate(request: Request, body: GenerateRequest) -> Response:
        name, headers = answered_by(service, body.model), model_headers(service)
        if not body.prompt and not body.suffix:
            return JSONResponse(_line(name, "", done=True, done_reason="load"), headers=headers)
        lines = _lines(name, Answer(service, body.completion()))
        if body.stream:
            return Streamed(lines, as_line, "application/x-ndjson", headers)
        reply = await unless_gone(request, _joined(lines))
        return JSONResponse(reply, 500 if "error" in reply else 200, headers)

    @app.get("/api/tags")
    async def tags() -> dict[str, object]:
        entries = [
            {
                "name": name,
                "model": name,
                "modified_at": started,
                "size": 0,
                "digest": hashlib.sha256(name.encode()).hexdigest(),  # programs only compare it
                "details": _details(),
            }
            for name in model_names(service)
        ]
        return {"models": entries}

    @app.get("/api/version")
    async def own_version() -> dict[str, str]:
        return {"version": version("polydraft")}

    @app.post("/api/show")
    @taking(ShowRequest)
    async def show(_: Request, body: ShowRequest) -> dict[str, object]:
        loaded = service.loaded
        return {
            "modelfile": "",
            "parameters": "",
            "template": TEMPLATE,
            "details": _details(),
            "model_info": {
                "general.architecture": "polydraft",
                "general.basename": service.status()["model"],
                **({"polydraft.context_length": loaded.window} if loaded else {}),
            },
            "capabilities": ["completion", "insert"],
        }


async def _lines(name: str, answer: Answer) -> AsyncGenerator[dict[str, object]]:
    """The parts of the text, and a last line with the figures; or a line with an error."""
    began, usage, reason = time.perf_counter(), {}, "stop"
    async with aclosing(answer.stream()) as chunks:
        async for chunk in chunks:
            event: Any = chunk
            if chunk is None:
                continue
            if "error" in chunk:
                yield {"error": event["error"]["message"]}
                return
            usage = event.get("usage", usage)
            for choice in event["choices"]:
                reason = choice["finish_reason"] or reason
                if choice["text"]:
                    yield _line(name, choice["text"], done=False)
    took = int((time.perf_counter() - began) * NANOSECONDS)
    figures = {"prompt_eval_count": usage["prompt_tokens"], "eval_count": usage["completion_tokens"]}
    times = {"total_duration": took, "load_duration": 0, "prompt_eval_duration": 0, "eval_duration": took}
    yield _line(name, "", done=True, done_reason=reason, **figures, **times)


async def _joined(lines: AsyncGenerator[dict[str, object]]) -> dict[str, object]:
    """All lines as one: the whole text with the figures of the last line."""
    text, last = "", {}
    async with aclosing(lines):
        async for line in lines:
            text, last = text + str(line.get("response", "")), line
    return last if "error" in last else {**last, "response": text}


def _line(name: str, text: str, **more: object) -> dict[str, object]:
    return {"model": name, "created_at": _now(), "response": text, **more}


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _details() -> dict[str, object]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": "polydraft",
        "families": ["polydraft"],
        "parameter_size": "",
        "quantization_level": "",
    }
