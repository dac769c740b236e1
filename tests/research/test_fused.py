"""The static cache with fused layers gives what it gives without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from core.errors import BackendUnavailable
from core.models import hf
from core.models.base import Row
from core.models.static import StaticModel
from research.fused import FusedModel

pytestmark = pytest.mark.usefixtures("one_thread")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device here.")
ON_A_GPU = [pytest.mark.gpu, NO_GPU]


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=ON_A_GPU)])
def test_a_fused_step_gives_the_same(tiny_folder: Callable[[str], Path], compiler: str) -> None:
    """The first compiler only traces: a GPU's receives the same trace."""
    plain = hf.load(tiny_folder("compiled llama"), "tiny", torch.float32, plain=True)
    mixed = torch.tensor([[0.25, 0.75]]) @ plain.embeddings[[7, 8]]
    found: list[list[torch.Tensor]] = []
    for model in (
        StaticModel(plain, lines=2, capacity=64),
        FusedModel(plain, compiler, lines=2, capacity=64),
    ):
        a, b = model.open(), model.open()
        model.forward([Row(a, [1, 2, 3]), Row(b, [4, 5])])
        found.append(model.forward([Row(a, mixed), Row(b, [9])]))
        model.watch((0, 1, 1))
        a.rewind(0)
        for token in (1, 2):
            a.feed([token])
        torch.testing.assert_close(a.features[:, : plain.dim].cpu(), plain.embeddings[[1, 2]])  # type: ignore[index]
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=3e-4)
    with pytest.raises(BackendUnavailable, match="runs fused"):
        model.adapt([None])  # type: ignore[list-item]
