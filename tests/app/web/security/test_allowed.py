"""`--allow-origin` and `--allow-host`: what each opens, and what stays closed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.service.service import DraftService
from app.web.security.access import Access, cookie_name
from app.web.security.allowed import allowed
from app.web.site import create_app, create_service_app
from core.errors import InputError
from tests.app.site import answering
from tests.fake_autocomplete import FakeAutocomplete

ORIGINS = ("app://obsidian.md", "chrome-extension://abcdefgh", "http://localhost:3000", "http://127.0.0.1:3000")
TOKEN = secrets.token_urlsafe(32)
BODY = {"prompt": "Once", "max_tokens": 1}


def with_page(service: DraftService, access: Access | None, **also: Any) -> FastAPI:
    return create_app(service, access, None, **also)


@pytest.fixture(scope="module", params=[with_page, create_service_app])
def client(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    make: Callable[..., FastAPI] = request.param
    opened = partial(make, access=Access(TOKEN), allowed=allowed(ORIGINS, ["polydraft", "box:8080"]))
    with answering(FakeAutocomplete().real, make=opened) as client:
        yield client


def ask(client: TestClient, origin: str, path: str = "/v1/completions", **headers: str) -> Any:
    return client.post(path, json=BODY, headers={"Origin": origin, "Sec-Fetch-Site": "cross-site", **headers})


@pytest.mark.parametrize("origin", ORIGINS)
def test_an_allowed_origin_gets_drafts_with_the_token_alone(client: TestClient, origin: str) -> None:
    asked = "Authorization, Content-Type, X-Stainless-Lang"
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
    before = client.options("/v1/completions", headers={**headers, "Sec-Fetch-Site": "cross-site"})
    assert (before.status_code, before.headers["access-control-allow-origin"]) == (204, origin)
    assert before.headers["access-control-allow-headers"].lower() == asked.lower()
    assert "access-control-allow-credentials" not in before.headers
    found = ask(client, origin, Authorization=f"Bearer {TOKEN}")
    assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, origin)
    assert "Origin" in found.headers["vary"]
    refused = ask(client, origin)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, origin)


def test_the_cookie_of_the_page_is_no_token_for_another_origin(client: TestClient) -> None:
    cookie = f"{cookie_name(80)}={TOKEN}"
    assert client.post("/v1/completions", json=BODY, headers={"Cookie": cookie}).status_code == 200
    assert ask(client, ORIGINS[3], Cookie=cookie).status_code == 401


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:3001",
        "https://localhost:3000",
        "chrome-extension://abcdefgi",
        "null",
        "http://localhost:3000.a.b",
    ],
)
def test_no_other_origin_gets_in(client: TestClient, origin: str) -> None:
    found = ask(client, origin, Authorization=f"Bearer {TOKEN}")
    assert (found.status_code, "access-control-allow-origin" in found.headers) == (403, False)
    before = client.options("/v1/completions", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
    assert (before.status_code, "access-control-allow-origin" in before.headers) == (403, False)


@pytest.mark.parametrize("path", ["/api/stores", "/api/drafts", "/", "/api/learn"])
def test_an_allowed_origin_reaches_only_the_interfaces_for_programs(client: TestClient, path: str) -> None:
    found = ask(client, ORIGINS[0], path, Authorization=f"Bearer {TOKEN}")
    assert (found.status_code, "access-control-allow-origin" in found.headers) == (403, False)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("polydraft", 200),
        ("polydraft:9000", 200),
        ("BOX:8080", 200),
        ("box", 403),
        ("box:8081", 403),
        ("a.box:8080", 403),
    ],
)
def test_a_host_is_a_name_of_this_machine_if_it_is_allowed(client: TestClient, host: str, status: int) -> None:
    headers = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
    assert client.post("/v1/completions", json=BODY, headers=headers).status_code == status
    headers["Origin"] = f"http://{host}"  # its pages are another matter
    assert client.post("/v1/completions", json=BODY, headers=headers).status_code == 403
    assert client.post("/v1/completions", json=BODY, headers={"Host": host}).status_code in (401, 403)


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example.org", "http://localhost:3000/", "localhost:3000", "null", ""]
)
def test_an_origin_is_exact(origin: str) -> None:
    with pytest.raises(InputError, match="one exact value such as"):
        allowed([origin])


@pytest.mark.parametrize("host", ["*", "*.local", "http://box", "box/", ""])
def test_a_host_is_exact(host: str) -> None:
    with pytest.raises(InputError, match="one exact value such as"):
        allowed([], [host])
