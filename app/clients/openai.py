"""OpenAI's completion interface over the draft service: `POST /v1/completions` and `GET /v1/models`. `chat.py`
translates chats to it.

`n` texts are the drafts of one request, so they cost little more than one. Fields of the interface that Polydraft does
not support are refused with a message.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, model_validator

from app.clients.choices import Choice, Choices
from app.clients.options import ClientOptions
from app.clients.prompts import around_gap
from app.clients.requests import (
    MAX_BODY,
    answered_by,
    cancelled,
    cropped,
    draft_request,
    events,
    model_headers,
    model_names,
    unless_gone,
)
from app.clients.scoring import Usage, logprobs_of, score
from app.options.settings import Strict
from app.service.requests import MOST_AFTER, MOST_DRAFTS, MOST_LIKELIEST, DraftRequest
from app.wire.bounds import WHOLE, Label, Line, LongText, Prompts, Stops, TokenPrompts
from app.wire.refusals import error_of, taking
from app.wire.refused import Refused
from app.wire.streaming import Streamed
from core.options import LIBRARY

if TYPE_CHECKING:
    from app.options.settings import DraftSettings
    from app.service.service import DraftService

TOKENS = 16  # of a completion, if the request gives no number: OpenAI's default
NAMES = {"k": "n", "length": "max_tokens"}


class StreamOptions(Strict):
    include_usage: bool | None = False
    include_obfuscation: bool | None = False  # ignored: padding would hide the length of texts on their way elsewhere


class OpenAIRequest(ClientOptions):
    """The fields of completions and of chats.

    Attributes:
        model: any; the response names the one that drafted.
        max_tokens: tokens of a draft; a number above the maximum, or -1, is the maximum. 0 only caches the text.
        stream_options: without stream they have no effect.
        user: names a session; a newer request of the same user replaces an older one.
    """

    model: Label | None = None
    n: int | None = Field(1, ge=1, le=MOST_DRAFTS)
    max_tokens: int | None = Field(TOKENS, ge=-1, le=WHOLE)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: Stops | None = None
    user: Line | None = None


class CompletionRequest(OpenAIRequest):
    """The body of a request, as the official client sends it.

    Attributes:
        prompt: with `echo` and `logprobs` also tokens, which are `prompt_ids` then.
        best_of: number of drafts, of which the `n` best are returned.
        logprobs: return the model's own log-probabilities, with so many most probable tokens at each position. With
            `echo` they are those of the prompt (`scoring.py`).
        suffix: the text after the caret. Without it, a prompt for a model that fills gaps is taken apart.
    """

    prompt: Prompts
    prompt_ids: TokenPrompts = Field(default=[])
    best_of: int | None = Field(None, ge=1, le=MOST_DRAFTS)
    logprobs: int | None = Field(None, ge=0, le=MOST_LIKELIEST)
    echo: bool | None = False
    suffix: LongText | None = None

    @model_validator(mode="before")
    @classmethod
    def _tokens_apart(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        if body.get("prompt_ids") is not None:
            raise Refused(422, "prompt_ids is no field that the server knows.", "Use prompt.", "prompt_ids")
        prompt, scores = body.get("prompt"), bool(body.get("echo")) and body.get("logprobs") is not None
        if not scores or not isinstance(prompt, list) or not prompt or not isinstance(prompt[0], int | list):
            return body
        lists = prompt if isinstance(prompt[0], list) else [prompt]
        if not all(isinstance(ids, list) and all(type(i) is int and 0 <= i < 1 << 31 for i in ids) for ids in lists):
            raise Refused(422, "prompt is neither texts nor lists of token ids.", param="prompt")
        return body | {"prompt": [""] * len(lists), "prompt_ids": lists}

    @property
    def scores(self) -> bool:
        """Whether the prompt is scored."""
        return bool(self.echo) and self.logprobs is not None

    def _refuse_beside_scores(self) -> None:
        """Raises Refused for what has no meaning where a prompt is scored."""
        if (self.max_tokens or 0) not in (0, 1):
            message = f"max_tokens {self.max_tokens} is not supported where echo and logprobs score a prompt."
            raise Refused(422, message, "Use 0 or 1.", "max_tokens")
        several = max(self.n or 1, self.best_of or 1) > 1
        for name, given in (("stream", self.stream), ("n", several), ("suffix", self.suffix)):
            if given:
                message = f"{name} is not supported where echo and logprobs score a prompt."
                raise Refused(422, message, "Leave it out.", name)

    def refuse_what_is_missing(self) -> None:
        if self.scores:
            self._refuse_beside_scores()
        if self.best_of is not None and self.best_of < (self.n or 1):
            raise Refused(422, f"best_of is {self.best_of}; at least n, {self.n or 1}, is expected.", param="best_of")
        if self.best_of is not None and self.stream and self.best_of > (self.n or 1):
            raise Refused(422, "best_of cannot be streamed.", "Leave stream or best_of out.", "best_of")


@dataclass(frozen=True)
class Prompt:
    """One prompt of a request: its request to the service, and the position of its texts in the response."""

    text: str
    request: DraftRequest
    choices: Choices
    first: int  # index of its first choice


def add_routes(app: FastAPI, service: DraftService) -> None:
    @app.post("/v1/completions")
    @taking(CompletionRequest, MAX_BODY)
    async def completions(request: Request, body: CompletionRequest) -> Response:
        if body.scores:
            return JSONResponse(await unless_gone(request, _scored(service, body)), headers=model_headers(service))
        return await response(request, Answer(service, body))

    @app.get("/models")
    @app.get("/v1/models")
    async def models() -> dict[str, object]:
        names = model_names(service)
        return {"object": "list", "data": [_model(name) for name in names]}

    @app.get("/v1/models/{name:path}")
    async def model(name: Label) -> dict[str, object]:
        if name not in (known := model_names(service)):
            fix = f"Use {' or '.join(known)}; `polydraft serve --model` chooses the model."
            raise Refused(404, f"The model {name} is not loaded.", fix, "model", "model_not_found")
        return _model(name)


async def response(request: Request, answer: Answer) -> Response:
    """The response to a request, streamed if it asks for that."""
    if answer.streamed:
        return Streamed(answer.stream(), as_event, "text/event-stream", answer.headers)
    return JSONResponse(await unless_gone(request, answer.whole()), headers=answer.headers)


async def _scored(service: DraftService, body: CompletionRequest) -> dict[str, object]:
    """The response with the scores of a prompt."""
    body.refuse_what_is_missing()
    settings, likeliest = body.settings(1, 1, NAMES), body.logprobs or 0
    choices, usage = await score(service, body.prompt, body.prompt_ids, settings, likeliest, bool(body.max_tokens))
    head = _head(service, "cmpl", "text_completion", body.model)
    return {**head, "choices": choices, "usage": usage.as_dict()}


def _head(service: DraftService, prefix: str, kind: str, model: str | None) -> dict[str, object]:
    """What every response and each part of one begins with."""
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": answered_by(service, model),
    }


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "polydraft"}


def as_event(data: dict[str, object] | None) -> bytes:
    """A server-sent event; None is the last one."""
    return b"data: " + (b"[DONE]" if data is None else json.dumps(data).encode()) + b"\n\n"


class Answer:
    """One response. Raises Refused for an invalid or unsupported request."""

    PREFIX, WHOLE, CHUNK = "cmpl", "text_completion", "text_completion"  # of its id, and the kinds of its objects

    def __init__(self, service: DraftService, body: CompletionRequest) -> None:
        body.refuse_what_is_missing()
        self._service, self._body = service, body
        self.streamed, self.headers = bool(body.stream), model_headers(service)
        self._head = _head(service, self.PREFIX, self.CHUNK if self.streamed else self.WHOLE, body.model)
        if body.user and len(body.prompt) > 1:
            raise Refused(422, "user names one session, and there are several prompts.", "Leave user out.", "user")
        self._tokens = TOKENS if body.max_tokens is None else body.max_tokens
        self._settings = self._drafting()
        self._prompts = [self._prompt(i, prompt) for i, prompt in enumerate(body.prompt)]
        self._usage = Usage()

    def _drafting(self) -> DraftSettings:
        body = self._body
        if self._tokens == 0:  # the cheapest drafts, only to cache the text
            return body.settings(1, 1, NAMES, {"forks": 0, "exact-steps": 0})
        tokens = body.most_tokens if self._tokens < 0 else min(self._tokens, body.most_tokens)
        # A response has n texts, even if some are improbable.
        return body.settings(body.best_of or body.n or 1, tokens, NAMES, {"min-branch": LIBRARY.min_branch})

    def _prompt(self, i: int, prompt: str) -> Prompt:
        body, settings, n = self._body, self._settings, self._body.n or 1
        before, after = (body.suffix is None and around_gap(prompt)) or (prompt, body.suffix or "")
        after = after[:MOST_AFTER]
        growing = self.streamed and body.only_grow(settings, after, body.logprobs)
        more = body.requested(after, cropped(body.background), body.logprobs)
        choices = Choices(n, settings.length if self._tokens else 0, body.stop or (), growing, after)
        return Prompt(prompt, draft_request(before, settings, body.user, **more), choices, n * i)

    async def whole(self) -> dict[str, object]:
        """The complete response."""

        async def filled(prompt: Prompt) -> None:
            async for _ in self._events(prompt):
                pass

        tasks = [asyncio.create_task(filled(prompt)) for prompt in self._prompts]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancelled(*tasks)
        choices = [
            self._choice(prompt, choice, prompt.text * bool(self._body.echo) + choice.text, choice.finish or "stop")
            for prompt in self._prompts
            for choice in prompt.choices.all
        ]
        return {**self._head, "choices": choices, "usage": self._usage.as_dict()}

    async def stream(self) -> AsyncGenerator[dict[str, object] | None]:
        """The response as it grows: chunks of one choice each, in any order; then None."""
        chunks: asyncio.Queue[dict[str, object] | Refused | None] = asyncio.Queue()

        async def send(prompt: Prompt) -> None:
            try:
                async with aclosing(self._chunks(prompt)) as stream:
                    async for chunk in stream:
                        chunks.put_nowait(chunk)
            except Refused as error:
                chunks.put_nowait(error)
            finally:
                chunks.put_nowait(None)

        senders = [asyncio.create_task(send(prompt)) for prompt in self._prompts]
        try:
            waiting = len(senders)
            while waiting:
                chunk = await chunks.get()
                if isinstance(chunk, Refused):
                    yield error_of(chunk)
                    return
                if chunk is None:
                    waiting -= 1
                else:
                    yield chunk
            if self._body.stream_options and self._body.stream_options.include_usage:
                yield {**self._head, "choices": [], "usage": self._usage.as_dict()}
            yield None
        finally:
            await cancelled(*senders)

    async def _chunks(self, prompt: Prompt) -> AsyncGenerator[dict[str, object]]:
        if self._body.echo:
            for choice in prompt.choices.all:
                yield {**self._head, "choices": [self._choice(prompt, choice, prompt.text, None)]}
        async for _ in self._events(prompt):
            for choice, part, finish in prompt.choices.news():
                yield {**self._head, "choices": [self._choice(prompt, choice, part, finish)]}

    async def _events(self, prompt: Prompt) -> AsyncGenerator[None]:
        """Runs the request; yields after each change of the choices."""
        async with aclosing(events(self._service, prompt.request)) as stream:
            async for event in stream:
                if event["type"] == "drafts":
                    prompt.choices.take(event)
                    if prompt.choices.growing or prompt.choices.done:
                        yield
                elif event["type"] == "stats":
                    self._usage.prompt += event["reused"] + event["fed"]
                    self._usage.completion += sum(choice.tokens for choice in prompt.choices.all)

    def _choice(self, prompt: Prompt, choice: Choice, text: str, finish: str | None) -> dict[str, object]:
        logprobs = None
        if finish is not None and self._body.logprobs is not None:
            logprobs = logprobs_of(choice.logprobs, len(prompt.text), self._body.logprobs)
        return {"text": text, "index": prompt.first + choice.index, "logprobs": logprobs, "finish_reason": finish}
