"""Transformers' layers with the weights of a GGUF file, of the families that compiled code knows.

They compute on a GPU, in training, and where compiled code does not run. transformers' own reader of GGUF files is not
used: it leaves out scaled rotations, windows and limits that files state, without an error. Here the configuration is
that of compiled code (`gguf_check.Config`), and so is the rotation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from core.errors import ModelFileError
from core.models.coded import weight_of
from core.models.families import PARTS
from core.models.gguf_check import Config, config_of
from core.models.gguf_file import GGUFFile, GGUFTensor
from core.models.llama import unpaired
from core.models.native_gguf import Rotation, rotations

USUAL_LENGTH = 2048  # positions, if the file states none
# The norms of families that have some after attention and the feed-forward part.
AFTER = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def read(file: GGUFFile, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """The module in evaluation mode, its weights on this device in this type.

    `native_gguf.why_not_read(file)` must be "". Raises ModelFileError for what transformers' layers do not compute.
    """
    c = config_of(file)
    if reason := _why_not(file, c):
        raise ModelFileError(f"{file.path} {reason}, which transformers' layers do not; choose another model.")
    module: Any
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(_config(file, c), dtype=dtype)
    for name, tensor in file.tensors.items():
        if not name.startswith("rope_"):  # factors of the rotation
            _set(module, name, _weight(c, name, tensor).to(device, dtype), c)
    if "output.weight" not in file.tensors:
        module.lm_head.weight = module.model.embed_tokens.weight
    body = module.model
    body.rotary_emb = Rotation(rotations(file, c)).to(device)
    if hasattr(body.embed_tokens, "embed_scale"):
        body.embed_tokens.embed_scale = torch.tensor(body.embed_tokens.scalar_embed_scale, device=device)
    for layer in body.layers:
        layer.self_attn.scaling = c.shape.of_scores
    if left := [name for name, x in [*module.named_parameters(), *module.named_buffers()] if x.is_meta]:
        raise ModelFileError(f"{file.path} has no weights for {left[0]}; choose another file of the model.")
    return module.eval()


def _why_not(file: GGUFFile, c: Config) -> str:
    """What this file states and compiled code alone computes, or ""."""
    if c.shape.attention_cap and file.architecture == "gemma3":
        return "limits attention scores"
    if c.shape.rotated != c.shape.width and file.architecture != "phi3":
        return "rotates a part of each head"
    return ""


def _config(file: GGUFFile, c: Config) -> Any:
    kind, s, length = file.architecture, c.shape, c.max_position_embeddings or USUAL_LENGTH
    rotation = {"rope_type": "default", "rope_theta": c.rope_theta}  # `Rotation` takes its place
    options: dict[str, Any] = {
        "vocab_size": c.vocab_size,
        "hidden_size": s.dim,
        "num_hidden_layers": c.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.key_heads,
        "head_dim": s.width,
        "intermediate_size": s.inner,
        "rms_norm_eps": s.eps,
        "max_position_embeddings": length,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.fields.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": None,
        "rope_parameters": rotation,
    }
    if kind == "llama" and s.window:
        kind, options["sliding_window"] = "mistral", s.window
    elif kind == "olmo2" and s.window:
        kind = "olmo3"
    elif kind == "phi3":
        options |= {"sliding_window": s.window or None, "rope_parameters": rotation | {"partial_rotary_factor": 1.0}}
    elif kind == "smollm3":
        still = c.family.no_rope
        options["no_rope_layers"] = [int((i + 1) % still != 0) for i in range(c.layers)]
    elif kind == "granite":
        options |= {"embedding_multiplier": c.embeddings, "residual_multiplier": s.residual}
        options["logits_scaling"] = 1 / s.logits
    elif kind in ("gemma2", "gemma3"):
        options |= {"attn_logit_softcapping": s.attention_cap or None, "final_logit_softcapping": s.logit_cap or None}
    if kind == "gemma3":
        kind = "gemma3_text"
    if kind in ("gemma2", "gemma3_text", "olmo3"):
        options["layer_types"] = ["sliding_attention" if near else "full_attention" for near in c.near]
        options["sliding_window"] = s.window or length
    if kind in ("gemma3_text", "olmo3"):
        options["rope_parameters"] = {"full_attention": rotation, "sliding_attention": rotation}
    return AutoConfig.for_model(kind, **options)


def _weight(c: Config, name: str, tensor: GGUFTensor) -> Tensor:
    """A tensor as transformers' layers have it, in float32."""
    family, part = c.family, name.split(".")[-2]
    weight = weight_of(tensor).float()
    if family.scaled_embeddings and "norm" in part:
        return weight - 1  # Gemma's layers add it
    if family.paired and part in ("attn_q", "attn_k"):
        return weight[unpaired(len(weight), c.shape.width, c.shape.turned)]
    return weight


def _set(module: nn.Module, name: str, weight: Tensor, c: Config) -> None:
    """Puts a tensor that the file calls `name` into its place. A map has a bias if the file has one."""
    *layer, part, kind = name.split(".")
    places = PARTS | (AFTER if c.family.norms != "before" else {})
    if c.family.fused:
        places = places | {"ffn_up": "mlp.gate_up_proj"}
    place = f"model.layers.{layer[1]}.{places[part]}" if layer else WHOLE[part]
    module.get_submodule(place).register_parameter(kind, nn.Parameter(weight, requires_grad=False))
