"""Small random models with a recurrent memory, written as llama.cpp's converter writes them: Mamba and RWKV 7, whose
layers all have one, and LFM2, Qwen 3.5 and Qwen3-Next, which have attention beside it. All but RWKV 7, which
transformers lacks, are made by transformers."""

from __future__ import annotations

from typing import Any

import gguf
import torch
from tiny_families import VOCAB, Fields, in_float32, real, whole
from tiny_gguf import ARRAY, I32, TEXT, U32, Field, Tensor, TinyGguf, byte_tokenizer
from transformers import Lfm2Config, MambaConfig, PreTrainedModel, Qwen3_5TextConfig, Qwen3NextConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

CONTEXT = 512
WIDTH, INNER, LAYERS = 32, 64, 3
HEADS, HEAD = 2, 16
EXPERTS = 2  # all of them used: which are the most probable may hang on the last digit of a sum
WIDE = 64  # of RWKV 7, with one head: llama.cpp computes 64 numbers of a head at a time
RANK = 8  # of its products of two matrices
NAMES = ("mamba", "lfm2", "qwen35", "qwen3next", "rwkv7")
BY_TRANSFORMERS = NAMES[:-1]


def module_of(name: str) -> PreTrainedModel:
    """A module of one of BY_TRANSFORMERS, with random weights."""
    shared: dict[str, Any] = {
        "vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "tie_word_embeddings": True,
    }  # fmt: skip
    rotation: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    attending = shared | {
        "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": 1,
        "max_position_embeddings": CONTEXT,
    }  # fmt: skip
    delta_net = attending | {
        "head_dim": HEAD, "linear_conv_kernel_dim": 4, "linear_key_head_dim": HEAD, "linear_value_head_dim": HEAD,
        "linear_num_key_heads": HEADS, "linear_num_value_heads": HEADS,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": rotation,
    }  # fmt: skip
    if name == "mamba":
        config = MambaConfig(**shared, state_size=16, use_mambapy=False)
    elif name == "lfm2":
        config = Lfm2Config(
            **attending, conv_L_cache=3, block_auto_adjust_ff_dim=False,
            layer_types=["conv", "full_attention", "conv"],
        )  # fmt: skip
    elif name == "qwen35":
        config = Qwen3_5TextConfig(**delta_net | {"rope_parameters": rotation | {"mrope_section": [2, 1, 1]}})
    else:
        config = Qwen3NextConfig(
            **delta_net, num_experts=EXPERTS, num_experts_per_tok=EXPERTS, moe_intermediate_size=HEAD,
            shared_expert_intermediate_size=HEAD,
        )  # fmt: skip
    torch.manual_seed(5)
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    for key, parameter in module.named_parameters():
        if parameter.ndim > 1 and not key.endswith("A_log"):
            parameter.normal_(std=0.2)
    return module


def file_of(name: str) -> TinyGguf:
    """The file of one of the NAMES; with the weights of `module_of`, if it has the name."""
    if name not in BY_TRANSFORMERS:
        return _written(name, _rwkv7(), _tensors_of_rwkv7())
    module = module_of(name)
    fields = {"mamba": _mamba, "lfm2": _lfm2, "qwen35": _delta_net, "qwen3next": _delta_net}[name](module.config)
    architecture = next(arch for arch, each in gguf.MODEL_ARCH_NAMES.items() if each == name)
    names = gguf.get_tensor_name_map(architecture, LAYERS)
    tensors: dict[str, Tensor] = {}
    for key, x in module.named_parameters():
        for part, weight in _converted(key, x.float(), one_more=name.startswith("qwen")):
            place = names.get_name(part, try_suffixes=(".weight", ".bias"))
            assert place is not None, key
            tensors[place] = in_float32(weight)
    return _written(name, fields, tensors)


def _written(name: str, fields: Fields, tensors: dict[str, Tensor]) -> TinyGguf:
    sizes: Fields = {
        "block_count": whole(LAYERS),
        "context_length": whole(CONTEXT),
        "embedding_length": whole(WIDTH),
        "vocab_size": whole(VOCAB),
    }
    stated = {f"{name}.{key}": each for key, each in (sizes | fields).items()}
    general = {"general.architecture": Field(TEXT, name), "general.name": Field(TEXT, "tiny")}
    return TinyGguf(general | stated | byte_tokenizer(), tensors)


def _converted(key: str, weight: torch.Tensor, one_more: bool) -> list[tuple[str, torch.Tensor]]:
    """A weight as the converter writes it, by names of transformers that gguf knows.

    Args:
        one_more: the converter adds 1 to the weights of norms, but for those inside of layers with a memory.
    """
    if key.endswith("A_log"):
        return [(key, -weight.exp())]
    if key.endswith("dt_bias"):
        return [(key.replace("dt_bias", "dt_proj.bias"), weight)]
    if "conv" in key and weight.ndim == 3:
        return [(key, weight.squeeze(1))]
    if one_more and key.endswith("norm.weight") and not key.endswith("linear_attn.norm.weight"):
        return [(key, weight + 1)]
    if key.endswith("shared_expert_gate.weight"):
        return [(key, weight.squeeze(0))]
    if key.endswith("experts.gate_up_proj"):
        gate, up = weight.chunk(2, dim=1)
        return [(key.replace("gate_up_proj", f"{name}_proj.weight"), x) for name, x in (("gate", gate), ("up", up))]
    if key.endswith("experts.down_proj"):
        return [(f"{key}.weight", weight)]
    if key.endswith("in_proj_qkvz.weight"):  # these four for each head
        *qkv, z = (part.flatten(0, 1) for part in weight.unflatten(0, (HEADS, -1)).chunk(4, dim=1))
        return [(key.replace("qkvz", "qkv"), torch.cat(qkv)), (key.replace("qkvz", "z"), z)]
    return [(key, weight)]


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
    """Of Qwen 3.5, and of Qwen3-Next, which has experts and turns by one position in place of three."""
    rotation = c.rope_parameters
    fields = {
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
    }
    if isinstance(c, Qwen3_5TextConfig):
        return fields | {"rope.dimension_sections": Field(ARRAY, (I32, [*rotation["mrope_section"], 0]))}
    return fields | {
        "expert_count": whole(EXPERTS),
        "expert_used_count": whole(EXPERTS),
        "expert_feed_forward_length": whole(c.moe_intermediate_size),
        "expert_shared_feed_forward_length": whole(c.shared_expert_intermediate_size),
    }


def _rwkv7() -> Fields:
    ranks = ("decay", "iclr", "value_residual_mix", "gate")
    return {
        "embedding_length": whole(WIDE),
        "feed_forward_length": whole(INNER),
        "attention.head_count": whole(0),
        "attention.layer_norm_epsilon": real(1e-5),
        "wkv.head_size": whole(WIDE),
        **{f"attention.{name}_lora_rank": whole(RANK) for name in ranks},
    }


def _tensors_of_rwkv7() -> dict[str, Tensor]:
    wide, square, down, up = (WIDE,), (WIDE, WIDE), (RANK, WIDE), (WIDE, RANK)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, WIDE), "output.weight": (VOCAB, WIDE)}
    norms = ["token_embd_norm", "output_norm"]
    for i in range(LAYERS):
        norms += [f"blk.{i}.{name}" for name in ("attn_norm", "attn_norm_2", "time_mix_ln")]
        of_layer: dict[str, tuple[int, ...]] = {
            **{f"time_mix_{name}": wide for name in ("w0", "a0", "v0", "k_k", "k_a", "r_k")},
            **{f"time_mix_{name}1": down for name in "wavg"},
            **{f"time_mix_{name}2": up for name in "wavg"},
            **{f"time_mix_{name}": square for name in ("key", "value", "receptance", "output")},
            "time_mix_lerp_fused": (6, 1, 1, WIDE),
            "channel_mix_lerp_k": (1, 1, WIDE),
            "channel_mix_key": (INNER, WIDE),
            "channel_mix_value": (WIDE, INNER),
        }
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in of_layer.items()}
    shapes |= {f"{name}.{part}": wide for name in norms for part in ("weight", "bias")}
    torch.manual_seed(5)
    return {
        name: in_float32(torch.randn(shape) * 0.3 + (1 if name.removesuffix(".weight") in norms else 0))
        for name, shape in shapes.items()
    }
