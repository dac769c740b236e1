"""`polydraft doctor`: every line is ok or has a remedy; the exit code reports whether any backend works."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from app.cli import doctor
from app.web import browser
from core.models.probe import Backend, ProbeResult

GOOD = ProbeResult(True, "", 0.011)
CRASHED = ProbeResult(False, "it crashed with SIGILL while evaluating the model")
MISSING = ProbeResult(False, "llama-cpp-python is not installed")


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> dict[Backend, ProbeResult]:
    """The result of each backend's probe; change it before the call. No model is loaded."""
    found: dict[Backend, ProbeResult] = {"torch": GOOD, "llama.cpp": GOOD}
    monkeypatch.setattr(doctor.probe, "probe", lambda backend, model, timeout: found[backend])
    return found


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    return str(tmp_path / "model.gguf")


def line(report: doctor.Diagnosis, name: str) -> doctor.Check:
    return next(check for check in report.checks if check.name == name)


def test_one_working_backend_is_enough_and_the_other_has_a_remedy(
    results: dict[Backend, ProbeResult], model: str
) -> None:
    results["llama.cpp"] = CRASHED
    report = doctor.diagnose(model)
    assert report.works
    check = line(report, "llama.cpp, this model")
    assert (check.status, check.found) == ("warn", CRASHED.reason)
    assert "make setup-llama" in check.advice


def test_no_working_backend_gives_exit_code_one_and_advice(
    results: dict[Backend, ProbeResult], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results["torch"] = ProbeResult(False, "it ended with code 1 while starting: no [torch] here")
    results["llama.cpp"] = MISSING
    assert doctor.run(model, json=False) == 1
    said = capsys.readouterr().out
    assert "No backend runs" in said
    assert "setup-llama" in said
    assert "[torch]" in said  # brackets are text, not markup


def test_every_line_that_is_not_ok_has_a_remedy(
    results: dict[Backend, ProbeResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    results.update({"torch": CRASHED, "llama.cpp": MISSING})
    monkeypatch.setattr(doctor.metadata, "version", missing)
    monkeypatch.setattr(doctor.metadata, "distribution", missing)
    monkeypatch.setattr(browser, "find_browser", lambda: None)
    monkeypatch.setattr(doctor, "MEMORY_WANTED", 1e9)
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    report = doctor.diagnose("default")
    wanting = {check.name for check in report.checks if check.status != "ok"}
    assert {"Memory", "Model", "llama-cpp-python", "Gradio", "Chromium", "Data folder"} <= wanting
    assert all(check.advice for check in report.checks if check.status != "ok")
    assert not report.works


def test_json_is_one_object_with_the_same_lines(
    results: dict[Backend, ProbeResult], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results["torch"] = results["llama.cpp"] = MISSING
    assert doctor.run(model, json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "doctor"
    assert [row["name"] for row in found["rows"]][:2] == ["Python", "System"]
    assert {"name", "status", "found", "advice"} == set(found["rows"][0])
    assert found["targets"][0]["met"] is False


def test_packages_for_cuda_that_the_machine_cannot_use_are_named(
    results: dict[Backend, ProbeResult], model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "nvidia_cudnn-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cudnn\nVersion: 1\n")
    (package / "RECORD").write_text("library.so,,\nmissing.so,,\n")
    with (tmp_path / "library.so").open("wb") as file:
        file.truncate(2_500_000_000)  # sparse
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)
    found = metadata.distributions(path=[str(tmp_path)])
    monkeypatch.setattr(doctor.metadata, "distributions", lambda: found)
    check = line(doctor.diagnose(model), "torch")
    assert (check.status, "with 2.5 GB of packages for CUDA" in check.found) == ("warn", True)
    assert "whl/cpu" in check.advice
