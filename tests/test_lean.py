"""The Llama family without transformers' layers: the same logits and drafts, whatever mask and number of rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, MistralConfig, PreTrainedModel, Qwen2Config
from transformers.cache_utils import DynamicCache
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from core.models.lean import LeanLlama, why_not

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE),
    "llama with biases and wide heads": LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True, head_dim=16),
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
    "mistral": MistralConfig(**SHAPE, sliding_window=None),
    "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=True),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def module_of(config: LlamaConfig | MistralConfig | Qwen2Config) -> PreTrainedModel:
    torch.manual_seed(3)
    module = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for parameter in module.parameters():
        parameter.normal_(std=0.3) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.5)
    return module


def logits_of(module: PreTrainedModel | LeanLlama, **inputs: Tensor) -> Tensor:
    with torch.inference_mode():
        return module(past_key_values=DynamicCache(config=module.config), use_cache=True, **inputs).logits


@pytest.mark.parametrize("name", CONFIGS)
def test_a_lean_model_gives_the_logits_of_its_module(name: str) -> None:
    module = module_of(CONFIGS[name])
    assert why_not(module, torch.float32) == ""
    lean = LeanLlama(module, torch.float32)
    ids = torch.randint(0, 100, (3, 11))
    assert torch.allclose(logits_of(lean, input_ids=ids), logits_of(module, input_ids=ids), atol=1e-4)
    held = torch.ones(3, 11, dtype=torch.long)
    held[1, :4] = 0  # padded on the left
    places = (held.cumsum(1) - 1).clamp(min=0)
    given = {"input_ids": ids, "attention_mask": held, "position_ids": places}
    ours, theirs = logits_of(lean, **given), logits_of(module, **given)
    assert torch.allclose(ours[held.bool()], theirs[held.bool()], atol=1e-4)
    assert torch.isfinite(ours).all()


def test_any_mask_of_who_sees_whom_is_obeyed() -> None:
    module = module_of(CONFIGS["llama"])
    lean = LeanLlama(module, torch.float32)
    seen = torch.rand(2, 1, 7, 7).lt(0.5) | torch.eye(7, dtype=torch.bool)
    added = torch.zeros(seen.shape).masked_fill_(~seen, torch.finfo(torch.float32).min)
    ids = torch.randint(0, 100, (2, 7))
    theirs = logits_of(module, input_ids=ids, attention_mask=added)
    for mask in (seen, added):
        assert torch.allclose(logits_of(lean, input_ids=ids, attention_mask=mask), theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (MistralConfig(**SHAPE, sliding_window=8), "sliding window"),
        (Qwen2Config(**SHAPE, layer_types=["full_attention", "sliding_attention"], sliding_window=8), "sliding window"),
        (LlamaConfig(**SHAPE, hidden_act="gelu"), "gelu"),
    ],
)
def test_what_it_cannot_run_is_said(config: LlamaConfig, reason: str) -> None:
    assert reason in why_not(module_of(config), torch.float32)
