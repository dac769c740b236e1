"""Pairing an extension of a browser: the code, the key, and what the key opens."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app as command_line
from app.machine import running
from app.machine.token import token
from app.web.security import guard, pairing
from app.web.security.access import cookie_name
from app.web.security.allowed import allowed
from app.web.security.pairing import LENGTH, LETTERS, SECONDS, TRIES, Pairing
from tests.app.site import Site

OURS = "chrome-extension://" + "a" * 32
OTHERS = (
    "chrome-extension://" + "b" * 32,
    "moz-extension://5b2f1d3e-0000-4000-8000-000000000000",
    "https://example.org",
    "null",
)
BODY = {"prompt": "Once", "max_tokens": 1}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with closing(Site(allowed=allowed(["app://obsidian.md"]))) as made:
        yield made


def ask(site: Site, path: str, body: Any, origin: str | None = OURS, key: str = "", **headers: str) -> Any:
    given = {"Origin": origin} if origin else {}
    given |= {"Authorization": f"Bearer {key}"} if key else {}
    response, content = site.ask_as("POST", path, body, given | headers)
    return response.status, content


def code_of(site: Site) -> str:
    return site.json("/pair/code", {})["code"]


def pair(site: Site, origin: str = OURS) -> str:
    status, content = ask(site, "/pair", {"code": code_of(site)}, origin)
    assert status == 200, content
    return json.loads(content)["key"]


def test_a_code_gives_an_extension_a_key_for_drafts_and_nothing_else(site: Site) -> None:
    key = pair(site)
    assert ask(site, "/v1/completions", BODY, key=key)[0] == 200
    assert key != site.access.token
    for path in ("/pair/code", "/infill", "/api/stores/learn", "/api/drafts", "/tokenize", "/v1/chat/completions"):
        assert ask(site, path, BODY, key=key)[0] == 403, path
        assert ask(site, path, BODY, None, key)[0] == 401, path


@pytest.mark.parametrize("origin", OTHERS)
def test_a_key_is_of_no_use_to_another_extension_or_a_page(site: Site, origin: str) -> None:
    assert ask(site, "/v1/completions", BODY, origin, pair(site))[0] == 403
    assert ask(site, "/v1/completions", BODY, None, pair(site))[0] == 401, "nor without an origin"


def test_a_new_token_ends_every_key(site: Site) -> None:
    key = pair(site)
    before = site.access.token
    site.access.token = secrets.token_urlsafe(32)
    assert ask(site, "/v1/completions", BODY, key=key)[0] == 403
    site.access.token = before
    assert ask(site, "/v1/completions", BODY, key=key)[0] == 200


def test_a_code_is_used_once(site: Site) -> None:
    code = code_of(site)
    assert ask(site, "/pair", {"code": f" {code.lower()} "})[0] == 200
    assert ask(site, "/pair", {"code": code})[0] == 403


def test_a_newer_code_replaces_an_older_one(site: Site) -> None:
    code = code_of(site)
    code_of(site)
    assert ask(site, "/pair", {"code": code})[0] == 403


def test_a_code_has_few_tries_and_a_short_life(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Pairing()
    assert not tried.use(""), "without a code nothing is valid"
    code = tried.new_code()
    wrong = LETTERS[0] * LENGTH if code.replace("-", "") != LETTERS[0] * LENGTH else LETTERS[1] * LENGTH
    assert not any(tried.use(wrong) for _ in range(TRIES))
    assert not tried.use(code)
    code = tried.new_code()
    now = pairing.time.monotonic()
    monkeypatch.setattr(pairing.time, "monotonic", lambda: now + SECONDS + 1)
    assert not tried.use(code)


@pytest.mark.parametrize("origin", [*OTHERS[2:], None])
def test_no_page_and_no_program_can_pair(site: Site, origin: str | None) -> None:
    assert ask(site, "/pair", {"code": code_of(site)}, origin)[0] in (401, 403)
    assert ask(site, "/pair", {"code": code_of(site)}, origin, site.access.token)[0] == 403, "not with the token either"
    assert ask(site, "/pair", {"code": code_of(site)}, OURS, Host="attacker.example")[0] == 403


def test_a_program_of_another_user_cannot_pair(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    code = code_of(site)
    monkeypatch.setattr(guard, "is_own", lambda *_: False)
    assert ask(site, "/pair", {"code": code})[0] == 403
    monkeypatch.undo()
    assert ask(site, "/pair", {"code": code})[0] == 200, "and takes none of the tries"


def test_a_code_needs_the_token(site: Site) -> None:
    assert ask(site, "/pair/code", {}, None)[0] == 401


@pytest.mark.parametrize("origin", [OURS, *OTHERS[:3], "app://obsidian.md"])
def test_no_other_origin_is_given_a_code(site: Site, origin: str) -> None:
    code = code_of(site)
    for body in ({}, None):
        assert ask(site, "/pair/code", body, origin, site.access.token)[0] == 403, "not even with the token"
    cookie = {"Cookie": f"{cookie_name(site.port)}={site.access.token}", "Sec-Fetch-Site": "cross-site"}
    assert ask(site, "/pair/code", {}, None, **cookie)[0] == 403
    assert ask(site, "/pair", {"code": code})[0] == 200, "and the one that is shown stays valid"


def test_the_command_prints_a_code_of_the_running_server(site: Site) -> None:
    none = CliRunner().invoke(command_line, ["pair", "--port", str(site.port)])
    assert (none.exit_code, "No Polydraft of yours runs at port" in none.stderr) == (1, True)
    before, site.access.token = site.access.token, token()
    with running.marked(site.port, {"page": False}):
        found = CliRunner().invoke(command_line, ["pair", "--port", str(site.port)])
    assert found.exit_code == 0, found.output
    assert ask(site, "/pair", {"code": found.stdout.strip()})[0] == 200
    site.access.token = before
