"""`bench models` in a tiny shape: the files of each type run in compiled code and in llama.cpp."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from core.models import hf
from core.models.memory import return_freed
from research.bench import models
from research.bench.models import TYPES, FileShape, measure, write
from research.report import BenchOptions


def test_loading_keeps_no_memory_besides_the_model(tmp_path: Path) -> None:
    path, process = tmp_path / "model.gguf", psutil.Process()
    write(path, FileShape("qwen3", 1024, 8, 4, 128, 2816, 600, layers=4), "Q8_0")
    hf.load(path, "model")  # what the first load of a process imports is not the model's
    return_freed()
    before = process.memory_info().rss
    model = hf.load(path, "model")
    taken = process.memory_info().rss - before
    assert taken < 1.25 * path.stat().st_size
    assert model.open().feed([5]).isfinite().all()


def test_files_of_each_type_are_measured_beside_llama_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp is not built here")
    monkeypatch.setattr(models, "READ", 50)
    report = measure(BenchOptions(tiny=True, repetitions=1), lambda _: None)
    names = [target.name for target in report.targets]
    assert "default, int8, reading / llama.cpp" in names
    for kind in TYPES:
        assert f"tiny {kind}, 4 rows / llama.cpp" in names and f"tiny {kind}, memory / file" in names
    assert all(math.isfinite(target.value) for target in report.targets)
    json.dumps(report.as_dict(), allow_nan=False)


@pytest.mark.parametrize(("lanes", "target"), [(16, "<= 0.6"), (8, "<= 0.8"), (4, "<= 0.8")])
def test_the_target_of_reading_is_the_processors(lanes: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.native, "library", lambda: SimpleNamespace(polydraft_lanes=lambda: lanes))
    assert models._reading_target() == target


def test_the_target_of_many_rows_is_the_processors() -> None:
    about = ("flags : avx2", "flags : avx2 avx_vnni", "flags : avx512_vnni")
    assert [models._many_rows_target(each) for each in about] == ["", "<= 3", "<= 3"]
