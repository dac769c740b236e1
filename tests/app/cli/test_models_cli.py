"""`polydraft models`: what it lists and what it advises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from app.cli.models import recommendations
from core.models.estimate import ONE_IN_LLAMA_CPP, Speed
from core.models.load import default_model_path
from core.models.on_machine import ModelFile

SPEED = Speed(one=1e-7, four=2e-7)  # ms for a byte


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"x")
    found = [ModelFile(default_model_path(), "small", "Polydraft", 10**8), ModelFile(broken, "broken", "Ollama", 1)]
    monkeypatch.setattr("core.models.on_machine.on_machine", lambda: found)
    monkeypatch.setattr("core.models.estimate.measure", lambda: SPEED)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.usefixtures("machine")
def test_models_are_listed_with_their_types_and_the_time_of_a_key() -> None:
    found = json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)
    small, broken = found["models"]
    assert (small["type"], small["family"], small["compiled"]) == ("Q4_1", "llama", True)
    assert small["ms"] == round(10**8 * (SPEED.one + 9 * SPEED.four))
    assert (broken["compiled"], broken["ms"]) == (False, None) and broken["reason"]
    text = CliRunner().invoke(app, ["models", "--no-speed"]).stdout
    assert "Q4_1" in text and "Worth a download" in text
    assert all(each["name"] in text for each in found["recommended"]), "the names can be copied"
    assert found["recommended"][0]["name"].count("/") == 1


def test_advice_follows_memory_and_speed() -> None:
    every, none = recommendations(None, 64 * 10**9), recommendations(None, 10**8)
    assert all(each["suits"] for each in every) and not any(each["fits"] for each in none)
    slow = recommendations(Speed(1e-6, 2e-6), 64 * 10**9)
    assert all(each["fits"] for each in slow) and not any(each["suits"] for each in slow)


def test_llama_cpp_takes_longer() -> None:
    assert SPEED.ms(100, 1, compiled=False) == pytest.approx(ONE_IN_LLAMA_CPP * SPEED.ms(100, 1))
