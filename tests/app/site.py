"""A real server over some autocomplete, and clients of it that have the token."""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.service.service import DraftService
from app.web.security.access import Access
from app.web.security.allowed import Allowed
from app.web.security.guard import NONE_ALLOWED
from app.web.site import create_app, create_service_app
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_drafts import Server


@contextmanager
def answering(
    load: Callable[..., Any],
    name: str = "scripted",
    make: Callable[[DraftService], FastAPI] = create_app,
    loaded: bool = False,
) -> Iterator[TestClient]:
    """A client of a server in this process, whose autocomplete a function loads; once it is `loaded`, if wanted."""
    service = DraftService(load, name, pace=0)
    service.start()
    with TestClient(make(service), base_url="http://127.0.0.1") as client:
        while loaded and not service.loaded:
            time.sleep(0.01)
        yield client
    service.close()


class Site:
    """The server for programs, or the one with the page; without an autocomplete, a scripted one drafts."""

    def __init__(self, autocomplete: Any = None, page: bool = False, allowed: Allowed = NONE_ALLOWED) -> None:
        self.autocomplete = self.fake = autocomplete or FakeAutocomplete()
        self.service = DraftService(lambda _: self.autocomplete, "scripted", pace=0)
        self.service.start()
        self.access = Access(secrets.token_urlsafe(32))
        create = create_app if page else create_service_app
        self.server = Server(create(self.service, self.access, allowed=allowed))
        self.port = self.server.port
        self.base = f"http://127.0.0.1:{self.port}/v1"

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.access.token}"}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        return self.ask_as(method, path, body, self.bearer | headers)

    def ask_as(
        self, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """A request with only these headers; underscores represent hyphens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, named)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def answer(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        response, content = self.ask(method, path, body, **headers)
        return response.status, content

    def json(self, path: str, body: Any = None) -> Any:
        status, content = self.answer("GET" if body is None else "POST", path, body)
        assert status == 200, content
        return json.loads(content)

    def events(self, path: str, body: Any) -> list[Any]:
        """The server-sent events of a streamed response; "[DONE]" as it is."""
        status, content = self.answer("POST", path, body)
        assert status == 200, content
        parts = [part.removeprefix("data: ") for part in content.decode().split("\n\n") if part]
        return [part if part == "[DONE]" else json.loads(part) for part in parts]

    @cached_property
    def client(self) -> Any:
        """The official client, whose import takes half a second that a process without these tests saves."""
        from openai import OpenAI

        return OpenAI(base_url=self.base, api_key=self.access.token)

    def close(self) -> None:
        if "client" in vars(self):
            self.client.close()
        self.server.stop()
        self.service.close()
