"""A GGUF file of the Llama family straight into compiled code, without transformers' layers in between.

transformers unpacks all weights, builds the module and fills it, which takes most of a start; here the file's tensors
are put in order as they are. What is not known for sure to mean the same (other architectures, scaled rotations,
experts, biases) goes the long way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from core.models import native
from core.models.coded import Coded, Weight, joined
from core.models.native import LayerMaps, NativeLlama

PARTS = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
OTHERS = ("token_embd.weight", "output_norm.weight", "output.weight")
UNKNOWN = ("rope.scaling", "expert", "sliding_window")  # of what a file's fields say


def read(reader: GGUFReader) -> NativeLlama | None:
    """The model, or None where transformers had better read the file."""

    def said(name: str, default: Any = None) -> Any:
        field = reader.get_field(f"llama.{name}")
        return default if field is None else field.contents()

    architecture = reader.get_field("general.architecture")
    if architecture is None or architecture.contents() != "llama" or torch.cuda.is_available():
        return None
    count = said("block_count", 0)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    expected = {f"blk.{i}.{part}.weight" for i in range(count) for part in PARTS} | {*OTHERS[:2]}
    if tensors.keys() - {"output.weight"} != expected or any(u in name for name in reader.fields for u in UNKNOWN):
        return None
    heads, dim = said("attention.head_count"), said("embedding_length")
    width = said("attention.key_length", dim // heads)
    if said("rope.dimension_count", width) != width or native.why_not_width(width):
        return None
    embeddings = _unpacked(tensors["token_embd.weight"])
    config = LlamaConfig(
        hidden_size=dim,
        num_hidden_layers=count,
        num_attention_heads=heads,
        num_key_value_heads=said("attention.head_count_kv", heads),
        head_dim=width,
        intermediate_size=said("feed_forward_length"),
        rms_norm_eps=said("attention.layer_norm_rms_epsilon"),
        vocab_size=len(embeddings),
        max_position_embeddings=said("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": said("rope.freq_base", 10000.0)},
    )

    def of(name: str, pairs: bool = False) -> Weight:
        tensor = tensors[f"{name}.weight"]
        weight = Coded.of(tensor)
        found = _unpacked(tensor) if weight is None else weight
        if not pairs:
            return found
        order = native.unpaired(len(found), width)
        return found.rows(order) if isinstance(found, Coded) else found[order]

    def layer(name: str) -> LayerMaps:
        qkv = joined([of(f"{name}.attn_q", True), of(f"{name}.attn_k", True), of(f"{name}.attn_v")])
        out, gate, up, down = (of(f"{name}.{part}") for part in ("attn_output", "ffn_gate", "ffn_up", "ffn_down"))
        norms = (_unpacked(tensors[f"{name}.{part}.weight"]) for part in ("attn_norm", "ffn_norm"))
        return LayerMaps((qkv, None), (out, None), (gate, None), (up, None), (down, None), *norms)

    layers = [layer(f"blk.{i}") for i in range(count)]
    output = of("output" if "output.weight" in tensors else "token_embd")
    table = nn.Embedding.from_pretrained(embeddings)
    norm = _unpacked(tensors["output_norm.weight"])
    return NativeLlama(config, table, LlamaRotaryEmbedding(config), layers, (output, None), norm)


def _unpacked(tensor: Any) -> Tensor:
    return torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
