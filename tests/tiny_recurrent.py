"""Small random models with a recurrent memory, made by transformers and written as llama.cpp's converter writes them:
Mamba, whose layers all have one, and LFM2, which has attention beside it."""

from __future__ import annotations

from typing import Any

import gguf
import torch
from tiny_families import VOCAB, Fields, in_float32, real, whole
from tiny_gguf import ARRAY, TEXT, U32, Field, Tensor, TinyGguf, byte_tokenizer
from transformers import Lfm2Config, MambaConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

CONTEXT = 512
WIDTH, LAYERS = 32, 3
NAMES = ("mamba", "lfm2")


def module_of(name: str) -> PreTrainedModel:
    """A module of one of the NAMES, with random weights."""
    shared: dict[str, Any] = {
        "vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "tie_word_embeddings": True,
    }  # fmt: skip
    if name == "mamba":
        config = MambaConfig(**shared, state_size=16, use_mambapy=False)
    else:
        config = Lfm2Config(
            **shared, intermediate_size=64, num_attention_heads=2, num_key_value_heads=1, conv_L_cache=3,
            block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention", "conv"],
            max_position_embeddings=CONTEXT,
        )  # fmt: skip
    torch.manual_seed(5)
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    for key, parameter in module.named_parameters():
        if parameter.ndim > 1 and not key.endswith("A_log"):
            parameter.normal_(std=0.2)
    return module


def file_of(name: str) -> tuple[TinyGguf, PreTrainedModel]:
    """The file of one of the NAMES, and the module that it has the weights of."""
    module = module_of(name)
    fields = _mamba(module.config) if name == "mamba" else _lfm2(module.config)
    architecture = next(arch for arch, each in gguf.MODEL_ARCH_NAMES.items() if each == name)
    names = gguf.get_tensor_name_map(architecture, LAYERS)
    tensors: dict[str, Tensor] = {}
    for key, x in module.named_parameters():
        found = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert found is not None, key
        weight = x.float()
        if key.endswith("A_log"):
            weight = -weight.exp()
        if "conv" in key and weight.ndim == 3:
            weight = weight.squeeze(1)
        tensors[found] = in_float32(weight)
    stated = {f"{name}.{key}": each for key, each in fields.items()}
    general = {"general.architecture": Field(TEXT, name), "general.name": Field(TEXT, "tiny")}
    return TinyGguf(general | stated | byte_tokenizer(), tensors), module


def _mamba(c: Any) -> Fields:
    return {
        "block_count": whole(LAYERS),
        "context_length": whole(CONTEXT),
        "embedding_length": whole(WIDTH),
        "feed_forward_length": whole(0),
        "attention.head_count": whole(0),
        "attention.layer_norm_rms_epsilon": real(c.layer_norm_epsilon),
        "ssm.conv_kernel": whole(c.conv_kernel),
        "ssm.inner_size": whole(c.intermediate_size),
        "ssm.state_size": whole(c.state_size),
        "ssm.time_step_rank": whole(c.time_step_rank),
        "vocab_size": whole(VOCAB),
    }


def _lfm2(c: Any) -> Fields:
    heads = [1 if kind == "full_attention" else 0 for kind in c.layer_types]
    return {
        "block_count": whole(LAYERS),
        "context_length": whole(CONTEXT),
        "embedding_length": whole(WIDTH),
        "feed_forward_length": whole(c.intermediate_size),
        "attention.head_count": whole(2),
        "attention.head_count_kv": Field(ARRAY, (U32, heads)),
        "attention.layer_norm_rms_epsilon": real(c.norm_eps),
        "rope.freq_base": real(c.rope_parameters["rope_theta"]),
        "shortconv.l_cache": whole(c.conv_L_cache),
        "vocab_size": whole(VOCAB),
    }
