"""`polydraft ngram build hf://…` against a server on this machine that answers as the Hub does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfFileSystem, constants
from typer.testing import CliRunner

from app.cli import ngram as ngram_cli
from app.cli.main import app
from app.machine import offline
from core.ngram import NgramStore
from ngram_builder.readers import files
from tests.fake_hub import FakeHub, fake_hub
from tests.ngram_tools import WordTokenizer

pytestmark = pytest.mark.usefixtures("small_process")
URL = "hf://datasets/owner/text/a.txt"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The Hub of this process, which a command finds offline, as every command does."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")  # and is restored
    monkeypatch.setattr(offline, "_switched", {"HF_HUB_OFFLINE": None, "TRANSFORMERS_OFFLINE": None})
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(ngram_cli, "_tokenizer", lambda name: (WordTokenizer(8), "words"))
    monkeypatch.setattr(files, "_PAUSE", 0.01)
    with fake_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        HfFileSystem.clear_instance_cache()
        yield server
    HfFileSystem.clear_instance_cache()


def built(folder: Path) -> Any:
    return CliRunner().invoke(app, ["ngram", "build", URL, "-o", str(folder / "x.ngram"), "--orders", "2-3"])


def test_a_data_set_of_the_hub_is_read_by_the_command(hub: FakeHub, tmp_path: Path) -> None:
    done = built(tmp_path)
    assert done.exit_code == 0, done.output
    assert NgramStore.open(tmp_path / "x.ngram").total([1, 2]) == 50


def test_a_user_who_forbids_connections_has_none(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "_switched", {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": None})
    done = built(tmp_path)
    assert done.exit_code == 1 and "offline mode is enabled" in done.stderr
    assert hub.asked == []


@pytest.mark.parametrize(
    ("fails", "said"),
    [("page", "does this network ask for a login?"), ("circle", "redirects"), (500, "500"), (404, "owner/text"),
     ("gone", "Connection refused")],
)  # fmt: skip
def test_whatever_the_network_does_ends_in_a_sentence(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Any, said: str
) -> None:
    hub.fails = fails
    if fails == "gone":
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    done = built(tmp_path)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
    assert done.stderr.startswith(f"Error: {URL} cannot be read: ") and said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_does_not_come_ends_in_a_sentence(hub: FakeHub, tmp_path: Path) -> None:
    for fails in (404, 403):
        HfFileSystem.clear_instance_cache()
        hub.spoils = fails
        done = built(tmp_path)
        assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
        assert not (tmp_path / "x.ngram").exists()
