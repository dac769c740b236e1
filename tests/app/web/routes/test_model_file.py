"""Another model while the app runs: the field "Model file" and the dialog in the browser, and the routes below them."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from app.service.service import DraftService
from app.web.routes.models import offered
from app.web.site import create_app
from core.autocomplete import Autocomplete
from core.errors import ModelNotFound
from core.models.on_machine import Found
from tests.app.static.editor.test_page import Editor
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_drafts import FakeDrafts, Server

GOOD = "/models/good.gguf"


def load(name: str, precision: str = "file") -> Autocomplete:
    if precision == "int8":
        raise ModelNotFound(f"{name} with inputs of 8 bits is not there.")
    if name != GOOD:
        raise ModelNotFound(f"There is no model at {name}.")
    return FakeAutocomplete().real()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server whose model is not there."""
    service = DraftService(load, "gone.gguf", pace=0)
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
    for body in (
        {"model": ""},
        {"model": "x" * 5000},
        {"model": 3},
        {},
        {"model": GOOD, "more": 1},
        {"model": GOOD, "precision": "x"},
    ):
        status, answer = asked(server, body)
        assert status == 422 and answer["message"], body
    _, answer = asked(server, {"model": GOOD, "precision": "int8"})
    assert answer["message"] == f"{GOOD} with inputs of 8 bits is not there."
    status, answer = asked(server, {"model": f" {GOOD} "})
    assert (status, answer["ready"], answer["model"]) == (200, True, "Scripted")


def listed(server: Server) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url}/api/models", timeout=30) as answer:
        return json.load(answer)


def test_models_in_the_models_folder_are_listed(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").write_bytes(b"x" * 2000)
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained" / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    found = offered(str(tmp_path / "small.gguf"), tmp_path)
    assert [(one["name"], one["bytes"], one["serving"]) for one in found] == [
        ("Default model", 0, False),
        ("small", 2000, True),
        ("trained", 2, False),
    ]
    assert found[2]["model"] == str(tmp_path / "trained")
    elsewhere = offered("/models/good.gguf", tmp_path / "missing")
    assert [(one["name"], one["serving"]) for one in elsewhere] == [("Default model", False), ("good", True)]


def test_the_route_names_the_model_that_drafts_and_the_one_being_loaded(server: Server) -> None:
    assert {one["serving"] for one in listed(server)["models"]} == {False}
    asked(server, {"model": GOOD})
    found = listed(server)
    assert [one["model"] for one in found["models"] if one["serving"]] == [GOOD]
    assert found["loading"] == ""
    assert found["folder"].endswith("models")


@pytest.mark.browser
def test_a_model_from_the_folder_is_loaded_while_the_old_one_drafts(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "newer.gguf").write_bytes(b"x")
    (tmp_path / "broken.gguf").write_bytes(b"x")
    ready = threading.Event()

    def by_name(name: str, precision: str = "file") -> Autocomplete:
        if precision == "int8":
            raise ModelNotFound(f"{name} is not coded in a few bits.")
        if name == "default":
            return FakeAutocomplete().real()
        if name.endswith("broken.gguf"):
            raise ModelNotFound(f"{name} is no model file.")
        ready.wait(20)
        newer = FakeAutocomplete()
        newer.model.name = "Newer"
        return newer.real()

    service = DraftService(by_name, "default", pace=0)
    service.start()
    with pytest.MonkeyPatch.context() as patch, browser.new_context() as context:
        patch.setattr("app.web.routes.models.models_folder", lambda: tmp_path)
        other = Found(tmp_path / "blobs" / "sha256-1", "qwen3:0.6b", "Ollama", 600_000_000)
        patch.setattr("core.models.on_machine.elsewhere", lambda: [other])
        server = Server(create_app(service))
        editor = Editor(context.new_page(), FakeDrafts()).open(server.url)
        page = editor.page
        editor.open_settings()
        page.locator("[data-do=more]").click()
        page.get_by_role("button", name="Change…").click()
        dialog = page.get_by_role("dialog", name="Model")
        expect(dialog.get_by_role("listitem")).to_have_count(4)
        expect(dialog.get_by_role("listitem").last).to_contain_text("of Ollama")
        expect(dialog.get_by_role("listitem").first).to_contain_text("drafting now")
        dialog.get_by_role("button", name="Load broken").click()
        expect(dialog.get_by_text("broken.gguf is no model file.")).to_be_visible()
        dialog.get_by_role("checkbox", name="Read faster").check()
        dialog.get_by_role("button", name="Load newer").click()
        expect(dialog.get_by_text("newer.gguf is not coded in a few bits.")).to_be_visible()
        dialog.get_by_role("checkbox", name="Read faster").uncheck()
        dialog.get_by_role("button", name="Load newer").click()
        expect(dialog.get_by_text("The model is being loaded.")).to_be_visible()
        assert service.status()["model"] == "Scripted"  # it goes on drafting
        ready.set()
        expect(dialog.get_by_role("listitem").nth(2)).to_contain_text("drafting now")
        expect(page.locator(".pd-model")).to_contain_text("Newer")
        assert editor.errors == []
        server.stop()
    service.close()


@pytest.mark.browser
def test_the_field_loads_another_model_and_goes(browser: Browser, server: Server) -> None:
    with browser.new_context() as context:
        editor = Editor(context.new_page(), FakeDrafts()).open(server.url)
        field = editor.page.get_by_role("textbox", name="Model file")
        expect(field).to_be_visible()
        expect(editor.page.get_by_role("group", name="Status")).to_contain_text("There is no model at gone.gguf.")
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
