"""Embeddings stay as a file has them: rows are decoded when they are read, the whole table only where it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_families import file_of, module_of

from core.models import load_model
from core.models.base import LanguageModel
from core.models.coded import Coded
from core.models.embeddings import Embeddings
from core.speculative import calibration
from core.superposed import superpose


def test_numbers_that_a_factor_makes_infinite_are_not_finite() -> None:
    def rows(ids: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(ids), 2)

    assert Embeddings((3, 2), rows, 1e30, 1e8).finite
    assert not Embeddings((3, 2), rows, 1e30, 1e9).finite
    assert not Embeddings.of_tensor(torch.tensor([[1.0, torch.nan]])).finite
    assert not Embeddings.of_tensor(torch.tensor([[1.0, -torch.inf]])).finite
    assert Embeddings.of_tensor(torch.tensor([[1.0, -2.0]])).finite


@pytest.fixture(params=["gemma3, tied, times √D", "qwen3, untied", "llama.cpp"])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LanguageModel]:
    """A model that must not decode its table."""

    def refused(_: object) -> None:
        raise AssertionError("the whole table was decoded")

    if request.param == "llama.cpp":
        pytest.importorskip("llama_cpp", reason="llama.cpp is not built here")
    monkeypatch.setattr(Embeddings, "whole", refused)
    monkeypatch.setattr(Coded, "float", refused)
    family = request.param.split(",")[0] if "," in request.param else "qwen3"
    module = module_of(family, tie_word_embeddings="untied" not in request.param)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(file_of(family, module).written())
    if request.param == "llama.cpp":
        from core.models import llamacpp

        monkeypatch.setattr(llamacpp, "cores", lambda: 1)
        loaded = llamacpp.load(path, "tiny")
    else:
        loaded = load_model(str(path), "torch")
    yield loaded
    loaded.close()


def test_opening_a_model_and_drafting_decode_no_more_than_the_rows_that_are_read(model: LanguageModel) -> None:
    ids = [*range(5, 30)]
    *_, drafts = superpose(model, ids, k=3, length=5)
    assert len(drafts.ids) == 3
    assert len(model.fingerprint) == len(calibration.fingerprint(model)) == 64
    rows = model.embedded([3, 7, 3])
    sequence, other = model.open(), model.open()
    torch.testing.assert_close(sequence.feed([3, 7]), other.feed_embedding(rows[0]) * 0 + other.feed_embedding(rows[1]))
    rows.zero_()
    assert model.embedded([3]).abs().sum() > 0, "rows are copies"
