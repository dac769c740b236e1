"""The probe describes in one sentence how a child process ended: crashed, hung, failed or worked."""

from __future__ import annotations

import math
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from core.models import probe
from tests.table_model import TableModel

WORKS = """
import json
print("a line from native code")
print(json.dumps({"stage": "loading the model"}))
print(json.dumps({"ok": True, "reason": "", "seconds_per_step": 0.011}))
"""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Any:
    """child(code) makes the probe run that Python code and no model; returns the list of runs."""
    monkeypatch.setattr(probe, "_missing", lambda backend: "")

    def set_child(code: str) -> list[str]:
        runs: list[str] = []

        def command(backend: probe.Backend, model: str) -> list[str]:
            runs.append(model)
            return [sys.executable, "-c", code]

        monkeypatch.setattr(probe, "_command", command)
        return runs

    return set_child


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in place of a model; the other parts of the key are irrelevant here."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(probe, "_key", lambda path: f"{path} {path.stat().st_size}")
    return file


STAGE = """import os, signal, time; print('{"stage": "loading the model"}', flush=True); """
ENDS = {
    "a crash": (STAGE + "os.kill(os.getpid(), signal.SIGSEGV)", "it crashed with SIGSEGV while loading the model"),
    "a hang": (STAGE + "time.sleep(60)", "it did not answer within 2 s while loading the model"),
    "an exception": ("raise ValueError('no library')", "it ended with code 1 while starting: ValueError: no library"),
    "silence": ("", "it ended with code 0 while starting: no message"),
}


@pytest.mark.parametrize(("code", "said"), ENDS.values(), ids=ENDS)
def test_how_a_child_ended_is_said_in_a_clause(child: Any, code: str, said: str) -> None:
    child(code)
    assert probe.probe("llama.cpp", "model.gguf", timeout=2) == probe.ProbeResult(False, said)


def test_missing_package_is_reported_by_the_remembering_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(probe.metadata, "distribution", missing)
    (tmp_path / "model.gguf").touch()
    result = probe.probe_llama_cpp(tmp_path / "model.gguf", tmp_path)
    assert (result.ok, result.reason) == (False, "llama-cpp-python is not installed")


def test_missing_model_file_is_reported(child: Any, tmp_path: Path) -> None:
    runs = child(WORKS)
    result = probe.probe_llama_cpp(tmp_path / "absent.gguf", tmp_path)
    assert not result.ok
    assert runs == []


def test_good_result_is_remembered_until_the_file_changes(child: Any, gguf: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    child("raise SystemExit(3)")
    assert not probe.probe_llama_cpp(gguf, cache).ok
    runs = child(WORKS)
    first = probe.probe_llama_cpp(gguf, cache)
    assert (first.ok, first.seconds_per_step) == (True, 0.011)
    second = probe.probe_llama_cpp(gguf, cache)
    assert second == first
    assert len(runs) == 1
    gguf.write_bytes(b"GGUF, another one")
    assert probe.probe_llama_cpp(gguf, cache).ok
    (cache / "probe.json").write_bytes(b'{"key": "text"}')
    assert probe.probe_llama_cpp(gguf, cache) == first
    assert len(runs) == 3


def test_cache_that_cannot_be_written_costs_only_the_memory(child: Any, gguf: Path, tmp_path: Path) -> None:
    child(WORKS)
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert probe.probe_llama_cpp(gguf, tmp_path / "cache").ok


# --- the child's test of a model ----------------------------------------------------------------------


@pytest.fixture
def model() -> TableModel:
    return TableModel(vocabulary=26)


def test_model_whose_embeddings_mean_its_tokens_passes(model: TableModel) -> None:
    result = probe.measure(model)
    assert result.ok, result.reason
    assert result.seconds_per_step is not None and result.seconds_per_step > 0


def test_model_that_scales_its_embeddings_is_reported(model: TableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_nearest", lambda vectors: [0] * len(vectors))  # as if all of them were another token
    result = probe.measure(model)
    assert not result.ok
    assert "the model scales or changes its embeddings" in result.reason


@pytest.mark.parametrize("logit", [math.nan, 0.0])
def test_model_that_computes_nonsense_is_reported(model: TableModel, logit: float) -> None:
    model.table.fill_(logit)
    result = probe.measure(model)
    assert (result.ok, result.reason) == (False, "it computes logits that are not numbers, or all the same")


def test_child_that_meets_a_bad_file_reports_it(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"no GGUF at all")
    result = probe.probe("llama.cpp", str(bad), timeout=120)
    assert not result.ok
    assert "bad.gguf" in result.reason
