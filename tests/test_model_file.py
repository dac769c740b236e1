"""Another model while the app runs: the field "Model file" in the browser, and POST /api/model below it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from app.server import create_app
from app.service import DraftService
from core.autocomplete import Autocomplete
from core.errors import ModelNotFound
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_drafts import FakeDrafts, Server
from tests.test_page import Editor

GOOD = "/models/good.gguf"


def load(name: str) -> Autocomplete:
    if name != GOOD:
        raise ModelNotFound(f"There is no model at {name}.")
    return FakeAutocomplete().real()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server whose model is not there."""
    service = DraftService(lambda: load("/models/gone.gguf"), "gone.gguf", pace=0, by_name=load)
    service.start()
    server = Server(create_app(service))
    yield server
    server.stop()
    service.close()


def asked(server: Server, body: Any) -> tuple[int, dict[str, Any]]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}/api/model", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_route_loads_a_model_or_returns_the_reason(server: Server) -> None:
    assert asked(server, {"model": "/models/bad.gguf"}) == (
        409,
        {"message": "There is no model at /models/bad.gguf.", "fix": ""},
    )
    for body in ({"model": ""}, {"model": "x" * 5000}, {"model": 3}, {}, {"model": GOOD, "more": 1}):
        status, answer = asked(server, body)
        assert status == 422 and answer["message"], body
    status, answer = asked(server, {"model": f" {GOOD} "})
    assert (status, answer["ready"], answer["model"]) == (200, True, "Scripted")


@pytest.mark.browser
def test_the_field_loads_another_model_and_goes(browser: Browser, server: Server) -> None:
    with browser.new_context() as context:
        editor = Editor(context.new_page(), FakeDrafts()).open(server.url)
        field = editor.page.get_by_role("textbox", name="Model file")
        expect(field).to_be_visible()
        expect(editor.page.get_by_role("group", name="Status")).to_contain_text(
            "There is no model at /models/gone.gguf."
        )
        field.fill("/models/bad.gguf")
        field.press("Enter")
        expect(editor.page.get_by_text("There is no model at /models/bad.gguf.")).to_be_visible()
        field.fill(GOOD)
        editor.page.get_by_role("button", name="Load").click()
        expect(field).to_have_count(0)
        editor.box.focus()
        editor.write("Once")
        editor.wait(lambda: len(editor.drafts()) == 3, "drafts of the new model")
        assert editor.errors == []
