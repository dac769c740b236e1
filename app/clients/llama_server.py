"""llama-server's addresses beside its completions: what it serves, its tokens, and whether it is well.

GET  /health, /v1/health   whether the model is there; without the token only that the server runs
GET  /props                the size of its context, and the model's name
GET  /slots                one slot, as all texts share the cache
POST /tokenize             {"content"} to {"tokens"}
POST /detokenize           {"tokens"} to {"content"}
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.clients.requests import MAX_BODY
from app.options.settings import Strict
from app.wire.bounds import MOST_TOKENS, LongText, Token
from app.wire.refusals import post
from app.wire.refused import Refused

if TYPE_CHECKING:
    from app.service.service import DraftService
    from core.autocomplete import Autocomplete


class TokenizeRequest(Strict):
    """
    Attributes:
        with_pieces: return the text of each token, too; of a part of a character its bytes.
        add_special: only false; the tokens of a part of a text are asked for.
        parse_special: only false; a text contains no special tokens.
    """

    content: LongText
    with_pieces: bool = False
    add_special: Literal[False] = False
    parse_special: Literal[False] = False


class DetokenizeRequest(Strict):
    tokens: Annotated[list[Token], Field(max_length=MOST_TOKENS)]


def add_routes(app: FastAPI, service: DraftService) -> None:
    @app.get("/health")
    @app.get("/v1/health")
    async def health() -> Response:
        status = service.status()
        if status["ready"]:
            return JSONResponse({"status": "ok", "inputs": service.work()})
        error = {"code": 503, "message": status["notice"], "type": "unavailable_error"}
        return JSONResponse({"error": error}, 503)

    @app.get("/props")
    async def props() -> dict[str, object]:
        loaded = _loaded(service)
        return {
            "default_generation_settings": {"n_ctx": loaded.window, "params": {}},
            "total_slots": 1,
            "model_path": loaded.model.name,
            "model_alias": loaded.model.name,
            "chat_template": "",
            "modalities": {"vision": False, "audio": False},
            "build_info": f"polydraft {version('polydraft')}",
        }

    @app.get("/slots")
    async def slots() -> list[dict[str, object]]:
        return [{"id": 0, "n_ctx": _loaded(service).window, "is_processing": service.busy}]

    @post(app, "/tokenize", TokenizeRequest, MAX_BODY)
    def tokenize(body: TokenizeRequest) -> dict[str, object]:
        tokenizer = _loaded(service).model.tokenizer
        ids = tokenizer.encode(body.content)
        if not body.with_pieces:
            return {"tokens": ids}
        return {"tokens": [{"id": i, "piece": _piece(tokenizer.pieces[i])} for i in ids]}

    @post(app, "/detokenize", DetokenizeRequest, MAX_BODY)
    def detokenize(body: DetokenizeRequest) -> dict[str, object]:
        tokenizer = _loaded(service).model.tokenizer
        largest, known = max(body.tokens, default=0), len(tokenizer.pieces)
        if largest >= known:
            raise Refused(422, f"The token {largest} given; the model's tokens go up to {known - 1}.", param="tokens")
        return {"content": tokenizer.decode(body.tokens)}


def _piece(piece: bytes) -> str | list[int]:
    """The text of a token; the bytes of one that is not UTF-8, as of a part of a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _loaded(service: DraftService) -> Autocomplete:
    if service.loaded is None:
        raise Refused(503, service.status()["notice"])
    return service.loaded
