"""A GGUF file of the Llama family straight into compiled code, without transformers' layers in between.

transformers unpacks all weights, builds the module and fills it, which takes most of a start; here the file's tensors
are put in order as they are. What is not known for sure to mean the same (other architectures, scaled rotations,
experts, biases) goes the long way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from torch import Tensor, nn

from core.models import native
from core.models.coded import TYPES, Coded, Weight, joined
from core.models.hf_tokenizer import is_built
from core.models.native import LayerMaps, NativeLlama

PARTS = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
OTHERS = ("token_embd.weight", "output_norm.weight")  # and "output.weight", where that is not the first
THETA = 10000.0  # where a file says nothing
UNKNOWN = ("rope.scaling", "expert", "sliding_window")  # of what a file's fields say


@dataclass(frozen=True)
class Config:
    """What is asked of a transformers configuration, whose import takes longer than the file."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    max_position_embeddings: int

    def get_text_config(self) -> Config:
        return self


def fits(reader: GGUFReader) -> bool:
    """Whether the whole file stays as it is: then nothing else on this machine is known to run it as fast."""
    if not _known(reader):
        return False
    matrices = (tensor for tensor in reader.tensors if len(tensor.shape) == 2)
    return all(tensor.tensor_type in TYPES for tensor in matrices)


def _said(reader: GGUFReader, name: str, default: Any = None, of: str = "llama") -> Any:
    field = reader.get_field(f"{of}.{name}")
    return default if field is None else field.contents()


def _width(reader: GGUFReader) -> int:
    """Of a head."""
    return _said(reader, "attention.key_length") or _said(reader, "embedding_length") // _said(
        reader, "attention.head_count"
    )


def _known(reader: GGUFReader) -> bool:
    """Whether everything that the file says is understood here."""
    if _said(reader, "architecture", of="general") != "llama" or torch.cuda.is_available():
        return False
    if not is_built(*(_said(reader, key, of="tokenizer.ggml") for key in ("model", "pre"))):
        return False
    names = {tensor.name for tensor in reader.tensors} - {"output.weight"}
    layers = range(_said(reader, "block_count", 0))
    if names != {f"blk.{i}.{part}.weight" for i in layers for part in PARTS} | {*OTHERS}:
        return False
    if any(unknown in name for name in reader.fields for unknown in UNKNOWN):
        return False
    width = _width(reader)
    return _said(reader, "rope.dimension_count", width) == width and not native.why_not_width(width)


def read(reader: GGUFReader) -> NativeLlama | None:
    """The model, or None where transformers had better read the file."""
    if not _known(reader):
        return None
    said = partial(_said, reader)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    heads, dim, count, width = (
        said("attention.head_count"),
        said("embedding_length"),
        said("block_count"),
        _width(reader),
    )
    embeddings = _unpacked(tensors["token_embd.weight"])
    config = Config(
        hidden_size=dim,
        num_hidden_layers=count,
        num_attention_heads=heads,
        num_key_value_heads=said("attention.head_count_kv", heads),
        head_dim=width,
        intermediate_size=said("feed_forward_length"),
        rms_norm_eps=said("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=said("context_length"),
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
    return NativeLlama(config, table, _Rotation(said("rope.freq_base", THETA), width), layers, (output, None), norm)


class _Rotation(nn.Module):
    """Angles of rotary positions: input i of a head of width w turns by θ^(-2i/w) a position."""

    def __init__(self, theta: float, width: int) -> None:
        super().__init__()
        self._speeds = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width).repeat(2)  # (w,)

    def forward(self, _: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Positions (B, n) -> cosines and sines (B, n, w)."""
        angles = position_ids[..., None].float() * self._speeds
        return angles.cos(), angles.sin()


def _unpacked(tensor: Any) -> Tensor:
    return torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
