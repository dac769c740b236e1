"""`eval linearity`: the cosine of eq. 8 of Superposed Decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity

from app.evals import linearity
from app.evals.methods import Going, Method, to_the_end
from app.evals.options import Place
from core.models import Row, Sequence
from core.models.hf import load
from core.models.torch_model import TorchModel

PLACE = Place("test", [5, 6, 7], [8])


@pytest.fixture(scope="module")
def model(tiny_folder: Callable[[str], Path]) -> Iterator[TorchModel]:
    made = load(tiny_folder("llama"), "tiny", plain=True)
    made.watch((0, 1))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearity, "STEPS", 4)


def fixed(drafts: list[list[int]]) -> Method:
    def draft(sequence: Sequence, prefix: list[int], k: int, length: int, going: Going = to_the_end) -> list[list[int]]:
        return drafts

    return draft


def test_a_mixture_of_equal_drafts_is_that_draft(model: TorchModel) -> None:
    for (cosine, agreement), layers in linearity.compared(model, PLACE, fixed([[1, 2, 3, 4]] * 3)):
        assert (cosine, agreement) == (pytest.approx(1, abs=1e-5), pytest.approx(1))
        assert layers.tolist() == pytest.approx([1, 1], abs=1e-5)


def test_the_first_cosine_is_that_of_the_equation(model: TorchModel) -> None:
    drafts = [[1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]]
    (cosine, agreement), layers = next(linearity.compared(model, PLACE, fixed(drafts)))
    sequence = model.open()
    gamma = torch.softmax(sequence.feed(PLACE.before)[[1, 2, 4]], 0)
    own = [model.forward([Row(sequence.fork(), draft[:1])])[0] for draft in drafts]
    mixture = model.forward([Row(sequence, (gamma[:, None] * model.embeddings[[1, 2, 4]]).sum(0, keepdim=True))])[0]
    assert cosine == pytest.approx(float(cosine_similarity(mixture, gamma @ torch.stack(own), dim=0)), abs=1e-4)
    agreed = [float(g) for g, logits in zip(gamma, own, strict=True) if logits.argmax() == mixture.argmax()]
    assert agreement == pytest.approx(sum(agreed), abs=1e-5)
    assert layers[0] == pytest.approx(1, abs=1e-5), "the mixture of the embeddings is what enters the first layer"
    assert -1 <= layers[1] < 1


def test_every_layer_is_watched(model: TorchModel) -> None:
    assert linearity.watch_all(model) == tuple(range(model.depth))
