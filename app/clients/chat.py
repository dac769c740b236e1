"""Chats, and requests to fill a gap, as the one request for completions: `POST /v1/chat/completions` of OpenAI's
interface, and `POST /v1/fim/completions` of Mistral's.

The text of a chat is that of its last message, which drafts continue. Other messages, and an instruction in the last
one, are for models that follow instructions; `prompts.asked_for` says which are recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from app.clients.choices import Choice
from app.clients.openai import Answer, CompletionRequest, OpenAIRequest, Prompt, response
from app.clients.prompts import asked_for
from app.clients.requests import MAX_BODY
from app.wire.bounds import MOST_PARTS, LongText, Name
from app.wire.refusals import taking
from app.wire.refused import Refused

if TYPE_CHECKING:
    from app.service.service import DraftService


def _joined(content: Any) -> Any:
    """The text of a message's parts."""
    if not isinstance(content, list):
        return content
    texts: list[str] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise ValueError("a part that is no text given; Polydraft continues texts alone")
        texts.append(text)
    return "".join(texts)


class Message(BaseModel):
    """A message; its other fields, such as a name, are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: Name
    content: Annotated[LongText | None, BeforeValidator(_joined)] = None


class ChatRequest(OpenAIRequest):
    """The body of a request.

    Attributes:
        messages: of which the last one contains the text; one of the assistant is continued as it is.
        logprobs, top_logprobs: only their values that ask for none.
    """

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_PARTS)]
    logprobs: Literal[False] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None

    def completion(self) -> CompletionRequest:
        last = self.messages[-1]
        text = last.content or ""
        before, after = (text, "") if last.role == "assistant" else asked_for(text)
        rest = self.model_dump(exclude_unset=True, exclude={"messages", "logprobs", "top_logprobs"})
        return CompletionRequest.model_validate({**rest, "prompt": before, "suffix": after}, strict=True)


class ChatAnswer(Answer):
    """The same texts in messages."""

    PREFIX, WHOLE, CHUNK = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, service: DraftService, body: CompletionRequest) -> None:
        super().__init__(service, body)
        self._begun: set[int] = set()

    def _choice(self, prompt: Prompt, choice: Choice, text: str, finish: str | None) -> dict[str, object]:
        content: dict[str, Any] = {"content": text}
        index = prompt.first + choice.index
        if index not in self._begun:
            content = {"role": "assistant", **content}
            self._begun.add(index)
        return {
            "index": index,
            "delta" if self.streamed else "message": content,
            "logprobs": None,
            "finish_reason": finish,
        }


def add_routes(app: FastAPI, service: DraftService) -> None:
    @app.post("/v1/chat/completions")
    @taking(ChatRequest, MAX_BODY)
    async def chat(request: Request, body: ChatRequest) -> Response:
        return await response(request, ChatAnswer(service, body.completion()))

    @app.post("/v1/fim/completions")
    @taking(CompletionRequest, MAX_BODY)
    async def fill(request: Request, body: CompletionRequest) -> Response:
        if body.logprobs is not None:
            raise Refused(422, "logprobs is not supported here.", "Use /v1/completions.", "logprobs")
        return await response(request, ChatAnswer(service, body))
