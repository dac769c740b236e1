"""Pipes and drives that do not answer, wherever a route or a setting names a file: there is an answer in a sentence."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import ngram_builder
from app.machine import running
from app.options import presets
from app.options.presets import OwnPresets
from core import files
from core.autocomplete import Autocomplete
from core.errors import InputError, ModelFileError
from core.files import check_database, named_path, open_regular, read_regular, recall, remember, status, with_timeout
from core.models.adapter import AdapterError
from core.models.adapter import load as load_adapter
from core.models.load import find_model, load_model
from core.ngram import NgramStore, StoreError
from core.ngram.base import BaseShelf, ChosenStore, chosen_stores
from core.ngram.personal import PersonalStore
from core.ngram.shelf import Shelf
from core.speculative.calibration import Calibration, CalibrationError
from core.speculative.eagle3 import Eagle3Head, HeadError
from tests.app.site import answering
from tests.ngram_tools import WordTokenizer
from tests.table_model import TableModel

WORDS: Any = WordTokenizer()

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    (folder / "text.txt").write_text("1 2 3 4 6 " * 30)
    ngram_builder.build([str(folder / "text.txt")], folder / "text.ngram", WORDS, name="words")
    return folder / "text.ngram"


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Makes the system's look-ups of a path and of what is under it wait, as those of a removed drive do."""
    drives: list[str] = []
    back = threading.Event()

    def waits(real: Callable[..., Any]) -> Callable[..., Any]:
        def look(path: Any, *args: Any, **more: Any) -> Any:
            if any(str(path) == drive or str(path).startswith(f"{drive}/") for drive in drives):
                assert threading.current_thread().name == "polydraft-look"
                assert back.wait(60)
            return real(path, *args, **more)

        return look

    for name in ("stat", "open", "lstat", "scandir", "listdir", "readlink"):
        monkeypatch.setattr(os, name, waits(getattr(os, name)))
    monkeypatch.setattr(files, "PATIENCE", 0.2)
    yield lambda path: drives.append(str(path))
    back.set()
    deadline = time.monotonic() + 10
    while not all(look.done() for look in files._unanswered.values()) and time.monotonic() < deadline:
        time.sleep(0.01)


# ---------------------------------------------------------------- the one place


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_only_a_regular_file_is_opened(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "name")
    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        open_regular(tmp_path / "name")


def test_a_file_that_a_pipe_replaces_while_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "name").touch()
    check = files.check_regular

    def then_replaced(path: Path) -> None:
        check(path)
        path.unlink()
        os.mkfifo(path)

    monkeypatch.setattr(files, "check_regular", then_replaced)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "name")


def test_names_that_no_file_has_are_refused(tmp_path: Path) -> None:
    for name in ("a\0b", "a\ud800b"):
        with pytest.raises(OSError, match="no file can have this name"):
            status(tmp_path / name)
    for name in ("a\0b", "a\ud800b", "~nosuch/file"):
        with pytest.raises(InputError, match="a whole path expected"):
            named_path(name)
    assert named_path("~/a") == Path.home() / "a"


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(tmp_path / "file", 4)


def test_a_silent_drive_costs_one_thread_and_is_heard_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.05)
    back, asked = threading.Event(), []

    def look() -> str:
        asked.append(1)
        back.wait(30)
        return "found"

    for _ in range(20):
        with pytest.raises(TimeoutError, match="is its drive connected"):
            with_timeout(tmp_path, look)
    assert len(asked) == 1
    back.set()
    monkeypatch.setattr(files, "PATIENCE", 30)
    while len(asked) == 1:
        with suppress(TimeoutError):
            assert with_timeout(tmp_path, look) == "found"


# ---------------------------------------------------------------- everything that names a file


def head_in(path: Path) -> Any:
    path.rename(path.with_name("config.json"))
    return Eagle3Head.load(path.parent)


def adapter_in(path: Path) -> Any:
    path.rename(path.with_name("adapter_config.json"))
    return load_adapter(path.parent)


def model_folder_with(path: Path) -> Any:
    (path.parent / "config.json").write_text("{}")
    return load_model(str(path.parent))


READERS: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "base store": (NgramStore.open, StoreError),
    "--base-store": (lambda path: chosen_stores([str(path)]), StoreError),
    "model": (lambda path: load_model(str(path)), ModelFileError),
    "model at the start": (lambda path: find_model(str(path)), ModelFileError),
    "model folder": (model_folder_with, ModelFileError),
    "calibration": (Calibration.load, CalibrationError),
    "head": (head_in, HeadError),
    "adapter": (adapter_in, AdapterError),
    "personal store": (lambda path: PersonalStore.open(path, WORDS, create=True), StoreError),
    "presets": (lambda path: OwnPresets(path).all(), InputError),
}


@pytest.mark.parametrize("what", READERS)
def test_a_pipe_is_refused(what: str, tmp_path: Path) -> None:
    read, error = READERS[what]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(error, match=r"regular file|neither a file nor a folder"):
        read(tmp_path / "pipe")


def test_sqlite_never_meets_a_pipe(tmp_path: Path) -> None:
    for ending in ("-journal", "-wal", "-shm"):
        os.mkfifo(tmp_path / f"{ending}{ending}")
        with pytest.raises(OSError, match="not a regular file"):
            check_database(tmp_path / ending)


def test_caches_and_locks_that_are_pipes_count_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "cache.json")
    assert recall(tmp_path / "cache.json") == {}
    remember(tmp_path / "cache.json", {"a": 1}, 5)
    assert recall(tmp_path / "cache.json") == {"a": 1}
    monkeypatch.setattr(running, "data_folder", lambda: tmp_path)
    os.mkfifo(running._file(1))
    assert running.at(1) is None
    with running.marked(2, {"page": True}):
        assert running.at(2) == {"page": True}


# ---------------------------------------------------------------- the routes and the engine


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_gradio: None) -> Iterator[TestClient]:
    """The whole app on a model of a few tokens, with a choice of base stores and a folder of personal stores."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(presets, "presets_file", lambda: tmp_path / "data" / "presets.sqlite")
    (tmp_path / "data" / "polydraft").mkdir(parents=True)
    model: Any = TableModel()
    model.tokenizer.fingerprint = WORDS.fingerprint

    def load(name: str) -> Autocomplete:
        if name == "table":
            return Autocomplete(model, bases=BaseShelf(WORDS.fingerprint), shelf=Shelf(model.tokenizer))
        load_model(name)
        raise AssertionError

    with answering(load, "table", loaded=True) as client:
        yield client


def drafts(client: TestClient) -> list[dict[str, Any]]:
    body = {"tab": "a", "n": int(time.monotonic() * 1000), "before": "abc", "settings": {"length": 2}}
    return [json.loads(line) for line in client.post("/api/drafts", json=body).text.splitlines()]


def choose(*paths: Path) -> None:
    from core.ngram.base import StoreChoice, choice_as_json, choice_file

    choice_file().write_text(choice_as_json(StoreChoice(tuple(map(ChosenStore, paths)))))


def test_a_pipe_as_base_store_keeps_no_thread(client: TestClient, tmp_path: Path, store: Path) -> None:
    os.mkfifo(tmp_path / "pipe.ngram")
    for _ in range(50):  # more than the server has threads
        refused = client.post("/api/base-stores/add", json={"file": str(tmp_path / "pipe.ngram")})
        assert (refused.status_code, "not a regular file" in refused.json()["message"]) == (409, True)
    choose(tmp_path / "pipe.ngram", store)
    pipe, other = client.get("/api/base-stores").json()["stores"]
    assert "not a regular file" in pipe["problem"]
    assert other["tokens"] > 100
    assert drafts(client)[-1]["type"] == "stats"


def test_drafts_do_not_wait_for_a_drive(
    client: TestClient, tmp_path: Path, store: Path, silent: Callable[[Path], None]
) -> None:
    (tmp_path / "drive").mkdir()
    silent(tmp_path / "drive")  # no thread but those for looking may meet it
    choose(*(tmp_path / "drive" / f"{i}.ngram" for i in range(7)), store)
    assert drafts(client)[-1]["type"] == "stats"
    rows = client.get("/api/base-stores").json()["stores"]
    assert ["is its drive connected" in row.get("problem", "") for row in rows] == [True] * 7 + [False]
    for path, body in (("base-stores/add", "file"), ("model", "model")):
        refused = client.post(f"/api/{path}", json={body: str(tmp_path / "drive" / "x")})
        assert (refused.status_code, "is its drive connected" in refused.json()["message"]) == (409, True)
    assert drafts(client)[-1]["type"] == "stats"


def test_drafts_do_not_wait_for_the_data_folder(
    client: TestClient, tmp_path: Path, silent: Callable[[Path], None]
) -> None:
    folder = tmp_path / "data" / "polydraft"
    assert client.post("/api/stores/create", json={"store": "me"}).status_code == 200
    assert drafts(client)[-1]["type"] == "stats"
    silent(folder)
    for path in ("stores", "base-stores"):
        refused = client.get(f"/api/{path}")
        assert (refused.status_code, "is its drive connected" in refused.json()["message"]) == (409, True)
    for _ in range(3):
        assert drafts(client)[-1]["type"] == "stats"
        assert "is its drive connected" in client.get("/api/status").json()["notice"]


def test_a_folder_on_a_drive_that_does_not_answer_keeps_no_thread(
    client: TestClient, tmp_path: Path, silent: Callable[[Path], None]
) -> None:
    folder = tmp_path / "data" / "polydraft"
    client.post("/api/documents/keep", json={"where": "files"})
    silent(folder / "documents")
    silent(folder / "models")
    for _ in range(50):  # more than the server has threads
        refused = client.get("/api/documents")
        assert (refused.status_code, "is its drive connected" in refused.json()["message"]) == (409, True)
        assert [model["name"] for model in client.get("/api/models").json()["models"]] == [
            "Default model", "models", "table",
        ]  # fmt: skip
    chosen = client.post("/api/model", json={"model": str(folder / "models")})
    assert (chosen.status_code, "is its drive connected" in chosen.json()["message"]) == (409, True)
    assert drafts(client)[-1]["type"] == "stats"


@pytest.mark.parametrize("name", ["~nosuch/x.gguf", "/" + "x" * 4000, "/dev/zero", "/proc/self/mem"])
def test_names_of_files_get_an_answer(client: TestClient, name: str) -> None:
    for path, body in (("base-stores/add", "file"), ("model", "model")):
        refused = client.post(f"/api/{path}", json={body: name})
        assert refused.status_code == 409
        assert refused.json()["message"]


def test_a_models_folder_with_anything_in_it_is_listed(client: TestClient, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "polydraft" / "models"
    (folder / "folder").mkdir(parents=True)
    os.mkfifo(folder / "folder" / "config.json")
    os.mkfifo(folder / "pipe.gguf")
    (folder / "circle.gguf").symlink_to(folder / "circle.gguf")
    (folder / "good.gguf").write_bytes(b"GGUF")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.gguf")).write_bytes(b"GGUF")
    response = client.get("/api/models")
    assert response.status_code == 200
    assert "good" in [model["name"] for model in response.json()["models"]]
