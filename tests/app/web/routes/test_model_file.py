"""The routes of the models: another one while the app runs, and what is listed; test_larger_page.py has the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tiny_gguf import tiny

from app.web.routes.models import offered
from core.autocomplete import Autocomplete
from core.errors import ModelNotFound
from core.models import listed, on_machine
from core.models.located import default_model_path
from core.models.on_machine import read_about
from tests.app.site import answering
from tests.fake_autocomplete import FakeAutocomplete

GOOD = "/models/good.gguf"


def load(name: str, precision: str = "auto") -> Autocomplete:
    if precision == "int8":
        raise ModelNotFound(f"{name} with inputs of 8 bits is not there.")
    if name != GOOD:
        raise ModelNotFound(f"There is no model at {name}.")
    return FakeAutocomplete().real()


@pytest.fixture
def client(without_gradio: None) -> Iterator[TestClient]:
    """Of a server whose model is not there."""
    with answering(load, "gone.gguf") as client:
        yield client


def chosen(client: TestClient, **body: Any) -> tuple[int, dict[str, Any]]:
    answer = client.post("/api/model", json=body)
    return answer.status_code, answer.json()


def test_the_route_loads_a_model_or_returns_the_reason(client: TestClient) -> None:
    refused = {"message": "There is no model at /models/bad.gguf.", "fix": ""}
    assert chosen(client, model="/models/bad.gguf") == (409, refused)
    for body in ({"model": "x" * 5000}, {"model": GOOD, "more": 1}, {"model": GOOD, "precision": "x"}):
        status, answer = chosen(client, **body)
        assert status == 422 and answer["message"], body
    _, answer = chosen(client, model=GOOD, precision="int8")
    assert answer["message"] == f"{GOOD} with inputs of 8 bits is not there."
    status, answer = chosen(client, model=f" {GOOD} ")
    assert (status, answer["ready"], answer["model"]) == (200, True, "Scripted")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Polydraft's models folder, on a machine whose only other program with models is Ollama."""
    folder, other = tmp_path / "models", tmp_path / "ollama"
    folder.mkdir()
    monkeypatch.setattr(on_machine, "models_folder", lambda: folder)
    monkeypatch.setattr(on_machine, "_others", lambda: [("Ollama", other, on_machine._of_folder)])
    return folder


def test_models_in_the_models_folder_are_listed(alone: Path) -> None:
    (alone / "small.gguf").write_bytes(b"x" * 2000)
    (alone / "notes.txt").write_text("no model")
    (alone / "trained").mkdir()
    (alone / "trained" / "config.json").write_text("{}")
    (alone / "empty").mkdir()
    found = offered(str(alone / "small.gguf"))
    size = default_model_path().stat().st_size
    assert [(model, one.name, one.bytes) for model, one in found.items()] == [
        ("default", "Default model", size),
        (str(alone / "small.gguf"), "small", 2000),
        (str(alone / "trained"), "trained", 2),
    ]
    gone = offered("/models/good.gguf", alone / "missing")
    assert [(one.name, one.bytes) for one in gone.values()] == [("Default model", size), ("good", 0)]


def details(client: TestClient) -> dict[str, dict[str, Any]]:
    return {(line := json.loads(each))["model"]: line for each in client.get("/api/models/details").text.splitlines()}


def test_details_are_those_of_the_command_and_no_file_is_read_twice(
    alone: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, other, broken = alone / "known.gguf", alone / "other.gguf", alone / "broken.gguf"
    made = tiny()
    known.write_bytes(made.written())
    made.fields["general.architecture"].value = "falcon"
    other.write_bytes(made.written())
    broken.write_bytes(b"x")
    (alone / "folder").mkdir()
    (alone / "folder" / "config.json").write_text("{")
    (alone.parent / "apart.gguf").write_bytes(b"x")
    listed._of_file.cache_clear()
    read: list[Path] = []
    monkeypatch.setattr(listed, "read_about", lambda path: (read.append(path), read_about(path))[1])
    found = details(client)
    assert [*found] == ["default", str(broken), str(alone / "folder"), str(known), str(other)]
    about = found[str(known)]
    assert (about["type"], about["family"], about["compiled"], about["reason"]) == ("Q8_0", "llama", True, "")
    assert found[str(other)]["reason"] == "Slower, in llama.cpp, because its architecture is falcon."
    assert found[str(broken)]["reason"].startswith("It is not a GGUF file")
    assert "is not JSON" in found[str(alone / "folder")]["reason"]
    assert {one["ms"] for one in found.values()} == {None}, "no model drafts"
    assert set(read) == {default_model_path(), broken, alone / "folder", known, other}
    read.clear()
    other.write_bytes(made.written() + b"x")
    assert details(client).keys() == found.keys()
    assert set(read) == {other, alone / "folder"}


def test_the_route_names_the_model_that_drafts_and_the_one_being_loaded(client: TestClient) -> None:
    assert {one["serving"] for one in client.get("/api/models").json()["models"]} == {False}
    chosen(client, model=GOOD)
    found = client.get("/api/models").json()
    assert [one["model"] for one in found["models"] if one["serving"]] == [GOOD]
    assert found["loading"] == ""
    assert found["folder"].endswith("models")
