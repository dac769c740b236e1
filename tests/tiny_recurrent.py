"""Small random models with a recurrent memory, made by transformers and written as llama.cpp's converter writes them:
Mamba, whose layers all have one, and LFM2 and Qwen 3.5, which have attention beside it."""

from __future__ import annotations

from typing import Any

import gguf
import torch
from tiny_families import VOCAB, Fields, in_float32, real, whole
from tiny_gguf import ARRAY, I32, TEXT, U32, Field, Tensor, TinyGguf, byte_tokenizer
from transformers import Lfm2Config, MambaConfig, PreTrainedModel, Qwen3_5TextConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

CONTEXT = 512
WIDTH, INNER, LAYERS = 32, 64, 3
HEADS, HEAD = 2, 16
NAMES = ("mamba", "lfm2", "qwen35")


def module_of(name: str) -> PreTrainedModel:
    """A module of one of the NAMES, with random weights."""
    shared: dict[str, Any] = {
        "vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "tie_word_embeddings": True,
    }  # fmt: skip
    attending = shared | {
        "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": 1,
        "max_position_embeddings": CONTEXT,
    }  # fmt: skip
    if name == "mamba":
        config = MambaConfig(**shared, state_size=16, use_mambapy=False)
    elif name == "lfm2":
        config = Lfm2Config(
            **attending, conv_L_cache=3, block_auto_adjust_ff_dim=False,
            layer_types=["conv", "full_attention", "conv"],
        )  # fmt: skip
    else:
        rotation: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
        config = Qwen3_5TextConfig(
            **attending, head_dim=HEAD, linear_conv_kernel_dim=4, linear_key_head_dim=HEAD, linear_value_head_dim=HEAD,
            linear_num_key_heads=HEADS, linear_num_value_heads=HEADS,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            rope_parameters=rotation | {"mrope_section": [2, 1, 1]},
        )  # fmt: skip
    torch.manual_seed(5)
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    for key, parameter in module.named_parameters():
        if parameter.ndim > 1 and not key.endswith("A_log"):
            parameter.normal_(std=0.2)
    return module


def file_of(name: str) -> TinyGguf:
    """The file of one of the NAMES, with the weights of `module_of`."""
    module = module_of(name)
    fields = {"mamba": _mamba, "lfm2": _lfm2, "qwen35": _delta_net}[name](module.config)
    architecture = next(arch for arch, each in gguf.MODEL_ARCH_NAMES.items() if each == name)
    names = gguf.get_tensor_name_map(architecture, LAYERS)
    tensors: dict[str, Tensor] = {}
    for key, x in module.named_parameters():
        part, weight = _converted(key, x.float(), one_more=name.startswith("qwen"))
        place = names.get_name(part, try_suffixes=(".weight", ".bias"))
        assert place is not None, key
        tensors[place] = in_float32(weight)
    sizes: Fields = {
        "block_count": whole(LAYERS),
        "context_length": whole(CONTEXT),
        "embedding_length": whole(WIDTH),
        "vocab_size": whole(VOCAB),
    }
    stated = {f"{name}.{key}": each for key, each in (sizes | fields).items()}
    general = {"general.architecture": Field(TEXT, name), "general.name": Field(TEXT, "tiny")}
    return TinyGguf(general | stated | byte_tokenizer(), tensors)


def _converted(key: str, weight: torch.Tensor, one_more: bool) -> tuple[str, torch.Tensor]:
    """A weight as the converter writes it, by a name of transformers that gguf knows.

    Args:
        one_more: the converter adds 1 to the weights of norms, but for those inside of layers with a memory.
    """
    if key.endswith("A_log"):
        return key, -weight.exp()
    if key.endswith("dt_bias"):
        return key.replace("dt_bias", "dt_proj.bias"), weight
    if "conv" in key and weight.ndim == 3:
        return key, weight.squeeze(1)
    if one_more and key.endswith("norm.weight") and not key.endswith("linear_attn.norm.weight"):
        return key, weight + 1
    return key, weight


def _mamba(c: Any) -> Fields:
    return {
        "feed_forward_length": whole(0),
        "attention.head_count": whole(0),
        "attention.layer_norm_rms_epsilon": real(c.layer_norm_epsilon),
        "ssm.conv_kernel": whole(c.conv_kernel),
        "ssm.inner_size": whole(c.intermediate_size),
        "ssm.state_size": whole(c.state_size),
        "ssm.time_step_rank": whole(c.time_step_rank),
    }


def _lfm2(c: Any) -> Fields:
    heads = [1 if kind == "full_attention" else 0 for kind in c.layer_types]
    return {
        "feed_forward_length": whole(c.intermediate_size),
        "attention.head_count": whole(HEADS),
        "attention.head_count_kv": Field(ARRAY, (U32, heads)),
        "attention.layer_norm_rms_epsilon": real(c.norm_eps),
        "rope.freq_base": real(c.rope_parameters["rope_theta"]),
        "shortconv.l_cache": whole(c.conv_L_cache),
    }


def _delta_net(c: Any) -> Fields:
    rotation = c.rope_parameters
    return {
        "feed_forward_length": whole(c.intermediate_size),
        "attention.head_count": whole(HEADS),
        "attention.head_count_kv": whole(1),
        "attention.key_length": whole(HEAD),
        "attention.value_length": whole(HEAD),
        "attention.layer_norm_rms_epsilon": real(c.rms_norm_eps),
        "rope.freq_base": real(rotation["rope_theta"]),
        "rope.dimension_count": whole(int(HEAD * rotation["partial_rotary_factor"])),
        "full_attention_interval": whole(2),
        "ssm.conv_kernel": whole(c.linear_conv_kernel_dim),
        "ssm.state_size": whole(HEAD),
        "ssm.group_count": whole(HEADS),
        "ssm.time_step_rank": whole(HEADS),
        "ssm.inner_size": whole(HEADS * HEAD),
        "rope.dimension_sections": Field(ARRAY, (I32, [*rotation["mrope_section"], 0])),
    }
