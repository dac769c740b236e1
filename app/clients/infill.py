"""llama-server's `POST /infill` and `GET /health`, for the editor plugins llama.vim and llama.vscode.

The text before the caret is `input_prefix` + `prompt`, the text after it `input_suffix`; `input_extra` are parts of
other files, which are fed before it. The response is compact JSON, because one client searches it for `"content":"`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from app.clients.choices import Choices, whole_words
from app.clients.options import ClientOptions
from app.clients.requests import MAX_BODY, WINDOW, draft_request, events, model_names, refuse_other_models, unless_gone
from app.service.requests import MOST_AFTER, MOST_DRAFTS
from app.web.bounds import MOST_PARTS, WHOLE, Label, LongText, Milliseconds, Names, Real, Stops, Whole
from app.web.refusals import taking
from app.web.refused import Refused
from core.text import spaced

if TYPE_CHECKING:
    from app.service.service import DraftService
    from app.service.settings import DraftSettings

NAMES = {"k": "n_cmpl", "length": "n_predict"}
TOKENS = 16  # if the request gives no number
SAMPLERS = ("top_k", "top_p", "min_p", "temperature", "infill")


class Extra(BaseModel):
    """A part of another file; its other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: LongText
    filename: LongText = ""


class InfillRequest(ClientOptions):
    """The body of a request, as both editors send it.

    Attributes:
        n_predict: tokens of a draft; a number above the maximum, or -1, is the maximum. 0 only caches the text.
        n_cmpl: number of texts; from 2 on the response is an array.
        t_max_prompt_ms, t_max_predict_ms: time limits for feeding the text and for drafting; 0 is no limit.
        top_k, top_p, samplers: for sampled drafts only.
        cache_prompt, id_slot: ignored; texts with a common prefix always share the cache.
        n_indent: ignored; drafts end with their line, so indentation is irrelevant.
    """

    input_prefix: LongText = ""
    input_suffix: LongText = ""
    input_extra: list[Extra] = Field(default=[], max_length=MOST_PARTS)
    prompt: LongText = ""
    model: Label | None = None
    n_predict: int = Field(TOKENS, ge=-1, le=WHOLE)
    n_cmpl: int = Field(1, ge=1, le=MOST_DRAFTS)
    stop: Stops = Field(default=[])
    top_k: Whole | None = None
    top_p: Real | None = None
    samplers: Names = Field(default=[])
    stream: bool = False
    cache_prompt: bool = True
    id_slot: Whole = -1
    n_indent: Whole = 0
    t_max_prompt_ms: Milliseconds = 0
    t_max_predict_ms: Milliseconds = 0
    response_fields: Names | None = None
    lora: Annotated[list[Any], Field(max_length=0)] = Field(default=[])

    def refuse_what_is_missing(self) -> None:
        if self.stream:
            raise Refused(422, "stream is not supported by /infill.", "Leave it out, or use /v1/completions.", "stream")
        if unknown := [name for name in self.samplers if name not in SAMPLERS]:
            raise Refused(422, f"The sampler {unknown[0]} is not known; {', '.join(SAMPLERS)} are.", param="samplers")

    @property
    def before(self) -> str:
        """The text before the caret, with the parts of other files above it."""
        extras = [extra.text if extra.text.endswith("\n") else extra.text + "\n" for extra in self.input_extra]
        return "".join([*extras, self.input_prefix, self.prompt])

    @property
    def after(self) -> str:
        return self.input_suffix[:MOST_AFTER] if self.n_predict else ""

    def drafting(self) -> DraftSettings:
        if self.n_predict == 0:  # the cheapest drafts, only to cache the text
            return self.settings(1, 1, NAMES, {"forks": 0, "exact-steps": 0})
        tokens = self.most_tokens if self.n_predict < 0 else min(self.n_predict, self.most_tokens)
        drawn = {
            name.replace("_", "-"): value
            for name, value in (("top_k", self.top_k), ("top_p", self.top_p))
            if value is not None and (not self.samplers or name in self.samplers)
        }
        return self.settings(self.n_cmpl, tokens, NAMES, drawn=drawn)


def add_routes(app: FastAPI, service: DraftService) -> None:
    @app.post("/infill")
    @taking(InfillRequest, MAX_BODY)
    async def infill(request: Request, body: InfillRequest) -> Response:
        refuse_other_models(service, body.model)
        body.refuse_what_is_missing()
        found = await unless_gone(request, answered(service, body))
        return JSONResponse(found if body.n_cmpl > 1 else found[0])

    @app.get("/health")
    async def health() -> Response:
        status = service.status()
        if status["ready"]:
            return JSONResponse({"status": "ok", "inputs": service.work()})
        error = {"code": 503, "message": status["notice"], "type": "unavailable_error"}
        return JSONResponse({"error": error}, 503)


async def answered(service: DraftService, body: InfillRequest) -> list[Mapping[str, object]]:
    """The texts, each as an object with the requested fields; at least one."""
    settings, began = body.drafting(), time.perf_counter()
    choices = Choices(body.n_cmpl, settings.length, body.stop, after=body.after)
    stream = events(service, draft_request(body.before, settings, after=body.after, heal=body.heal, stores=body.stores))
    first, stats = None, {"reused": 0, "fed": 0}
    try:
        async with asyncio.timeout(body.t_max_prompt_ms / 1000 or None) as limit:
            async for event in stream:
                if event["type"] == "stats":
                    stats = event
                    continue
                choices.take(event)
                if first is None:
                    first, predicting = time.perf_counter(), body.t_max_predict_ms / 1000
                    limit.reschedule(asyncio.get_running_loop().time() + predicting if predicting else None)
    except TimeoutError:
        pass  # the drafts so far are the response
    finally:
        await stream.aclose()
    now = time.perf_counter()
    first = now if first is None else first
    timings = {
        **_timing("prompt", stats["fed"], first - began),
        **_timing("predicted", sum(choice.tokens for choice in choices.all), now - first),
    }
    common = {
        "model": body.model or model_names(service)[0],
        "id_slot": body.id_slot,
        "tokens_evaluated": stats["fed"],
        "tokens_cached": stats["reused"] + stats["fed"],
        "truncated": len(body.before) > WINDOW,
        "timings": timings,
    }
    found = []
    for choice in choices.all:
        text = choice.text if choices.done or choice.finish else spaced(whole_words(choice.text), body.after)
        if body.n_predict and (text or not found):
            ended = {"stop": "eos", "length": "limit", None: "limit"}[choice.finish]
            own = {"content": text, "stop": True, "stop_type": ended, "tokens_predicted": choice.tokens}
            found.append(_selected(common | own | {"index": len(found)}, body.response_fields))
    return found or [_selected(common | {"content": "", "stop": True, "tokens_predicted": 0}, body.response_fields)]


def _timing(phase: str, n: int, seconds: float) -> dict[str, float]:
    return {
        f"{phase}_n": n,
        f"{phase}_ms": 1000 * seconds,
        f"{phase}_per_token_ms": 1000 * seconds / max(n, 1),
        f"{phase}_per_second": n / seconds if seconds else 0.0,
    }


def _selected(response: Mapping[str, object], fields: list[str] | None) -> Mapping[str, object]:
    """The requested fields; "a/b" selects the field b of a, and is its name in the result. As in llama-server, unknown
    fields are omitted."""
    if fields is None:
        return response
    found = {}
    for name in fields:
        value: object = response
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[name] = value
    return found
