"""A given text scored, token by token: `POST /v1/completions` with `echo` and `logprobs`.

Programs that measure models, such as lm-evaluation-harness, send texts or their tokens, with `max_tokens` 0 or 1, and
read the log-probabilities of the parts that interest them. They are those of the model alone; the settings say only
whether with the adapter to prose.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.clients.requests import cancelled, events
from app.service.requests import DraftRequest
from app.wire.bounds import MOST_TEXT
from app.wire.refused import Refused

if TYPE_CHECKING:
    from app.options.settings import DraftSettings
    from app.service.service import DraftService


@dataclass
class Usage:
    prompt: int = 0
    completion: int = 0

    def as_dict(self) -> dict[str, int]:
        total = self.prompt + self.completion
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total}


async def score(
    service: DraftService,
    texts: list[str],
    ids: list[list[int]],
    settings: DraftSettings,
    likeliest: int,
    continued: bool,
) -> tuple[list[dict[str, object]], Usage]:
    """The choices with the scores of these texts, or of these tokens. Raises Refused.

    Args:
        likeliest: the number of most probable tokens at each position.
        continued: whether the likeliest next token is wanted, too.
    """
    tasks = [
        asyncio.create_task(_scored(service, settings, likeliest, text, some))
        for text, some in zip(texts, ids or [[] for _ in texts], strict=True)
    ]
    try:
        rows = await asyncio.gather(*tasks)
    finally:
        await cancelled(*tasks)
    tokens = [row["chances"][: None if continued else -1] for row in rows]
    choices: list[dict[str, object]] = [
        {
            "text": "".join(token["text"] for token in some),
            "index": index,
            "logprobs": logprobs_of(some, 0, likeliest),
            "finish_reason": "length",
        }
        for index, some in enumerate(tokens)
    ]
    return choices, Usage(sum(len(row["chances"]) - 1 for row in rows), continued * len(rows))


async def _scored(
    service: DraftService, settings: DraftSettings, likeliest: int, text: str, ids: list[int]
) -> dict[str, Any]:
    """The one row of a scored text. Its place in the cache is free again afterwards."""
    if len(text) > MOST_TEXT:
        raise Refused(422, f"A text of {len(text):,} characters given; at most {MOST_TEXT:,} can be scored.")
    tab = f"score {secrets.token_hex(8)}"
    request = DraftRequest(tab=tab, n=1, before=text, ids=ids, settings=settings, scores=True, likeliest=likeliest)
    row: dict[str, Any] = {}
    try:
        async for event in events(service, request):
            if event["type"] == "drafts" and event["done"]:
                (row,) = event["drafts"]
    finally:
        service.leave(tab)
    return row


def logprobs_of(tokens: list[dict[str, Any]], start: int, most: int) -> dict[str, object]:
    """The tokens of a text in OpenAI's form; `start` is where the first one begins."""
    offsets, at = [], start
    for token in tokens:
        offsets.append(at)
        at += len(token["text"])
    return {
        "tokens": [token["name"] for token in tokens],
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [_likeliest(token) for token in tokens] if most else None,
        "text_offset": offsets,
    }


def _likeliest(token: dict[str, Any]) -> dict[str, float] | None:
    """The likeliest tokens by name, with the token itself; None where nothing is known."""
    if token["logprob"] is None:
        return None
    return {name: logprob for name, logprob, _ in token["likeliest"]} | {token["name"]: token["logprob"]}
