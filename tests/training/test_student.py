"""What an adapter is trained by: gradients of every family, and counted tokens alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from tiny_families import FAMILIES, VOCAB, file_of, module_of

from core.models import hf, load_model
from core.models.adapter import PROJECTIONS, Adapter, Result
from training.adapter import AdapterRecipe, Student

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = AdapterRecipe(rank=2, places=tuple(PROJECTIONS), length=64, batch=2, rate=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_trained_and_compiled_code_computes_the_result(family: str, tmp_path: Path) -> None:
    module = module_of(family)
    ids = torch.randint(0, VOCAB - 2, (2, 24), generator=torch.Generator().manual_seed(3))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(file_of(family, module).written())
    with torch.no_grad():
        expected = module(input_ids=ids, use_cache=False).logits[:, :-1].log_softmax(-1)
    student = Student(module, QUICK, torch.float32)
    expected = expected.gather(2, ids[:, 1:, None])[..., 0]
    assert float(student.loss(ids).detach()) == pytest.approx(-float(expected.mean()), abs=1e-4)
    torch.manual_seed(0)
    for each in student.parameters:
        torch.nn.init.normal_(each, std=0.1)
    student.loss(ids).backward()
    ours = [each.grad.clone() for each in student.parameters if each.grad is not None]
    for each in student.parameters:
        each.grad = None
    logits = module(input_ids=ids, use_cache=False).logits[:, :-1]
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    for mine, each in zip(ours, student.parameters, strict=True):
        torch.testing.assert_close(mine, each.grad, atol=1e-5, rtol=1e-3)
    with closing(load_model(str(path), "torch")) as model:
        model.adapt([(Adapter(student.maps(), QUICK.alpha, model.fingerprint, Result(1, 1, 1.0, 0.0)), 1.0)])
        found = model.open().feed_every(ids[0].tolist())[:-1].log_softmax(-1)
    found = found.gather(1, ids[0, 1:, None])[:, 0]
    torch.testing.assert_close(student.logprobs(ids[0]), found, atol=2e-3, rtol=1e-3)


def test_only_counted_tokens_are_trained(tiny_folder: Callable[[str], Path]) -> None:
    student = Student(hf.load(tiny_folder("compiled llama"), "tiny", plain=True).layers.module, QUICK, torch.float32)
    ids = torch.randint(0, 256, (1, 16), generator=torch.Generator().manual_seed(3))
    counted = torch.zeros(1, 16, dtype=torch.bool)
    counted[0, [3, 9]] = True
    expected = -student.logprobs(ids[0])[[2, 8]].mean()
    assert float(student.loss(ids, counted).detach()) == pytest.approx(float(expected), abs=1e-5)
