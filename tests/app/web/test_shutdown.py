"""What outlives a closed model: llama.cpp's tokenizer, which an adding of text may still use."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest


def test_llama_cpps_tokenizer_works_after_its_model_was_closed(
    default_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.models import llamacpp

    freed: list[object] = []
    really = llamacpp.lib.llama_model_free
    monkeypatch.setattr(llamacpp.lib, "llama_model_free", lambda pointer: (freed.append(pointer), really(pointer)))
    model = llamacpp.load(default_gguf, "default")
    tokenizer = model.tokenizer
    expected = tokenizer.encode("Once upon a time")
    model.close()
    del model
    gc.collect()
    assert not freed
    assert tokenizer.encode("Once upon a time") == expected
    del tokenizer
    gc.collect()
    assert len(freed) == 1
