"""Loads a GGUF file of the Llama family directly into compiled code, without transformers' layers in between.

transformers unpacks all weights, builds the module and fills it, which takes most of a start; here the file's tensors
are rearranged in their own format. Files with other features (other architectures, scaled rotations,
experts, biases) are loaded with transformers. `gguf_check` has checked that tensors and metadata agree.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from core.models import gguf_check
from core.models.coded import TYPES, Coded, Weight, joined
from core.models.gguf_check import FAMILY, config_of, table
from core.models.gguf_file import GGUFFile
from core.models.hf_tokenizer import is_built
from core.models.llama import NativeLlama, unpaired
from core.models.native import LayerMaps, why_not_width

UNKNOWN = ("rope.scaling", "expert", "sliding_window")  # unsupported if they occur in a file's fields


def fits(file: GGUFFile) -> bool:
    """Whether the whole file keeps its format; no other engine on this machine is known to run it as fast then."""
    if not _known(file):
        return False
    matrices = (tensor for tensor in file.tensors.values() if len(tensor.shape) == 2)
    return all(tensor.kind in TYPES for tensor in matrices)


def _known(file: GGUFFile) -> bool:
    """Whether every feature of the file is supported here. Raises ModelFileError as `gguf_check.check` does."""
    if file.architecture != FAMILY or torch.cuda.is_available():
        return False
    if not is_built(*(file.fields.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))):
        return False
    gguf_check.check(file)
    config = config_of(file)
    if file.tensors.keys() | {"output.weight"} != table(config).keys():
        return False
    if any(unknown in name for name in file.fields for unknown in UNKNOWN):
        return False
    width = config.head_dim
    return file.stated("rope.dimension_count", width) == width and not why_not_width(width)


def read(file: GGUFFile) -> NativeLlama | None:
    """The model, or None if transformers must read the file. Raises ModelFileError."""
    if not _known(file):
        return None
    config, tensors = config_of(file), file.tensors

    def plain(name: str) -> Tensor:
        return torch.from_numpy(tensors[f"{name}.weight"].unpacked())

    def of(name: str, pairs: bool = False) -> Weight:
        weight = Coded.of(tensors[f"{name}.weight"])
        found = plain(name) if weight is None else weight
        if not pairs:
            return found
        order = unpaired(len(found), config.head_dim)
        return found.rows(order) if isinstance(found, Coded) else found[order]

    def layer(name: str) -> LayerMaps:
        qkv = joined([of(f"{name}.attn_q", True), of(f"{name}.attn_k", True), of(f"{name}.attn_v")])
        out, gate, up, down = (of(f"{name}.{part}") for part in ("attn_output", "ffn_gate", "ffn_up", "ffn_down"))
        norms = (plain(f"{name}.{part}") for part in ("attn_norm", "ffn_norm"))
        return LayerMaps((qkv, None), (out, None), (gate, None), (up, None), (down, None), *norms)

    layers = [layer(f"blk.{i}") for i in range(config.num_hidden_layers)]
    table = of("token_embd")
    output = of("output") if "output.weight" in tensors else table
    embeddings = nn.Embedding.from_pretrained(table.decoded() if isinstance(table, Coded) else table)
    rotation = _Rotation(config.rope_theta, config.head_dim)
    return NativeLlama(config, embeddings, rotation, layers, (output, None), plain("output_norm"))


class _Rotation(nn.Module):
    """Angles of rotary positions: input i of a head of width w turns by θ^(-2i/w) per position."""

    def __init__(self, theta: float, width: int) -> None:
        super().__init__()
        self._speeds = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width).repeat(2)  # (w,)

    def forward(self, _: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Positions (B, n) -> cosines and sines (B, n, w)."""
        angles = position_ids[..., None].float() * self._speeds
        return angles.cos(), angles.sin()
