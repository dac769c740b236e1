"""Compiled code for the Llama family: its build and cache, and that it computes the same as transformers."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import cache_of, computed
from torch import Tensor
from transformers import LlamaConfig, MistralConfig, PreTrainedModel, Qwen2Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from core.models import native, static
from core.models.llama import NativeLlama, why_not
from core.models.native import Line
from core.models.native_library import COMPILERS
from core.models.static import StaticModel
from core.models.torch_model import TorchModel
from core.superposed import superpose, superpose_batch
from tests.paths import DATA

GOLDEN = json.loads((DATA / "spd_plain.json").read_text())

WIDTH = 16  # of a head: as wide as the widest vector
SHAPE = {
    "hidden_size": 42,  # no multiple of a panel, nor of a vector
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": WIDTH,
    "intermediate_size": 52,
    "vocab_size": 101,
    "max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE),
    "llama with biases and wide heads": LlamaConfig(
        **{**SHAPE, "head_dim": 48}, attention_bias=True, mlp_bias=True, rms_norm_eps=0.1
    ),
    "llama 3's rotation": LlamaConfig(
        **SHAPE,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 1e4,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "mistral, a key head for each query": MistralConfig(**{**SHAPE, "num_key_value_heads": 6}, sliding_window=None),
    "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=True),
}


def module_of(name: str, deviation: float = 0.3) -> PreTrainedModel:
    torch.manual_seed(3)
    module = AutoModelForCausalLM.from_config(CONFIGS[name]).eval().requires_grad_(False)
    for parameter in module.parameters():
        parameter.normal_(std=deviation) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.5)
    return module


def both(module: PreTrainedModel, made: NativeLlama, ids: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        return computed(made, ids), module(input_ids=ids, use_cache=False).logits


def test_the_structures_are_those_of_the_compiled_code() -> None:
    header = native.SOURCE.path.with_name("interface.h")
    names = re.findall(r"^struct (\w+)", header.read_text(), re.MULTILINE)
    lines = ["#include <cstddef>", f'#include "{header}"', f"static_assert(KINDS == {len(native.KINDS)});"]
    for name in names:
        of: type[ctypes.Structure] = getattr(native, f"_{name}")
        lines.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(of)});")
        for field, *_ in of._fields_:
            in_c = "in" if field == "inputs" and name != "Pass" else field  # a keyword of Python
            lines.append(f"static_assert(offsetof({name}, {in_c}) == {getattr(of, field).offset});")
    command = [COMPILERS[0], "-std=c++17", "-x", "c++", "-fsyntax-only", "-"]
    checked = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True)
    assert len(names) == 9
    assert not checked.returncode, checked.stderr


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers_layers(name: str) -> None:
    module = module_of(name)
    assert why_not(module) == ""
    torch.testing.assert_close(
        *both(module, NativeLlama.of(module, torch.float32), torch.randint(0, 101, (3, 11))), atol=1e-4, rtol=1e-4
    )


@settings(max_examples=20)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), min_size=1, max_size=4),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_lines_of_any_past_advance_by_any_number_of_inputs_on_any_number_of_threads(
    sizes: list[tuple[int, int]], threads: int, seed: int
) -> None:
    """30 inputs are more than are summed up in registers at once."""
    module = module_of("llama")
    made = NativeLlama.of(module, torch.float32)
    torch.manual_seed(seed)
    ids = [torch.randint(0, 101, (past + n,)) for past, n in sizes]
    caches = [cache_of(made, 1, past + n + 1) for past, n in sizes]
    total = sum(n for _, n in sizes)
    wanted = torch.arange(total)[torch.rand(total) < 0.5]
    embeddings = made.embeddings.rows
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            for (past, _), of_line, cache in zip(sizes, ids, caches, strict=True):
                if past:
                    computed(made, of_line[None, :past], cache=cache)
            logits, features = made(
                embeddings(torch.cat([of_line[past:] for (past, _), of_line in zip(sizes, ids, strict=True)])),
                torch.cat([torch.arange(past, past + n) for past, n in sizes]),
                [Line(cache[0], past, n) for (past, n), cache in zip(sizes, caches, strict=True)],
                wanted,
                (0, 1, 2),
            )
            expected = [module(input_ids=x[None], use_cache=False, output_hidden_states=True) for x in ids]
    finally:
        torch.set_num_threads(before)

    def new(of_each: Callable[[Any], Tensor]) -> Tensor:
        return torch.cat([of_each(found)[0, past:] for (past, _), found in zip(sizes, expected, strict=True)])

    torch.testing.assert_close(logits, new(lambda found: found.logits)[wanted], atol=1e-4, rtol=1e-4)
    hidden = new(lambda found: torch.cat(found.hidden_states[:2], -1))  # the third comes to transformers with its norm
    torch.testing.assert_close(features[:, :84], hidden, atol=1e-4, rtol=1e-4)
    last = new(lambda found: found.hidden_states[2])
    torch.testing.assert_close(module.model.norm(features[:, 84:]), last, atol=1e-4, rtol=1e-4)
    for (past, n), cache in zip(sizes, caches, strict=True):
        assert cache[..., past + n :, :].isnan().all()
        assert not cache[..., : past + n, :].isnan().any()


def test_any_mask_of_who_sees_whom_is_obeyed() -> None:
    module = module_of("llama")
    made = NativeLlama.of(module, torch.float32)
    seen = torch.rand(2, 7, 7).lt(0.5) | torch.eye(7, dtype=torch.bool)
    added = torch.zeros(2, 1, 7, 7).masked_fill_(~seen[:, None], torch.finfo(torch.float32).min)
    ids, positions = torch.randint(0, 101, (2, 7)), torch.randint(0, 9, (2, 7))
    ours = computed(made, ids, seen=seen, positions=positions)
    with torch.inference_mode():
        theirs = module(input_ids=ids, use_cache=False, attention_mask=added, position_ids=positions).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_the_largest_and_the_least_scores_of_attention_are_no_trouble() -> None:
    module = module_of("llama", deviation=8.0)
    ours, theirs = both(module, NativeLlama.of(module, torch.float32), torch.randint(0, 101, (1, 30)))
    assert torch.isfinite(ours).all()
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


def test_bfloat16_rounds_the_weights_and_nothing_else() -> None:
    """The same as transformers in float32 with weights that were rounded before."""
    module = module_of("llama with biases and wide heads")
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1 and "embed" not in name:
            parameter.copy_(parameter.bfloat16())
    ours, theirs = both(module, NativeLlama.of(module, torch.bfloat16), torch.randint(0, 101, (2, 15)))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_unsupported_models_are_reported() -> None:
    narrow = LlamaConfig(**{**SHAPE, "head_dim": 6})
    module = AutoModelForCausalLM.from_config(narrow)
    assert "heads are 6 wide" in why_not(module)
    mixed = Qwen2Config(**SHAPE, layer_types=["full_attention", "sliding_attention"], sliding_window=8)
    for config in (MistralConfig(**SHAPE, sliding_window=8), mixed):
        assert "sliding window" in why_not(AutoModelForCausalLM.from_config(config))
    assert "gelu" in why_not(AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE, hidden_act="gelu")))


# --- the default model


def test_the_default_model_read_straight_is_what_transformers_reads_and_computes(
    torch_model: TorchModel, plain_torch_model: TorchModel
) -> None:
    assert isinstance(torch_model.layers.module, NativeLlama)
    assert torch.equal(torch_model.embeddings, plain_torch_model.embeddings)
    assert torch_model.context_length == plain_torch_model.context_length
    assert torch_model.tokenizer.fingerprint == plain_torch_model.tokenizer.fingerprint
    assert torch_model.tokenizer.eos_ids == plain_torch_model.tokenizer.eos_ids
    for ids in (list(range(500, 540)), *(case["prefix_ids"] for case in GOLDEN["cases"][:3])):
        ours, theirs = (m.open().feed_every(ids) for m in (torch_model, plain_torch_model))
        assert torch.allclose(ours, theirs, atol=2e-3)  # 1e-4 measured


PAPER = {"distinct": False, "exact_steps": 0, "stop_ids": frozenset({GOLDEN["meta"]["eos_id"]})}


def test_on_transformers_layers_scores_are_the_authors_to_2e_4(plain_torch_model: TorchModel) -> None:
    for case in GOLDEN["cases"][::9]:
        *_, last = superpose(plain_torch_model, case["prefix_ids"], 3, 10, **PAPER)
        assert last.ids == case["drafts"]
        assert last.logprobs == pytest.approx(case["logprobs"], abs=2e-4)


def test_on_a_static_cache_the_default_models_drafts_are_the_authors(
    plain_torch_model: TorchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "COLUMNS", 64)
    cases = GOLDEN["cases"][:2]
    model = StaticModel(plain_torch_model, lines=3, capacity=64)
    *_, last = superpose_batch(model, [case["prefix_ids"] for case in cases], 3, 10, **PAPER)
    for drafts, case in zip(last, cases, strict=True):
        assert drafts.ids == case["drafts"]
        assert drafts.logprobs == pytest.approx(case["logprobs"], abs=5e-4)
