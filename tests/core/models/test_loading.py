"""The memory that a model's file takes when it is loaded."""

from __future__ import annotations

from pathlib import Path

import psutil

from core.memory import return_freed
from core.models import hf


def test_loading_keeps_no_memory_besides_the_model(default_gguf: Path) -> None:
    process = psutil.Process()
    hf.load(default_gguf, "default").close()  # what the first load of a process imports is not the model's
    return_freed()
    before = process.memory_info().rss
    model = hf.load(default_gguf, "default")
    assert process.memory_info().rss - before < 1.25 * default_gguf.stat().st_size
    assert model.open().feed([5]).isfinite().all()
    model.close()
