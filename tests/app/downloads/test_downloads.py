"""The download of a recommended model for the page: a real process, and a server on this machine in the Hub's place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient

from app.downloads.download import COMMAND, Downloads
from app.machine import offline
from core.errors import InputError
from core.models.costs import CostCurve
from core.models.recommended import Recommended
from tests.app.site import answering
from tests.fake_autocomplete import FakeAutocomplete
from tests.fake_hub import FILE, FakeHub, hub_of_the_page
from tests.waiting import until

TINY = Recommended("owner/tiny-GGUF:Q8_0", "Tiny", len(FILE), "For tests.")
OTHER = Recommended("owner/none:Q8_0", "None", 1000, "It is not there.")
HUGE = Recommended("owner/huge-GGUF:Q8_0", "Huge", 10**15, "No computer has so much memory.")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Iterator[FakeHub]:
    with hub_of_the_page(monkeypatch, TINY, OTHER, HUGE) as hub:
        yield hub


@pytest.fixture
def client(hub: FakeHub, without_gradio: None) -> Iterator[TestClient]:
    """The server's routes, with a model whose rows were timed."""
    drafting = FakeAutocomplete()
    drafting.row_costs = CostCurve((1, 4), (5.0, 8.0))
    with answering(lambda *_: drafting.real(), "default", loaded=True) as client:
        yield client
        client.post("/api/models/stop-download", json={})


def ended(client: TestClient) -> dict[str, Any]:
    def state() -> Any:
        state = client.get("/api/models/download").json()
        return state if state and not state["running"] else None

    return until(state)


def row(client: TestClient, name: str = TINY.name) -> dict[str, Any]:
    return next(each for each in client.get("/api/models/recommended").json()["recommended"] if each["name"] == name)


def test_nothing_connects_to_the_hub_before_the_click(hub: FakeHub, client: TestClient) -> None:
    found = client.get("/api/models/recommended").json()
    assert (found["serving"], found["download"], found["host"]) == ("default", None, hub.url.split("//")[1])
    assert [(each["title"], each["suits"], each["path"], each["come"]) for each in found["recommended"]] == [
        ("Tiny", True, "", 0),
        ("None", True, "", 0),
        ("Huge", False, "", 0),
    ]
    assert found["ms"] == 5 + 9 * 8 and found["recommended"][0]["ms"] == round(77 * len(FILE) / default_bytes())
    client.get("/api/models")
    client.get("/api/models/details")
    client.post("/api/models/stop-download", json={})
    assert client.get("/api/models/download").json() is None and not hub.asked


def default_bytes() -> int:
    from core.models.located import default_model_path

    return default_model_path().stat().st_size


def test_a_failed_download_says_why_in_the_commands_words(hub: FakeHub, client: TestClient) -> None:
    client.post("/api/models/download", json={"name": OTHER.name})
    assert ended(client)["message"] == (
        "owner/none has no GGUF file; choose another repository, often one whose name ends in -GGUF."
    )
    hub.fails = "page"
    client.post("/api/models/download", json={"name": TINY.name})
    assert "answered with a web page" in ended(client)["message"]


def test_the_page_downloads_recommended_models_alone(hub: FakeHub, client: TestClient) -> None:
    for name in ("another/tiny-GGUF:Q8_0", "", "http://127.0.0.1/x/y"):
        refused = client.post("/api/models/download", json={"name": name})
        assert refused.status_code == 422 and "polydraft models get" in refused.json()["fix"]
    assert not hub.asked


def test_an_environment_that_forbids_connections_forbids_this_one(
    hub: FakeHub, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "_switched", {"HF_HUB_OFFLINE": "1"})  # before Polydraft switched it on for itself
    client.post("/api/models/download", json={"name": TINY.name})
    assert "HF_HUB_OFFLINE is set" in ended(client)["message"] and not hub.asked


def test_the_server_itself_stays_offline_while_its_process_downloads(
    monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    monkeypatch.setattr(offline, "_switched", {})
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    offline.stay_offline()
    offline.stay_offline()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    env = offline.online()
    assert env["HF_HUB_OFFLINE"] == "0" and env["HF_HUB_DISABLE_TELEMETRY"] == "1"


def test_a_process_that_fails_is_said_with_its_last_line(tmp_path: Path) -> None:
    downloads = Downloads((sys.executable, "-c", "raise RuntimeError('broken')"))
    downloads.begin("a/b", tmp_path)
    until(lambda: not (downloads.state() or {})["running"])
    assert (downloads.state() or {})["message"] == "The download ended with an error: RuntimeError: broken"
    with pytest.raises(InputError, match="cannot be started"):
        Downloads((str(tmp_path / "none"),)).begin("a/b", tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such signal")
def test_the_process_ends_with_a_server_that_is_killed(hub: FakeHub, tmp_path: Path) -> None:
    hub.pause = 0.05
    script = (
        f"import subprocess, time; subprocess.Popen({[*COMMAND, TINY.name, str(tmp_path)]!r}, stdin=subprocess.PIPE);"
    )
    server = subprocess.Popen([sys.executable, "-c", f"{script} time.sleep(60)"])
    child = until(lambda: psutil.Process(server.pid).children())[0]
    until(lambda: hub.ranges)
    server.send_signal(signal.SIGKILL)
    server.wait()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
