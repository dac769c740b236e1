"""llama-server's `POST /infill`, for the editor plugins llama.vim and llama.vscode, and its `POST /completion`.

The text before the caret is `input_prefix` + `prompt`, the text after it `input_suffix`; `input_extra`, parts of
other files, are its background. The response is compact JSON, because one client searches it for `"content":"`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from app.clients.choices import Choice, Choices, Finish
from app.clients.options import ClientOptions
from app.clients.prompts import around_gap
from app.clients.requests import (
    MAX_BODY,
    WINDOW,
    answered_by,
    cropped,
    draft_request,
    events,
    model_headers,
    unless_gone,
)
from app.service.requests import MOST_AFTER, MOST_DRAFTS, MOST_LIKELIEST
from app.wire.bounds import MOST_PARTS, WHOLE, Label, LongText, Names, Real, Stops, Whole
from app.wire.refusals import error_of, taking
from app.wire.refused import Refused
from app.wire.streaming import Streamed

if TYPE_CHECKING:
    from app.options.settings import DraftSettings
    from app.service.service import DraftService

NAMES = {"k": "n_cmpl", "length": "n_predict"}
TOKENS = 16  # if the request gives no number


class Extra(BaseModel):
    """A part of another file; its other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: LongText


class InfillRequest(ClientOptions):
    """The body of a request, as both editors send it. `/completion` takes it too: its text is `prompt` alone.

    Attributes:
        n_predict: tokens of a draft; a number above the maximum, or -1, is the maximum. 0 only caches the text.
        n_cmpl: number of texts; from 2 on the response is an array.
        top_k, top_p: for sampled drafts only.
        id_slot: repeated in the response; texts with a common prefix always share the cache.
        model: any; the response names the one that drafted.
        n_probs: return the model's own probabilities, with so many most probable tokens at each position.
        post_sampling_probs: those by which sampled drafts were drawn instead, after rule and temperature.
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
    stream: bool = False
    id_slot: Whole = -1
    n_probs: int = Field(0, ge=0, le=MOST_LIKELIEST)
    post_sampling_probs: bool = False
    response_fields: Names | None = None

    def refuse_what_is_missing(self) -> None:
        if self.stream and self.n_cmpl > 1:
            raise Refused(422, "n_cmpl above 1 cannot be streamed.", "Leave stream or n_cmpl out.", "stream")
        if self.n_probs and self.post_sampling_probs and self.mode != "sampled":
            message = "post_sampling_probs is known of sampled drafts alone: others are not drawn by a probability."
            raise Refused(422, message, 'Add "mode": "sampled", or leave it out.', "post_sampling_probs")

    def texts(self) -> tuple[str, str]:
        """The text before the caret, and the text after it."""
        prompt, after = (not self.input_suffix and around_gap(self.prompt)) or (self.prompt, self.input_suffix)
        return self.input_prefix + prompt, after[:MOST_AFTER] if self.n_predict else ""

    def parts(self) -> str:
        """The background: the parts of other files, the last one the nearest."""
        extras = [extra.text if extra.text.endswith("\n") else extra.text + "\n" for extra in self.input_extra]
        return cropped("".join([*extras, self.background]))

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
    async def respond(request: Request, body: InfillRequest) -> Response:
        answer, headers = Infilled(service, body), model_headers(service)
        if body.stream:
            return Streamed(answer.stream(), _as_event, "text/event-stream", headers)
        objects = await unless_gone(request, answer.whole())
        return JSONResponse(objects if body.n_cmpl > 1 else objects[0], headers=headers)

    route = taking(InfillRequest, MAX_BODY)(respond)
    for path in ("/infill", "/completion", "/completions"):
        app.add_route(path, route, ["POST"])


def _as_event(data: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


class Infilled:
    """One response. Raises Refused for an invalid or unsupported request."""

    def __init__(self, service: DraftService, body: InfillRequest) -> None:
        body.refuse_what_is_missing()
        self._service, self._body = service, body
        self._model = answered_by(service, body.model)
        self._before, self._after = body.texts()
        self._settings = body.drafting()
        growing = body.stream and body.only_grow(self._settings, self._after, body.n_probs or None)
        length = self._settings.length if body.n_predict else 0
        self._choices = Choices(body.n_cmpl, length, body.stop, growing, self._after)
        self._began, self._first, self._stats = time.perf_counter(), None, {"reused": 0, "fed": 0}

    async def whole(self) -> list[Mapping[str, object]]:
        """The texts, each as an object with the requested fields; at least one."""
        async for _ in self._events():
            pass
        choices = [choice for choice in self._choices.all if choice.text] or self._choices.all[:1]
        return [self._object(i, choice, choice.text, choice.finish or "stop") for i, choice in enumerate(choices)]

    async def stream(self) -> AsyncGenerator[Mapping[str, object]]:
        """The parts of the only text, and at the end an object without text, with the requested fields."""
        common = {"tokens": [], "stop": False, "id_slot": self._body.id_slot, "index": 0}
        end: Finish = "stop"
        try:
            async for _ in self._events():
                for _, part, finish in self._choices.news():
                    end = finish or end
                    if part:
                        yield {"content": part, **common, **self._probabilities(self._choices.all[0])}
        except Refused as error:
            yield error_of(error)
            return
        yield self._object(0, self._choices.all[0], "", end)

    async def _events(self) -> AsyncGenerator[None]:
        """Runs the request; yields after each change of the texts."""
        body = self._body
        more = body.requested(self._after, body.parts(), body.n_probs or None)
        more["after_rule"] = body.post_sampling_probs
        async with aclosing(events(self._service, draft_request(self._before, self._settings, **more))) as stream:
            async for event in stream:
                if event["type"] == "stats":
                    self._stats = event
                    continue
                self._first = self._first or time.perf_counter()
                self._choices.take(event)
                if self._choices.growing or self._choices.done:
                    yield

    def _object(self, index: int, choice: Choice, text: str, finish: Finish) -> Mapping[str, object]:
        now, fed = time.perf_counter(), self._stats["fed"]
        first = self._first or now
        response = {
            "content": text,
            "index": index,
            "stop": True,
            "stop_type": "eos" if finish == "stop" else "limit",
            "model": self._model,
            "id_slot": self._body.id_slot,
            "tokens_predicted": choice.tokens,
            "tokens_evaluated": fed,
            "tokens_cached": self._stats["reused"] + fed,
            "truncated": len(self._before) > WINDOW,
            "timings": {
                **_timing("prompt", fed, first - self._began),
                **_timing("predicted", sum(c.tokens for c in self._choices.all), now - first),
            },
        }
        if not self._body.stream:
            response |= self._probabilities(choice)
        return _selected(response, self._body.response_fields)

    def _probabilities(self, choice: Choice) -> dict[str, object]:
        """The field with the model's probabilities of each token, if they are asked for."""
        if not self._body.n_probs:
            return {}
        loaded, tokens = self._service.loaded, choice.logprobs
        pieces = loaded.model.tokenizer.pieces if loaded and tokens else ()
        after_rule = self._body.post_sampling_probs
        return {"completion_probabilities": [_probability(token, pieces, after_rule) for token in tokens]}


def _probability(token: Mapping[str, Any], pieces: Sequence[bytes], after_rule: bool) -> dict[str, object]:
    """A token as llama-server writes it, with the likeliest ones in its place."""
    own = _named(token["name"], token["logprob"], token["id"], pieces, after_rule)
    likeliest = [_named(*likely, pieces=pieces, after_rule=after_rule) for likely in token["likeliest"]]
    return own | {"top_probs" if after_rule else "top_logprobs": likeliest}


def _named(name: str, logprob: float, token: int, pieces: Sequence[bytes], after_rule: bool) -> dict[str, object]:
    """A token by its name; a part of a character has only bytes. After the rule llama-server writes probabilities,
    before it their logarithms."""
    try:
        pieces[token].decode()
        piece = name.encode()
    except UnicodeDecodeError:
        name, piece = "", pieces[token]
    chance = {"prob": math.exp(logprob)} if after_rule else {"logprob": logprob}
    return {"id": token, "token": name, "bytes": list(piece), **chance}


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
    selected = {}
    for name in fields:
        value: object = response
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            selected[name] = value
    return selected
