"""The static cache against the plain path: watched layers, drafts of many prefixes, and unsupported models."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest
import torch
from tiny_families import FAMILIES, module_of
from tiny_models import CONTEXT

from core.errors import BackendUnavailable, ContextFull
from core.models import hf, static
from core.models.base import Row
from core.models.static import StaticModel
from core.models.torch_model import TorchModel
from core.samplers import TopK
from core.superposed import superpose_batch
from tests.paths import DATA

GOLDEN = json.loads((DATA / "spd_plain.json").read_text())
PAPER = {"distinct": False, "exact_steps": 0, "stop_ids": frozenset({GOLDEN["meta"]["eos_id"]})}
LINES = 4
pytestmark = pytest.mark.usefixtures("small_scale")


@pytest.fixture(scope="module")
def plain(tiny_folder: Callable[[str], Path]) -> Callable[[str], TorchModel]:
    return cache(lambda kind: hf.load(tiny_folder(kind), kind, plain=True))


@pytest.fixture
def llama(plain: Callable[[str], TorchModel]) -> StaticModel:
    return StaticModel(plain("llama"), lines=LINES, capacity=CONTEXT)


def test_unsupported_models_run_as_before_with_a_notice(
    plain: Callable[[str], TorchModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "LEAST_POSITIONS", 8)
    assert isinstance(static.on_static_cache(plain("llama"), lines=2), StaticModel)
    served = static.on_static_cache(plain("bloom"), lines=2)  # it needs another mask
    assert (
        isinstance(served, TorchModel) and "bloom" in (served.notice or "") and "step by step" in (served.notice or "")
    )
    served = static.on_static_cache(plain("gpt2"), lines=2, share=1e-12)
    assert isinstance(served, TorchModel) and "memory for only 0 positions of 2" in (served.notice or "")


def test_full_lines_are_reported(llama: StaticModel) -> None:
    held = [llama.open() for _ in range(LINES)]
    for more in (llama.open, held[0].fork):
        with pytest.raises(ContextFull, match=f"All {LINES} lines"):
            more()
    for sequence in held:
        sequence.close()


# --- drafts


@pytest.mark.parametrize(
    "options",
    [
        {"forks": 3, "exact_steps": 2},
        {"reset_every": 2},
        {"rule": TopK(5)},
        PAPER,
    ],
    ids=["forks", "resets", "rule", "the paper's"],
)
def test_drafts_of_ragged_prefixes_are_those_of_the_plain_path(
    plain: Callable[[str], TorchModel], options: dict[str, object]
) -> None:
    model = StaticModel(plain("llama"), lines=20, capacity=CONTEXT)
    prefixes = [[1, 2, 3], list(range(30)), [7], list(range(50, 62)), [9, 8]]
    ours = list(superpose_batch(model, prefixes, 3, 6, **options))
    theirs = list(superpose_batch(plain("llama"), prefixes, 3, 6, **options))
    assert len(ours) == len(theirs) >= 6
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.ids == b.ids
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-3)
    assert sorted(model._free) == list(range(20))


def test_stopping_early_leaves_the_prefix_and_frees_the_lines(llama: StaticModel) -> None:
    sequence = llama.open()
    drafts = superpose_batch(llama, [[1, 2, 3]], 3, 6, sequences=[sequence], exact_steps=2)
    next(drafts)
    next(drafts)
    drafts.close()
    assert sequence.inputs == [1, 2, 3] and len(llama._free) == LINES - 1
    sequence.close()


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no CUDA device here.")
def test_a_captured_step_is_as_near_to_float32_as_the_plain_path(torch_model: TorchModel, default_gguf: Path) -> None:
    """Both round to 16 bits, in other orders; so neither is a reference for the other."""
    exact = hf.load(default_gguf, "default", torch.float32, plain=True)
    captured = StaticModel(torch_model, lines=8, capacity=128)
    prefixes = [case["prefix_ids"] for case in GOLDEN["cases"][:6]]
    vectors = [exact.embeddings[[token, token + 1]].mean(0, keepdim=True) for token in (100, 200, 300)]

    def steps(model: TorchModel | StaticModel) -> list[torch.Tensor]:
        held = [model.open() for _ in prefixes]
        model.forward([Row(s, p) for s, p in zip(held, prefixes, strict=True)])
        given = [vector.to(model.embeddings.dtype) for vector in vectors]  # the second and third are replays
        return [logits.float().cpu() for v in given for logits in model.forward([Row(s, v) for s in held])]

    expected = steps(exact)

    def error(model: TorchModel | StaticModel) -> float:
        """The mean difference of the ten best logits from float32's, in standard deviations of a step's logits."""
        best = [logits.topk(10).indices for logits in expected]
        pairs = zip(steps(model), expected, best, strict=True)
        return fmean(float((found[ids] - true[ids]).abs().mean() / true.std()) for found, true, ids in pairs)

    assert error(captured) < 1.5 * error(torch_model) < 0.15
    assert all(graph.graph is not None for graph in captured.graphs.captured.values())


def test_a_compiled_model_is_refused_in_words(tiny_folder: Callable[[str], Path]) -> None:
    with pytest.raises(BackendUnavailable, match="runs in compiled code on the CPU"):
        StaticModel(hf.load(tiny_folder("compiled llama"), "tiny"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_static_cache_gives_the_logits_of_every_familys_own_layers(
    plain: Callable[[str], TorchModel], family: str
) -> None:
    """These are the steps that are captured on CUDA."""
    module = module_of(family)
    served = StaticModel(TorchModel(module, plain("llama").tokenizer, family, CONTEXT), lines=3, capacity=CONTEXT)
    ids = [5, 17, 33, 60, 9, 2, 44, 70, 21, 8, 3, 90]  # past a window
    with torch.inference_mode():
        expected = module(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    sequence = served.open()
    torch.testing.assert_close(sequence.feed_every(ids[:9]), expected[:9], atol=1e-3, rtol=1e-3)
    fork = sequence.fork()
    for i in range(9, 12):
        of_both = served.forward([Row(sequence, [ids[i]]), Row(fork, served.embedded([ids[i]]))])
        for found in of_both:
            torch.testing.assert_close(found, expected[i], atol=1e-3, rtol=1e-3)
