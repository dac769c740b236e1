"""Small random models of every family that compiled code knows: made by transformers, written as llama.cpp's converter
writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gguf
import numpy as np
import torch
from tiny_gguf import FLOAT, TEXT, U32, Field, Tensor, TinyGguf, byte_tokenizer
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Olmo3Config,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

CONTEXT = 192  # llama.cpp wants a position for each of 128 sequences
WINDOW = 7
VOCAB = len(byte_tokenizer()["tokenizer.ggml.tokens"].value[1])
WIDTH = 32
Fields = dict[str, Field]


@dataclass
class Tiny:
    """A family's configuration, and what its files state beside the sizes.

    Attributes:
        fields: by name, without the architecture.
        factors: tensors of the rotation, by name.
        paired: the converter puts the pairs of a rotation side by side.
        one_more: the converter adds 1 to the weights of norms.
    """

    architecture: str
    config: Callable[..., PreTrainedConfig]
    options: dict[str, Any] = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)
    factors: dict[str, list[float]] = field(default_factory=dict)
    paired: bool = False
    one_more: bool = False


def real(x: float) -> Field:
    return Field(FLOAT, x)


def whole(x: int) -> Field:
    return Field(U32, x)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 24}
LONG = [1.5 + i / 3 for i in range(12)]
NEAR: Fields = {"attention.sliding_window": whole(WINDOW)}
YARN: Fields = {
    "rope.scaling.type": Field(TEXT, "yarn"),
    "rope.scaling.factor": real(4.0),
    "rope.scaling.original_context_length": whole(48),
}
FAMILIES: dict[str, Tiny] = {
    "llama": Tiny("llama", LlamaConfig, paired=True),
    "llama with biases": Tiny("llama", LlamaConfig, {"attention_bias": True, "mlp_bias": True}, paired=True),
    "llama 3.2": Tiny(
        "llama",
        LlamaConfig,
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, **LLAMA3}, "tie_word_embeddings": True},
        factors={"rope_freqs": []},  # of the module
        paired=True,
    ),
    "llama, linear": Tiny(
        "llama",
        LlamaConfig,
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
        {"rope.scaling.type": Field(TEXT, "linear"), "rope.scaling.factor": real(4.0)},
        paired=True,
    ),
    "mistral": Tiny("llama", MistralConfig, {"sliding_window": WINDOW}, NEAR, paired=True),
    "qwen2": Tiny("qwen2", Qwen2Config, {"tie_word_embeddings": True, "hidden_size": 128}),
    "qwen3": Tiny("qwen3", Qwen3Config),
    "qwen3, yarn": Tiny(
        "qwen3",
        Qwen3Config,
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 48,
            }
        },
        YARN,
    ),
    "gemma": Tiny("gemma", GemmaConfig, {"tie_word_embeddings": True}, one_more=True),
    "gemma2": Tiny(
        "gemma2",
        Gemma2Config,
        {"sliding_window": WINDOW, "query_pre_attn_scalar": WIDTH, "tie_word_embeddings": True},
        {**NEAR, "attn_logit_softcapping": real(50.0), "final_logit_softcapping": real(30.0)},
        one_more=True,
    ),
    "gemma3": Tiny(
        "gemma3",
        Gemma3TextConfig,
        {
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": WIDTH,
            "num_hidden_layers": 6,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            },
        },
        {
            **NEAR,
            "rope.freq_base": real(1e6),
            "rope.scaling.type": Field(TEXT, "linear"),
            "rope.scaling.factor": real(8.0),
        },
        one_more=True,
    ),
    "smollm3": Tiny("smollm3", SmolLM3Config, {"num_hidden_layers": 4, "use_sliding_window": False}, paired=True),
    "phi3": Tiny(
        "phi3",
        Phi3Config,
        {
            "hidden_size": 128,
            "sliding_window": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
        },
        {"rope.dimension_count": whole(24)},
    ),
    "phi3, longrope": Tiny(
        "phi3",
        Phi3Config,
        {
            "hidden_size": 128,
            "sliding_window": None,
            "original_max_position_embeddings": 48,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.75,
                "short_factor": LONG,
                "long_factor": [2 * x for x in LONG],
                "original_max_position_embeddings": 48,
            },
        },
        {
            "rope.dimension_count": whole(24),
            "rope.scaling.original_context_length": whole(48),
            "rope.scaling.attn_factor": real(float((1 + np.log(CONTEXT / 48) / np.log(48)) ** 0.5)),
        },
        {"rope_factors_short": LONG, "rope_factors_long": [2 * x for x in LONG]},
    ),
    "olmo2": Tiny("olmo2", Olmo2Config, {"hidden_size": 128}),
    "olmo3": Tiny(
        "olmo2",
        Olmo3Config,
        {
            "hidden_size": 128,  # llama.cpp computes the width of a head from it here
            "sliding_window": WINDOW,
            "num_hidden_layers": 4,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {
                    "rope_type": "yarn",
                    "rope_theta": 1e4,
                    "factor": 4.0,
                    "original_max_position_embeddings": 48,
                },
            },
        },
        NEAR | YARN,
    ),
    "granite": Tiny(
        "granite",
        GraniteConfig,
        {
            "attention_multiplier": 0.11,
            "embedding_multiplier": 2.5,
            "residual_multiplier": 0.7,
            "logits_scaling": 3.0,
        },
        {
            "attention.scale": real(0.11),
            "embedding_scale": real(2.5),
            "residual_scale": real(0.7),
            "logit_scale": real(3.0),
        },
        paired=True,
    ),
}


def module_of(name: str, **options: Any) -> PreTrainedModel:
    tiny = FAMILIES[name]
    config = tiny.config(
        **{
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 96,
            "vocab_size": VOCAB,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "pad_token_id": None,
            "bos_token_id": None,
            "eos_token_id": None,
            "tie_word_embeddings": False,
            "head_dim": WIDTH,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        }
        | tiny.options
        | options
    )
    torch.manual_seed(5)
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    for parameter in module.parameters():
        parameter.normal_(std=0.15) if parameter.ndim > 1 else parameter.uniform_(0.3, 1.2)
    return module


def file_of(name: str, module: PreTrainedModel) -> TinyGguf:
    """The module as llama.cpp's converter writes it, in float32."""
    tiny, c = FAMILIES[name], module.config
    assert c is not None
    width = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    fields: Fields = {
        "block_count": whole(c.num_hidden_layers),
        "context_length": whole(c.max_position_embeddings),
        "embedding_length": whole(c.hidden_size),
        "feed_forward_length": whole(c.intermediate_size),
        "attention.head_count": whole(c.num_attention_heads),
        "attention.head_count_kv": whole(c.num_key_value_heads),
        "attention.key_length": whole(width),
        "attention.value_length": whole(width),
        "attention.layer_norm_rms_epsilon": real(c.rms_norm_eps),
        "rope.dimension_count": whole(width),
        "rope.freq_base": real(1e4),
        "vocab_size": whole(VOCAB),
    } | tiny.fields
    architecture = tiny.architecture
    names = gguf.get_tensor_name_map(
        next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), c.num_hidden_layers
    )
    tensors: dict[str, Tensor] = {}
    for key, x in module.named_parameters():  # without those that are tied
        base, _, kind = key.rpartition(".")
        found = names.get_name(base)
        assert found is not None, key
        weight = x.float()
        if tiny.paired and found.endswith(("attn_q", "attn_k")):
            heads = c.num_attention_heads if found.endswith("q") else c.num_key_value_heads
            weight = weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        if tiny.one_more and "norm" in found:
            weight = weight + 1
        tensors[f"{found}.{kind}"] = in_float32(weight)
    for factor, values in tiny.factors.items():
        tensors[f"{factor}.weight"] = in_float32(torch.tensor(values) if values else rope_factors(module))
    stated = {f"{architecture}.{key}": each for key, each in fields.items()}
    general = {"general.architecture": Field(TEXT, architecture), "general.name": Field(TEXT, "tiny")}
    return TinyGguf(general | stated | byte_tokenizer(), tensors)


def in_float32(x: torch.Tensor) -> Tensor:
    return Tensor(list(x.shape[::-1]), gguf.GGMLQuantizationType.F32, x.numpy().astype(np.float32).tobytes())


def rope_factors(module: Any) -> torch.Tensor:
    """By which llama 3 divides the speeds of its rotation."""
    speeds = module.model.rotary_emb.inv_freq
    return 1e4 ** -(torch.arange(0, WIDTH, 2) / WIDTH) / speeds
