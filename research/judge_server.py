"""A language model that judges texts, at an OpenAI-compatible server. Nothing but the address itself is contacted, and
an answer is read up to a bound."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import httpx

from core.errors import InputError

KEY = "POLYDRAFT_JUDGE_KEY"  # the environment variable with the server's key
SECONDS = 300  # without a byte, until a server counts as silent
MOST = 1 << 20  # bytes of an answer


class JudgeServer:
    def __init__(self, url: str, model: str | None = None) -> None:
        """
        Args:
            url: with or without /v1.
            model: its name there; None is the first that the server lists.
        Raises: InputError for an address that is none, or a server that lists no model.
        """
        if not re.match(r"https?://[^/]", url):
            raise InputError(f"server {url!r} given; an address as http://127.0.0.1:8080 expected.")
        base = url.rstrip("/")
        self._url = base if base.endswith("/v1") else f"{base}/v1"
        headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get(KEY)) else {}
        # Nothing but the address itself decides where the texts go: no proxies of the environment, no redirects.
        self._http = httpx.Client(trust_env=False, timeout=SECONDS, headers=headers)
        if model is None:
            listed = self._read("GET", "/models", None)
            try:
                model = str(listed["data"][0]["id"])
            except (KeyError, IndexError, TypeError):
                raise InputError(f"{self._url}/models lists no model; give one with --judge-model.") from None
        self.name = model

    def reply(self, instruction: str, text: str, tokens: int) -> str:
        """Returns the model's most probable reply of at most `tokens` tokens; "" if it has no text. Raises InputError
        for a server that does not answer, or not in OpenAI's form."""
        messages = [{"role": "system", "content": instruction}, {"role": "user", "content": text}]
        body = {"model": self.name, "messages": messages, "temperature": 0, "max_tokens": tokens}
        answer = self._read("POST", "/chat/completions", body)
        try:
            content = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise InputError(f"{self._url} answers in another form than OpenAI's: {str(answer)[:200]}.") from None
        return content if isinstance(content, str) else ""

    def close(self) -> None:
        self._http.close()

    def _read(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """Returns the server's answer. Raises InputError for any other than a JSON object of at most MOST bytes."""
        content = b""
        try:
            with self._http.stream(method, self._url + path, json=body) as answer:
                for part in answer.iter_bytes():
                    content += part
                    if len(content) > MOST:
                        raise InputError(f"{self._url}{path} answers with more than {MOST} bytes.")
            parsed = json.loads(content) if answer.is_success else None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
            raise InputError(f"{self._url}{path} does not answer: {error}.") from error
        if not isinstance(parsed, dict):
            shown = content[:200].decode(errors="replace")
            raise InputError(f"{self._url}{path} answers {answer.status_code}: {shown}.")
        return parsed
