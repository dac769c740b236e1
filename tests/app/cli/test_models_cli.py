"""`polydraft models`: what it lists and what it advises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import app
from core.models import listed
from core.models.estimate import ONE_IN_LLAMA_CPP, Speed
from core.models.located import default_model_path
from core.models.on_machine import About, ModelFile
from core.models.recommended import PATIENCE, QUICK, RECOMMENDED, advice

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
    every, none = advice(None, 64 * 10**9), advice(None, 10**8)
    assert all(each.suits for each in every) and not any(each.fits or each.best for each in none)
    slow = advice(Speed(1e-6, 2e-6), 64 * 10**9)
    assert all(each.fits for each in slow) and not any(each.suits or each.best for each in slow)


def test_the_one_to_begin_with_is_the_largest_quick_one_or_the_smallest() -> None:
    def best(speed: Speed | None, memory: int = 64 * 10**9) -> list[str]:
        return [each.model.title for each in advice(speed, memory) if each.best]

    smallest, largest = (by(RECOMMENDED, key=lambda each: each.bytes) for by in (min, max))
    at = Speed(1, 1).ms(1)
    assert best(Speed(*[1e-9] * 2)) == [largest.title]
    assert best(Speed(*[QUICK / at / (smallest.bytes + 1e6)] * 2)) == [smallest.title]
    assert best(Speed(*[PATIENCE / at / (smallest.bytes + 1e6)] * 2)) == [smallest.title], "slow, and the only one"
    assert best(None) == [smallest.title], "the speed is unknown"


def test_a_recommended_model_is_known_by_the_name_of_its_file() -> None:
    smol, qwen = RECOMMENDED[:2]
    for name in ("SmolLM2-360M.Q8_0", "smollm2-360m-q8_0.gguf", "mradermacher--SmolLM2-360M-GGUF--SmolLM2-360M.Q8_0"):
        assert smol.names(name) and not qwen.names(name)
    assert qwen.names("Qwen3-0.6B-Base-Q8_0.gguf")
    for name in ("SmolLM2-360M.Q4_0", "SmolLM2-360M-Instruct.Q8_0", "xSmolLM2-360M.Q8_0", "SmolLM2-360M"):
        assert not smol.names(name)


@pytest.mark.usefixtures("machine")
def test_names_from_files_do_not_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ModelFile(default_model_path(), "[red]a\x1b[31m", "Ollama", 1)
    monkeypatch.setattr("core.models.on_machine.on_machine", lambda: [odd])
    monkeypatch.setattr("core.models.listed.read_about", lambda _: About("Q8_0", "[bold]\x1b]0;x\x07"))
    listed._of_file.cache_clear()
    text = CliRunner().invoke(app, ["models", "--no-speed"]).stdout
    listed._of_file.cache_clear()
    assert "[red]a\\x1b[31m" in text and "[bold]\\x1b]0;x\\x07" in text and "\x1b" not in text


def test_llama_cpp_takes_longer() -> None:
    assert SPEED.ms(100, 1, compiled=False) == pytest.approx(ONE_IN_LLAMA_CPP * SPEED.ms(100, 1))
