"""`eval linearity`: the cosine of eq. 8 of Superposed Decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from core.models import Row
from core.models.hf import load
from core.models.torch_model import TorchModel
from research.evals import linearity
from research.places import Place

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


def first_tokens(*tokens: int) -> linearity.Search:
    """The search that has these tokens after the first draft, with their own probabilities."""

    def search(totals: Tensor, logp: Tensor) -> tuple[list[int], list[int], Tensor]:
        return [0] * len(tokens), list(tokens), totals[0] + logp[0, list(tokens)]

    return search


def test_a_mixture_of_equal_drafts_is_that_draft(model: TorchModel) -> None:
    for (cosine, agreement), layers in linearity.compared(model, PLACE, first_tokens(1, 1, 1)):
        assert (cosine, agreement) == (pytest.approx(1, abs=1e-5), pytest.approx(1))
        assert layers.tolist() == pytest.approx([1, 1], abs=1e-5)


@pytest.mark.parametrize("search", linearity.SEARCHES.values(), ids=linearity.SEARCHES.keys())
def test_a_search_finds_the_probabilities_of_its_texts(model: TorchModel, search: linearity.Search) -> None:
    found: list[tuple[list[list[int]], Tensor]] = []

    def recorded(totals: Tensor, logp: Tensor) -> tuple[list[int], list[int], Tensor]:
        parents, tokens, totals = search(totals, logp)
        texts = found[-1][0] if found else [[]]
        found.append(([[*texts[p], t] for p, t in zip(parents, tokens, strict=True)], totals))
        return parents, tokens, totals

    list(linearity.compared(model, PLACE, recorded))
    texts, totals = found[-1]
    assert len({tuple(text) for text in texts}) == linearity.K
    for text, total in zip(texts, totals.tolist(), strict=True):
        sequence, logprob = model.open(), 0.0
        for at, token in enumerate(text):
            logits = sequence.sync(PLACE.before + text[:at])
            logprob += float(torch.log_softmax(logits.double(), 0)[token])
        sequence.close()
        assert total == pytest.approx(logprob, abs=1e-4)


def test_the_first_cosine_is_that_of_the_equation(model: TorchModel) -> None:
    (cosine, agreement), layers = next(linearity.compared(model, PLACE, first_tokens(1, 2, 4)))
    sequence = model.open()
    gamma = torch.softmax(sequence.feed(PLACE.before)[[1, 2, 4]], 0)
    own = [model.forward([Row(sequence.fork(), [token])])[0] for token in (1, 2, 4)]
    mixture = model.forward([Row(sequence, (gamma[:, None] * model.embeddings[[1, 2, 4]]).sum(0, keepdim=True))])[0]
    assert cosine == pytest.approx(float(cosine_similarity(mixture, gamma @ torch.stack(own), dim=0)), abs=1e-4)
    agreed = [float(g) for g, logits in zip(gamma, own, strict=True) if logits.argmax() == mixture.argmax()]
    assert agreement == pytest.approx(sum(agreed), abs=1e-5)
    assert layers[0] == pytest.approx(1, abs=1e-5), "the mixture of the embeddings is what enters the first layer"
    assert -1 <= layers[1] < 1


def test_every_layer_is_watched(model: TorchModel) -> None:
    assert linearity.watch_all(model) == tuple(range(model.depth))
